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

Where sigma is far below the scales of the effects these differences lose digits. With ``G_l = F_l
F_l'`` and ``Y_l = F_l^-1 S_l`` (of an intercept ``S_l / sqrt(n_l)``) both are computed as the part
within levels, ``C_f = X'WX - sum_l Y_l' Y_l`` once for all sweeps, over sigma^2, plus the part
between them, ``sum_l Y_l' (sigma^2 I + F_l' Sigma_f F_l)^-1 Y_l``. Effects are drawn as ``u = T v``
with ``Sigma_f = T T'``, so that a scale may be 0.

Before it the effects of an outer factor move against those of the factors nested in it, which no
predictor sees. All sums but ``r_l`` are over levels. ``r_l`` needs, of every row, the effects of
the other factors: one gather a factor, in the order of its levels, so that what is written is
sequential.

``Sigma_f = D R D`` has scales tau and the correlations R, ``R = L L'``. The rows of L are given by
the partial correlation of each effect with every one before it, given those between them
(Lewandowski, Kurowicka and Joe 2009): these are independent under their prior, and free in (-1, 1).
Given the effects the covariance is proposed as an inverse Wishart matrix, so that only the prior is
left to accept it by, and scales and partial correlations are drawn by slices. Where levels have few
rows that alone would be slow, as effects and scales of one sweep are near those of the one before.
So each effect c is drawn once more, together with its scale and correlations, and these with the
effect integrated out (van Dyk and Park 2008). Given the others of its level its prior is ``Normal(s
b . u_others, s^2)`` and its likelihood Gaussian, so that the integral is closed. The scale is drawn
by a slice, b proposed by a Newton step and accepted by Metropolis and Hastings, as its prior is not
normal, and then ``u_c`` of each level is drawn. ``sigma`` is drawn from ``p(sigma | beta, u)``,
whose sum of squares follows from sums over levels and of what the gathers pass by. All but b are
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
from streammc.numerics.prior import COLUMNS, SHAPE, log_prior
from streammc.protocols import Index, Matrix, Vector

