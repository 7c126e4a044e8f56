"""Collapsed Gibbs sampling of a Gaussian model with factors that cross.

    y_i = x_i . beta + sum_f u_f[l_f(i)] + e_i,
    u_f[l] ~ Normal(0, tau_f^2),    e_i ~ Normal(0, sigma^2),

where the density of row i has the power ``w_i``, with a jointly normal prior of beta, and any prior
of the scales. A sweep draws, factor by factor,

    (beta, u_f) given the effects of the other factors and the scales,

beta with ``u_f`` integrated out, then ``u_f`` given beta (Papaspiliopoulos, Roberts and Zanella
2020, where beta is a mean): chains mix at a rate that does not depend on the numbers of levels.
With ``n_l = sum_i w_i`` over the rows of a level, ``S_l = sum_i w_i x_i``, ``r_l = sum_i w_i (y_i -
sum_(g != f) u_g[l_g(i)])`` and ``k_l = 1 / (n_l / sigma^2 + 1 / tau_f^2)``,

    A = X'WX / sigma^2 + P - sum_l S_l S_l' k_l / sigma^4,
    b = X'W(y - sum_(g != f) u_g) / sigma^2 + P m - sum_l S_l r_l k_l / sigma^4,
    beta ~ Normal(A^-1 b, A^-1),    u_f[l] ~ Normal(k_l (r_l - S_l . beta) / sigma^2, k_l).

Where sigma is far below tau these differences lose digits. With ``1 / sigma^2 - n_l k_l / sigma^4 =
1 / (n_l tau_f^2 + sigma^2)`` both are computed as the part within levels, ``C_f = X'WX - sum_l S_l
S_l' / n_l`` once for all sweeps, over sigma^2, plus the part between them, ``sum_l (S_l S_l' / n_l)
/ (n_l tau_f^2 + sigma^2)``.

Before it the effects of an outer factor move against those of the factors nested in it, which no
predictor sees. All sums but ``r_l`` are over levels. ``r_l`` needs, of every row, the effects of
the other factors: one gather a factor, in the order of its levels, so that what is written is
sequential.

Each scale is drawn twice a sweep, given effects ``u = tau v``: from ``p(tau | u)``, and, with v
fixed in place of u, from ``p(tau | v, y)``, after which the effects move with it
(ancillarity-sufficiency interweaving, Yu and Meng 2011). The first mixes fast where levels have
many rows, the second where they have few. ``sigma`` is drawn from ``p(sigma | beta, u)``, whose sum
of squares follows from sums over levels and of what the gathers pass by. All three are slices (Neal
2003) of a density of one number on the logarithmic scale.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import GENERATOR_TYPE, f8, i8, inline, jit, matrix, record_type, vector
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector

_HALF_LOG_2PI: Final = 0.9189385332046728
Codes = Annotated[NDArray[np.int32], 2]


class Crossed(NamedTuple):
    """Sums of a table over its rows, and its factors.

    Levels of all factors are numbered in one row, of length L: those of factor f are from
    ``first[f]`` to ``first[f + 1]``.
    """

    gram: Matrix
    """(q, q) ``X'WX``."""
    within: Matrix
    """(F q, q) ``C_f`` of each factor, one below the other."""
    cross: Vector
    """(q,) ``X'Wy``."""
    square: float
    """``y'Wy``."""
    total: float
    """Sum of the weights."""
    rows: float
    """Number of rows."""
    first: Index
    """(F + 1,)."""
    weight: Vector
    """(L,) ``n_l``."""
    response: Vector
    """(L,) ``sum_i w_i y_i`` of the rows of a level."""
    design: Matrix
    """(L, q) ``S_l``."""
    start: Index
    """(L + F,) row of a factor's order with which each of its levels begins, and the end."""
    codes: Codes
    """(F (F - 1), n) levels of the other factors, in the order of the levels of factor f: its rows
    are ``f (F - 1)`` and following, the factors before f first. Counted from 0 over all factors."""
    row_weight: Matrix
    """(F, n) weights in the same orders; (F, 0): all 1."""
    nested: Index
    """(2 P,) pairs of factors, one after the other: the rows of a level of the first have one level
    of the second."""
    parent: Annotated[NDArray[np.int32], 2]
    """(P, L) that level, of the levels of the first of a pair; -1 without rows, and elsewhere."""


