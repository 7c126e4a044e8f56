"""The log density that HMC-ECS leaves invariant, and its gradient.

With the certainty rows ``C``, ``k`` units out of ``U`` and the Taylor sums of the
full pass,

    l^(theta)   = sum_i q_i(theta) + sum_{i in C} r_i(theta) + (U/k) sum_{j in u} D_j(theta),
    s^2(theta)  = c sum_{j in u} (D_j - mean D)^2,
    log density = l^(theta) - s^2(theta) / 2 + log p(theta),

where ``c = U^2 / (k (k - 1))``, or ``U^2 / k^2`` in Dang et al. 2019, eq. (10). The
gradient goes through ``s^2``. With the block-Poisson estimator the log density is
``log |L^(theta)| + log p(theta)`` instead (``likelihood.estimators``). Full-data
HMC is the case of no units and every row in ``C``. Positions are whitened:
``theta = theta_star + S z`` with ``S S'`` the inverse of minus the Hessian of the log
posterior, so the mass matrix is the identity. The effect of a level of a factor with a sampled
scale ``tau`` is stretched: ``u = (tau / tau_star)^a (u_star + (S z)_u)``, and the log density
of ``z`` has the term ``a log(tau / tau_star)`` of each (``levels``).

Rows in whitened coordinates take one product with ``S`` a row, and none an evaluation. Positions
are ``theta = theta_star + S z`` with ``S`` lower triangular. For a model with one linear predictor,
``W`` is the block of ``S`` of its q coefficients, the first components of theta. A row ``x`` enters
the subsample as ``W'x``, and its predictor changes by ``(W'x)'z``. So displacements and gradients
are in the coordinates ``u = (z_1 .. z_q, (S z)_q+1 .. (S z)_d)``: those of z, but for parameters
that all rows share. Taylor sums and Normal priors are in the same coordinates, as one quadratic; it
is diagonal where ``S S'`` is the inverse of minus its Hessian.

Two kinds of mixed models have other positions (``numerics.effect_positions``): effects of the
levels of a factor are stretched by a power of their scale, and standard deviations of group
effects, with the coefficients beside them, have positions of their own. Expansions may be in the
marginal precision of group effects.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE, TILE, Scratch, allocate_scratch
from streammc.likelihood.estimators import (
    log_product,
    mean_and_scatter,
    pull_back,
    remainders,
    soft_bound,
    subtract_expansions,
    unit_totals,
    weigh,
)
from streammc.numerics.addresses import matrix_view
from streammc.numerics.effect_positions import (
    pull_to_position,
    pull_to_theta,
    shrink,
    stretch,
    to_precision,
    to_theta,
    whiten,
)
from streammc.numerics.jit import LINK_TYPE, SUMS_TYPE, i8, inline, jit, matrix, record_type, vector
from streammc.numerics.prior import log_prior
from streammc.numerics.row_products import add_row_sums, row_products
from streammc.protocols import Index, Matrix, Vector


@jit(types.void(matrix, ROWS_TYPE, i8, i8, BLOCK_TYPE, i8, vector), borrow=True)
def whiten_rows(whitening, rows, start, count, block, shift, buffer):  # type: ignore[no-untyped-def]
    """Write ``W'x`` of ``count`` rows from ``start`` on into the design of ``block``.

    They are its rows from ``shift`` on. ``buffer`` has q or more numbers. The bits of a row do not
    depend on its place: a resumed chain whitens its rows again.
    """
    q = whitening.shape[0]
    design = block.design
    for i in range(count):
        row_products(whitening, 0, q, rows.X[start + i], 0, buffer, 0)
        for j in range(q):
            design[j, shift + i] = buffer[j]


@inline(reassociate=True)
def displace_whitened(base, z, delta):  # type: ignore[no-untyped-def]
    """Write the coordinates ``u`` of the whitened position ``z``."""
    q, factor = base.whitening.shape[0], base.factor
    for i in range(q):
        delta[i] = z[i]
    for i in range(q, z.shape[0]):
        total = 0.0
        for j in range(i + 1):
            total += factor[i, j] * z[j]
        delta[i] = total


@inline(reassociate=True)
def theta_of_whitened(base, z, theta):  # type: ignore[no-untyped-def]
    """Write ``theta = theta_star + S z``."""
    d = z.shape[0]
    for i in range(d):
        theta[i] = base.theta_star[i]
    add_row_sums(base.factor, 0, d, z, 0, theta, 0)


@inline(reassociate=True)
def without_rows(sums, base, z, work, rest):  # type: ignore[no-untyped-def]
    """Return the log density of Taylor sums and prior at ``z``; write their gradient in ``u``.

    Theta is formed only for a prior that is not part of the Taylor sums.
    """
    delta, gradient, diagonal = work.delta, base.gradient, base.diagonal
    d = z.shape[0]
    displace_whitened(base, z, delta)
    if diagonal.shape[0] > 0:
        density = base.log_lik
        for i in range(d):
            curve = diagonal[i] * delta[i]
            rest[i] = gradient[i] + curve
            density += delta[i] * (gradient[i] + 0.5 * curve)
    else:
        density = sums(base.log_lik, gradient, base.hessian, base.theta_star, delta, rest)
    if base.prior.shape[0] > 0:
        density += _add_prior(base, z, work, rest)
    return density


@inline(reassociate=True)
def _add_prior(base, z, work, rest):  # type: ignore[no-untyped-def]
    """Return the log prior density at ``z``, and add its gradient to ``rest``."""
    whitening, theta, slope = base.whitening, work.theta, work.gradient
    q, d = whitening.shape[0], z.shape[0]
    for i in range(d):
        slope[i] = 0.0
    theta_of_whitened(base, z, theta)
    value = log_prior(theta, base.prior, slope)
    for i in range(q):
        for j in range(i + 1):
            rest[j] += whitening[i, j] * slope[i]
    for i in range(q, d):
        rest[i] += slope[i]
    return value


@inline(reassociate=True)
def remainders_of(link, base, block, delta, lo, hi, scratch, value, slope):  # type: ignore[no-untyped-def]
    """Write remainders and derivatives of the rows of a block in the coordinates of ``base``.

    As :func:`likelihood.estimators.remainders`, which does it in the coordinates of theta.
    """
    if lo < 0:  # never true: tells the compiler that no index is negative
        return
    constants = base.constants
    if base.whitening.shape[0] == 0:
        n_linear = base.n_linear
        remainders(link, constants, block, delta, n_linear, lo, hi, scratch, value, slope)
        return
    eta_star = block.eta_star
    p, q, w = eta_star.shape[0], block.design.shape[0], hi - lo
    size = block.expansion.shape[0]
    eta = matrix_view(scratch.eta, p, w)
    step = matrix_view(scratch.step, p, w)
    out = matrix_view(scratch.out, size, w)
    row_products(block.design, lo, w, delta, 0, scratch.step, 0)
    for a in range(1, p):
        for i in range(w):
            step[a, i] = delta[q + a - 1]
    first = np.uint64(lo)  # a negative index would count from the end: the loop stays scalar
    for a in range(p):
        for i in range(np.uint64(w)):
            eta[a, i] = eta_star[a, first + i] + step[a, i]
    link(eta, block.design[:, lo:hi], block.y[lo:hi], constants, 1, out)
    subtract_expansions(block, step, out, lo, w, value, slope)


@inline(reassociate=True)
def pull_back_of(base, block, slope, lo, hi, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of rows in the coordinates of ``base``.

    As :func:`likelihood.estimators.pull_back`, which does it in the coordinates of theta.
    """
    if base.whitening.shape[0] == 0:
        pull_back(block, slope, base.n_linear, lo, hi, gradient)
        return
    q = block.design.shape[0]
    add_row_sums(block.design, lo, hi - lo, slope[0], lo, gradient, 0)
    for a in range(1, slope.shape[0]):
        total = 0.0
        for i in range(lo, hi):
            total += slope[a, i]
        gradient[q + a - 1] += total


