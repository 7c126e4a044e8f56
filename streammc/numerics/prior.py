"""Compiled prior densities, one row of the prior table per component of theta, and draws.

A prior table is (d, 5) float64 with the columns ``kind, location, scale, shape, constant``; where
components are jointly normal it is (d, 5 + d), with their precision matrix on the right.
All densities are in the unconstrained coordinates and include the Jacobian: a scale parameter
``v`` is sampled as ``theta = log v``, a probability as its log odds, a correlation as its
artanh. ``constant`` is the log normaliser, so that no logarithm of a constant is taken in a
sampler's loop. The rows are independent, but for ``EFFECT``, whose scale is another component, and
``JOINT_NORMAL``. A new family needs a kind, a branch in :func:`log_prior` and
:func:`prior_curvature`, and its builder in ``priors/``.

Newton's method and the mass matrix use densities without kinks and walls: see
:func:`smooth` and :func:`prior_curvature`.

A draw is a function of one normal, two uniform and two gamma numbers per component. Each of
the three kinds has a generator of its own, used in order: ten draws at once are the same bits
as ten draws one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import f8, inline, jit, matrix, vector
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Index, Matrix, Vector

FLAT: Final = 0
"""Density 1, improper."""
NORMAL: Final = 1
"""``-z^2 / 2``, ``z = (theta - location) / scale``; also for a lognormal prior of ``v``."""
STUDENT_T: Final = 2
"""``-(shape + 1) / 2 log(1 + z^2 / shape)``."""
LAPLACE: Final = 3
"""``-|z|``."""
UNIFORM: Final = 4
"""0 from ``location`` to ``shape``; ``-inf`` outside."""
LOG_FLAT: Final = 5
"""Density 1 of ``v``, improper: ``theta``."""
HALF_NORMAL: Final = 6
"""``theta - exp(2 t) / 2``, ``t = theta - location`` with ``location`` the log scale."""
HALF_STUDENT_T: Final = 7
"""``theta - (shape + 1) / 2 log(1 + exp(2 t))``, ``location = log(scale sqrt(shape))``."""
GAMMA: Final = 8
"""``shape theta - exp(t)``, ``location`` minus the log rate."""
INVERSE_GAMMA: Final = 9
"""``-shape theta - exp(-t)``, ``location`` the log scale."""
LOG_UNIFORM: Final = 10
"""Uniform in ``v``: ``theta`` from ``location`` to ``shape``; ``-inf`` outside."""
SMOOTH_LAPLACE: Final = 11
"""``-sqrt(1 + z^2)``: :func:`smooth` of ``LAPLACE``."""
SMOOTH_UNIFORM: Final = 12
"""``UNIFORM`` plus ``log(theta - location) + log(shape - theta)``."""
SMOOTH_LOG_UNIFORM: Final = 13
"""``LOG_UNIFORM`` plus the terms of ``SMOOTH_UNIFORM``; the first only if ``location`` is
finite."""
LOGIT_BETA: Final = 14
"""Beta in ``v = 1 / (1 + exp(-theta))``: ``shape theta - scale log(1 + exp(theta))``, with
``scale`` the sum of both shapes and the Jacobian ``v (1 - v)`` in it."""
LKJ: Final = 15
"""Of a correlation ``v = tanh(theta)``, ``(1 - v^2)^(shape - 1)`` (Lewandowski, Kurowicka and Joe
2009) with the Jacobian ``1 - v^2``: ``-2 shape log cosh(theta)``."""
EFFECT: Final = 16
"""Effect of a level of a factor, Normal(0, tau): ``-s - exp(-2 s) theta^2 / 2`` with ``s``, the log
of tau, the component number ``location`` of theta."""

JOINT_NORMAL: Final = 17
"""Jointly normal with all other rows of this kind, of precision matrix ``P``: half of
``-(theta - location)_j (P (theta - location))_j``. Row ``j`` of ``P`` stands in the columns after
the five; ``shape`` is ``(P location)_j``, ``scale`` the standard deviation of component j alone."""

KIND: Final = 0
LOCATION: Final = 1
SCALE: Final = 2
SHAPE: Final = 3
CONSTANT: Final = 4
COLUMNS: Final = 5

_LEAST_WEIGHT: Final = 0.1
_LOG_2: Final = 0.6931471805599453
_SMOOTH: Final = (
    (LAPLACE, SMOOTH_LAPLACE),
    (UNIFORM, SMOOTH_UNIFORM),
    (LOG_UNIFORM, SMOOTH_LOG_UNIFORM),
)


@inline
def _effect(theta, j, own, gradient):  # type: ignore[no-untyped-def]
    """Return ``-log tau - theta_j^2 / (2 tau^2)``, ``log tau`` component ``own`` of theta."""
    inverse = math.exp(-theta[own])
    z = theta[j] * inverse
    gradient[j] -= z * inverse
    gradient[own] += z * z - 1.0
    return -theta[own] - 0.5 * z * z


@inline(reassociate=True)
def _precision_row(theta, table, j):  # type: ignore[no-untyped-def]
    """Return ``(P (theta - location))_j``."""
    total = 0.0
    for k in range(theta.shape[0]):
        total += table[j, COLUMNS + k] * theta[k]
    return total - table[j, SHAPE]


@jit(f8(vector, matrix, vector), borrow=True)
def log_prior(theta, table, gradient):  # type: ignore[no-untyped-def]
    """Return the log prior density at ``theta`` (d,), constants included.

    The derivatives are ADDED to ``gradient`` (d,). Outside the support the value is
    ``-inf`` and nothing is added. An unknown kind gives NaN.
    """
    total = 0.0
    for j in range(theta.shape[0]):
        kind, at = table[j, KIND], theta[j]
        if kind == NORMAL:
            inverse = 1.0 / table[j, SCALE]
            z = (at - table[j, LOCATION]) * inverse
            total += table[j, CONSTANT] - 0.5 * z * z
            gradient[j] -= z * inverse
        elif kind == STUDENT_T:
            df, inverse = table[j, SHAPE], 1.0 / table[j, SCALE]
            z = (at - table[j, LOCATION]) * inverse
            total += table[j, CONSTANT] - 0.5 * (df + 1.0) * math.log1p(z * z / df)
            gradient[j] -= (df + 1.0) * z * inverse / (df + z * z)
        elif kind == LAPLACE:
            inverse = 1.0 / table[j, SCALE]
            z = (at - table[j, LOCATION]) * inverse
            total += table[j, CONSTANT] - abs(z)
            if z > 0.0:
                gradient[j] -= inverse
            elif z < 0.0:
                gradient[j] += inverse
        elif kind == SMOOTH_LAPLACE:
            inverse = 1.0 / table[j, SCALE]
            z = (at - table[j, LOCATION]) * inverse
            root = math.sqrt(1.0 + z * z)
            total += table[j, CONSTANT] - root
            gradient[j] -= z * inverse / root
        elif kind == LOG_FLAT:
            total += at
            gradient[j] += 1.0
        elif kind == HALF_NORMAL:
            square = math.exp(2.0 * (at - table[j, LOCATION]))
            total += table[j, CONSTANT] + at - 0.5 * square
            gradient[j] += 1.0 - square
        elif kind == HALF_STUDENT_T:
            power = 2.0 * (at - table[j, LOCATION])
            more = table[j, SHAPE] + 1.0
            small = math.exp(-abs(power))
            share = (1.0 if power > 0.0 else small) / (1.0 + small)
            total += table[j, CONSTANT] + at
            total -= 0.5 * more * (max(power, 0.0) + math.log1p(small))
            gradient[j] += 1.0 - more * share
        elif kind in (GAMMA, INVERSE_GAMMA):
            sign = 1.0 if kind == GAMMA else -1.0
            mean = math.exp(sign * (at - table[j, LOCATION]))
            total += table[j, CONSTANT] + sign * table[j, SHAPE] * at - mean
            gradient[j] += sign * (table[j, SHAPE] - mean)
        elif kind == LOGIT_BETA:
            small = math.exp(-abs(at))
            share = (1.0 if at > 0.0 else small) / (1.0 + small)
            total += table[j, CONSTANT] + table[j, SHAPE] * at
            total -= table[j, SCALE] * (max(at, 0.0) + math.log1p(small))
            gradient[j] += table[j, SHAPE] - table[j, SCALE] * share
        elif kind == LKJ:
            double = 2.0 * table[j, SHAPE]
            total += table[j, CONSTANT]
            total -= double * (abs(at) + math.log1p(math.exp(-2.0 * abs(at))) - _LOG_2)
            gradient[j] -= double * math.tanh(at)
        elif kind == EFFECT:
            total += table[j, CONSTANT] + _effect(theta, j, int(table[j, LOCATION]), gradient)
        elif kind == JOINT_NORMAL:
            slope = _precision_row(theta, table, j)
            total += table[j, CONSTANT] - 0.5 * (at - table[j, LOCATION]) * slope
            gradient[j] -= slope
        elif kind != FLAT:
            low, high = table[j, LOCATION], table[j, SHAPE]
            smooth = kind in (SMOOTH_UNIFORM, SMOOTH_LOG_UNIFORM)
            if not (smooth or kind in (UNIFORM, LOG_UNIFORM)) or math.isnan(at):
                total = math.nan
            elif at < low or at > high or (smooth and (at in (low, high))):
                total -= math.inf
            else:
                total += table[j, CONSTANT]
                if kind in (LOG_UNIFORM, SMOOTH_LOG_UNIFORM):
                    total += at
                    gradient[j] += 1.0
                if smooth:
                    total += math.log(high - at)
                    gradient[j] -= 1.0 / (high - at)
                    if low > -math.inf:
                        total += math.log(at - low)
                        gradient[j] += 1.0 / (at - low)
    return total


@jit(types.void(vector, matrix, vector), borrow=True)
def prior_curvature(theta, table, out):  # type: ignore[no-untyped-def]
    """Write minus the second derivative of each log density, at least 0, into ``out`` (d,).

    This is the diagonal of minus the Hessian, all of which is :func:`prior_precision`. Of
    ``EFFECT`` it is the precision given its scale. For Laplace and uniform priors it is that of
    :func:`smooth`. A Student t is not log-concave beyond ``z^2 = df``; the value is at least a
    tenth of ``(df + 1) / (scale^2 (df + z^2))``, the precision of its scale mixture.
    """
    for j in range(theta.shape[0]):
        kind = table[j, KIND]
        at = theta[j]
        if kind in (FLAT, LOG_FLAT):
            out[j] = 0.0
        elif kind == NORMAL:
            out[j] = 1.0 / (table[j, SCALE] * table[j, SCALE])
        elif kind == STUDENT_T:
            df = table[j, SHAPE]
            z = (at - table[j, LOCATION]) / table[j, SCALE]
            spread = df + z * z
            weight = (df + 1.0) / (table[j, SCALE] * table[j, SCALE] * spread)
            out[j] = weight * max((df - z * z) / spread, _LEAST_WEIGHT)
        elif kind in (LAPLACE, SMOOTH_LAPLACE):
            z = (at - table[j, LOCATION]) / table[j, SCALE]
            root = math.sqrt(1.0 + z * z)
            out[j] = 1.0 / (table[j, SCALE] * table[j, SCALE] * root * root * root)
        elif kind == HALF_NORMAL:
            out[j] = 2.0 * math.exp(2.0 * (at - table[j, LOCATION]))
        elif kind == HALF_STUDENT_T:
            small = math.exp(-abs(2.0 * (at - table[j, LOCATION])))
            out[j] = 2.0 * (table[j, SHAPE] + 1.0) * small / ((1.0 + small) * (1.0 + small))
        elif kind == GAMMA:
            out[j] = math.exp(at - table[j, LOCATION])
        elif kind == LOGIT_BETA:
            small = math.exp(-abs(at))
            out[j] = table[j, SCALE] * small / ((1.0 + small) * (1.0 + small))
        elif kind == LKJ:
            small = math.exp(-2.0 * abs(at))
            out[j] = 8.0 * table[j, SHAPE] * small / ((1.0 + small) * (1.0 + small))
        elif kind == INVERSE_GAMMA:
            out[j] = math.exp(table[j, LOCATION] - at)
        elif kind == EFFECT:
            out[j] = math.exp(-2.0 * theta[int(table[j, LOCATION])])
        elif kind == JOINT_NORMAL:
            out[j] = table[j, COLUMNS + j]
        elif kind in (UNIFORM, LOG_UNIFORM, SMOOTH_UNIFORM, SMOOTH_LOG_UNIFORM):
            above, below = at - table[j, LOCATION], table[j, SHAPE] - at
            out[j] = 1.0 / (above * above) + 1.0 / (below * below)
        else:
            out[j] = math.nan


@jit(types.boolean(vector, matrix), borrow=True)
def outside(theta, table):  # type: ignore[no-untyped-def]
    """Return whether a component of ``theta`` (d,) is outside the bounds of its uniform prior."""
    for j in range(theta.shape[0]):
        bounded = table[j, KIND] in (UNIFORM, LOG_UNIFORM)
        if bounded and (theta[j] < table[j, LOCATION] or theta[j] > table[j, SHAPE]):
            return True
    return False


def prior_precision(theta: Vector, table: Matrix) -> Matrix:
    """Return minus the Hessian (d, d) of the log prior density, see :func:`prior_curvature`."""
    diagonal = np.empty_like(theta)
    prior_curvature(theta, table, diagonal)
    if table.shape[1] == COLUMNS:
        return np.diag(diagonal)
    precision = table[:, COLUMNS:].copy()
    np.fill_diagonal(precision, diagonal)
    return precision


def part_of(table: Matrix, at: Index) -> Matrix:
    """Return the prior table of the components ``at`` (k,), given the locations of the others."""
    if table.shape[1] == COLUMNS:
        return table[at]
    out = np.hstack([table[at, :COLUMNS], table[np.ix_(at, COLUMNS + at)]])
    return _centred(out)


def put(table: Matrix, at: Index, rows: Matrix) -> None:
    """Replace rows of a prior table by independent ones (k, 5), in place."""
    table[at] = 0.0
    table[at, :COLUMNS] = rows
    if table.shape[1] > COLUMNS:
        table[:, COLUMNS + at] = 0.0
        _centred(table)


def _centred(table: Matrix) -> Matrix:
    """Write ``P location`` of jointly normal rows, after a change of ``P``."""
    joint = np.flatnonzero(table[:, KIND] == JOINT_NORMAL)
    table[joint, SHAPE] = table[np.ix_(joint, COLUMNS + joint)] @ table[joint, LOCATION]
    return table


def smooth(table: Matrix) -> Matrix:
    """Return the prior table (d, 5) with smooth densities in place of kinks and walls.

    A Laplace density becomes ``exp(-sqrt(1 + z^2))`` up to a constant. A uniform one
    from ``a`` to ``b`` is multiplied by ``(theta - a)(b - theta)``: where the likelihood
    pushes against a wall, as ``exp(g theta)``, the mode is then ``1 / g`` before the wall and
    the curvature there is ``g^2``: mean and precision of the posterior. Other rows stay.
    """
    out = table.copy()
    for kind, other in _SMOOTH:
        out[table[:, KIND] == kind, KIND] = other
    return out


def inside(theta: Vector, table: Matrix) -> Vector:
    """Return a copy of ``theta`` (d,) whose components are inside their bounds.

    A component outside moves to a tenth of the width from the nearer of two bounds, or to 1
    below a single upper bound.
    """
    out = theta.copy()
    bounded = np.isin(table[:, KIND], [kind for pair in _SMOOTH[1:] for kind in pair])
    for j in np.flatnonzero(bounded):
        low, high = table[j, LOCATION], table[j, SHAPE]
        if not low < theta[j] < high:
            margin = 0.1 * (high - low) if low > -np.inf else 1.0
            out[j] = min(max(theta[j], low + margin), high - margin)
    return out


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
    """Return the jointly normal components (k,), and (n, k) draws of them by normals (n, d).

    A draw has the same bits whatever ``n`` is: chains ask for as many as their time allows.
    """
    joint = np.flatnonzero(table[:, KIND] == JOINT_NORMAL)
    if not len(joint):
        return joint, np.empty((len(z), 0))
    with single_threaded():  # the same bits on any number of cores
        root = np.linalg.inv(np.linalg.cholesky(table[np.ix_(joint, COLUMNS + joint)])).T
    out = np.tile(table[joint, LOCATION], (len(z), 1))
    for k, j in enumerate(joint):  # BLAS would sum in an order that depends on n
        out += root[:, k] * z[:, j, None]
    return joint, out


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
