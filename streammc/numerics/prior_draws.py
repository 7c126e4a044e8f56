"""Independent draws from the prior table of :mod:`streammc.numerics.prior`.

A draw is a function of one normal, two uniform and two gamma numbers per component. Each of
the three kinds has a generator of its own, used in order: ten draws at once are the same bits
as ten draws one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.prior import (
    COLUMNS,
    FLAT,
    GAMMA,
    HALF_NORMAL,
    HALF_STUDENT_T,
    INVERSE_GAMMA,
    JOINT_NORMAL,
    KIND,
    LAPLACE,
    LKJ,
    LOCATION,
    LOG_FLAT,
    LOG_UNIFORM,
    LOGIT_BETA,
    NORMAL,
    SCALE,
    SHAPE,
    STUDENT_T,
    UNIFORM,
)
from streammc.protocols import Index, Matrix

N_STREAMS: Final = 3
"""Number of generators: of normal, uniform and gamma numbers."""
_HALF: Final = (STUDENT_T, HALF_STUDENT_T)
_WHOLE: Final = (GAMMA, INVERSE_GAMMA)


def improper(table: Matrix) -> NDArray[np.bool_]:
    """Return (d,) whether each component has a flat prior, which cannot be sampled."""
    return np.isin(table[:, KIND], (FLAT, LOG_FLAT))


def draw_prior(table: Matrix, n: int, streams: Sequence[np.random.Generator]) -> Matrix:
    """Return (n, d) independent draws of theta; NaN where the prior is flat.

    ``streams`` are the generators of normal, uniform and gamma numbers. A log-gamma number of a
    small shape ``a`` is ``log G(a + 1) + log(u) / a``, which does not underflow.
    """
    d, (normals, uniforms, gammas) = len(table), streams
    z = normals.standard_normal((n, d))
    u = 1.0 - uniforms.random((n, 2, d))  # never 0
    shapes = _shapes(table)
    log_gamma = np.log(gammas.standard_gamma(shapes + 1.0, (n, 2, d))) + np.log(u) / shapes
    out = np.full((n, d), np.nan)
    joint, together = joint_normal(table, z)
    out[:, joint] = together
    kinds = table[:, KIND]
    for kind in np.unique(kinds):
        at = kinds == kind
        location, scale, shape = (table[at, column] for column in (LOCATION, SCALE, SHAPE))
        normal, uniform = z[:, at], u[:, 0, at]
        first, second = log_gamma[:, 0, at], log_gamma[:, 1, at]
        if kind == NORMAL:
            out[:, at] = location + scale * normal
        elif kind == STUDENT_T:
            out[:, at] = location + scale * normal * np.exp(-0.5 * (np.log(2.0 / shape) + first))
        elif kind == LAPLACE:
            side = np.where(normal < 0.0, -1.0, 1.0)
            out[:, at] = location - scale * side * np.log(uniform)
        elif kind == UNIFORM:
            out[:, at] = shape - (shape - location) * uniform
        elif kind == LOG_UNIFORM:
            # log(v) = log(high - (high - low) u), by its ratio to high.
            out[:, at] = shape + np.log1p(np.expm1(location - shape) * (uniform - _LEAST))
        elif kind == HALF_NORMAL:
            out[:, at] = location + np.log(np.abs(normal))
        elif kind == HALF_STUDENT_T:
            out[:, at] = location + np.log(np.abs(normal)) - 0.5 * (np.log(2.0) + first)
        elif kind == GAMMA:
            out[:, at] = location + first
        elif kind == INVERSE_GAMMA:
            out[:, at] = location - first
        elif kind == LOGIT_BETA:
            out[:, at] = first - second
        elif kind == LKJ:  # (1 + v) / 2 is Beta(shape, shape)
            out[:, at] = 0.5 * (first - second)
    return out


def joint_normal(table: Matrix, z: Matrix) -> tuple[Index, Matrix]:
    """Return the jointly normal components (k,), and (n, k) draws of them by normals (n, d)."""
    joint = np.flatnonzero(table[:, KIND] == JOINT_NORMAL)
    if not len(joint):
        return joint, np.empty((len(z), 0))
    lower = np.linalg.cholesky(table[np.ix_(joint, COLUMNS + joint)])
    return joint, table[joint, LOCATION] + np.linalg.solve(lower.T, z[:, joint].T).T


_LEAST: Final = 2.0**-53
"""Smallest uniform number of the generator: a positive number is never drawn as 0."""


def _shapes(table: Matrix) -> Matrix:
    """Return the (2, d) shapes of the gamma numbers; 1 for unused numbers."""
    shapes = np.ones((2, len(table)))
    kinds, shape = table[:, KIND], table[:, SHAPE]
    half, whole, beta = (np.isin(kinds, each) for each in (_HALF, _WHOLE, (LOGIT_BETA,)))
    shapes[:, kinds == LKJ] = shape[kinds == LKJ]
    shapes[0, half] = 0.5 * shape[half]
    shapes[0, whole | beta] = shape[whole | beta]
    shapes[1, beta] = table[beta, SCALE] - shape[beta]
    return shapes