@inline(reassociate=True)
def pull_to_z(base, slope, gradient):  # type: ignore[no-untyped-def]
    """Add a gradient in ``u`` to ``gradient``, that in z."""
    q, factor = base.whitening.shape[0], base.factor
    for i in range(q):
        gradient[i] += slope[i]
    for i in range(q, slope.shape[0]):
        for j in range(i + 1):
            gradient[j] += factor[i, j] * slope[i]


@inline(reassociate=True)
def displace(factor, z, delta):  # type: ignore[no-untyped-def]
    """Write ``delta = S z``."""
    if factor.shape[0] == 0:
        for i in range(z.shape[0]):
            delta[i] = z[i]
        return
    for i in range(delta.shape[0]):
        total = 0.0
        for j in range(min(i + 1, z.shape[0])):
            total += factor[i, j] * z[j]
        delta[i] = total


@inline(reassociate=True)
def place(base, z, work):  # type: ignore[no-untyped-def]
    """Write position and displacement of the whitened position ``z`` into ``work``.

    Returns the log of the Jacobian of theta in ``theta_star + S z``; 0 where they are the same.
    """
    delta, theta, theta_star = work.delta, work.theta, base.theta_star
    if base.whitening.shape[0] > 0:
        displace_whitened(base, z, delta)
        theta_of_whitened(base, z, theta)
        return 0.0
    displace(base.factor, z, delta)
    for i in range(theta.shape[0]):
        theta[i] = theta_star[i] + delta[i]
    log_jacobian = stretch(base.levels, theta_star, theta, delta)
    if base.mode.shape[0] > 0:
        log_jacobian += to_theta(base.lines, base.spreads, base.mode, theta)
    if base.centre.shape[0] > 0:
        centre = base.centre
        for i in range(z.shape[0]):
            delta[i] = theta[i]
        to_precision(delta, base.noise)
        for i in range(z.shape[0]):
            delta[i] -= centre[i]
    return log_jacobian


