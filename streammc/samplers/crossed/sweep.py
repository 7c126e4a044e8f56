"""Collapsed Gibbs sampling of a Gaussian model with factors that cross.

    y_i = x_i . beta + sum_f z_f,i . u_f[l_f(i)] + e_i,
    u_f[l] ~ Normal(0, Sigma_f),    e_i ~ Normal(0, sigma^2),

where ``z_f`` are a 1 and some columns of x, so that a level has an intercept and slopes, k_f
effects. The density of row i has the power ``w_i``; the prior of beta is jointly normal, that of
the scales and correlations any. A sweep draws, factor by factor,

    (beta, u_f) given the effects of the other factors and the scales,

beta with ``u_f`` integrated out, then ``u_f`` given beta (Papaspiliopoulos, Roberts and Zanella
2020, where beta is a mean): chains mix at a rate that does not depend on the numbers of levels.
With ``G_l = Z_l'WZ_l`` over the rows of a level, ``S_l = Z_l'WX_l``, ``r_l = Z_l'W(y - effects of
the other factors)``, ``Q = Sigma_f^-1`` and ``K_l = (G_l / sigma^2 + Q)^-1``,

    A = X'WX / sigma^2 + P - sum_l S_l' K_l S_l / sigma^4,
    b = X'W(y - sum_(g != f) z_g . u_g) / sigma^2 + P m - sum_l S_l' K_l r_l / sigma^4,
    beta ~ Normal(A^-1 b, A^-1),    u_f[l] ~ Normal(K_l (r_l - S_l beta) / sigma^2, K_l).

Where sigma is far below the scales of the effects these differences lose digits. With ``G_l
B_l = S_l`` (of an intercept ``B_l = S_l / n_l``) and ``B_l' S_l = S_l' K_l S_l / sigma^2 + B_l' Q
K_l S_l`` both are computed as the part within levels, ``C_f = X'WX - sum_l B_l' S_l`` once for all
sweeps, over sigma^2, plus the part between them, ``sum_l B_l' Q K_l S_l / sigma^2``.

Before it the effects of an outer factor move against those of the factors nested in it, which no
predictor sees. All sums but ``r_l`` are over levels. ``r_l`` needs, of every row, the effects of
the other factors: one gather a factor, in the order of its levels, so that what is written is
sequential.

``Sigma_f = D R D`` has scales tau and the correlations R, ``R = L L'``. The rows of L are given by
the partial correlation of each effect with every one before it, given those between them
(Lewandowski, Kurowicka and Joe 2009): these are independent under their prior, and free in (-1,
1). Scales and partial correlations are drawn twice a sweep, given effects ``u = D L v``: from
``p(Sigma | u)``, and, with v fixed in place of u, from ``p(Sigma | v, y)``, after which the effects
move with them (ancillarity-sufficiency interweaving, Yu and Meng 2011). The first mixes fast where
levels have many rows, the second where they have few. ``sigma`` is drawn from ``p(sigma | beta,
u)``, whose sum of squares follows from sums over levels and of what the gathers pass by. All are
slices (Neal 2003) of a density of one number: the logarithm of a scale, or artanh of a partial
correlation.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import (
    GENERATOR_TYPE,
    f8,
    i8,
    inline,
    jit,
    matrix,
    record_type,
    vector,
)
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector

_HALF_LOG_2PI: Final = 0.9189385332046728
Codes = Annotated[NDArray[np.int32], 2]
CENTRED: Final = 0
"""Density of a scale or partial correlation given effects."""
MOVING: Final = 1
"""The same given standardised effects, and the responses."""


class Crossed(NamedTuple):
    """Sums of a table over its rows, and its factors.

    Levels of all factors are numbered in one row, of length L: those of factor f are from
    ``first[f]`` to ``first[f + 1]``. So are the effects, E in all: the k of a level stand together,
    those of factor f from ``effect[f]`` on; and what belongs to a component of a factor, an
    intercept or a slope, C in all.
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
    effect: Index
    """(F + 1,)."""
    component: Index
    """(F + 1,) first component of each factor, and C."""
    parameter: Index
    """(F + 1,) first parameter of the covariance of each factor: the scales of its components,
    then, where these are correlated, the partial correlations, row by row."""
    column: Index
    """(C,) column of the design of each component, -1 of an intercept."""
    slot: Index
    """(C,) its column of ``slopes``."""
    unit: Vector
    """(C,) root mean square of its column."""
    pair: Index
    """(F + 1,) first entry of ``own`` of each factor."""
    own: Vector
    """``G_l`` of the levels, (k, k) each."""
    response: Vector
    """(E,) ``Z_l'Wy``."""
    design: Matrix
    """(E, q) ``S_l``."""
    solved: Matrix
    """(E', q) ``B_l`` of the factors of several effects, one after the other."""
    solved_at: Index
    """(F,) row of ``solved`` that is the first of a factor; -1 of a factor of one effect."""
    start: Index
    """(L + F,) row of a factor's order with which each of its levels begins, and the end."""
    codes: Codes
    """(F (F - 1), n) levels of the other factors, in the order of the levels of factor f: its rows
    are ``f (F - 1)`` and following, the factors before f first. Counted from 0 over all factors."""
    slopes: Annotated[NDArray[np.float64], 3]
    """(F, n, s) columns of the slopes in the same orders; n = 0 where no sweep reads them."""
    row_weight: Matrix
    """(F, n) weights in the same orders; (F, 0): all 1."""
    nested: Index
    """(2 P,) pairs of factors, one after the other: the rows of a level of the first have one level
    of the second."""
    parent: Annotated[NDArray[np.int32], 2]
    """(P, L) that level, of the levels of the first of a pair; -1 without rows, and elsewhere."""


