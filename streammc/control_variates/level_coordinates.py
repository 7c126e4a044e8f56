"""Coordinates in which the effects of a factor and its scale are nearly independent.

An effect ``u ~ Normal(0, tau)`` is sampled as ``tau^-a u``, with ``a = 1 / (1 + tau_low^2 I)`` and
``I`` the information of the likelihood about the effect at ``theta_star``: as it is where the
data decide about it, and as a standard normal variate where the prior does. ``tau_low`` is two
standard deviations of ``log tau`` below its estimate: a chain that goes to small scales stays there
for long if its effects are not in proportion, while large scales are bounded by the data. The
exponent is fixed before the first draw, so that any value leaves the target as it is
(``numerics.stretched_effects``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.control_variates.expansion import ControlVariates
from streammc.numerics.prior import EFFECT, KIND, LOCATION
from streammc.protocols import Matrix, Vector

_BELOW: Final = 2.0
"""Standard deviations of a log scale below its estimate. With 0 the draws of a scale near 0 are
worth half as many, and those of its tail a quarter (``bench/factor_coordinates.py``)."""


def level_coordinates(table: Matrix, cv: ControlVariates) -> Matrix:
    """Return (L, 3) component of each effect, component of its log scale, and its exponent a.

    Parameters
    ----------
    table
        (d, 5) prior of the model.
    cv
        Control variates, for ``theta_star`` and the information there.
    """
    at = np.flatnonzero(table[:, KIND] == EFFECT)
    owners = table[at, LOCATION].astype(np.int64)
    information = np.maximum(-np.diag(cv.hessian)[at], 0.0)
    sd = np.sqrt(np.sum(cv.factor[owners] ** 2, axis=1))
    log_low = cv.theta_star[owners] - _BELOW * sd
    exponent = 1.0 / (1.0 + np.exp(2.0 * log_low) * information)
    return np.ascontiguousarray(np.stack([at, owners, exponent], axis=1), np.float64)


def stretched(levels: Matrix, theta_star: Vector, shifts: Matrix) -> tuple[Matrix, Vector]:
    """Return shifts (S, d) from ``theta_star`` with stretched effects, and log Jacobians (S,)."""
    if not len(levels):
        return shifts, np.zeros(len(shifts))
    effects, owners = levels[:, :2].astype(np.int64).T
    log_factor = levels[:, 2] * shifts[:, owners]
    out = shifts.copy()
    with np.errstate(over="ignore"):
        stretched_effects = np.exp(log_factor) * (theta_star[effects] + shifts[:, effects])
    out[:, effects] = stretched_effects - theta_star[effects]
    return out, log_factor.sum(axis=1)
