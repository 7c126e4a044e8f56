"""Stick-breaking transformation: weights that add up to one, as unconstrained log odds.

``w_0 = v_0``, ``w_j = v_j (1 - v_0) ... (1 - v_(j-1))`` with ``v_j = 1 / (1 + exp(-u_j))``; the
last weight is the rest. Under ``w ~ Dirichlet(a_0, ..., a_(K-1))`` the ``v_j`` are independent,
``v_j ~ Beta(a_j, a_(j+1) + ... + a_(K-1))``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from streammc.numerics.prior import COLUMNS, CONSTANT, KIND, LOGIT_BETA, SCALE, SHAPE
from streammc.protocols import Matrix

_LEAST = 1e-300


def weights_of(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first K - 1 weights (..., K - 1) of the log odds (..., K - 1)."""
    broken = -np.logaddexp(0.0, -u)
    left = np.cumsum(-np.logaddexp(0.0, u), axis=-1)
    broken[..., 1:] += left[..., :-1]
    weights: NDArray[np.float64] = np.exp(broken)
    return weights


def log_odds_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log odds (..., K - 1) of the first K - 1 weights; inverse of weights_of."""
    left = np.maximum(1.0 - np.cumsum(weights, axis=-1), _LEAST)
    u: NDArray[np.float64] = np.log(np.maximum(weights, _LEAST)) - np.log(left)
    return u


def dirichlet_rows(concentration: Sequence[float]) -> Matrix:
    """Return the (K - 1, 5) rows of the prior table for the log odds of Dirichlet weights."""
    a = np.asarray(concentration, dtype=np.float64)
    rest = np.cumsum(a[::-1])[::-1][1:]
    table = np.zeros((len(a) - 1, COLUMNS))
    table[:, KIND] = LOGIT_BETA
    table[:, SHAPE] = a[:-1]
    table[:, SCALE] = a[:-1] + rest
    table[:, CONSTANT] = -betaln(a[:-1], rest)
    return table