CROSSED_TYPE: Any = record_type(Crossed)


class Scales(NamedTuple):
    """Priors: rows of the prior table of the scales, and that of beta."""

    table: Matrix
    """(S + 1, 5) of the parameters of the covariances and ``log sigma``, Jacobians included."""
    precision: Matrix
    """(q, q) ``P``."""
    shift: Vector
    """(q,) ``P m``."""


SCALES_TYPE: Any = record_type(Scales)


class State(NamedTuple):
    """A draw, and scratch; written in place."""

    beta: Vector
    """(q,)."""
    scales: Vector
    """(S + 1,) parameters of the covariances, then ``log sigma``."""
    effects: Vector
    """(E,)."""
    density: Vector
    """(F,) log density of the effects of each factor."""
    others: Matrix
    """(2, E) ``Z_l'W`` times the effects of the factors before and after."""
    rest: Vector
    """Scratch (E,): ``r_l - S_l beta``."""


STATE_TYPE: Any = record_type(State)


@inline
def write_root_row(own, k, i, root):  # type: ignore[no-untyped-def]
    """Write row ``i`` of L from the parameters of a factor's covariance."""
    scale, at = 1.0, k + i * (i - 1) // 2
    for j in range(i):
        root[i, j] = 0.0
        if own.shape[0] > k:
            root[i, j] = math.tanh(own[at + j]) * scale
            scale /= math.cosh(own[at + j])
    root[i, i] = scale


@jit(types.void(vector, i8, matrix, matrix))
def write_precision(own, k, inverse, precision):  # type: ignore[no-untyped-def]
    """Write ``L^-1 D^-1`` (k, k), which standardises effects, and Q, from a factor's parameters."""
    root = np.zeros((k, k))
    for i in range(k):
        write_root_row(own, k, i, root)
    for j in range(k):
        for i in range(k):
            inverse[i, j] = 1.0 / root[i, i] if i == j else 0.0
            for m in range(j, i):
                inverse[i, j] -= root[i, m] * inverse[m, j] / root[i, i]
    for j in range(k):
        scale = math.exp(-own[j])
        for i in range(k):
            inverse[i, j] *= scale
    for i in range(k):
        for j in range(k):
            precision[i, j] = 0.0
            for m in range(max(i, j), k):
                precision[i, j] += inverse[m, i] * inverse[m, j]


@inline
def _density(kind, t, own, at, k, i, linear, square, row, theta, slope, root, x):  # type: ignore[no-untyped-def]
    """Return the log density of parameter ``at`` of a covariance at ``t``, and write it there.

    ``CENTRED``: ``linear`` (1,) is a number m of effects of which ``square`` (k, k) is the Cholesky
    factor of the sum of squares. ``MOVING``: exp(linear . T - T' square T / 2) of row i of ``T = D
    L``, by which standardised effects are multiplied. Times the prior, a row of its table.
    """
    own[at] = t
    theta[0] = t
    value = log_prior(theta, row, slope)
    if kind == CENTRED:
        for r in range(k):
            write_root_row(own, k, r, root)
            value -= linear[0] * (own[r] + math.log(root[r, r]))
        for j in range(k):
            for r in range(j, k):
                total = square[r, j] * math.exp(-own[r])
                for m in range(j, r):
                    total -= root[r, m] * x[m]
                x[r] = total / root[r, r]
                value -= 0.5 * x[r] * x[r]
        return value
    write_root_row(own, k, i, root)
    scale = math.exp(own[i])
    for j in range(i + 1):
        value += linear[j] * scale * root[i, j]
        for m in range(i + 1):
            value -= 0.5 * square[j, m] * scale * root[i, j] * scale * root[i, m]
    return value


