"""Populations of terms with mean 0 and standard deviation 1, by their tails."""

from __future__ import annotations

import math

import numpy as np


def population(kind: str, size: int) -> np.ndarray:
    """Return (size,) terms: ``normal``, ``skewed``, ``heavy`` or ``rare``."""
    grid = (np.arange(size) + 0.5) / size
    rng = np.random.default_rng(5)
    if kind == "normal":
        from scipy.special import ndtri

        x = ndtri(grid)
    elif kind == "skewed":
        x = -np.log1p(-grid)
    elif kind == "heavy":
        from scipy.special import ndtri

        x = np.exp(1.5 * ndtri(grid))
    else:
        x = np.where(np.arange(size) < max(2, size // 250), 10.0, 0.1 * rng.standard_normal(size))
    x = (x - x.mean()) / x.std()
    return np.ascontiguousarray(rng.permutation(x))


def metropolis(delta: float) -> float:
    """Return the probability of acceptance."""
    return min(1.0, math.exp(delta))