@inline
def beyond_edge(base, position, work):  # type: ignore[no-untyped-def]
    """Return 1 where a whitened ``position`` is beyond the edge or a wall, else 0.

    ``work.theta`` is that of the position.
    """
    d = position.shape[0]
    z = position
    if base.mode.shape[0] > 0:  # the edge is in whitened coordinates of theta
        z = work.edge
        whiten(base.levels, base.mode, base.mode_factor, work.theta, z)
    square = 0.0
    for j in range(d):
        square += z[j] * z[j]
    if square > base.edge:
        return 1
    walls = base.walls
    for w in range(walls.shape[0]):
        along = 0.0
        for j in range(d):
            along += walls[w, j] * z[j]
        if along > walls[w, d]:
            return 1
    return 0


_NO_WALLS: Matrix = np.zeros((0, 0))
_NONE: Vector = np.zeros(0)


class Base(NamedTuple):
    """Constants of the target that no row enters: Taylor sums, prior, scale, edge, estimator."""

    theta_star: Vector
    log_lik: float
    """Sum of the expansions at theta_star; 0 without control variates."""
    gradient: Vector
    hessian: Matrix
    """(d, d) Hessian of the log-likelihood; zeros, or (0, 0), for order 1 and below."""
    factor: Matrix
    """(d, d) lower triangular ``S``; (0, 0): the identity. (D, d) where linear predictors have
    columns of their own: then theta is as in ``models.base.wide``, and d as long as z."""
    prior: Matrix
    """(d, 5) prior table."""
    constants: Vector
    """(c,) constants of the model's link."""
    n_linear: int
    order: int
    """Order of the expansions of rows; -1: none, the remainder is the log-likelihood."""
    unit_rows: int
    estimate_factor: float
    """``U / k``; 0 without units."""
    variance_factor: float
    """``c``; 0 without units."""
    factor_units: int = 0
    """Units of a factor of the block-Poisson product; 0 for the difference estimator."""
    intensity: float = 0.0
    """``lambda``, the expected number of factors."""
    soft_bound: float = 0.0
    """Bound ``a`` of the block-Poisson product at ``theta_star``, below most ``d_f``."""
    bound_growth: float = 0.0
    """Growth of ``lambda (g - 1)`` by which ``a`` falls with the distance; 0: constant ``a``."""
    edge: float = math.inf
    """Largest ``|z|^2``: beyond it the density is 0."""
    walls: Matrix = _NO_WALLS
    """(w, d + 1) rows ``(a, h)``: the density is 0 where ``a'z > h``."""
    levels: Matrix = np.zeros((0, 3))
    """(L, 3) effects that are stretched, see ``numerics.effect_positions``."""
    centre: Vector = _NONE
    """(d,) expansion point in the coordinates of the expansions; empty: ``theta_star``."""
    noise: Vector = _NONE
    """Noise of the marginal precision with which these coordinates end, see
    ``numerics.effect_positions``; empty: the expansions are in theta."""
    lines: Matrix = np.zeros((0, 3))
    """(s, 3) standard deviations of group effects on the real line, see
    ``numerics.effect_positions``."""
    spreads: Matrix = _NO_WALLS
    """(r, 5 + 2 d) directions of coefficients that vary in proportion to them, see there."""
    mode: Vector = _NONE
    """(d,) mode, from which these are stretched; empty: there are neither."""
    mode_factor: Matrix = _NO_WALLS
    """(d, d) ``S`` of the coordinates of the edge, ``theta = mode + S z``, with such positions."""
    whitening: Matrix = _NO_WALLS
    """(q, q or more) ``W``: rows, Taylor sums and ``prior`` are in the coordinates of
    ``likelihood.target``; (0, 0): in those of theta."""
    diagonal: Vector = _NONE
    """(d,) diagonal of ``hessian`` in these coordinates, if its other entries are 0."""


BASE_TYPE: Any = record_type(Base)


