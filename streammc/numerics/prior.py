"""Compiled prior densities: one row of the table per coefficient.

A table is (d, 4) float64 with the columns ``kind, location, scale, shape``. To add a
family is to add a kind, a branch in both functions, and a file in ``priors/``.
"""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.numerics.jit import f8, jit, matrix, vector

FLAT: Final = 0
"""Density 1, improper."""
NORMAL: Final = 1
"""``-(z^2 + log 2 pi) / 2 - log scale``, ``z = (theta - location) / scale``."""

KIND: Final = 0
LOCATION: Final = 1
SCALE: Final = 2
SHAPE: Final = 3

_HALF_LOG_2PI: Final = 0.9189385332046728


@jit(f8(vector, matrix, vector), borrow=True)
def log_prior(theta, table, gradient):  # type: ignore[no-untyped-def]
    """Return the log density at ``theta`` (d,), constants included.

    The derivatives are ADDED to ``gradient`` (d,). A kind that does not exist gives NaN.
    """
    total = 0.0
    for j in range(theta.shape[0]):
        kind = table[j, KIND]
        if kind == NORMAL:
            scale = table[j, SCALE]
            z = (theta[j] - table[j, LOCATION]) / scale
            total -= 0.5 * z * z + math.log(scale) + _HALF_LOG_2PI
            gradient[j] -= z / scale
        elif kind != FLAT:
            total = math.nan
    return total


@jit(types.void(vector, matrix, vector), borrow=True)
def prior_curvature(theta, table, out):  # type: ignore[no-untyped-def]
    """Write minus the second derivative of each log density into ``out`` (d,).

    The prior factorises, so this is the diagonal of minus its Hessian.
    """
    for j in range(theta.shape[0]):
        kind = table[j, KIND]
        if kind == NORMAL:
            scale = table[j, SCALE]
            out[j] = 1.0 / (scale * scale)
        elif kind == FLAT:
            out[j] = 0.0
        else:
            out[j] = math.nan
