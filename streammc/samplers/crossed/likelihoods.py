"""Gibbs sampling of factors that cross for any family with one linear predictor.

    y_i ~ f(eta_i, scalars),    eta_i = x_i . beta + offset_i + sum_f u_f[l_f(i)],
    u_f[l] ~ Normal(0, tau_f^2).

Given all else the effects of one factor are independent. A sweep

1. proposes, factor by factor, each effect from the Normal of a Newton step, and accepts it by
   itself (Metropolis and Hastings), so that as many moves as there are levels cost two evaluations
   of each row; then the scale of the factor is drawn from ``p(tau | u)`` by a slice;
2. shifts: with ``x_j`` a column that is constant within the levels of a factor, as the intercept
   is, ``beta_j + delta`` and ``u_f[l] - delta x_j[l]`` leave every predictor as it is. ``delta`` is
   drawn from what is left, the prior of the effects, and accepted by the prior of beta;
3. proposes coefficients, scalars and scales together, effects moving with their scales (``u_f =
   tau_f v_f`` with v_f fixed; Yu and Meng 2011), from the Normal of a Newton step.

Without the second coefficients and effects would pass each other in small steps, the smaller the
more rows a level has; without the third scales of levels with few rows would.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.blocks import TILE
from streammc.numerics.addresses import matrix_view
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    record_type,
    vector,
)
from streammc.numerics.prior import log_prior, prior_curvature
from streammc.protocols import Matrix, Vector
from streammc.samplers.crossed.sweep import CROSSED_TYPE, Crossed, slice_scale

_HALF_LOG_2PI: Final = 0.9189385332046728
BLOCK_ROWS: Final = 1 << 13
"""Rows of the levels that are drawn together, unless one has more."""
ACCEPTED, PROPOSED, GLOBAL_ACCEPTED, GLOBAL_PROPOSED = range(4)


class Family(NamedTuple):
    """What a sweep knows of the model: numbers of parameters, constants of the link, the prior."""

    q: int
    scalars: int
    constants: Vector
    prior: Matrix
    """Table of the prior of theta."""
    constant: Matrix
    """(L, q) value of each column in each level, NaN in all levels of a factor if it varies within
    one; 0 in levels without rows."""


class Rows(NamedTuple):
    """All rows in the order of each factor."""

    values: NDArray[Any]
    """(F, n, q + 1) columns, and response."""
    offset: Matrix
    """(F, n); (F, 0) without."""


class Walk(NamedTuple):
    """A draw, and scratch; written in place."""

    theta: Vector
    """(q + s + F,) coefficients, scalars, logarithms of the scales."""
    effects: Vector
    """(L,)."""
    counts: Vector
    """(4,) accepted and proposed effects, accepted and proposed steps of theta."""
    known: Vector
    """Scratch of a block: predictors without the effect of the factor."""
    terms: Matrix
    """(3, block) log-likelihood of rows and its derivatives in the predictor."""
    tile: Vector
    """Scratch of a tile: predictors."""
    out: Vector
    """Scratch of a tile: what the link writes."""
    y: Vector
    """Scratch of a block: responses."""
    own: Vector
    """Scratch of a tile: the effect of each row in the first factor."""
    z: Vector
    """Scratch of a row: derivatives of its predictor in theta, (q + s + F,)."""
    trial: Matrix
    """(BLOCK_ROWS, 4) scratch of the levels of a block: proposed effect, log density, mean and
    precision of the proposal."""


def allocate_walk(family: Family, table: Crossed) -> Walk:
    """Return the position of a chain."""
    p, factors = 1 + family.scalars, len(table.first) - 1
    levels = int(table.first[-1])
    bounds = [table.start[table.first[f] + f : table.first[f + 1] + f + 1] for f in range(factors)]
    block = max(BLOCK_ROWS, *(int(np.diff(each).max()) for each in bounds))
    return Walk(
        np.zeros(family.q + family.scalars + factors),
        np.zeros(levels),
        np.zeros(4),
        np.zeros(block),
        np.zeros((3, block)),
        np.zeros(p * TILE),
        np.zeros((1 + p + p * (p + 1) // 2) * TILE),
        np.zeros(block),
        np.zeros(TILE),
        np.zeros(family.q + family.scalars + factors),
        np.zeros((BLOCK_ROWS, 4)),
    )


FAMILY_TYPE: Any = record_type(Family)
WALK_TYPE: Any = record_type(Walk)
_VALUES: Final = [types.Array(each, 3, "C") for each in (types.float32, types.float64)]


def constants_of(table: Crossed, rows: Rows, q: int) -> Matrix:
    """Return ``Family.constant``: the columns that do not vary within the levels of a factor."""
    constant = np.full((int(table.first[-1]), q), np.nan)
    for f in range(len(table.first) - 1):
        low, high = int(table.first[f]), int(table.first[f + 1])
        start = table.start[low + f : high + f + 1]
        seen = np.flatnonzero(np.diff(start))
        for j in range(q):
            if is_constant(rows.values[f], j, start):
                constant[low:high, j] = 0.0
                constant[low + seen, j] = rows.values[f, start[seen], j]
    return constant


@jit(
    *(
        types.boolean(types.Array(each, 2, "C"), i8, index_vector)
        for each in (types.float32, types.float64)
    )
)
def is_constant(values, j, start):  # type: ignore[no-untyped-def]
    """Return whether column ``j`` of rows in the order of levels does not vary within any."""
    for l in range(start.shape[0] - 1):
        for i in range(start[l] + 1, start[l + 1]):
            if values[i, j] != values[start[l], j]:
                return False
    return True


@inline
def _tile(link, family, walk, y, first, count, order):  # type: ignore[no-untyped-def]
    """Evaluate a tile, whose predictors are at the beginning of ``walk.tile``; return the views."""
    s = family.scalars
    eta = matrix_view(walk.tile, 1 + s, count)
    for a in range(s):
        value = walk.theta[family.q + a]
        for i in range(count):
            eta[1 + a, i] = value
    p = 1 + s
    out = matrix_view(walk.out, 1 + p + p * (p + 1) // 2, count)
    design = matrix_view(walk.tile, count, 0).T
    link(eta, design, y[first : first + count], family.constants, order, out)
    return out


@jit(
    *(
        types.void(
            LINK_TYPE, FAMILY_TYPE, CROSSED_TYPE, own, matrix, i8, WALK_TYPE, GENERATOR_TYPE,
        )
        for own in _VALUES
    )
)  # fmt: skip
def draw_effects(link, family, table, values, offset, f, walk, rng):  # type: ignore[no-untyped-def]
    """Propose and accept the effects of factor ``f``."""
    F, q = table.first.shape[0] - 1, family.q
    first, last = table.first[f], table.first[f + 1]
    tau = math.exp(walk.theta[q + family.scalars + f])
    own = 1.0 / (tau * tau)
    effects, known, terms = walk.effects, walk.known, walk.terms
    y, trial = walk.y, walk.trial
    weighted = table.row_weight.shape[1] > 0
    low = first
    while low < last:
        begin = table.start[low + f]
        high = low + 1
        while high < last and high - low < BLOCK_ROWS:
            if table.start[high + 1 + f] - begin > known.shape[0]:
                break
            high += 1
        end = table.start[high + f]
        for i in range(begin, end):
            total = offset[f, i] if offset.shape[1] > 0 else 0.0
            for place in range(F - 1):
                total += effects[table.codes[f * (F - 1) + place, i]]
            for j in range(q):
                total += values[f, i, j] * walk.theta[j]
            known[i - begin] = total
            y[i - begin] = values[f, i, q]
        for attempt in range(2):
            for l in range(low, high):
                u = effects[l] if attempt == 0 else trial[l - low, 0]
                for i in range(table.start[l + f] - begin, table.start[l + 1 + f] - begin):
                    terms[0, i] = known[i] + u
            for at in range(0, end - begin, TILE):
                count = min(TILE, end - begin - at)
                for i in range(count):
                    walk.tile[i] = terms[0, at + i]
                out = _tile(link, family, walk, y, at, count, 2)
                p = 1 + family.scalars
                for i in range(count):
                    w = table.row_weight[f, begin + at + i] if weighted else 1.0
                    terms[0, at + i] = w * out[0, i]
                    terms[1, at + i] = w * out[1, i]
                    terms[2, at + i] = w * out[1 + p, i]
            for l in range(low, high):
                value = gradient = curvature = 0.0
                for i in range(table.start[l + f] - begin, table.start[l + 1 + f] - begin):
                    value += terms[0, i]
                    gradient += terms[1, i]
                    curvature -= terms[2, i]
                u = effects[l] if attempt == 0 else trial[l - low, 0]
                value -= 0.5 * own * u * u
                precision = max(curvature, 0.0) + own
                mean = u + (gradient - own * u) / precision
                if attempt == 0:
                    step = mean + rng.standard_normal() / math.sqrt(precision)
                    own_trial = trial[l - low]
                    own_trial[0], own_trial[1] = step, value
                    own_trial[2], own_trial[3] = mean, precision
                else:
                    old, before = effects[l], trial[l - low, 3]
                    ratio = value - trial[l - low, 1]
                    ratio += 0.5 * (math.log(precision) - math.log(before))
                    ratio -= 0.5 * precision * (old - mean) ** 2
                    ratio += 0.5 * before * (u - trial[l - low, 2]) ** 2
                    walk.counts[PROPOSED] += 1.0
                    if math.log(1.0 - rng.random()) < ratio:
                        effects[l] = u
                        walk.counts[ACCEPTED] += 1.0
        low = high


@jit(
    *(
        f8(
            LINK_TYPE, FAMILY_TYPE, CROSSED_TYPE, own, matrix, WALK_TYPE, vector, matrix,
        )
        for own in _VALUES
    )
)  # fmt: skip
def expand(link, family, table, values, offset, walk, gradient, hessian):  # type: ignore[no-untyped-def]
    """Return the log-likelihood at theta, write its gradient and about minus its Hessian.

    They are of coefficients, scalars and the logarithms of the scales, effects moving with these.
    Of the predictor's curvature negative parts are left out, and the second derivative of the
    predictor in a scale. The last row of ``hessian`` (D + 1, D) has the sums of the
    squares of the derivatives in the scalars.
    """
    F, q, s = table.first.shape[0] - 1, family.q, family.scalars
    D, p, n = q + s + F, 1 + family.scalars, values.shape[1]
    weighted = table.row_weight.shape[1] > 0
    y, z = walk.y, walk.z
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    total = 0.0
    l = 0
    for at in range(0, n, TILE):
        count = min(TILE, n - at)
        for i in range(count):
            row = at + i
            eta = offset[0, row] if offset.shape[1] > 0 else 0.0
            while table.start[l + 1] <= row:
                l += 1
            walk.own[i] = walk.effects[l]
            eta += walk.own[i]
            for place in range(F - 1):
                eta += walk.effects[table.codes[place, row]]
            for j in range(q):
                eta += values[0, row, j] * walk.theta[j]
            walk.tile[i] = eta
            y[i] = values[0, row, q]
        out = _tile(link, family, walk, y, 0, count, 2)
        part = 0.0
        for i in range(count):
            row = at + i
            w = table.row_weight[0, row] if weighted else 1.0
            part += w * out[0, i]
            slope, curve = w * out[1, i], max(-w * out[1 + p, i], 0.0)
            for j in range(q):  # how the predictor depends on what is linear in it
                z[j] = values[0, row, j]
            for a in range(s):
                z[q + a] = 0.0
            z[q + s] = walk.own[i]
            for place in range(F - 1):
                z[q + s + 1 + place] = walk.effects[table.codes[place, row]]
            for j in range(D):
                gradient[j] += slope * z[j]
                for k in range(j + 1):
                    hessian[j, k] += curve * z[j] * z[k]
            pair = 1 + p + p
            for a in range(s):
                gradient[q + a] += w * out[2 + a, i]
                hessian[D, q + a] += w * out[2 + a, i] * out[2 + a, i]
                cross = w * out[2 + p + a, i]
                for j in range(q):
                    hessian[q + a, j] -= cross * z[j]
                for j in range(q + s, D):
                    hessian[j, q + a] -= cross * z[j]
                for b in range(a, s):
                    hessian[q + b, q + a] -= w * out[pair, i]
                    pair += 1
        total += part
    return total


@inline
def _factor(A, root):  # type: ignore[no-untyped-def]
    """Write the Cholesky factor of ``A`` by its lower triangle; return whether it has one."""
    for j in range(root.shape[0]):
        for k in range(j + 1):
            total = A[j, k]
            for i in range(k):
                total -= root[j, i] * root[k, i]
            if j == k:
                if not total > 0.0:
                    return False
                root[j, j] = math.sqrt(total)
            else:
                root[j, k] = total / root[k, k]
    return True


@jit(i8(FAMILY_TYPE, matrix, vector, vector, vector, matrix, vector))
def _newton(family, A, gradient, curvature, theta, root, mean):  # type: ignore[no-untyped-def]
    """Write the mean and the root of the precision of a step from ``theta``; 0 if it has none.

    To ``A`` the curvature of the prior is added. Logarithms step by 1 at most. Where ``A`` is not
    positive, scalars step by themselves, by the squares of their derivatives. A step is at most 3
    standard deviations long.
    """
    D, q, s = theta.shape[0], family.q, family.scalars
    for j in range(D):
        A[j, j] += curvature[j]
        if j >= q:
            A[j, j] = max(A[j, j], 1.0)
    if not _factor(A, root):
        for a in range(q, q + s):
            for j in range(D):
                if j > a:
                    A[j, a] = 0.0
                elif j < a:
                    A[a, j] = 0.0
            A[a, a] = max(A[D, a] + curvature[a], 1.0)
        if not _factor(A, root):
            return 0
    square = 0.0
    for j in range(D):
        total = gradient[j]
        for i in range(j):
            total -= root[j, i] * mean[i]
        mean[j] = total / root[j, j]
        square += mean[j] * mean[j]
    length = min(1.0, 3.0 / math.sqrt(max(square, 1e-300)))
    for j in range(D - 1, -1, -1):
        total = mean[j]
        for i in range(j + 1, D):
            total -= root[i, j] * mean[i]
        mean[j] = total / root[j, j]
    for j in range(D):
        mean[j] = theta[j] + length * mean[j]
    return 1


@inline
def _log_normal(root, mean, at):  # type: ignore[no-untyped-def]
    """Return the log density of Normal(mean, (root root')^-1), but for a constant."""
    value = 0.0
    for j in range(at.shape[0]):
        total = 0.0
        for i in range(j, at.shape[0]):
            total += root[i, j] * (at[i] - mean[i])
        value += math.log(root[j, j]) - 0.5 * total * total
    return value


@inline
def _scale_effects(table, walk, at, sign):  # type: ignore[no-untyped-def]
    """Multiply the effects of each factor by ``exp(sign at[f])``."""
    for f in range(table.first.shape[0] - 1):
        ratio = math.exp(sign * at[f])
        for l in range(table.first[f], table.first[f + 1]):
            walk.effects[l] *= ratio


@jit(
    *(
        f8(
            LINK_TYPE, FAMILY_TYPE, CROSSED_TYPE, own, matrix, WALK_TYPE, GENERATOR_TYPE,
        )
        for own in _VALUES
    )
)  # fmt: skip
def draw_theta(link, family, table, values, offset, walk, rng):  # type: ignore[no-untyped-def]
    """Propose and accept theta, effects moving with their scales; return the log-likelihood."""
    D, F = walk.theta.shape[0], table.first.shape[0] - 1
    A, B = np.zeros((D + 1, D)), np.zeros((D + 1, D))
    root, back_root = np.zeros((D, D)), np.zeros((D, D))
    gradient, curvature = np.zeros(D), np.zeros(D)
    mean, back, old, moved = np.zeros(D), np.zeros(D), walk.theta.copy(), np.zeros(F)
    value = expand(link, family, table, values, offset, walk, gradient, A)
    density = value + log_prior(walk.theta, family.prior, gradient)
    prior_curvature(walk.theta, family.prior, curvature)
    walk.counts[GLOBAL_PROPOSED] += 1.0
    if _newton(family, A, gradient, curvature, old, root, mean) == 0:
        return value
    for j in range(D - 1, -1, -1):
        total = rng.standard_normal()
        for i in range(j + 1, D):
            total -= root[i, j] * (walk.theta[i] - mean[i])
        walk.theta[j] = mean[j] + total / root[j, j]
    for f in range(F):
        moved[f] = walk.theta[D - F + f] - old[D - F + f]
    _scale_effects(table, walk, moved, 1.0)
    new = expand(link, family, table, values, offset, walk, gradient, B)
    density_new = new + log_prior(walk.theta, family.prior, gradient)
    prior_curvature(walk.theta, family.prior, curvature)
    accepted = False
    finite = math.isfinite(density_new)
    if finite and _newton(family, B, gradient, curvature, walk.theta, back_root, back) == 1:
        ratio = density_new - density + _log_normal(back_root, back, old)
        ratio -= _log_normal(root, mean, walk.theta)
        accepted = math.log(1.0 - rng.random()) < ratio
    if accepted:
        value = new
        walk.counts[GLOBAL_ACCEPTED] += 1.0
    else:
        _scale_effects(table, walk, moved, -1.0)
        walk.theta[:] = old
    return value


@jit(types.void(FAMILY_TYPE, CROSSED_TYPE, i8, WALK_TYPE, GENERATOR_TYPE))
def shift(family, table, f, walk, rng):  # type: ignore[no-untyped-def]
    """Move coefficients against the effects of factor ``f``, every predictor staying as it is."""
    D, F = walk.theta.shape[0], table.first.shape[0] - 1
    own = math.exp(-2.0 * walk.theta[D - F + f])
    slope = np.zeros(D)
    first, last = table.first[f], table.first[f + 1]
    for j in range(family.q):
        if not math.isfinite(family.constant[first, j]):
            continue
        precision = linear = 0.0
        for l in range(first, last):
            x = family.constant[l, j]
            precision += x * x
            linear += x * walk.effects[l]
        precision *= own
        if not precision > 0.0:
            continue
        delta = own * linear / precision + rng.standard_normal() / math.sqrt(precision)
        before = log_prior(walk.theta, family.prior, slope)
        walk.theta[j] += delta
        ratio = log_prior(walk.theta, family.prior, slope) - before
        if math.log(1.0 - rng.random()) < ratio:
            for l in range(first, last):
                walk.effects[l] -= delta * family.constant[l, j]
        else:
            walk.theta[j] -= delta


@jit(
    *(
        f8(
            LINK_TYPE, FAMILY_TYPE, CROSSED_TYPE, own, matrix, WALK_TYPE, GENERATOR_TYPE,
        )
        for own in _VALUES
    )
)  # fmt: skip
def sweep(link, family, table, values, offset, walk, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    D, F = walk.theta.shape[0], table.first.shape[0] - 1
    for f in range(F):
        draw_effects(link, family, table, values, offset, f, walk, rng)
        shift(family, table, f, walk, rng)
        squares = 0.0
        for l in range(table.first[f], table.first[f + 1]):
            squares += walk.effects[l] * walk.effects[l]
        levels = float(table.first[f + 1] - table.first[f])
        at = D - F + f
        walk.theta[at] = slice_scale(0, walk.theta[at], levels, squares, family.prior, at, rng)
    value = draw_theta(link, family, table, values, offset, walk, rng)
    for f in range(F):
        t = walk.theta[D - F + f]
        squares = 0.0
        for l in range(table.first[f], table.first[f + 1]):
            squares += walk.effects[l] * walk.effects[l]
        levels = float(table.first[f + 1] - table.first[f])
        value -= levels * (t + _HALF_LOG_2PI) + 0.5 * squares * math.exp(-2.0 * t)
    return value