class Point(NamedTuple):
    """A position of a chain with the values at it; the arrays are written in place."""

    z: Vector
    """(d,) whitened position."""
    gradient: Vector
    """(d,) whitened gradient of the log density."""
    rest: Vector
    """(d,) gradient in theta, or in ``u``, of the log density without the subsample."""
    totals: Vector
    """(k,) unit totals D_j."""
    value: Vector
    """(m,) remainders of the subsample."""
    slope: Matrix
    """(p, m) their derivatives in the predictors."""
    scalars: Vector
    """(8,) log density without the subsample, remainder of C, variance of the estimate, log
    density, mean D, estimate of the sampled remainder, sign of the estimated likelihood, and
    the soft bound."""
    used: Index
    """(2,) numbers of units and rows in use: the arrays may be longer."""


POINT_TYPE: Any = record_type(Point)
REST, CERTAIN, VARIANCE, DENSITY, MEAN, ESTIMATE, SIGN, BOUND = range(8)
UNITS, ROWS = range(2)


class Work(NamedTuple):
    """Scratch arrays of one chain."""

    momentum: Vector
    delta: Vector
    """(d,) displacement from ``theta_star``, in the coordinates of the expansions."""
    theta: Vector
    """(d,) position."""
    edge: Vector
    """(d,) position in the coordinates of the edge; scratch memory elsewhere."""
    gradient: Vector
    weighted: Matrix
    """(p, m) slopes times their weights."""
    value: Vector
    """(TILE,) remainders of one tile of certainty rows."""
    slope: Matrix
    """(p, TILE)."""
    scratch: Scratch
    unit_weight: Vector
    """(m,) derivative of the estimate in each unit total."""


WORK_TYPE: Any = record_type(Work)


def allocate_point(d: int, k: int, m: int, p: int, wide: int | None = None) -> Point:
    """Return a point of zeros for d parameters, k units, m rows and p predictors.

    ``wide`` is the length D of theta, see ``Base.factor``; ``None``: d.
    """
    return Point(
        np.zeros(d),
        np.zeros(d),
        np.zeros(d if wide is None else wide),
        np.zeros(k),
        np.zeros(m),
        np.zeros((p, m)),
        np.zeros(8),
        np.array([k, m], dtype=np.int64),
    )


def allocate_work(d: int, m: int, p: int, certain: int = 0, wide: int | None = None) -> Work:
    """Return scratch for one chain; ``certain`` is the number of certainty rows."""
    length = d if wide is None else wide
    return Work(
        np.zeros(d),
        np.zeros(length),
        np.zeros(length),
        np.zeros(d),
        np.zeros(length),
        np.zeros((p, m)),
        np.zeros(certain),
        np.zeros((p, certain)),
        allocate_scratch(p),
        np.zeros(m),
    )


@inline
def copy_point(source, target):  # type: ignore[no-untyped-def]
    """Copy one point onto another; loops are three times as fast as slice assignment."""
    for j in range(source.z.shape[0]):
        target.z[j] = source.z[j]
        target.gradient[j] = source.gradient[j]
    for j in range(source.rest.shape[0]):
        target.rest[j] = source.rest[j]
    k, m = source.used[UNITS], source.used[ROWS]
    target.used[UNITS], target.used[ROWS] = k, m
    for j in range(k):
        target.totals[j] = source.totals[j]
    for a in range(source.slope.shape[0]):
        for i in range(m):
            target.slope[a, i] = source.slope[a, i]
    for i in range(m):
        target.value[i] = source.value[i]
    for j in range(source.scalars.shape[0]):
        target.scalars[j] = source.scalars[j]