@jit(types.void(i8, vector, i8, i8, i8, vector, matrix, matrix, i8, GENERATOR_TYPE))
def slice_scale(kind, own, at, k, i, linear, square, table, prior, rng):  # type: ignore[no-untyped-def]
    """Draw parameter ``at`` of a covariance by a slice of its density (Neal 2003), in place.

    The slice is stepped out from intervals of length 1, and shrunk. See :func:`_density`; the
    prior is row ``prior`` of ``table``.
    """
    row, theta, slope = table[prior : prior + 1, :5].copy(), np.empty(1), np.zeros(1)
    root, x, t = np.zeros((k, k)), np.empty(k), own[at]
    level = _density(kind, t, own, at, k, i, linear, square, row, theta, slope, root, x)
    level -= rng.standard_exponential()
    low = t - rng.random()
    high = low + 1.0
    for _ in range(100):
        value = _density(kind, low, own, at, k, i, linear, square, row, theta, slope, root, x)
        if value <= level:
            break
        low -= 1.0
    for _ in range(100):
        value = _density(kind, high, own, at, k, i, linear, square, row, theta, slope, root, x)
        if value <= level:
            break
        high += 1.0
    while True:
        proposed = low + (high - low) * rng.random()
        value = _density(kind, proposed, own, at, k, i, linear, square, row, theta, slope, root, x)
        if value >= level:
            return
        if proposed < t:
            low = proposed
        else:
            high = proposed
        if high - low < 1e-14 * (1.0 + abs(t)):
            own[at] = t
            return


@jit(types.void(vector, i8, f8, matrix, matrix, i8, GENERATOR_TYPE))
def draw_scales(own, k, levels, scatter, table, prior, rng):  # type: ignore[no-untyped-def]
    """Draw the parameters of a covariance given effects of so many levels, in place.

    ``scatter`` (k, k) are the sums of their squares and products. The priors are the rows of
    ``table`` from ``prior`` on.
    """
    root = np.zeros((k, k))
    for i in range(k):
        for j in range(i + 1):
            total = scatter[i, j]
            for m in range(j):
                total -= root[i, m] * root[j, m]
            if i == j:  # of fewer levels than effects there is less
                root[i, i] = math.sqrt(total) if total > 1e-14 * scatter[i, i] else 0.0
            else:
                root[i, j] = total / root[j, j] if root[j, j] > 0.0 else 0.0
    count = np.array([levels])
    for at in range(own.shape[0]):
        slice_scale(CENTRED, own, at, k, 0, count, root, table, prior + at, rng)


@jit(f8(vector, i8, f8, matrix))
def log_density_of_effects(own, k, levels, scatter):  # type: ignore[no-untyped-def]
    """Return the log density of effects of so many levels, by their sums of squares (k, k)."""
    inverse, precision = np.empty((k, k)), np.empty((k, k))
    write_precision(own, k, inverse, precision)
    value = -levels * k * _HALF_LOG_2PI
    for i in range(k):
        value += levels * math.log(inverse[i, i])
        for j in range(k):
            value -= 0.5 * precision[i, j] * scatter[i, j]
    return value


@inline
def _value(table, g, code, f, i, effects):  # type: ignore[no-untyped-def]
    """Return the effects of a level of factor ``g`` together, of row ``i`` in the order of f."""
    k = table.component[g + 1] - table.component[g]
    at = table.effect[g] + (code - table.first[g]) * k
    total = 0.0
    for c in range(k):
        slot = table.slot[table.component[g] + c]
        total += effects[at + c] * (1.0 if slot < 0 else table.slopes[f, i, slot])
    return total


