"""Gibbs sampling of factors that cross for any family with one linear predictor.

    y_i ~ f(eta_i, scalars),    eta_i = x_i . beta + offset_i + sum_f u_f[l_f(i)],
    u_f[l] ~ Normal(0, tau_f^2).

Given all else the effects of one factor are independent. A sweep

1. proposes, factor by factor, each effect from the Student t of a Newton step, and accepts it by
   itself (Metropolis and Hastings), so that as many moves as there are levels cost two evaluations
   of each row; then the scale of the factor is drawn from ``p(tau | u)`` by a slice;
2. shifts: with ``x_j`` a column that is constant within the levels of a factor, as the intercept
   is, ``beta_j + delta`` and ``u_f[l] - delta x_j[l]`` leave every predictor as it is. ``delta`` is
   drawn from what is left, the prior of the effects, and accepted by the prior of beta. Effects of
   an outer factor shift likewise against those of the factors nested in it;
3. proposes coefficients, scalars and scales together, from the Student t of a Newton step. Effects
   move with their scales: of ``u_f[l] = tau_f^a_l v_f[l]`` v is fixed.

Without the second coefficients and effects would pass each other in small steps, the smaller the
more rows a level has. In the third ``a`` is 1 for a level without rows and falls to 0 for one with
very many (Papaspiliopoulos, Roberts and Skold 2007): where the rows of a level have ``c_l`` times
the information on its effect that its distribution has, the mean square of the effect given tau
moves with ``tau^2a``, ``a = 1 - (c_l / (1 + c_l))^2``. ``c_l`` is ``n_l`` times the information of
a row, of which warm-up finds the mean. For Student t proposals the ratio of densities is bounded
wherever the posterior has the tails of a normal or an exponential.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

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
from streammc.samplers.crossed.sweep import CROSSED_TYPE, Crossed, shift_nested, slice_scale

_HALF_LOG_2PI: Final = 0.9189385332046728
BLOCK_ROWS: Final = 1 << 13
"""Rows of the levels that are drawn together, unless one has more."""
DF: Final = 10.0
"""Degrees of freedom of proposals."""
CLIMBS: Final = 12
"""Sweeps before the first that only go uphill, with the scales of the effects as they are."""
_LEARNT: Final = 0.1
"""Weight of a sweep of warm-up in the information of a row."""


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
    """All rows in the order of each factor, in the precision of the store."""

    single: Annotated[NDArray[np.float32], 3]
    """(F, n, q + 1) columns, and response; n = 0 in double precision."""
    double: Annotated[NDArray[np.float64], 3]
    """The same; n = 0 in single precision."""
    offset: Matrix
    """(F, n); (F, 0) without."""


class Walk(NamedTuple):
    """A draw, what warm-up has learnt, and scratch; written in place."""

    theta: Vector
    """(q + s + F,) coefficients, scalars, logarithms of the scales."""
    effects: Vector
    """(L,)."""
    pull: Vector
    """(F,) information of a row on an effect over that of its distribution."""
    information: Vector
    """(1,) mean information of a row on its predictor, at the last theta that was tried."""
    power: Vector
    """(L,) ``a``, by :func:`set_powers`."""
    before: Vector
    """Scratch (L,): effects before a step of theta."""
    moving: Matrix
    """Scratch (L, 3): effects, and two derivatives of them in the logarithm of the scale."""
    known: Vector
    """Scratch of a block: predictors without the effect of the factor."""
    y: Vector
    """Scratch of a block: responses."""
    terms: Matrix
    """Scratch of a block (3, block): log-likelihood of rows, its derivatives in the predictor."""
    trial: Matrix
    """Scratch of the levels of a block (BLOCK_ROWS, 4): proposed effect, log density, centre and
    precision of the proposal."""
    z: Matrix
    """Scratch of a tile (q + s + 2 F, TILE): derivatives of predictors in theta, columns first; of
    scales the second ones too."""
    eta: Vector
    """Scratch of a tile: predictors, and scalars."""
    out: Vector
    """Scratch of a tile: what the link writes."""


def allocate_walk(family: Family, table: Crossed) -> Walk:
    """Return the position of a chain."""
    p, factors = 1 + family.scalars, len(table.first) - 1
    levels, d = int(table.first[-1]), family.q + family.scalars + factors
    bounds = [table.start[table.first[f] + f : table.first[f + 1] + f + 1] for f in range(factors)]
    block = max(BLOCK_ROWS, *(int(np.diff(each).max()) for each in bounds))
    return Walk(
        theta=np.zeros(d),
        effects=np.zeros(levels),
        pull=np.zeros(factors),
        information=np.zeros(1),
        power=np.ones(levels),
        before=np.zeros(levels),
        moving=np.zeros((levels, 3)),
        known=np.zeros(block),
        y=np.zeros(block),
        terms=np.zeros((3, block)),
        trial=np.zeros((BLOCK_ROWS, 4)),
        z=np.zeros((d + factors, TILE)),
        eta=np.zeros(p * TILE),
        out=np.zeros((1 + p + p * (p + 1) // 2) * TILE),
    )


FAMILY_TYPE: Any = record_type(Family)
ROWS_TYPE: Any = record_type(Rows)
WALK_TYPE: Any = record_type(Walk)
_PROBLEM: Final = (LINK_TYPE, FAMILY_TYPE, CROSSED_TYPE, ROWS_TYPE, WALK_TYPE)


def constants_of(table: Crossed, rows: Rows, q: int) -> Matrix:
    """Return ``Family.constant``: the columns that do not vary within the levels of a factor."""
    constant = np.full((int(table.first[-1]), q), np.nan)
    values = rows.single if rows.single.shape[1] else rows.double
    for f in range(len(table.first) - 1):
        low, high = int(table.first[f]), int(table.first[f + 1])
        start = table.start[low + f : high + f + 1]
        seen = np.flatnonzero(np.diff(start))
        for j in range(q):
            if is_constant(values[f], j, start):
                constant[low:high, j] = 0.0
                constant[low + seen, j] = values[f, start[seen], j]
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
def _load(family, rows, f, begin, count, walk, y, at):  # type: ignore[no-untyped-def]
    """Write columns, responses, and the part of predictors that is not of effects, of a tile."""
    q, z, eta = family.q, walk.z, walk.eta
    if rows.single.shape[1] > 0:
        for i in range(count):
            for j in range(q):
                z[j, i] = rows.single[f, begin + i, j]
            y[at + i] = rows.single[f, begin + i, q]
    else:
        for i in range(count):
            for j in range(q):
                z[j, i] = rows.double[f, begin + i, j]
            y[at + i] = rows.double[f, begin + i, q]
    for i in range(count):
        eta[i] = rows.offset[f, begin + i] if rows.offset.shape[1] > 0 else 0.0
    for j in range(q):
        slope = walk.theta[j]
        for i in range(count):
            eta[i] += z[j, i] * slope


@inline
def _evaluate(link, family, walk, y, first, count):  # type: ignore[no-untyped-def]
    """Return what the link writes of a tile, whose predictors begin ``walk.eta``."""
    p = 1 + family.scalars
    eta = matrix_view(walk.eta, p, count)
    for a in range(1, p):
        value = walk.theta[family.q + a - 1]
        for i in range(count):
            eta[a, i] = value
    out = matrix_view(walk.out, 1 + p + p * (p + 1) // 2, count)
    design = matrix_view(walk.eta, count, 0).T
    link(eta, design, y[first : first + count], family.constants, 2, out)
    return out


@jit(types.void(*_PROBLEM, i8, i8, GENERATOR_TYPE))
def draw_effects(link, family, table, rows, walk, f, climb, rng):  # type: ignore[no-untyped-def]
    """Propose and accept the effects of factor ``f``; with ``climb``, go uphill."""
    F, p = table.first.shape[0] - 1, 1 + family.scalars
    first, last = table.first[f], table.first[f + 1]
    prior = math.exp(-2.0 * walk.theta[family.q + family.scalars + f])
    effects, known, terms, trial = walk.effects, walk.known, walk.terms, walk.trial
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
        for at in range(0, end - begin, TILE):
            count = min(TILE, end - begin - at)
            _load(family, rows, f, begin + at, count, walk, walk.y, at)
            for i in range(count):
                total = walk.eta[i]
                for place in range(F - 1):
                    total += effects[table.codes[f * (F - 1) + place, begin + at + i]]
                known[at + i] = total
        for attempt in range(2):
            for l in range(low, high):
                u = effects[l] if attempt == 0 else trial[l - low, 0]
                for i in range(table.start[l + f] - begin, table.start[l + 1 + f] - begin):
                    terms[0, i] = known[i] + u
            for at in range(0, end - begin, TILE):
                count = min(TILE, end - begin - at)
                for i in range(count):
                    walk.eta[i] = terms[0, at + i]
                out = _evaluate(link, family, walk, walk.y, at, count)
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
                tried = trial[l - low]
                u = effects[l] if attempt == 0 else tried[0]
                value -= 0.5 * prior * u * u
                precision = max(curvature, 0.0) + prior
                # A step of Newton may be far too long where responses are counts.
                most = 1.0 + 1.0 / math.sqrt(precision)
                step = (gradient - prior * u) / precision
                centre = u + min(max(step, -most), most)
                if attempt == 0:
                    tried[1], tried[2], tried[3] = value, centre, precision
                    if climb:
                        tried[0] = u + (centre - u) * _length(rng)
                    else:
                        away = rng.standard_normal() / math.sqrt(precision)
                        tried[0] = centre + away * _spread(rng)
                elif climb:
                    if value > tried[1]:
                        effects[l] = u
                else:
                    ratio = value - tried[1]
                    ratio += _log_t(effects[l] - centre, precision)
                    ratio -= _log_t(u - tried[2], tried[3])
                    if math.log(1.0 - rng.random()) < ratio:
                        effects[l] = u
        low = high


@inline
def _length(rng):  # type: ignore[no-untyped-def]
    """Return the part of a step uphill: all of it, or, as that may be too long, less."""
    return 1.0 if rng.random() < 0.5 else rng.random()


@inline
def _spread(rng):  # type: ignore[no-untyped-def]
    """Return what makes a normal number one of Student's t with ``DF`` degrees of freedom."""
    return math.sqrt(0.5 * DF / rng.standard_gamma(0.5 * DF))