@inline
def finish(base, sub, point, work):  # type: ignore[no-untyped-def]
    """Combine the unit totals and the rest of ``point`` into its density and gradient.

    The derivative of ``s^2 / 2`` is ``c sum_j (D_j - mean D) grad D_j``: that of the mean
    drops out because the deviations sum to zero. For the block-Poisson product, whose
    logarithm is the estimate, no ``s^2`` is subtracted. ``work.delta`` is the displacement of
    ``point``.
    """
    totals, slope, gradient = point.totals, point.slope, point.gradient
    total_gradient, weighted, factor = work.gradient, work.weighted, base.factor
    d = gradient.shape[0]
    k, m = point.used[UNITS], point.used[ROWS]
    b, scale, c = base.unit_rows, base.estimate_factor, base.variance_factor
    rest = point.rest
    for i in range(rest.shape[0]):
        total_gradient[i] = rest[i]
    for i in range(d):
        gradient[i] = 0.0
    variance = 0.0
    penalty = 0.0
    estimate = 0.0
    mean = 0.0
    sign = 1.0
    scalars = point.scalars
    unit_weight = work.unit_weight
    if base.factor_units > 0:
        bound, slope_of_bound = soft_bound(
            base.soft_bound, base.bound_growth, base.intensity, base.order, point.z
        )
        scalars[BOUND] = bound
        estimate, variance, sign, by_bound = log_product(
            totals, k, base.factor_units, scale, base.intensity, bound, unit_weight
        )
        for i in range(d):
            gradient[i] += by_bound * slope_of_bound * point.z[i]
    elif k > 0:
        mean, scatter = mean_and_scatter(totals, k)
        variance = c * scatter
        penalty = 0.5 * variance
        estimate = scale * mean * k
        for j in range(k):
            unit_weight[j] = scale - c * (totals[j] - mean)
    weigh(slope, unit_weight, k, b, weighted)
    if base.noise.shape[0] > 0:
        for i in range(d):
            total_gradient[i] = 0.0
    for lo in range(0, m, TILE):
        pull_back_of(base, sub, weighted, lo, min(lo + TILE, m), total_gradient)
    if base.noise.shape[0] > 0:
        pull_to_theta(work.theta, base.noise, total_gradient)
        for i in range(d):
            total_gradient[i] += rest[i]
    stretched = work.theta
    if base.mode.shape[0] > 0:
        pull_to_position(base, point.z, work.theta, total_gradient, work.edge)
        if base.spreads.shape[0] > 0:
            stretched = work.edge
    scalars[VARIANCE] = variance
    scalars[MEAN] = mean
    scalars[ESTIMATE] = estimate
    scalars[SIGN] = sign
    scalars[DENSITY] = scalars[REST] + estimate - penalty
    shrink(base.levels, base.theta_star, stretched, total_gradient)
    if base.whitening.shape[0] > 0:
        pull_to_z(base, total_gradient, gradient)
        return
    if factor.shape[0] == 0:
        for i in range(d):
            gradient[i] += total_gradient[i]
        return
    for i in range(total_gradient.shape[0]):
        g = total_gradient[i]
        for j in range(min(i + 1, d)):
            gradient[j] += factor[i, j] * g


@inline
def evaluate_inline(link, sums, base, certain, sub, point, work):  # type: ignore[no-untyped-def]
    """Evaluate log density and gradient as :func:`evaluate`, without a call.

    A call would pass every field of every array of the records, 350 numbers.
    """
    delta, rest, theta = work.delta, point.rest, work.theta
    scratch, value, slope = work.scratch, work.value, work.slope
    theta_star = base.theta_star
    d = delta.shape[0]
    whitened = base.whitening.shape[0] > 0
    if whitened:
        density = without_rows(sums, base, point.z, work, rest)
    else:
        density = place(base, point.z, work)
        density += sums(base.log_lik, base.gradient, base.hessian, theta_star, delta, rest)
    noisy = base.noise.shape[0] > 0
    exact = work.gradient if noisy else rest
    if noisy:
        for i in range(d):
            exact[i] = 0.0
    elif not whitened:
        density += log_prior(theta, base.prior, rest)
    n_certain = certain.y.shape[0]
    remainder = 0.0
    for lo in range(0, n_certain, TILE):
        hi = min(lo + TILE, n_certain)
        remainders_of(link, base, certain, delta, lo, hi, scratch, value, slope)
        for i in range(lo, hi):
            remainder += value[i]
        pull_back_of(base, certain, slope, lo, hi, exact)
    if noisy:
        for i in range(d):
            rest[i] += exact[i]
        pull_to_theta(theta, base.noise, rest)
        density += log_prior(theta, base.prior, rest)
    point.scalars[CERTAIN] = remainder
    point.scalars[REST] = density + remainder
    m = point.used[ROWS]
    value, slope = point.value, point.slope
    for lo in range(0, m, TILE):
        hi = min(lo + TILE, m)
        remainders_of(link, base, sub, delta, lo, hi, scratch, value, slope)
    unit_totals(value, base.unit_rows, 0, point.used[UNITS], point.totals)
    finish(base, sub, point, work)


@jit(
    types.void(LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BLOCK_TYPE, POINT_TYPE, WORK_TYPE),
    reassociate=True,
    borrow=True,
)
def evaluate(link, sums, base, certain, sub, point, work):  # type: ignore[no-untyped-def]
    """Evaluate log density and gradient at ``point.z``.

    ``sums`` is ``numerics.summation.taylor``, or a model's exact log-likelihood of all rows if
    there are neither certainty rows nor a subsample.
    """
    evaluate_inline(link, sums, base, certain, sub, point, work)
