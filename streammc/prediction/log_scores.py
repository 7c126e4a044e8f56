"""Log predictive densities: logs of the density of each response averaged over draws."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import LINK_TYPE, design_view, f8, jit, matrix, vector
from streammc.protocols import Model, Vector

NEAR_ONE: Final = 0.999
"""Probability p of a 1 above which ``1 - p`` has lost digits; the link is used instead."""
_cube: Any = types.Array(f8, 3, "C")


@jit(types.void(LINK_TYPE, _cube, design_view, vector, vector, matrix, matrix, matrix), borrow=True)
def log_densities(link, eta, X, y, constants, some, out, values):  # type: ignore[no-untyped-def]
    """Write log densities (S, m) at ``eta`` (p, m, S) to ``values``; ``some``, ``out``: buffers."""
    for s in range(values.shape[0]):
        for a in range(some.shape[0]):
            for i in range(some.shape[1]):
                some[a, i] = eta[a, i, s]
        link(some, X, y, constants, 0, out)
        for i in range(some.shape[1]):
            values[s, i] = out[0, i]


def log_chance(y: Vector, chance: Vector) -> Vector:
    """Return ``y log p + (1 - y) log(1 - p)`` (m,) for the averaged probability p of a 1.

    Accurate up to p = ``NEAR_ONE``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ones = np.where(y > 0.0, y * np.log(chance), 0.0)
        return ones + np.where(y < 1.0, (1.0 - y) * np.log1p(-chance), 0.0)


def add_scores(log_density: Vector, weight: Vector, scores: Vector) -> None:
    """Add to ``scores`` (3,): weighted sum of log densities (m,), sum of weights, NaN rows."""
    lost = np.isnan(log_density)
    used = ~lost & (weight > 0.0)
    scores[0] += float((weight[used] * log_density[used]).sum())
    scores[1] += float(weight.sum())
    scores[2] += float(lost.sum())


def log_average(
    model: Model, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, weights: Vector | None
) -> Vector:
    """Return ``log(sum_s w_s p(y | eta_s) / sum_s w_s)`` (m,); NaN if signs make the sum < 0."""
    p, m, draws = eta.shape
    design = np.asarray(X, dtype=np.float64).T
    out = np.empty((1 + p + p * (p + 1) // 2, m))
    values = np.empty((draws, m))
    some = np.empty((p, m))
    log_densities(
        model.link, np.ascontiguousarray(eta), design, y, model.constants, some, out, values
    )
    top = values.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    density = np.exp(values - top)
    average = density.mean(axis=0) if weights is None else (weights / weights.sum()) @ density
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Vector = np.log(average) + top
    return found