CROSSED_TYPE: Any = record_type(Crossed)


class Scales(NamedTuple):
    """Priors: rows of the prior table of the logarithms of scales, and that of beta."""

    table: Matrix
    """(F + 1, 5) of ``log tau_f`` and ``log sigma``, Jacobians included."""
    precision: Matrix
    """(q, q) ``P``."""
    shift: Vector
    """(q,) ``P m``."""


SCALES_TYPE: Any = record_type(Scales)


class State(NamedTuple):
    """A draw, and scratch; written in place."""

    beta: Vector
    """(q,)."""
    log_scale: Vector
    """(F + 1,) ``log tau_f``, then ``log sigma``."""
    effects: Vector
    """(L,)."""
    spread: Vector
    """(F,) sum of the squares of the effects of each factor."""
    others: Matrix
    """(2, L) weighted sums of the effects of the factors before and after, over a level's rows."""


STATE_TYPE: Any = record_type(State)


@inline
def _density(kind, t, linear, square, row, theta, slope):  # type: ignore[no-untyped-def]
    """Return the log density of the logarithm ``t`` of a scale.

    ``kind`` 0: ``exp(-linear t - square exp(-2 t) / 2)``, of a scale given what it is the scale of;
    1: ``exp(linear e^t - square e^(2 t) / 2)``, of one that multiplies what is fixed. Times the
    prior, a row of its table.
    """
    theta[0] = t
    prior = log_prior(theta, row, slope)
    if kind == 0:
        return prior - linear * t - 0.5 * square * math.exp(-2.0 * t)
    scale = math.exp(t)
    return prior + linear * scale - 0.5 * square * scale * scale


@jit(f8(i8, f8, f8, f8, matrix, i8, GENERATOR_TYPE))
def slice_scale(kind, t, linear, square, table, at, rng):  # type: ignore[no-untyped-def]
    """Return a draw of the logarithm of a scale by a slice of its density (Neal 2003).

    The slice is stepped out from intervals of length 1, and shrunk. See :func:`_density`; the
    prior is row ``at`` of ``table``.
    """
    row, theta, slope = table[at : at + 1, :5].copy(), np.empty(1), np.zeros(1)
    level = _density(kind, t, linear, square, row, theta, slope) - rng.standard_exponential()
    low = t - rng.random()
    high = low + 1.0
    for _ in range(100):
        if _density(kind, low, linear, square, row, theta, slope) <= level:
            break
        low -= 1.0
    for _ in range(100):
        if _density(kind, high, linear, square, row, theta, slope) <= level:
            break
        high += 1.0
    while True:
        proposed = low + (high - low) * rng.random()
        if _density(kind, proposed, linear, square, row, theta, slope) >= level:
            return proposed
        if proposed < t:
            low = proposed
        else:
            high = proposed
        if high - low < 1e-14 * (1.0 + abs(t)):
            return t


@jit(types.void(CROSSED_TYPE, i8, STATE_TYPE), borrow=True)
def gather_others(table, f, state):  # type: ignore[no-untyped-def]
    """Write the weighted sums of the effects of the other factors over the rows of each level."""
    F = table.first.shape[0] - 1
    codes, effects, weights = table.codes, state.effects, table.row_weight
    weighted = weights.shape[1] > 0
    for l in range(table.first[f], table.first[f + 1]):
        low, high = table.start[l + f], table.start[l + f + 1]
        before = after = 0.0
        for place in range(F - 1):
            row = f * (F - 1) + place
            total = 0.0
            if weighted:
                for i in range(low, high):
                    total += weights[f, i] * effects[codes[row, i]]
            else:
                for i in range(low, high):
                    total += effects[codes[row, i]]
            if place < f:
                before += total
            else:
                after += total
        state.others[0, l] = before
        state.others[1, l] = after


