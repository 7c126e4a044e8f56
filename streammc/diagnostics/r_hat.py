"""Split R-hat of one or more chains (Vehtari et al. 2021, Bayesian Analysis 16, 667-718).

R-hat compares the halves of all chains, as ArviZ does, which needs two or more chains; the two
halves of a single chain also differ if it drifts or has not mixed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.effective_size import normal_scores, split


def r_hat(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger of the rank-normalised and the folded split R-hat of (..., chain, draw).

    NaN for fewer than four draws per chain.
    """
    if draws.shape[-1] < 4:
        return np.full(draws.shape[:-2], np.nan)[()]
    halves = split(draws)
    folded = np.abs(halves - np.median(halves, axis=(-2, -1), keepdims=True))
    return larger(ratio(normal_scores(halves)), ratio(normal_scores(folded)))


def larger(bulk: NDArray[np.float64], folded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger R-hat; that of folded draws is NaN for draws of two values."""
    return np.where(folded > bulk, folded, bulk)[()]


def ratio(sequences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``sqrt((n - 1) / n + B / (n W))`` of sequences (..., m, n); eqs. 1 to 4."""
    n = sequences.shape[-1]
    between = sequences.mean(axis=-1).var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        within = sequences.var(axis=-1, ddof=1).mean(axis=-1)
        return np.asarray(np.sqrt((n - 1) / n + between / within))[()]