_HALF_LOG_2PI: Final = 0.9189385332046728
_SINGULAR: Final = 1e-10
"""What is left of a column of ``G_l`` by those before it that counts as nothing."""
Codes = Annotated[NDArray[np.int32], 2]
CENTRED: Final = 0
"""Density of a scale or partial correlation given effects."""
MOVING: Final = 1
"""Density of a scale by which something is multiplied."""
INTEGRATED: Final = 2
"""Density of the scale of an effect that is integrated out."""
TRIES: Final = 3
"""Proposals of how an effect follows from the others, in a sweep."""
DF: Final = 10.0
"""Degrees of freedom of a proposal, of each of its dimensions: with as few of many, too few would
be as far from the centre as most of a normal distribution are."""


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
def _density(kind, t, own, at, k, linear, square, row, theta, slope, root, x):  # type: ignore[no-untyped-def]
    """Return the log density of parameter ``at`` of a covariance at ``t``, and write it there.

    ``CENTRED``: ``linear`` (1,) is a number m of effects of which ``square`` (k, k) is the Cholesky
    factor of the sum of squares. ``MOVING``: exp(linear tau - square tau^2 / 2) of a scale tau.
    ``INTEGRATED``: the integral over an effect u of each level, whose likelihood is exp(score u -
    information u^2 / 2), with information, score and prior mean in the rows of ``square`` (3,
    levels). Means, and the prior standard deviation ``linear[1]``, are those at the parameter
    ``linear[0]``, and in proportion to the scale. Times the prior, a row of its table.
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
    if kind == MOVING:
        scale = math.exp(t)
        return value + linear[0] * scale - 0.5 * square[0, 0] * scale * scale
    ratio, product = math.exp(t - linear[0]), 1.0
    variance = (ratio * linear[1]) ** 2
    for l in range(square.shape[1]):
        information, score, mean = square[0, l], square[1, l], ratio * square[2, l]
        away, wide = score - information * mean, 1.0 + variance * information
        value += 0.5 * variance * away * away / wide + mean * (score - 0.5 * information * mean)
        product *= wide
        if l % 8 == 7:
            value -= 0.5 * math.log(product)
            product = 1.0
    return value - 0.5 * math.log(product)


@jit(types.void(i8, vector, i8, i8, vector, matrix, matrix, i8, GENERATOR_TYPE))
def slice_scale(kind, own, at, k, linear, square, table, prior, rng):  # type: ignore[no-untyped-def]
    """Draw parameter ``at`` of a covariance by a slice of its density (Neal 2003), in place.

    The slice is stepped out from intervals of length 1, and shrunk. See :func:`_density`; the
    prior is row ``prior`` of ``table``.
    """
    row, theta, slope = table[prior : prior + 1, :5].copy(), np.empty(1), np.zeros(1)
    root, x, t = np.zeros((k, k)), np.empty(k), own[at]
    level = _density(kind, t, own, at, k, linear, square, row, theta, slope, root, x)
    level -= rng.standard_exponential()
    low = t - rng.random()
    high = low + 1.0
    for _ in range(100):
        value = _density(kind, low, own, at, k, linear, square, row, theta, slope, root, x)
        if value <= level:
            break
        low -= 1.0
    for _ in range(100):
        value = _density(kind, high, own, at, k, linear, square, row, theta, slope, root, x)
        if value <= level:
            break
        high += 1.0
    while True:
        proposed = low + (high - low) * rng.random()
        value = _density(kind, proposed, own, at, k, linear, square, row, theta, slope, root, x)
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
def draw_covariance(own, k, levels, root, table, prior, rng):  # type: ignore[no-untyped-def]
    """Propose and accept a covariance given effects, whose squares and products have this root.

    The proposal is inverse Wishart of ``levels - 1`` degrees of freedom, by Bartlett's
    decomposition. What is left of the density is bounded where those of the scales and an LKJ
    prior are.
    """
    for i in range(k):
        if not root[i, i] > 0.0 or levels <= k:
            return
    A, sigma = np.zeros((k, k)), np.zeros((k, k))
    new, slope = np.empty_like(own), np.empty_like(own)
    for i in range(k):
        A[i, i] = math.sqrt(2.0 * rng.standard_gamma(0.5 * (levels - 1.0 - i)))
        for j in range(i):
            A[i, j] = rng.standard_normal()
    half = root.T.copy()
    for j in range(k):  # A^-1 root', so that its square has the precision of a Wishart matrix
        for i in range(k):
            for m in range(i):
                half[i, j] -= A[i, m] * half[m, j]
            half[i, j] /= A[i, i]
    for i in range(k):
        for j in range(k):
            for m in range(k):
                sigma[i, j] += half[m, i] * half[m, j]
    if not write_parameters(sigma, new):
        return
    priors = np.ascontiguousarray(table[prior : prior + own.shape[0], :COLUMNS])
    ratio = conditional_prior(new, k, priors, slope) - conditional_prior(own, k, priors, slope)
    for i in range(k):
        ratio += k * (new[i] - own[i])
        for j in range(i):
            at = k + i * (i - 1) // 2 + j
            ratio -= k * math.log(math.cosh(new[at]) / math.cosh(own[at]))
    if math.log(1.0 - rng.random()) < ratio:
        own[:] = new


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
    if own.shape[0] > k:
        draw_covariance(own, k, levels, root, table, prior, rng)
    count = np.array([levels])
    for at in range(own.shape[0]):
        slice_scale(CENTRED, own, at, k, count, root, table, prior + at, rng)


@jit(f8(vector, i8, f8, matrix))
def log_density_of_effects(own, k, levels, scatter):  # type: ignore[no-untyped-def]
    """Return the log density of effects of so many levels, by their sums of squares (k, k)."""
    inverse, precision = np.empty((k, k)), np.empty((k, k))
    write_precision(own, k, inverse, precision)
    value = -levels * k * _HALF_LOG_2PI
    for i in range(k):
        value += levels * math.log(inverse[i, i])
        for j in range(i + 1):
            for m in range(i + 1):
                value -= 0.5 * inverse[i, j] * inverse[i, m] * scatter[j, m]
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
def spread(k, rng):  # type: ignore[no-untyped-def]
    """Return what makes k normal numbers ones of Student's t with ``k DF`` degrees of freedom."""
    return math.sqrt(0.5 * k * DF / rng.standard_gamma(0.5 * k * DF))