@jit(types.void(CROSSED_TYPE, i8, STATE_TYPE), borrow=True)
def gather_others(table, f, state):  # type: ignore[no-untyped-def]
    """Write the weighted sums of the effects of the other factors over the rows of each level."""
    F = table.first.shape[0] - 1
    codes, effects, weights = table.codes, state.effects, table.row_weight
    weighted, slopes = weights.shape[1] > 0, table.slopes.shape[1] > 0
    k, components = table.component[f + 1] - table.component[f], table.component[f]
    for l in range(table.first[f], table.first[f + 1]):
        low, high = table.start[l + f], table.start[l + f + 1]
        at = table.effect[f] + (l - table.first[f]) * k
        for c in range(k):
            state.others[0, at + c] = 0.0
            state.others[1, at + c] = 0.0
        for place in range(F - 1):
            row, side = f * (F - 1) + place, 0 if place < f else 1
            if slopes:
                g = place if place < f else place + 1
                for i in range(low, high):
                    value = _value(table, g, codes[row, i], f, i, effects)
                    value *= weights[f, i] if weighted else 1.0
                    for c in range(k):
                        slot = table.slot[components + c]
                        z = 1.0 if slot < 0 else table.slopes[f, i, slot]
                        state.others[side, at + c] += z * value
                continue
            total = 0.0  # without slopes an effect has the number of its level
            if weighted:
                for i in range(low, high):
                    total += weights[f, i] * effects[codes[row, i]]
            else:
                for i in range(low, high):
                    total += effects[codes[row, i]]
            state.others[side, at] += total


@inline
def factorise(A, root):  # type: ignore[no-untyped-def]
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


@inline
def solve_lower(root, x):  # type: ignore[no-untyped-def]
    """Replace ``x`` by ``root^-1 x``."""
    for j in range(x.shape[0]):
        total = x[j]
        for i in range(j):
            total -= root[j, i] * x[i]
        x[j] = total / root[j, j]


@inline
def solve_upper(root, x):  # type: ignore[no-untyped-def]
    """Replace ``x`` by ``root'^-1 x``."""
    for j in range(x.shape[0] - 1, -1, -1):
        total = x[j]
        for i in range(j + 1, x.shape[0]):
            total -= root[i, j] * x[i]
        x[j] = total / root[j, j]


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


@inline
def _level_root(table, f, l, precision, Q, A, root):  # type: ignore[no-untyped-def]
    """Write the Cholesky factor of ``G_l / sigma^2 + Q``."""
    k = Q.shape[0]
    at = table.pair[f] + (l - table.first[f]) * k * k
    for c in range(k):
        for d in range(c + 1):
            A[c, d] = table.own[at + c * k + d] * precision + Q[c, d]
    factorise(A, root)