@inline
def draw_normal(A, b, into, rng):  # type: ignore[no-untyped-def]
    """Write a draw of Normal(A^-1 b, A^-1); of ``A`` (q, q) the lower triangle is known."""
    q = b.shape[0]
    for j in range(q):
        for i in range(j):
            A[i, j] = A[j, i]
    root = np.linalg.cholesky(A)
    mean = np.linalg.solve(root, b)
    for j in range(q):
        mean[j] += rng.standard_normal()
    into[:] = np.linalg.solve(root.T, mean)


@jit(types.void(CROSSED_TYPE, SCALES_TYPE, i8, STATE_TYPE, GENERATOR_TYPE))
def draw_factor(table, priors, f, state, rng):  # type: ignore[no-untyped-def]
    """Draw beta and the effects of factor ``f``, and its scale twice."""
    q = table.cross.shape[0]
    low, high = table.first[f], table.first[f + 1]
    effects, design = state.effects, table.design
    precision = math.exp(-2.0 * state.log_scale[table.first.shape[0] - 1])  # 1 / sigma^2
    own = math.exp(-2.0 * state.log_scale[f])
    gather_others(table, f, state)
    A, b = np.empty((q, q)), np.empty(q)
    inside, between = np.empty(q), np.zeros(q)
    for j in range(q):
        inside[j] = table.cross[j]
        for k in range(q):
            A[j, k] = precision * table.within[f * q + j, k] + priors.precision[j, k]
    for l in range(table.first[table.first.shape[0] - 1]):
        if l < low or l >= high:
            for j in range(q):
                inside[j] -= design[l, j] * effects[l]
    variance, variance_of_level = 1.0 / precision, 1.0 / own
    for l in range(low, high):
        n = table.weight[l]
        if n > 0.0:
            share = 1.0 / (n * variance_of_level + variance)
            rest = (table.response[l] - state.others[0, l] - state.others[1, l]) / n
            for j in range(q):
                inside[j] -= design[l, j] * rest
                between[j] += design[l, j] * rest * share
                for i in range(j + 1):
                    A[j, i] += design[l, j] * design[l, i] / n * share
    for j in range(q):
        b[j] = precision * inside[j] + between[j] + priors.shift[j]
    draw_normal(A, b, state.beta, rng)
    squares = 0.0
    for l in range(low, high):
        k = 1.0 / (table.weight[l] * precision + own)
        rest = table.response[l] - state.others[0, l] - state.others[1, l]
        for j in range(q):
            rest -= design[l, j] * state.beta[j]
        effects[l] = k * precision * rest + math.sqrt(k) * rng.standard_normal()
        squares += effects[l] * effects[l]
    levels = float(high - low)
    t = slice_scale(0, state.log_scale[f], levels, squares, priors.table, f, rng)
    linear = square = 0.0  # of tau, with v = effects / tau
    divisor = math.exp(-t)
    for l in range(low, high):
        rest = table.response[l] - state.others[0, l] - state.others[1, l]
        for j in range(q):
            rest -= design[l, j] * state.beta[j]
        v = effects[l] * divisor
        linear += v * rest * precision
        square += table.weight[l] * v * v * precision
    moved = slice_scale(1, t, linear, square, priors.table, f, rng)
    ratio = math.exp(moved - t)
    for l in range(low, high):
        effects[l] *= ratio
    state.log_scale[f] = moved
    state.spread[f] = squares * ratio * ratio