@inline
def log_t(root, away):  # type: ignore[no-untyped-def]
    """Return the log density of Student's t of precision ``root root'``, but for a constant."""
    value = square = 0.0
    k = away.shape[0]
    for j in range(k):
        total = 0.0
        for i in range(j, k):
            total += root[i, j] * away[i]
        value += math.log(root[j, j])
        square += total * total
    return value - 0.5 * (k * DF + k) * math.log1p(square / (k * DF))


@inline
def solve_step(root, gradient, step):  # type: ignore[no-untyped-def]
    """Write a Newton step by the root of its precision; return which part of it is not too long.

    In as many dimensions a point of the distribution is about sqrt(D) standard deviations from its
    centre.
    """
    D, square = gradient.shape[0], 0.0
    step[:] = gradient
    solve_lower(root, step)
    for j in range(D):
        square += step[j] * step[j]
    solve_upper(root, step)
    return min(1.0, max(3.0, 2.0 * math.sqrt(D)) / math.sqrt(max(square, 1e-300)))


@inline
def conditional(sigma, c, b):  # type: ignore[no-untyped-def]
    """Write how effect ``c`` follows from the others by their covariance; return s."""
    k = sigma.shape[0]
    A, root = np.empty((k - 1, k - 1)), np.zeros((k - 1, k - 1))
    for i in range(k - 1):
        own = i if i < c else i + 1
        b[i] = sigma[own, c]
        for j in range(i + 1):
            A[i, j] = sigma[own, j if j < c else j + 1]
    factorise(A, root)
    solve_lower(root, b)
    left = sigma[c, c]
    for i in range(k - 1):
        left -= b[i] * b[i]
    solve_upper(root, b)
    s = math.sqrt(max(left, 1e-300))
    for i in range(k - 1):
        b[i] /= s
    return s


@inline
def write_conditional(sigma, c, b, s):  # type: ignore[no-untyped-def]
    """Write the covariances of effect ``c`` by how it follows from the others."""
    k, total = sigma.shape[0], s * s
    for i in range(k - 1):
        own, covariance = i if i < c else i + 1, 0.0
        for j in range(k - 1):
            covariance += s * sigma[own, j if j < c else j + 1] * b[j]
        sigma[own, c] = covariance
        sigma[c, own] = covariance
        total += s * b[i] * covariance
    sigma[c, c] = total


