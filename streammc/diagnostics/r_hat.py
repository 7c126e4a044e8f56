"""Split R-hat of one or more chains (Vehtari et al. 2021, Bayesian Analysis 16, 667-718).

R-hat compares the halves of all chains, as ArviZ does, which needs two or more chains; the two
halves of a single chain also differ if it drifts or has not mixed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.effective_size import normal_scores, split


def r_hat(draws: NDArray[np.float64]) -> float:
    """Return the larger of the rank-normalised and the folded split R-hat of (chain, draw).

    NaN for fewer than four draws per chain.
    """
    if draws.shape[1] < 4:
        return float("nan")
    halves = split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_ratio(normal_scores(part)) for part in (halves, folded))


def _ratio(sequences: NDArray[np.float64]) -> float:
    """Return ``sqrt((n - 1) / n + B / (n W))`` of sequences (m, n); eqs. 1 to 4 of the paper."""
    n = sequences.shape[1]
    between = sequences.mean(axis=1).var(ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.sqrt((n - 1) / n + between / sequences.var(axis=1, ddof=1).mean()))
