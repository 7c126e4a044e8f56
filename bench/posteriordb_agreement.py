"""How far draws are from reference draws, in standard errors of the difference."""

from __future__ import annotations

from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray


def error(draws: NDArray[np.float64], method: str) -> float:
    """Return the Monte Carlo standard error of the mean or sd of draws (chain, draw)."""
    return float(array_stats.mcse(np.ascontiguousarray(draws), method=method))


def z_scores(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], labels: list[str]
) -> dict[str, tuple[float, float]]:
    """Return z of mean and sd per label; draws are (chain, draw, d), NaN where not recorded."""
    found: dict[str, tuple[float, float]] = {}
    for at, label in enumerate(labels):
        a, b = ours[:, :, at], theirs[:, :, at]
        if np.isnan(b).any():
            continue
        z: list[Any] = []
        for method, statistic in (("mean", np.mean), ("sd", np.std)):
            spread = np.hypot(error(a, method), error(b, method))
            z.append(float((statistic(a) - statistic(b)) / spread))
        found[label] = (z[0], z[1])
    return found