@inline
def write_parameters(sigma, own):  # type: ignore[no-untyped-def]
    """Write logarithms of the scales and artanh of the partial correlations of a covariance.

    Return whether it is one.
    """
    k = sigma.shape[0]
    root = np.zeros((k, k))
    if not factorise(sigma, root):
        return False
    for i in range(k):
        own[i] = 0.5 * math.log(sigma[i, i])
        left = sigma[i, i]
        for j in range(i):
            p = root[i, j] / math.sqrt(left)
            own[k + i * (i - 1) // 2 + j] = math.atanh(p)
            left -= root[i, j] * root[i, j]
            if not (abs(p) < 1.0 and left > 0.0):
                return False
    return True


@inline
def conditional_prior(own, k, prior, slope):  # type: ignore[no-untyped-def]
    """Return the log density of b by the prior of a covariance; write the slope of that.

    s and the covariances of the others stay. Those of effect c have the density of ``own``,
    logarithms of scales and artanh of partial correlations, over their Jacobian.
    """
    slope[:] = 0.0
    value = log_prior(own, prior, slope)
    for i in range(k):
        value -= (k + 1.0) * own[i]
        for j in range(i):
            at = own[k + i * (i - 1) // 2 + j]
            value += (k - j) * math.log(math.cosh(at))
    return value


@inline
def covariance_of(own, sigma):  # type: ignore[no-untyped-def]
    """Write the covariance (k, k) that has these parameters."""
    k = sigma.shape[0]
    root = np.zeros((k, k))
    for i in range(k):
        write_root_row(own, k, i, root)
        for j in range(i + 1):
            sigma[i, j] = 0.0
            for m in range(j + 1):
                sigma[i, j] += root[i, m] * root[j, m] * math.exp(own[i] + own[j])
            sigma[j, i] = sigma[i, j]


@inline
def conditional_step(c, b, s, sigma, eta, slope, gradient, A, root, mean):  # type: ignore[no-untyped-def]
    """Write centre and root of the precision of a Newton step of b; return if it has one.

    To ``gradient`` and ``A`` of the likelihood those of the prior are added: of tau_c, of slope
    ``slope`` in its logarithm, times that of b by an LKJ prior of shape eta, ``tau_c^-(k + 2 eta -
    1)``.
    """
    k = sigma.shape[0]
    pull = (k + 2.0 * eta - 1.0 - slope) * s * s / sigma[c, c]
    for i in range(k - 1):
        own = i if i < c else i + 1
        gradient[i] -= pull * sigma[own, c] / s
        for j in range(i + 1):
            A[i, j] += max(pull, 1.0) * sigma[own, j if j < c else j + 1]
    if not factorise(A, root):
        return False
    length = solve_step(root, gradient, mean)
    for i in range(k - 1):
        mean[i] = b[i] + length * mean[i]
    return True


@jit(types.void(vector, i8, i8, vector, matrix, matrix, GENERATOR_TYPE))
def draw_conditional(own, k, c, gradient, A, prior, rng):  # type: ignore[no-untyped-def]
    """Draw how effect ``c`` follows from the others, ``u_c = s (b . u_others + w)``; in place.

    u of the others, s and w stay. ``gradient`` (k - 1,) and minus the Hessian ``A`` (k - 1, k - 1)
    are those of the log-likelihood in b, which is Gaussian; ``gradient`` becomes the change of b.
    """
    sigma, new, slope = np.zeros((k, k)), np.empty_like(own), np.empty_like(own)
    b, start, there = np.empty(k - 1), np.empty(k - 1), np.empty(k - 1)
    left, curved = np.empty(k - 1), np.empty((k - 1, k - 1))
    root, back_root = np.zeros((k - 1, k - 1)), np.zeros((k - 1, k - 1))
    mean, back, away = np.empty(k - 1), np.empty(k - 1), np.empty(k - 1)
    covariance_of(own, sigma)
    s, eta = conditional(sigma, c, start), prior[k, SHAPE] - 0.5 * (k - 2.0)
    b[:] = start
    for _ in range(TRIES):
        covariance_of(own, sigma)
        density = conditional_prior(own, k, prior, slope)
        density += _log_quadratic(gradient, A, start, b, left)
        curved[:] = A
        if not conditional_step(c, b, s, sigma, eta, slope[c], left, curved, root, mean):
            break
        wide = spread(k - 1, rng)
        for i in range(k - 1):
            away[i] = rng.standard_normal() * wide
        solve_upper(root, away)
        there[:] = mean + away
        write_conditional(sigma, c, there, s)
        if not write_parameters(sigma, new):
            continue
        value = conditional_prior(new, k, prior, slope)
        value += _log_quadratic(gradient, A, start, there, left)
        curved[:] = A
        if not math.isfinite(value) or not conditional_step(
            c, there, s, sigma, eta, slope[c], left, curved, back_root, back
        ):
            continue
        gain = value - density + log_t(back_root, b - back) - log_t(root, there - mean)
        if math.log(1.0 - rng.random()) < gain:
            b[:] = there
            own[:] = new
    gradient[:] = s * (b - start)


@inline
def _log_quadratic(gradient, A, start, b, slope):  # type: ignore[no-untyped-def]
    """Return a quadratic function of b - start, and write its slope; of ``A`` the lower half."""
    value = 0.0
    for i in range(b.shape[0]):
        slope[i] = gradient[i]
        for j in range(b.shape[0]):
            slope[i] -= (A[i, j] if j <= i else A[j, i]) * (b[j] - start[j])
        value += 0.5 * (gradient[i] + slope[i]) * (b[i] - start[i])
    return value


@inline
def write_semidefinite_root(own, at, F):  # type: ignore[no-untyped-def]
    """Write a root (k, k) of ``G_l``, lower triangular, which may have columns of zeros."""
    k = F.shape[0]
    for c in range(k):
        for d in range(c + 1):
            total = own[at + c * k + d]
            for m in range(d):
                total -= F[c, m] * F[d, m]
            if c == d:
                F[c, c] = math.sqrt(total) if total > _SINGULAR * own[at + c * k + c] else 0.0
            else:
                F[c, d] = total / F[d, d] if F[d, d] > 0.0 else 0.0


@inline
def solve_semidefinite(F, x):  # type: ignore[no-untyped-def]
    """Replace ``x = F y`` by y, which is 0 where F has a column of zeros."""
    for c in range(x.shape[0]):
        total = x[c]
        for d in range(c):
            total -= F[c, d] * x[d]
        x[c] = total / F[c, c] if F[c, c] > 0.0 else 0.0


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
def _write_level(table, f, l, T, F, H):  # type: ignore[no-untyped-def]
    """Write ``F_l`` and ``H = T'F_l``."""
    k = T.shape[0]
    write_semidefinite_root(table.own, table.pair[f] + (l - table.first[f]) * k * k, F)
    for c in range(k):
        for d in range(k):
            H[c, d] = 0.0
            for m in range(max(c, d), k):
                H[c, d] += T[m, c] * F[m, d]


@inline
def _left(table, rest, effects, at, pair, c, k):  # type: ignore[no-untyped-def]
    """Return ``Z_l'W`` times what is left of the responses of a level for its effect ``c``."""
    total = rest[at + c]
    for d in range(k):
        if d != c:
            total -= table.own[pair + c * k + d] * effects[at + d]
    return total


@jit(types.void(vector, i8, i8, matrix, matrix, vector, GENERATOR_TYPE))
def draw_effect(own, k, c, prior, known, effects, rng):  # type: ignore[no-untyped-def]
    """Draw scale and correlations of effect ``c`` with it integrated out, then it, in place.

    The other effects of its levels stay. ``known`` (3, levels) has information and score of the
    likelihood of each level, exp(score u - information u^2 / 2), and scratch; ``effects`` are those
    of the factor. The steps for scale and correlations are the same in reverse order, so that the
    whole is reversible, as a proposal has to be.
    """
    levels = known.shape[1]
    correlated = own.shape[0] > k
    linear, means = np.empty(2), known[2]
    sigma, b = np.zeros((k, k)), np.empty(k - 1)
    gradient, A = np.zeros(k - 1), np.zeros((k - 1, k - 1))
    linear[0], linear[1] = own[c], math.exp(own[c])
    means[:] = 0.0
    if correlated:
        covariance_of(own, sigma)
        linear[1] = conditional(sigma, c, b)
        for l in range(levels):
            for i in range(k - 1):
                means[l] += linear[1] * b[i] * effects[l * k + (i if i < c else i + 1)]
    slice_scale(INTEGRATED, own, c, k, linear, known, prior, c, rng)
    if correlated:
        ratio = math.exp(own[c] - linear[0])
        s = ratio * linear[1]
        for l in range(levels):
            means[l] *= ratio
            information, wide = known[0, l], 1.0 + s * s * known[0, l]
            score = (known[1, l] - information * means[l]) / wide
            for i in range(k - 1):
                other = s * effects[l * k + (i if i < c else i + 1)]
                gradient[i] += score * other
                for j in range(i + 1):
                    both = other * s * effects[l * k + (j if j < c else j + 1)]
                    A[i, j] += information / wide * both
        draw_conditional(own, k, c, gradient, A, prior, rng)
        for l in range(levels):
            for i in range(k - 1):
                means[l] += gradient[i] * effects[l * k + (i if i < c else i + 1)]
        linear[0], linear[1] = own[c], s
        slice_scale(INTEGRATED, own, c, k, linear, known, prior, c, rng)
    ratio = math.exp(own[c] - linear[0])
    s = ratio * linear[1]
    for l in range(levels):
        wide, mean = 1.0 + s * s * known[0, l], ratio * means[l]
        mean += s * s * (known[1, l] - known[0, l] * mean) / wide
        effects[l * k + c] = mean + s / math.sqrt(wide) * rng.standard_normal()


@inline
def _draw_factor(table, priors, f, k, state, rng):  # type: ignore[no-untyped-def]
    """Draw beta and the ``k`` effects of factor ``f``, and its covariance twice, see the module."""
    q, last = table.cross.shape[0], state.scales.shape[0] - 1
    low, high = table.first[f], table.first[f + 1]
    effects, design, rest = state.effects, table.design, state.rest
    own = state.scales[table.parameter[f] : table.parameter[f + 1]]
    precision = math.exp(-2.0 * state.scales[last])  # 1 / sigma^2
    T = np.zeros((k, k))
    for c in range(k):
        write_root_row(own, k, c, T)
        for d in range(c + 1):
            T[c, d] *= math.exp(own[c])
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
    K, root, part = np.empty((k, k)), np.zeros((k, k)), np.empty(k)
    F, H = np.zeros((k, k)), np.empty((k, k))
    Y, variance = np.empty((q + 1, k)), 1.0 / precision
    for l in range(low, high):
        at = table.effect[f] + (l - low) * k
        _write_level(table, f, l, T, F, H)
        for c in range(k):
            for d in range(c + 1):
                K[c, d] = variance if c == d else 0.0
                for m in range(k):  # F' Sigma F = H'H
                    K[c, d] += H[m, c] * H[m, d]
        factorise(K, root)
        for i in range(q + 1):
            for c in range(k):
                Y[i, c] = design[at + c, i] if i < q else rest[at + c]
            solve_semidefinite(F, Y[i])
        for j in range(q):
            for c in range(k):
                b[j] -= Y[j, c] * Y[q, c]
        for i in range(q + 1):
            solve_lower(root, Y[i])
        for j in range(q):
            for c in range(k):
                between[j] += Y[j, c] * Y[q, c]
                for i in range(j + 1):
                    A[j, i] += Y[j, c] * Y[i, c]
    for j in range(q):
        b[j] = precision * b[j] + between[j] + priors.shift[j]
    draw_normal(A, b, state.beta, rng)
    scatter = np.zeros((k, k))
    for l in range(low, high):
        at = table.effect[f] + (l - low) * k
        _write_level(table, f, l, T, F, H)
        for c in range(k):
            for d in range(c + 1):
                K[c, d] = 1.0 if c == d else 0.0
                for m in range(k):  # T' G_l T = H H'
                    K[c, d] += precision * H[c, m] * H[d, m]
        factorise(K, root)
        for c in range(k):
            for j in range(q):
                rest[at + c] -= design[at + c, j] * state.beta[j]
        for c in range(k):
            part[c] = 0.0
            for d in range(c, k):
                part[c] += T[d, c] * precision * rest[at + d]
        solve_lower(root, part)
        for c in range(k):
            part[c] += rng.standard_normal()
        solve_upper(root, part)
        for c in range(k):
            effects[at + c] = 0.0
            for d in range(c + 1):
                effects[at + c] += T[c, d] * part[d]
            for d in range(c + 1):
                scatter[c, d] += effects[at + c] * effects[at + d]
    draw_scales(own, k, float(high - low), scatter, priors.table, table.parameter[f], rng)
    prior = np.ascontiguousarray(priors.table[table.parameter[f] : table.parameter[f + 1]])
    known = np.empty((3, high - low))
    for c in range(k):
        for l in range(high - low):
            at, pair = table.effect[f] + l * k, table.pair[f] + l * k * k
            known[0, l] = precision * table.own[pair + c * k + c]
            known[1, l] = precision * _left(table, rest, effects, at, pair, c, k)
        draw_effect(own, k, c, prior, known, effects[table.effect[f] : table.effect[f + 1]], rng)
    scatter[:, :] = 0.0
    for at in range(table.effect[f], table.effect[f + 1], k):
        for c in range(k):
            for d in range(k):
                scatter[c, d] += effects[at + c] * effects[at + d]
    state.density[f] = log_density_of_effects(own, k, float(high - low), scatter)


@jit(types.void(CROSSED_TYPE, SCALES_TYPE, i8, STATE_TYPE, GENERATOR_TYPE))
def draw_factor(table, priors, f, state, rng):  # type: ignore[no-untyped-def]
    """Draw beta and the effects of factor ``f``; of intercepts alone by code of its own."""
    k = table.component[f + 1] - table.component[f]
    if k == 1:
        _draw_factor(table, priors, f, 1, state, rng)
    else:
        _draw_factor(table, priors, f, k, state, rng)


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
        slice_scale(MOVING, own, 0, 1, linear, square, prior, at + table.parameter[g], rng)
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
    slice_scale(CENTRED, sigma, 0, 1, count, root, priors.table, last, rng)
    value = -table.total * (sigma[0] + _HALF_LOG_2PI) - 0.5 * squares * math.exp(-2.0 * sigma[0])
    for f in range(F):
        value += state.density[f]
    return value


@jit(types.void(f8, vector, matrix), borrow=True)
def add_moments(count, effects, moments):  # type: ignore[no-untyped-def]
    """Add a draw of the effects (E,) to the moments (E, 4) of ``count`` draws before it.

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
