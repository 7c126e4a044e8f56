"""Pareto-smoothed importance weights (PSIS; Vehtari et al. 2024, JMLR 25).

The largest ``M`` of ``n`` weights are fitted by a generalised Pareto density above the next one,
by the empirical Bayes estimate of Zhang and Stephens 2009 (Technometrics 51, 316-325) with a weak
prior of the shape, ``k = (M k' + 5) / (M + 10)``; smoothing replaces them by the quantiles of the
fit. The numbers are those of ArviZ, which takes 1 s of processor time to import, with SciPy's
statistics and Matplotlib: half of a short run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Vector

_SMALL_SAMPLE = 225
"""Up to here the tail has n / 5 draws, above 3 sqrt(n)."""


def tail_count(n: int) -> int:
    """Return the number of weights of the tail, of ``n`` weights."""
    return n // 5 if n <= _SMALL_SAMPLE else int(3.0 * np.sqrt(n))


def smoothed(log_weight: NDArray[np.float64]) -> tuple[Vector, float]:
    """Return the smoothed logarithms of weights, and the shape ``k`` of their tail.

    Parameters
    ----------
    log_weight
        (n,) logarithms of the weights, up to a constant; at least 25, whose tail is not of equal
        weights.

    Returns
    -------
    tuple
        The logarithms (n,) of weights with the sum 1, and ``k``; where ``k`` is not finite,
        nothing is smoothed.
    """
    from scipy.special import logsumexp

    relative: Vector = log_weight - np.max(log_weight)
    count = tail_count(len(relative))
    order = np.argsort(relative)
    largest = relative[order[-count:]]
    cutoff = np.exp(relative[order[-count - 1]])
    k, sigma = _fit(np.exp(largest) - cutoff)
    if np.isfinite(k):
        share = np.arange(0.5, count) / count
        with np.errstate(all="ignore"):
            tail = np.log(cutoff + _quantile(share, k, sigma))
        tail[tail > largest[-1]] = largest[-1]
        relative[order[-count:]] = tail
    return relative - logsumexp(relative), k


def _fit(excess: Vector) -> tuple[float, float]:
    """Return shape and scale of a generalised Pareto density for sorted values (M,)."""
    from scipy.special import logsumexp

    count = len(excess)
    n_points = 30 + int(count**0.5)
    with np.errstate(all="ignore"):
        points = 1 - np.sqrt(n_points / (np.arange(1, n_points + 1, dtype=np.float64) - 0.5))
        points /= 3 * excess[int(count / 4 + 0.5) - 1]
        points += 1 / excess[-1]
        shapes = np.mean(np.log1p(-points[:, None] * excess), axis=1)
        log_profile = count * (np.log(-points / shapes) - shapes - 1)
        weight = np.exp(log_profile - logsumexp(log_profile))
        kept = weight >= 10 * np.finfo(np.float64).eps
        weight, points = weight[kept], points[kept]
        weight /= weight.sum()
        point = np.sum(points * weight)
        k = np.mean(np.log1p(-point * excess))
        sigma = -k / point
    return float((count * k + 5.0) / (count + 10)), float(sigma)


def _quantile(share: Vector, k: float, sigma: float) -> Vector:
    """Return quantiles of the generalised Pareto density, NaN without a positive scale."""
    if sigma <= 0:
        return np.full_like(share, np.nan)
    found = -np.log1p(-share) if k == 0 else np.expm1(-k * np.log1p(-share)) / k
    return np.asarray(sigma * found)