@inline
def _log_t(away, precision):  # type: ignore[no-untyped-def]
    """Return the log density of Student's t, but for a constant."""
    return 0.5 * math.log(precision) - 0.5 * (DF + 1.0) * math.log1p(precision * away * away / DF)


@inline(reassociate=True)
def _sum(count, a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        total += a[i] * b[i]
    return total


@inline(reassociate=True)
def _weighted_sum(count, w, a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        total += w[i] * a[i] * b[i]
    return total


@jit(f8(*_PROBLEM, vector, matrix))
def expand(link, family, table, rows, walk, gradient, hessian):  # type: ignore[no-untyped-def]
    """Return the log density at theta, write its gradient and about minus its Hessian.

    It is that of responses and effects, but for the prior of theta, in coefficients, scalars and
    the logarithms of the scales, effects moving with these. Of the predictor's curvature negative
    parts are left out. The last row of ``hessian`` (D + 1, D) has the sums of the squares of the
    derivatives in the scalars.
    """
    F, q, s = table.first.shape[0] - 1, family.q, family.scalars
    D, p, n = q + s + F, 1 + family.scalars, int(table.rows)
    weighted = table.row_weight.shape[1] > 0
    y, z, moving, eta = walk.y, walk.z, walk.moving, walk.eta
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    total = information = 0.0
    for f in range(F):
        t = walk.theta[q + s + f]
        prior = math.exp(-2.0 * t)
        squares = fixed = first = second = 0.0
        for l in range(table.first[f], table.first[f + 1]):
            u, a = walk.effects[l], walk.power[l]
            moving[l, 0] = u
            moving[l, 1] = a * u
            moving[l, 2] = a * a * u
            rest = 1.0 - a
            squares += u * u
            fixed += rest
            first += rest * u * u
            second += rest * rest * u * u
        levels = float(table.first[f + 1] - table.first[f])
        total -= fixed * t + 0.5 * prior * squares + levels * _HALF_LOG_2PI
        gradient[q + s + f] = prior * first - fixed
        hessian[q + s + f, q + s + f] = 2.0 * prior * second
    z[q : q + s] = 0.0
    l = 0
    for at in range(0, n, TILE):
        count = min(TILE, n - at)
        _load(family, rows, 0, at, count, walk, y, 0)
        for i in range(count):
            while table.start[l + 1] <= at + i:
                l += 1
            eta[i] += moving[l, 0]
            z[q + s, i] = moving[l, 1]
            z[D, i] = moving[l, 2]
        for place in range(F - 1):
            for i in range(count):
                other = table.codes[place, at + i]
                eta[i] += moving[other, 0]
                z[q + s + 1 + place, i] = moving[other, 1]
                z[D + 1 + place, i] = moving[other, 2]
        out = _evaluate(link, family, walk, y, 0, count)
        if weighted:
            for k in range(out.shape[0]):
                for i in range(count):
                    out[k, i] *= table.row_weight[0, at + i]
        part = curvature = 0.0
        for i in range(count):
            part += out[0, i]
            out[1 + p, i] = max(-out[1 + p, i], 0.0)
            curvature += out[1 + p, i]
        total += part
        information += curvature
        for j in range(D):
            gradient[j] += _sum(count, out[1], z[j])
            for k in range(j + 1):
                hessian[j, k] += _weighted_sum(count, out[1 + p], z[j], z[k])
        for f in range(F):
            hessian[q + s + f, q + s + f] -= _sum(count, out[1], z[D + f])
        pair = 1 + p + p
        for a in range(s):
            score, cross = out[2 + a], out[2 + p + a]
            for i in range(count):
                w = table.row_weight[0, at + i] if weighted else 1.0
                gradient[q + a] += score[i]
                hessian[D, q + a] += score[i] * score[i] / w
            for j in range(q):
                hessian[q + a, j] -= _sum(count, cross, z[j])
            for j in range(q + s, D):
                hessian[j, q + a] -= _sum(count, cross, z[j])
            for b in range(a, s):
                both = 0.0
                for i in range(count):
                    both += out[pair, i]
                hessian[q + b, q + a] -= both
                pair += 1
    walk.information[0] = information / n
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


@jit(i8(FAMILY_TYPE, i8, matrix, vector, vector, vector, matrix, vector))
def _newton(family, climb, A, gradient, curvature, theta, root, mean):  # type: ignore[no-untyped-def]
    """Write the centre and the root of the precision of a step from ``theta``; 0 if it has none.

    To ``A`` the curvature of the prior is added; that of logarithms is at least 1. Where ``A`` is
    not positive, scalars step by themselves, by the squares of their derivatives. A step is at most
    3 standard deviations long. With ``climb`` scales of effects stay, and scalars step by 1 at
    most.
    """
    D, q, s = theta.shape[0], family.q, family.scalars
    for j in range(D):
        A[j, j] += curvature[j]
        if j >= q:
            A[j, j] = max(A[j, j], 1.0)
        if climb and j >= q + s:
            A[j, :j] = 0.0
            A[j:D, j] = 0.0
            A[j, j] = 1.0
            gradient[j] = 0.0
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
    most = 1.0
    for j in range(D - 1, -1, -1):
        total = mean[j]
        for i in range(j + 1, D):
            total -= root[i, j] * mean[i]
        mean[j] = total / root[j, j]
        if j >= q:
            most = max(most, abs(mean[j]))
    if climb:
        length = 1.0 / most
    for j in range(D):
        mean[j] = theta[j] + length * mean[j]
    return 1


@inline
def _log_joint_t(root, mean, at):  # type: ignore[no-untyped-def]
    """Return the log density of Student's t of precision ``root root'``, but for a constant."""
    value = square = 0.0
    D = at.shape[0]
    for j in range(D):
        total = 0.0
        for i in range(j, D):
            total += root[i, j] * (at[i] - mean[i])
        value += math.log(root[j, j])
        square += total * total
    return value - 0.5 * (DF + D) * math.log1p(square / DF)


@jit(f8(*_PROBLEM, i8, GENERATOR_TYPE))
def draw_theta(link, family, table, rows, walk, climb, rng):  # type: ignore[no-untyped-def]
    """Propose and accept theta, effects moving with their scales; return :func:`expand`'s value."""
    D, F = walk.theta.shape[0], table.first.shape[0] - 1
    A, root, back_root = np.zeros((D + 1, D)), np.zeros((D, D)), np.zeros((D, D))
    gradient, curvature = np.zeros(D), np.zeros(D)
    mean, back, old = np.zeros(D), np.zeros(D), walk.theta.copy()
    value = expand(link, family, table, rows, walk, gradient, A)
    density = value + log_prior(old, family.prior, gradient)
    prior_curvature(old, family.prior, curvature)
    if _newton(family, climb, A, gradient, curvature, old, root, mean) == 0:
        return value
    if climb:
        length = _length(rng)
        for j in range(D):
            walk.theta[j] += length * (mean[j] - old[j])
    else:
        wide = _spread(rng)
        for j in range(D - 1, -1, -1):
            total = rng.standard_normal() * wide
            for i in range(j + 1, D):
                total -= root[i, j] * (walk.theta[i] - mean[i])
            walk.theta[j] = mean[j] + total / root[j, j]
    walk.before[:] = walk.effects
    for f in range(F):
        moved = walk.theta[D - F + f] - old[D - F + f]
        for l in range(table.first[f], table.first[f + 1]):
            walk.effects[l] *= math.exp(walk.power[l] * moved)
    new = expand(link, family, table, rows, walk, gradient, A)
    proposed = new + log_prior(walk.theta, family.prior, gradient)
    prior_curvature(walk.theta, family.prior, curvature)
    accepted = False
    if climb:
        accepted = proposed > density
    elif (
        math.isfinite(proposed)
        and _newton(family, 0, A, gradient, curvature, walk.theta, back_root, back) == 1
    ):
        ratio = proposed - density + _log_joint_t(back_root, back, old)
        ratio -= _log_joint_t(root, mean, walk.theta)
        accepted = math.log(1.0 - rng.random()) < ratio
    if accepted:
        value = new
    else:
        walk.effects[:] = walk.before
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


@jit(f8(*_PROBLEM, i8, GENERATOR_TYPE))
def sweep(link, family, table, rows, walk, climb, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    D, F = walk.theta.shape[0], table.first.shape[0] - 1
    if not climb:
        shift_nested(table, family.prior, D - F, walk.theta[D - F :], walk.effects, rng)
    for f in range(F):
        draw_effects(link, family, table, rows, walk, f, climb, rng)
        if climb:
            continue
        shift(family, table, f, walk, rng)
        squares = 0.0
        for l in range(table.first[f], table.first[f + 1]):
            squares += walk.effects[l] * walk.effects[l]
        levels = float(table.first[f + 1] - table.first[f])
        at = D - F + f
        walk.theta[at] = slice_scale(0, walk.theta[at], levels, squares, family.prior, at, rng)
    value = draw_theta(link, family, table, rows, walk, climb, rng)
    for f in range(F):  # the density of v becomes that of the effects
        power = 0.0
        for l in range(table.first[f], table.first[f + 1]):
            power += walk.power[l]
        value -= power * walk.theta[D - F + f]
    return value


@jit(types.void(CROSSED_TYPE, WALK_TYPE), borrow=True)
def set_powers(table, walk):  # type: ignore[no-untyped-def]
    """Write how far each effect moves with its scale, from what has been learnt."""
    for f in range(table.first.shape[0] - 1):
        for l in range(table.first[f], table.first[f + 1]):
            c = table.weight[l] * walk.pull[f]
            walk.power[l] = 1.0 - (c / (1.0 + c)) ** 2


@jit(types.void(CROSSED_TYPE, WALK_TYPE), borrow=True)
def learn(table, walk):  # type: ignore[no-untyped-def]
    """Let a sweep of warm-up count for the information of a row on effects."""
    F = table.first.shape[0] - 1
    per_weight = walk.information[0] * table.rows / table.total
    for f in range(F):
        found = per_weight * math.exp(2.0 * walk.theta[walk.theta.shape[0] - F + f])
        walk.pull[f] += _LEARNT * (found - walk.pull[f])
    set_powers(table, walk)
