"""Split R-hat of one or more chains (Vehtari et al. 2021, Bayesian Analysis 16, 667-718).

R-hat compares the halves of all chains. ArviZ needs two or more chains; the two halves of a
single chain also differ if it drifts or has not mixed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def r_hat(draws: NDArray[np.float64]) -> float:
    """Return the larger of the rank-normalised and the folded split R-hat of (chain, draw).

    NaN for fewer than four draws per chain. ArviZ computes it for several chains, so that its
    summary of the same run shows the same number.
    """
    from arviz_stats.base import array_stats

    if len(draws) > 1:
        return float(array_stats.rhat(draws, method="rank"))
    half = draws.shape[1] // 2
    if half < 2:
        return float("nan")
    halves = np.stack([draws[0, :half], draws[0, -half:]])
    folded = np.abs(halves - np.median(halves))
    return max(_ratio(_normal_scores(part)) for part in (halves, folded))


def _ratio(sequences: NDArray[np.float64]) -> float:
    """Return ``sqrt((n - 1) / n + B / (n W))`` of sequences (2, n); eqs. 1 to 4 of the paper."""
    n = sequences.shape[1]
    between = sequences.mean(axis=1).var(ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.sqrt((n - 1) / n + between / sequences.var(axis=1, ddof=1).mean()))


def _normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``Phi^-1((rank - 3/8) / (n + 1/4))`` of the values; ties have their mean rank."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(values.ravel()).reshape(values.shape)
    return np.asarray(ndtri((ranks - 0.375) / (values.size + 0.25)))