@jit(types.void(CROSSED_TYPE, matrix, i8, vector, vector, GENERATOR_TYPE))
def shift_nested(table, prior, at, log_tau, effects, rng):  # type: ignore[no-untyped-def]
    """Move the effects of outer factors against those of the factors that are nested in them.

    With ``u[a] + delta`` and ``v[l] - delta`` for all levels l in a every predictor stays as it is:
    delta is drawn from what is left, the distribution of the effects; then the scale of u, with
    which u moves, and v against it. Otherwise both would pass each other in steps that are the
    smaller the more rows the levels have. The prior of ``log_tau[f]`` is row ``at + f`` of its
    table.
    """
    L = effects.shape[0]
    for pair in range(table.parent.shape[0]):
        f, g = table.nested[2 * pair], table.nested[2 * pair + 1]
        inner, outer = math.exp(-2.0 * log_tau[f]), math.exp(-2.0 * log_tau[g])
        parent, count, delta = table.parent[pair], np.zeros(L), np.zeros(L)
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                count[parent[l]] += 1.0
                delta[parent[l]] += effects[l]
        for a in range(table.first[g], table.first[g + 1]):
            precision = outer + inner * count[a]
            centre = (inner * delta[a] - outer * effects[a]) / precision
            delta[a] = centre + rng.standard_normal() / math.sqrt(precision)
            effects[a] += delta[a]
        linear = square = 0.0  # of tau, with u / tau and the sum of both effects fixed
        scale = math.exp(log_tau[g])
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                effects[l] -= delta[parent[l]]
                w = effects[parent[l]] / scale
                linear += inner * w * (effects[l] + effects[parent[l]])
                square += inner * w * w
        log_tau[g] = slice_scale(1, log_tau[g], linear, square, prior, at + g, rng)
        ratio = math.exp(log_tau[g]) / scale
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                effects[l] -= (ratio - 1.0) * effects[parent[l]]
        for a in range(table.first[g], table.first[g + 1]):
            effects[a] *= ratio


@jit(f8(CROSSED_TYPE, STATE_TYPE), borrow=True)
def sum_of_squares(table, state):  # type: ignore[no-untyped-def]
    """Return ``sum_i w_i (y_i - x_i . beta - sum_f u_f)^2`` after a sweep.

    Pairs of factors enter by the sums of each over the rows of the levels of a later one, which
    have the effects of this sweep.
    """
    q = table.cross.shape[0]
    total = table.square
    for j in range(q):
        total -= 2.0 * state.beta[j] * table.cross[j]
        for k in range(q):
            total += state.beta[j] * table.gram[j, k] * state.beta[k]
    for l in range(table.weight.shape[0]):
        u = state.effects[l]
        rest = table.response[l] - state.others[0, l]
        for j in range(q):
            rest -= table.design[l, j] * state.beta[j]
        total += u * (table.weight[l] * u - 2.0 * rest)
    return max(total, 0.0)


@jit(f8(CROSSED_TYPE, SCALES_TYPE, STATE_TYPE, GENERATOR_TYPE))
def sweep(table, priors, state, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    F = table.first.shape[0] - 1
    shift_nested(table, priors.table, 0, state.log_scale, state.effects, rng)
    for f in range(F):
        draw_factor(table, priors, f, state, rng)
    squares = sum_of_squares(table, state)
    log_sigma = slice_scale(0, state.log_scale[F], table.total, squares, priors.table, F, rng)
    state.log_scale[F] = log_sigma
    value = -table.total * (log_sigma + _HALF_LOG_2PI) - 0.5 * squares * math.exp(-2.0 * log_sigma)
    for f in range(F):
        t, levels = state.log_scale[f], table.first[f + 1] - table.first[f]
        value -= levels * (t + _HALF_LOG_2PI) + 0.5 * state.spread[f] * math.exp(-2.0 * t)
    return value


@jit(types.void(f8, vector, matrix), borrow=True)
def add_moments(count, effects, moments):  # type: ignore[no-untyped-def]
    """Add a draw of the effects (L,) to the moments (L, 4) of ``count`` draws before it.

    These are the mean, and the sums of the second, third and fourth powers of the differences from
    it (Pebay 2008).
    """
    n = count + 1.0
    for l in range(effects.shape[0]):
        row = moments[l]
        delta = effects[l] - row[0]
        step = delta / n
        square = step * step
        term = delta * step * count
        row[3] += (
            term * square * (n * n - 3.0 * n + 3.0) + 6.0 * square * row[1] - 4.0 * step * row[2]
        )
        row[2] += term * step * (n - 2.0) - 3.0 * step * row[1]
        row[1] += term
        row[0] += step
