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

from streammc.protocols import Matrix, Vector

_SMALL_SAMPLE = 225
"""Up to here the tail has n / 5 draws, above 3 sqrt(n)."""
_ENTRIES = 2**18
"""Terms of the fits of a tile of rows: 2 MB."""


def tail_count(n: int, relative_size: float = 1.0) -> int:
    """Return the number of weights of the tail, of ``n`` weights.

    ``relative_size``: effective sample size of the draws over their number.
    """
    if n * relative_size <= _SMALL_SAMPLE:
        return n // 5
    return int(3.0 * np.sqrt(n / relative_size))


def smoothed_rows(
    log_weight: NDArray[np.float64], relative_size: float = 1.0
) -> tuple[Matrix, Vector]:
    """Return the smoothed logarithms of the weights of each row, and the shapes ``k`` (m,).

    ``log_weight`` (m, n) are up to a constant in each row; n is at least 25. The results are
    logarithms of weights whose sum is 1 in each row; a row whose ``k`` is not finite, such as one
    with a tail of equal weights, is not smoothed. ``relative_size``: see :func:`tail_count`.
    """
    m, n = log_weight.shape
    count = min(tail_count(n, relative_size), n - 1)
    out, shape = np.empty((m, n)), np.empty(m)
    step = max(_ENTRIES // (count * (30 + int(count**0.5))), 1)
    for low in range(0, m, step):
        here = slice(low, low + step)
        out[here], shape[here] = _smoothed_tile(log_weight[here], count)
    return out, shape


def _smoothed_tile(log_weight: NDArray[np.float64], count: int) -> tuple[Matrix, Vector]:
    from scipy.special import logsumexp

    relative: Matrix = log_weight - log_weight.max(axis=1, keepdims=True)
    last = np.argpartition(relative, relative.shape[1] - count - 1, axis=1)[:, -count - 1 :]
    values = np.take_along_axis(relative, last, axis=1)
    order = np.argsort(values[:, 1:], axis=1, kind="stable")
    place = np.take_along_axis(last[:, 1:], order, axis=1)
    largest = np.take_along_axis(values[:, 1:], order, axis=1)
    cutoff = np.exp(values[:, :1])
    k, sigma = _fit(np.exp(largest) - cutoff)
    share = np.arange(0.5, count) / count
    with np.errstate(all="ignore"):
        tail = np.log(cutoff + _quantile(share, k[:, None], sigma[:, None]))
        tail = np.where(tail > largest[:, -1:], largest[:, -1:], tail)
    smoothed = np.where(np.isfinite(k)[:, None], tail, largest)
    np.put_along_axis(relative, place, smoothed, axis=1)
    return relative - logsumexp(relative, axis=1, keepdims=True), k


def _fit(excess: Matrix) -> tuple[Vector, Vector]:
    """Return shapes and scales of generalised Pareto densities for sorted values (m, M)."""
    from scipy.special import logsumexp

    count = excess.shape[1]
    n_points = 30 + int(count**0.5)
    with np.errstate(all="ignore"):
        grid = 1 - np.sqrt(n_points / (np.arange(1, n_points + 1, dtype=np.float64) - 0.5))
        points = grid / (3 * excess[:, [int(count / 4 + 0.5) - 1]]) + 1 / excess[:, -1:]
        shapes = np.mean(np.log1p(-points[:, :, None] * excess[:, None, :]), axis=2)
        log_profile = count * (np.log(-points / shapes) - shapes - 1)
        weight = np.exp(log_profile - logsumexp(log_profile, axis=1, keepdims=True))
        counts = weight >= 10 * np.finfo(np.float64).eps
        weight, points = np.where(counts, weight, 0.0), np.where(counts, points, 0.0)
        point = np.sum(points * weight, axis=1) / np.sum(weight, axis=1)
        k = np.mean(np.log1p(-point[:, None] * excess), axis=1)
        sigma = -k / point
        return (count * k + 5.0) / (count + 10), sigma


def _quantile(share: Vector, k: NDArray[np.float64], sigma: NDArray[np.float64]) -> Matrix:
    """Return quantiles (m, M) of generalised Pareto densities, NaN without a positive scale."""
    steps = -np.log1p(-share)
    with np.errstate(all="ignore"):
        unit = np.where(k == 0, steps, np.expm1(k * steps) / k)
    return np.where(sigma > 0, sigma * unit, np.nan)