@jit(types.void(CROSSED_TYPE, SCALES_TYPE, i8, STATE_TYPE, GENERATOR_TYPE))
def draw_factor(table, priors, f, state, rng):  # type: ignore[no-untyped-def]
    """Draw beta and the effects of factor ``f``, and its covariance twice."""
    q, last = table.cross.shape[0], state.scales.shape[0] - 1
    low, high = table.first[f], table.first[f + 1]
    k = table.component[f + 1] - table.component[f]
    effects, design, rest = state.effects, table.design, state.rest
    own = state.scales[table.parameter[f] : table.parameter[f + 1]]
    precision = math.exp(-2.0 * state.scales[last])  # 1 / sigma^2
    inverse, Q = np.empty((k, k)), np.empty((k, k))
    write_precision(own, k, inverse, Q)
    gather_others(table, f, state)
    for at in range(table.effect[f], table.effect[f + 1]):
        rest[at] = table.response[at] - state.others[0, at] - state.others[1, at]
    A, b, between = np.empty((q, q)), np.empty(q), np.zeros(q)
    for j in range(q):
        b[j] = table.cross[j]
        for i in range(q):
            A[j, i] = precision * table.within[f * q + j, i] + priors.precision[j, i]
    for at in range(table.effect[table.first.shape[0] - 1]):
        if at < table.effect[f] or at >= table.effect[f + 1]:
            for j in range(q):
                b[j] -= design[at, j] * effects[at]
    K, root, part = np.empty((k, k)), np.empty((k, k)), np.empty(k)
    B, turned = np.empty((k, q)), np.empty((k, q))
    for l in range(low, high):
        at = table.effect[f] + (l - low) * k
        n = table.own[table.pair[f] + (l - low) * k * k]
        for c in range(k):
            for j in range(q):
                if table.solved_at[f] >= 0:
                    B[c, j] = table.solved[table.solved_at[f] + (l - low) * k + c, j]
                else:
                    B[c, j] = design[at + c, j] / n if n > 0.0 else 0.0
        for j in range(q):
            for c in range(k):
                b[j] -= B[c, j] * rest[at + c]
                total = 0.0
                for d in range(k):
                    total += Q[c, d] * B[d, j]
                turned[c, j] = total * precision
        _level_root(table, f, l, precision, Q, K, root)
        for c in range(k):
            part[:] = 0.0
            part[c] = 1.0
            solve_lower(root, part)
            solve_upper(root, part)
            K[c] = part
        for c in range(k):
            for i in range(q + 1):
                total = 0.0
                for d in range(k):
                    total += K[c, d] * (design[at + d, i] if i < q else rest[at + d])
                if i == q:
                    for j in range(q):
                        between[j] += turned[c, j] * total
                else:
                    for j in range(i, q):
                        A[j, i] += turned[c, j] * total
    for j in range(q):
        b[j] = precision * b[j] + between[j] + priors.shift[j]
    draw_normal(A, b, state.beta, rng)
    scatter = np.zeros((k, k))
    for l in range(low, high):
        at = table.effect[f] + (l - low) * k
        _level_root(table, f, l, precision, Q, K, root)
        for c in range(k):
            for j in range(q):
                rest[at + c] -= design[at + c, j] * state.beta[j]
            part[c] = precision * rest[at + c]
        solve_lower(root, part)
        for c in range(k):
            part[c] += rng.standard_normal()
        solve_upper(root, part)
        for c in range(k):
            effects[at + c] = part[c]
            for d in range(c + 1):
                scatter[c, d] += part[c] * part[d]
    draw_scales(own, k, float(high - low), scatter, priors.table, table.parameter[f], rng)
    write_precision(own, k, inverse, Q)
    linear, square = np.empty(k), np.empty((k, k))
    for c in range(k):  # of row c of D L, with the standardised effects v fixed
        linear[:] = 0.0
        square[:, :] = 0.0
        for l in range(low, high):
            at, pair = table.effect[f] + (l - low) * k, table.pair[f] + (l - low) * k * k
            left = rest[at + c]
            for d in range(k):
                if d != c:
                    left -= table.own[pair + c * k + d] * effects[at + d]
            for d in range(c + 1):
                total = 0.0
                for m in range(d + 1):
                    total += inverse[d, m] * effects[at + m]
                part[d] = total
            information = table.own[pair + c * k + c] * precision
            for d in range(c + 1):
                linear[d] += part[d] * left * precision
                for m in range(d + 1):
                    square[d, m] += part[d] * part[m] * information
        for d in range(c + 1):
            for m in range(d):
                square[m, d] = square[d, m]
        slice_scale(MOVING, own, c, k, c, linear, square, priors.table, table.parameter[f] + c, rng)
        if own.shape[0] > k:
            for d in range(k + c * (c - 1) // 2, k + c * (c + 1) // 2):
                slice_scale(
                    MOVING, own, d, k, c, linear, square, priors.table, table.parameter[f] + d, rng
                )
        write_root_row(own, k, c, root)
        scale = math.exp(own[c])
        for l in range(low, high):
            at = table.effect[f] + (l - low) * k
            total = 0.0
            for d in range(c + 1):
                v = 0.0
                for m in range(d + 1):
                    v += inverse[d, m] * effects[at + m]
                total += root[c, d] * v
            part[0] = scale * total
            effects[at + c] = part[0]
        write_precision(own, k, inverse, Q)
    scatter[:, :] = 0.0
    for at in range(table.effect[f], table.effect[f + 1], k):
        for c in range(k):
            for d in range(k):
                scatter[c, d] += effects[at + c] * effects[at + d]
    state.density[f] = log_density_of_effects(own, k, float(high - low), scatter)


@jit(types.void(CROSSED_TYPE, matrix, i8, vector, vector, GENERATOR_TYPE))
def shift_nested(table, prior, at, scales, effects, rng):  # type: ignore[no-untyped-def]
    """Move the effects of outer factors against those of the factors that are nested in them.

    With ``u[a] + delta`` and ``v[l] - delta`` for all levels l in a every predictor stays as it is:
    delta is drawn from what is left, the distribution of the effects; then the scale of u, with
    which u moves, and v against it. Otherwise both would pass each other in steps that are the
    smaller the more rows the levels have. The prior of ``scales[j]``, a parameter of a covariance,
    is row ``at + j`` of its table. Factors with slopes stay.
    """
    linear, square = np.zeros(1), np.zeros((1, 1))
    for pair in range(table.parent.shape[0]):
        f, g = table.nested[2 * pair], table.nested[2 * pair + 1]
        if not (_of_intercepts(table, f) and _of_intercepts(table, g)):
            continue
        own = scales[table.parameter[g] : table.parameter[g + 1]]
        inner, outer = math.exp(-2.0 * scales[table.parameter[f]]), math.exp(-2.0 * own[0])
        parent, levels = table.parent[pair], table.first[g + 1] - table.first[g]
        u, v = effects[table.effect[g] :], effects[table.effect[f] :]
        count, delta = np.zeros(levels), np.zeros(levels)
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                count[parent[l] - table.first[g]] += 1.0
                delta[parent[l] - table.first[g]] += v[l - table.first[f]]
        for a in range(levels):
            precision = outer + inner * count[a]
            centre = (inner * delta[a] - outer * u[a]) / precision
            delta[a] = centre + rng.standard_normal() / math.sqrt(precision)
            u[a] += delta[a]
        linear[0] = square[0, 0] = 0.0  # of tau, with u / tau and the sum of both effects fixed
        scale = math.exp(own[0])
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                a, own_effect = parent[l] - table.first[g], l - table.first[f]
                v[own_effect] -= delta[a]
                w = u[a] / scale
                linear[0] += inner * w * (v[own_effect] + u[a])
                square[0, 0] += inner * w * w
        slice_scale(MOVING, own, 0, 1, 0, linear, square, prior, at + table.parameter[g], rng)
        ratio = math.exp(own[0]) / scale
        for l in range(table.first[f], table.first[f + 1]):
            if parent[l] >= 0:
                v[l - table.first[f]] -= (ratio - 1.0) * u[parent[l] - table.first[g]]
        for a in range(levels):
            u[a] *= ratio


@inline
def _of_intercepts(table, f):  # type: ignore[no-untyped-def]
    """Return whether a factor has a random intercept, and no slope."""
    c = table.component[f]
    return table.component[f + 1] == c + 1 and table.column[c] < 0


@jit(f8(CROSSED_TYPE, STATE_TYPE), borrow=True)
def sum_of_squares(table, state):  # type: ignore[no-untyped-def]
    """Return ``sum_i w_i (y_i - x_i . beta - sum_f z_f . u_f)^2`` after a sweep.

    Pairs of factors enter by the sums of each over the rows of the levels of a later one, which
    have the effects of this sweep.
    """
    q = table.cross.shape[0]
    total = table.square
    for j in range(q):
        total -= 2.0 * state.beta[j] * table.cross[j]
        for k in range(q):
            total += state.beta[j] * table.gram[j, k] * state.beta[k]
    for f in range(table.first.shape[0] - 1):
        k, pair = table.component[f + 1] - table.component[f], table.pair[f]
        for first in range(table.effect[f], table.effect[f + 1], k):
            for c in range(k):
                at = first + c
                rest = table.response[at] - state.others[0, at]
                for j in range(q):
                    rest -= table.design[at, j] * state.beta[j]
                own = 0.0
                for d in range(k):
                    own += table.own[pair + c * k + d] * state.effects[first + d]
                total += state.effects[at] * (own - 2.0 * rest)
            pair += k * k
    return max(total, 0.0)


@jit(f8(CROSSED_TYPE, SCALES_TYPE, STATE_TYPE, GENERATOR_TYPE))
def sweep(table, priors, state, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    F, last = table.first.shape[0] - 1, state.scales.shape[0] - 1
    shift_nested(table, priors.table, 0, state.scales, state.effects, rng)
    for f in range(F):
        draw_factor(table, priors, f, state, rng)
    squares = sum_of_squares(table, state)
    root = np.array([[math.sqrt(squares)]])
    sigma, count = state.scales[last:], np.array([table.total])
    slice_scale(CENTRED, sigma, 0, 1, 0, count, root, priors.table, last, rng)
    value = -table.total * (sigma[0] + _HALF_LOG_2PI) - 0.5 * squares * math.exp(-2.0 * sigma[0])
    for f in range(F):
        value += state.density[f]
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
