"""Gibbs sampling of factors that cross for any family with one linear predictor.

    y_i ~ f(eta_i, scalars),    eta_i = x_i . beta + offset_i + sum_f z_f,i . u_f[l_f(i)],
    u_f[l] ~ Normal(0, Sigma_f),

where ``z_f`` are a 1 and columns of x; see ``sweep`` for ``Sigma_f``. Given all else the effects of
the levels of one factor are independent. A sweep

1. proposes, factor by factor, the effects of each level from the Student t of a Newton step, and
   accepts them by themselves (Metropolis and Hastings), so that as many moves as there are levels
   cost two evaluations of each row. Where warm-up has seen log-likelihoods of rows that are not
   concave, as a Student t has, that of a level may have several modes, and a step of Newton does
   not leave the one it is in: there one proposal of four is from the distribution of the effects,
   ``Normal(0, Sigma_f)``. Then scales and partial correlations of the factor are drawn
   from ``p(Sigma | u)`` by slices;
2. shifts: with ``x_j`` a column that is constant within the levels of a factor with intercepts, as
   the intercept is, ``beta_j + delta`` and ``u_f[l] - delta x_j[l]`` leave every predictor as it
   is, and so do ``beta_j + delta`` and slopes of ``x_j`` less delta. ``delta`` is drawn from what
   is left, the prior of the effects, and accepted by the prior of beta. Effects of an outer factor
   shift likewise against those of the factors nested in it;
3. proposes one or two effects of a factor, the oftener the less the rows say of them, each together
   with its scale and correlations, as ``sweep`` draws them from the second-order expansion of the
   log-likelihood of each level where the effect is 0; what that leaves out decides on acceptance.
   Where there are too many levels for that, it proposes how the effect follows from the others:
   with ``u_c = s (b . u_others + w)``, u of the others, s and w fixed, b comes from the Student t
   of a Newton step, and ``u_c`` of all levels moves with it;
4. proposes coefficients, scalars and scales together, likewise. Effects move with their scales: of
   ``u_f[l] = tau_f^a_l v_f[l]`` v is fixed.

Without the second coefficients and effects would pass each other in small steps, the smaller the
more rows a level has; without the third scales and correlations of effects of which the rows say
little would hardly move. In the fourth ``a`` is 1 for a level without rows and falls to 0 for one
with very many (Papaspiliopoulos, Roberts and Skold 2007): where the rows of a level have ``c_l``
times the information on its effect that its distribution has, the mean square of the effect given
tau moves with ``tau^2a``, ``a = 1 - (c_l / (1 + c_l))^2``. ``c_l`` is ``n_l`` times the information
of a row, of which warm-up finds the mean. For Student t proposals the ratio of densities is bounded
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
from streammc.numerics.prior import COLUMNS, SHAPE, log_prior, prior_curvature
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.crossed.sweep import (
    CROSSED_TYPE,
    Crossed,
    conditional,
    conditional_prior,
    conditional_step,
    covariance_of,
    draw_effect,
    draw_scales,
    factorise,
    log_t,
    shift_nested,
    solve_lower,
    solve_step,
    solve_upper,
    spread,
    write_conditional,
    write_parameters,
    write_precision,
)

_HALF_LOG_2PI: Final = 0.9189385332046728
BLOCK_ROWS: Final = 1 << 11
"""Rows of the levels that are drawn together, unless one has more."""
CLIMBS: Final = 12
"""Sweeps before the first that only go uphill, with the scales of the effects as they are."""
CURVED_ROWS: Final = 1 << 16
"""Rows by whose curvature theta is proposed."""
_APART: Final = 8
"""Numbers between rows of scratch, which would share a place of the cache at powers of 2."""
_LEARNT: Final = 0.1
"""Weight of a sweep of warm-up in the information of a row, and in how often a move is accepted."""
AFAR: Final = 0.25
"""``Walk.afar`` where the log-likelihood of rows is not concave."""
_CONCAVE: Final = 1e-6
"""Convexity over information up to which it is: that of rounding."""
_LEAST_CHANCE: Final = 0.02
"""Least of ``Walk.chance``, so that a move that was refused throughout warm-up is still tried."""


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
    steps: Index
    """Positions in theta of all but the partial correlations, ascending."""


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
    """(q + s + S,) coefficients, scalars, parameters of the covariances."""
    effects: Vector
    """(E,)."""
    pull: Vector
    """(C,) information of a row, of ``z = 1``, on an effect over that of its distribution."""
    information: Vector
    """(2,) mean information of a row on its predictor, and mean convexity of its log-likelihood, at
    theta; not at one that was tried, where a Poisson mean may be infinite."""
    afar: Vector
    """(1,) share of the proposals of effects that are from their distribution."""
    power: Vector
    """(E,) ``a``, by :func:`set_powers`."""
    before: Vector
    """Scratch (E,): effects before a step of theta."""
    chance: Vector
    """(C,) share of the proposals of :func:`draw_apart` that were accepted, as warm-up has seen."""
    apart: Vector
    """(C,) 1 if that of the last sweep was, 0 if not; NaN: there was none."""
    moving: Matrix
    """Scratch (E, 3): effects, and two derivatives of them in the logarithm of the scale."""
    known: Vector
    """Scratch of a block: predictors without the effects of the factor."""
    own: Matrix
    """Scratch of a block (k, block): columns of the effects of the factor."""
    y: Vector
    """Scratch of a block: responses."""
    terms: Matrix
    """Scratch of a block (4, block): log-likelihood of rows, two derivatives of it in the
    predictor, and products."""
    trial: Matrix
    """Scratch of the levels of a block (BLOCK_ROWS, 2 + 2 k + k^2): log density, proposed effects,
    their centre, the root of the precision of the proposal, and the log-likelihood of the rows."""
    z: Matrix
    """Scratch of a tile (q + s + 2 C, TILE): derivatives of predictors in theta, columns first; of
    scales the second ones too."""
    place: Index
    """Scratch of a tile: places of the effects of a factor."""
    eta: Vector
    """Scratch of a tile: predictors, and scalars."""
    out: Vector
    """Scratch of a tile: what the link writes."""


def allocate_walk(family: Family, table: Crossed) -> Walk:
    """Return the position of a chain."""
    p, factors, effects = 1 + family.scalars, len(table.first) - 1, int(table.effect[-1])
    widest = int(np.diff(table.component).max())
    bounds = [table.start[table.first[f] + f : table.first[f + 1] + f + 1] for f in range(factors)]
    block = max(BLOCK_ROWS, *(int(np.diff(each).max()) for each in bounds))
    return Walk(
        theta=np.zeros(family.q + family.scalars + int(table.parameter[-1])),
        effects=np.zeros(effects),
        pull=np.zeros(len(table.column)),
        information=np.zeros(2),
        afar=np.zeros(1),
        power=np.ones(effects),
        before=np.zeros(effects),
        chance=np.ones(len(table.column)),
        apart=np.full(len(table.column), math.nan),
        moving=np.zeros((effects, 3)),
        known=np.zeros(block),
        own=np.ones((widest, block + _APART)),
        y=np.zeros(block),
        terms=np.zeros((4, block + _APART)),
        trial=np.zeros((BLOCK_ROWS, 2 + 2 * widest + widest**2)),
        z=np.zeros((len(family.steps) + len(table.column), TILE + _APART)),
        place=np.zeros(TILE, np.int64),
        eta=np.zeros(p * TILE),
        out=np.zeros((1 + p + p * (p + 1) // 2) * TILE),
    )


def is_concave(walk: Walk) -> bool:
    """Return whether the log-likelihoods of rows are, at theta."""
    information, convexity = walk.information
    return bool(convexity <= _CONCAVE * information)


def disperse(table: Crossed, walk: Walk, rng: np.random.Generator) -> None:
    """Draw effects with the scales that they have, by themselves: chains start at several modes."""
    linear = len(walk.theta) - int(table.parameter[-1])
    for f, k in enumerate(np.diff(table.component)):
        own, at = slice(table.effect[f], table.effect[f + 1]), linear + table.parameter[f]
        drawn = rng.standard_normal((len(walk.effects[own]) // k, k))
        walk.effects[own] = (drawn * np.exp(walk.theta[at : at + k])).ravel()


def steps_of(table: Crossed, linear: int) -> Index:
    """Return ``Family.steps``; ``linear`` parameters are coefficients and scalars."""
    found = [np.arange(linear)]
    for f, k in enumerate(np.diff(table.component)):
        found.append(linear + table.parameter[f] + np.arange(k))
    return np.concatenate(found)


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
        _copy_columns(rows.single[f, begin : begin + count], q, z, y[at : at + count])
    else:
        _copy_columns(rows.double[f, begin : begin + count], q, z, y[at : at + count])
    for i in range(count):
        eta[i] = rows.offset[f, begin + i] if rows.offset.shape[1] > 0 else 0.0
    for j in range(q):
        _add(count, walk.theta[j], z[j], eta)


@inline
def _copy_columns(values, q, z, y):  # type: ignore[no-untyped-def]
    """Write columns and responses of rows, one below the other."""
    for j in range(q):
        _copy(values[:, j], z[j])
    _copy(values[:, q], y)


@inline
def _copy(x, to):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        to[i] = x[i]


@inline
def _add(count, scale, x, total):  # type: ignore[no-untyped-def]
    """Add a multiple of ``x`` to ``total``, in a loop that LLVM vectorises."""
    for i in range(count):
        total[i] += scale * x[i]


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


@inline
def _add_others(table, rows_z, f, begin, count, effects, eta):  # type: ignore[no-untyped-def]
    """Add the effects of the other factors to the predictors of a tile, with its columns."""
    for place in range(table.first.shape[0] - 2):
        g = place if place < f else place + 1
        codes, components = table.codes[f * (table.first.shape[0] - 2) + place], table.component[g]
        k = table.component[g + 1] - components
        base = table.effect[g] - table.first[g] * k
        for c in range(k):
            column = table.column[components + c]
            if column < 0:
                for i in range(count):
                    eta[i] += effects[base + codes[begin + i] * k + c]
            else:
                for i in range(count):
                    eta[i] += rows_z[column, i] * effects[base + codes[begin + i] * k + c]


@inline
def _sums(low, high, terms, own, k, gradient, A):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of the rows of a level, and write two derivatives.

    ``gradient`` (k,) and, as its lower triangle, minus the Hessian ``A`` (k, k) are in its effects.
    """
    value, gradient[0], A[0, 0] = _first_sums(low, high, terms, own)
    count = high - low
    score, bend, product = terms[1, low:high], terms[2, low:high], terms[3, low:high]
    for c in range(1, k):
        z = own[c, low:high]
        gradient[c] = _sum(count, score, z)
        for i in range(count):
            product[i] = -bend[i] * z[i]
        for d in range(0, c, 2):  # two sums read the products once
            one, two = own[d, low:high], own[d + 1, low:high]
            A[c, d], A[c, d + 1] = _two_sums(count, product, one, two)
        if c % 2 == 0:
            A[c, c] = _sum(count, product, z)
    return value


@inline(reassociate=True)
def _first_sums(low, high, terms, own):  # type: ignore[no-untyped-def]
    """Return the sums of a level for the first of its effects, each row being read once."""
    value = gradient = curvature = 0.0
    for i in range(low, high):
        x = own[0, i]
        value += terms[0, i]
        gradient += terms[1, i] * x
        curvature -= terms[2, i] * x * x
    return value, gradient, curvature


@inline
def _proposal(k, precision, unit, u, gradient, A, root, centre):  # type: ignore[no-untyped-def]
    """Write centre and root of the precision of a Newton step of the effects ``u`` of a level.

    Return the logarithm of their prior density, but for a constant. To ``gradient`` and ``A`` of
    the rows those of the prior are added. A step of Newton may be far too long where responses are
    counts.
    """
    value = 0.0
    for c in range(k):
        total = 0.0
        for d in range(k):
            total += precision[c, d] * u[d]
        gradient[c] -= total
        value -= 0.5 * u[c] * total
        diagonal = max(A[c, c], 0.0)
        for d in range(c + 1):
            A[c, d] += precision[c, d]
        if k == 1:
            A[c, c] = diagonal + precision[c, c]
    if not factorise(A, root):  # of rows whose curvature is negative, none
        for c in range(k):
            for d in range(c + 1):
                A[c, d] = precision[c, d]
        if not factorise(A, root):
            return -math.inf
    centre[:] = gradient
    solve_lower(root, centre)
    solve_upper(root, centre)
    length = 1.0
    for c in range(k):
        most = 1.0 / unit[c] + 1.0 / math.sqrt(A[c, c])
        if abs(centre[c]) > most:
            length = min(length, most / abs(centre[c]))
    for c in range(k):
        centre[c] = u[c] + length * centre[c]
    return value


@jit(f8(*_PROBLEM, i8, i8, GENERATOR_TYPE))
def draw_effects(link, family, table, rows, walk, f, climb, rng):  # type: ignore[no-untyped-def]
    """Propose and accept the effects of factor ``f``, or, with ``climb``, go uphill.

    Return the log-likelihood of the rows afterwards.
    """
    likelihood, afar = 0.0, walk.afar[0]
    p, first, last = 1 + family.scalars, table.first[f], table.first[f + 1]
    k = table.component[f + 1] - table.component[f]
    columns = table.column[table.component[f] : table.component[f + 1]]
    unit = table.unit[table.component[f] : table.component[f + 1]]
    effects, known, terms, trial, own = walk.effects, walk.known, walk.terms, walk.trial, walk.own
    weighted = table.row_weight.shape[1] > 0
    inverse, precision = np.empty((k, k)), np.empty((k, k))
    at = family.q + family.scalars
    scales = walk.theta[at + table.parameter[f] : at + table.parameter[f + 1]]
    write_precision(scales, k, inverse, precision)
    A, root, gradient, centre = np.empty((k, k)), np.zeros((k, k)), np.empty(k), np.empty(k)
    u, away = np.empty(k), np.empty(k)
    for c in range(k):
        if columns[c] < 0:
            own[c] = 1.0
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
            _add_others(table, walk.z, f, begin + at, count, effects, walk.eta)
            for i in range(count):
                known[at + i] = walk.eta[i]
            for c in range(k):
                if columns[c] >= 0:
                    _copy(walk.z[columns[c], :count], own[c, at:])
        for attempt in range(2):
            for l in range(low, high):
                start, stop = table.start[l + f] - begin, table.start[l + 1 + f] - begin
                place = table.effect[f] + (l - first) * k
                for c in range(k):
                    u[c] = effects[place + c] if attempt == 0 else trial[l - low, 1 + c]
                predictor = terms[0, start:stop]
                _copy(known[start:stop], predictor)
                for c in range(k):
                    _add(stop - start, u[c], own[c, start:stop], predictor)
            for at in range(0, end - begin, TILE):
                count = min(TILE, end - begin - at)
                _copy(terms[0, at : at + count], walk.eta)
                out = _evaluate(link, family, walk, walk.y, at, count)
                for i in range(count):
                    w = table.row_weight[f, begin + at + i] if weighted else 1.0
                    terms[0, at + i] = w * out[0, i]
                    terms[1, at + i] = w * out[1, i]
                    terms[2, at + i] = w * out[1 + p, i]
            for l in range(low, high):
                start, stop = table.start[l + f] - begin, table.start[l + 1 + f] - begin
                place, tried = table.effect[f] + (l - first) * k, trial[l - low]
                for c in range(k):
                    u[c] = effects[place + c] if attempt == 0 else tried[1 + c]
                rows_alone = _sums(start, stop, terms, own, k, gradient, A)
                if attempt == 0:
                    likelihood += rows_alone
                    tried[1 + 2 * k + k * k] = rows_alone
                value = _proposal(k, precision, unit, u, gradient, A, root, centre)
                value += rows_alone
                if attempt == 0:
                    tried[0] = value if value > -math.inf else math.inf  # no step: it stays
                    if climb:
                        length = _length(rng)
                        for c in range(k):
                            tried[1 + c] = u[c] + (centre[c] - u[c]) * length
                        continue
                    for c in range(k):
                        away[c] = rng.standard_normal()
                    tried[1 + k] = math.nan
                    if afar > 0.0 and rng.random() < afar:
                        solve_lower(inverse, away)
                        tried[1 : 1 + k] = away
                        continue
                    solve_upper(root, away)
                    wide = spread(k, rng)
                    for c in range(k):
                        tried[1 + c] = centre[c] + away[c] * wide
                        tried[1 + k + c] = centre[c]
                        for d in range(c + 1):
                            tried[1 + 2 * k + c * k + d] = root[c, d]
                    continue
                accepted = value > tried[0]
                if not climb and math.isnan(tried[1 + k]):  # from the distribution of the effects
                    ratio = rows_alone - tried[1 + 2 * k + k * k]
                    accepted = math.log(1.0 - rng.random()) < ratio
                elif not climb:
                    for c in range(k):
                        away[c] = effects[place + c] - centre[c]
                    ratio = value - tried[0] + log_t(root, away)
                    for c in range(k):
                        away[c] = u[c] - tried[1 + k + c]
                        for d in range(c + 1):
                            root[c, d] = tried[1 + 2 * k + c * k + d]
                    ratio -= log_t(root, away)
                    accepted = math.log(1.0 - rng.random()) < ratio
                if accepted:
                    likelihood += rows_alone - tried[1 + 2 * k + k * k]
                    for c in range(k):
                        effects[place + c] = u[c]
        low = high
    return likelihood


@inline
def _length(rng):  # type: ignore[no-untyped-def]
    """Return the part of a step uphill: all of it, or, as that may be too long, less."""
    return 1.0 if rng.random() < 0.5 else rng.random()


@inline(reassociate=True)
def _sum(count, a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        total += a[i] * b[i]
    return total


@inline(reassociate=True)
def _two_sums(count, a, b, c):  # type: ignore[no-untyped-def]
    """Return the sums of ``a b`` and of ``a c``."""
    one = two = 0.0
    for i in range(count):
        one += a[i] * b[i]
        two += a[i] * c[i]
    return one, two


@inline
def _scale(scale, x, to):  # type: ignore[no-untyped-def]
    """Write a multiple of ``x``."""
    for i in range(x.shape[0]):
        to[i] = scale * x[i]


@jit(f8(FAMILY_TYPE, CROSSED_TYPE, WALK_TYPE, vector, matrix))
def expand_effects(family, table, walk, gradient, hessian):  # type: ignore[no-untyped-def]
    """Return the log density of the effects; add to its derivatives, and write ``moving``.

    These are in the logarithms of the scales, each effect moving with its own: with ``v = D^-1 u``
    and ``R`` the correlations it is, of a level, ``- sum_c (1 - a_c) log tau_c - v' R^-1 v / 2``,
    where ``log v_c`` changes by ``a_c - 1`` times the logarithm of ``tau_c``.
    """
    value, linear = 0.0, family.q + family.scalars
    for f in range(table.first.shape[0] - 1):
        k, step = table.component[f + 1] - table.component[f], linear + table.component[f]
        own = walk.theta[linear + table.parameter[f] : linear + table.parameter[f + 1]]
        inverse, precision = np.empty((k, k)), np.empty((k, k))
        write_precision(own, k, inverse, precision)
        both, single, fixed = np.zeros((k, k)), np.zeros(k), np.zeros(k)
        levels = float(table.first[f + 1] - table.first[f])
        for at in range(table.effect[f], table.effect[f + 1], k):
            for c in range(k):
                u, a = walk.effects[at + c], walk.power[at + c]
                walk.moving[at + c, 0] = u
                walk.moving[at + c, 1] = a * u
                walk.moving[at + c, 2] = a * a * u
                turned = 0.0
                for d in range(k):
                    turned += precision[c, d] * walk.effects[at + d]
                rest = 1.0 - a
                fixed[c] += rest
                value -= 0.5 * u * turned
                gradient[step + c] += rest * u * turned
                single[c] += rest * rest * u * turned
                for d in range(c + 1):
                    other = (1.0 - walk.power[at + d]) * walk.effects[at + d]
                    both[c, d] += rest * u * precision[c, d] * other
        for c in range(k):
            gradient[step + c] -= fixed[c]
            value -= fixed[c] * own[c] + levels * _HALF_LOG_2PI
            value += levels * (math.log(inverse[c, c]) + own[c])  # of the correlations
            for d in range(c + 1):
                hessian[step + c, step + d] += both[c, d]
            hessian[step + c, step + c] += max(single[c], 0.0)
    return value


@jit(f8(*_PROBLEM, vector, matrix))
def expand(link, family, table, rows, walk, gradient, hessian):  # type: ignore[no-untyped-def]
    """Return the log density at theta, write its gradient and about minus its Hessian.

    It is that of responses and effects, but for the prior of theta, in its parameters
    ``Family.steps``: coefficients, scalars and the logarithms of the scales, effects moving with
    these. Of the predictor's curvature negative parts are left out. The last row of ``hessian``
    (D + 1, D) has the sums of the squares of the derivatives in the scalars. Of many rows the
    curvature is that of some tiles, always the same: it shapes proposals alone.
    """
    F, q, s = table.first.shape[0] - 1, family.q, family.scalars
    D, p, n = family.steps.shape[0], 1 + family.scalars, int(table.rows)
    weighted = table.row_weight.shape[1] > 0
    y, z, moving, eta, place = walk.y, walk.z, walk.moving, walk.eta, walk.place
    product, ones, stride = walk.terms[3], walk.terms[2], max(n // CURVED_ROWS, 1)
    ones[:TILE] = 1.0
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    total = expand_effects(family, table, walk, gradient, hessian)
    information = convexity = 0.0
    z[q : q + s] = 0.0
    l = 0
    for at in range(0, n, TILE):
        count = min(TILE, n - at)
        _load(family, rows, 0, at, count, walk, y, 0)
        curved, low = at // TILE % stride == 0, 0
        while low < count:  # the rows of a level of the first factor are together
            while table.start[l + 1] <= at + low:
                l += 1
            high, k = min(count, table.start[l + 1] - at), table.component[1]
            for c in range(k):
                column, first = table.column[c], q + s + c
                x = (ones if column < 0 else z[column])[low:high]
                _add(high - low, moving[l * k + c, 0], x, eta[low:high])
                _scale(moving[l * k + c, 1], x, z[first, low:high])
                if curved:
                    _scale(moving[l * k + c, 2], x, z[D + c, low:high])
            low = high
        for g in range(1, F):
            components = table.component[g]
            k = table.component[g + 1] - components
            for i in range(count):
                code = table.codes[g - 1, at + i]
                place[i] = table.effect[g] + (code - table.first[g]) * k
            for c in range(k):
                column, first, second = table.column[components + c], q + s, D
                first, second = first + components + c, second + components + c
                for i in range(count):
                    x = 1.0 if column < 0 else z[column, i]
                    eta[i] += x * moving[place[i] + c, 0]
                    z[first, i] = x * moving[place[i] + c, 1]
                    if curved:
                        z[second, i] = x * moving[place[i] + c, 2]
        out = _evaluate(link, family, walk, y, 0, count)
        if weighted:
            for k_out in range(out.shape[0]):
                for i in range(count):
                    out[k_out, i] *= table.row_weight[0, at + i]
        part = curvature = bent = 0.0
        for i in range(count):
            part += out[0, i]
            bent += max(out[1 + p, i], 0.0)
            out[1 + p, i] = max(-out[1 + p, i], 0.0)
            curvature += out[1 + p, i]
        total += part
        information += curvature
        convexity += bent
        for j in range(D):
            gradient[j] += _sum(count, out[1], z[j])
        for a in range(s):
            for i in range(count):
                gradient[q + a] += out[2 + a, i]
        if not curved:
            continue
        for j in range(D):
            for i in range(count):
                product[i] = stride * out[1 + p, i] * z[j, i]
            for m in range(j + 1):
                hessian[j, m] += _sum(count, product, z[m])
        for c in range(table.column.shape[0]):
            hessian[q + s + c, q + s + c] -= stride * _sum(count, out[1], z[D + c])
        pair = 1 + p + p
        for a in range(s):
            score, cross = out[2 + a], out[2 + p + a]
            for i in range(count):
                w = table.row_weight[0, at + i] if weighted else 1.0
                hessian[D, q + a] += stride * score[i] * score[i] / w
            for j in range(q):
                hessian[q + a, j] -= stride * _sum(count, cross, z[j])
            for j in range(q + s, D):
                hessian[j, q + a] -= stride * _sum(count, cross, z[j])
            for b in range(a, s):
                both = 0.0
                for i in range(count):
                    both += out[pair, i]
                hessian[q + b, q + a] -= stride * both
                pair += 1
    walk.information[0], walk.information[1] = information / n, convexity / n
    return total


@jit(i8(FAMILY_TYPE, i8, matrix, vector, vector, vector, matrix, vector))
def _newton(family, climb, A, gradient, curvature, theta, root, mean):  # type: ignore[no-untyped-def]
    """Write the centre and the root of the precision of a step from ``theta``; 0 if it has none.

    To ``A`` the curvature of the prior is added; that of logarithms is at least 1. Where ``A`` is
    not positive, scalars step by themselves, by the squares of their derivatives. A step is as long
    as :func:`~streammc.samplers.crossed.sweep.solve_step` allows. With ``climb`` scales of effects
    stay, and scalars step by 1 at most.
    """
    D, q, s = family.steps.shape[0], family.q, family.scalars
    for j in range(D):
        A[j, j] += curvature[family.steps[j]]
        if j >= q:
            A[j, j] = max(A[j, j], 1.0)
        if climb and j >= q + s:
            A[j, :j] = 0.0
            A[j:D, j] = 0.0
            A[j, j] = 1.0
            gradient[j] = 0.0
    if not factorise(A, root):
        for a in range(q, q + s):
            for j in range(D):
                if j > a:
                    A[j, a] = 0.0
                elif j < a:
                    A[a, j] = 0.0
            A[a, a] = max(A[D, a] + curvature[family.steps[a]], 1.0)
        if not factorise(A, root):
            return 0
    length = solve_step(root, gradient, mean)
    if climb:
        most = 1.0
        for j in range(q, D):
            most = max(most, abs(mean[j]))
        length = 1.0 / most
    for j in range(D):
        mean[j] = theta[family.steps[j]] + length * mean[j]
    return 1


@jit(f8(*_PROBLEM, i8, i8, matrix))
def expand_effect(link, family, table, rows, walk, f, c, known):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of all rows; write two derivatives of each level's in effect ``c``.

    Minus the second, where it is not below 0, and the first, into ``known`` (3, levels).
    """
    k, first = table.component[f + 1] - table.component[f], table.first[f]
    column, p = table.column[table.component[f] + c], 1 + family.scalars
    weighted, n = table.row_weight.shape[1] > 0, int(table.rows)
    slope, curve, ones = walk.terms[0], walk.terms[1], walk.terms[2]
    ones[:TILE] = 1.0
    total, l = 0.0, first
    known[:2] = 0.0
    for at in range(0, n, TILE):
        count, low = min(TILE, n - at), 0
        _load(family, rows, f, at, count, walk, walk.y, 0)
        _add_others(table, walk.z, f, at, count, walk.effects, walk.eta)
        begun = l
        while low < count:
            while table.start[l + 1 + f] <= at + low:
                l += 1
            high, place = min(count, table.start[l + 1 + f] - at), table.effect[f] + (l - first) * k
            for d in range(k):
                own, u = table.column[table.component[f] + d], walk.effects[place + d]
                x = (ones if own < 0 else walk.z[own])[low:high]
                _add(high - low, u, x, walk.eta[low:high])
            low = high
        out = _evaluate(link, family, walk, walk.y, 0, count)
        for i in range(count):
            x = 1.0 if column < 0 else walk.z[column, i]
            w = table.row_weight[f, at + i] if weighted else 1.0
            total += w * out[0, i]
            slope[i] = w * out[1, i] * x
            curve[i] = -w * out[1 + p, i] * x * x
        l, low = begun, 0
        while low < count:
            while table.start[l + 1 + f] <= at + low:
                l += 1
            high = min(count, table.start[l + 1 + f] - at)
            bend, score = _two_sums(high - low, ones, curve[low:high], slope[low:high])
            known[0, l - first] += bend
            known[1, l - first] += score
            low = high
    for l in range(known.shape[1]):
        known[0, l] = max(known[0, l], 0.0)
    return total


@inline
def _quadratic(known, effects, k, c):  # type: ignore[no-untyped-def]
    """Return by how much the effect changes the log-likelihood, to second order."""
    total = 0.0
    for l in range(known.shape[1]):
        u = effects[l * k + c]
        total += u * (known[1, l] - 0.5 * known[0, l] * u)
    return total


@jit(f8(*_PROBLEM, i8, i8, f8, GENERATOR_TYPE))
def draw_apart(link, family, table, rows, walk, f, c, likelihood, rng):  # type: ignore[no-untyped-def]
    """Propose and accept effect ``c`` of factor ``f`` together with its scale and correlations.

    The proposal is of the model whose log-likelihood is the second-order expansion where the effect
    is 0 (see :func:`~streammc.samplers.crossed.sweep.draw_effect`), and accepted by what that
    leaves out. ``likelihood`` is that of the rows; return it afterwards.
    """
    k, linear = table.component[f + 1] - table.component[f], family.q + family.scalars
    low, high = linear + table.parameter[f], linear + table.parameter[f + 1]
    own, prior = walk.theta[low:high], np.ascontiguousarray(family.prior[low:high, :COLUMNS])
    effects = walk.effects[table.effect[f] : table.effect[f + 1]]
    before, old = effects.copy(), own.copy()
    known = np.empty((3, table.first[f + 1] - table.first[f]))
    effects[c::k] = 0.0
    expand_effect(link, family, table, rows, walk, f, c, known)
    effects[:] = before
    draw_effect(own, k, c, prior, known, effects, rng)
    gain = _quadratic(known, before, k, c) - _quadratic(known, effects, k, c)
    proposed = expand_effect(link, family, table, rows, walk, f, c, known)
    accepted = math.log(1.0 - rng.random()) < gain + proposed - likelihood
    walk.apart[table.component[f] + c] = 1.0 if accepted else 0.0
    if accepted:
        return proposed
    effects[:] = before
    own[:] = old
    return likelihood


@inline
def _step_of_rows(effects, known, c, b, s, sigma, eta, slope, root, mean):  # type: ignore[no-untyped-def]
    """Write centre and root of the precision of a Newton step of b; return if it has one.

    ``known`` has derivatives in effect c, which changes with b by the other effects times s.
    """
    k = sigma.shape[0]
    gradient, A, moved = np.zeros(k - 1), np.zeros((k - 1, k - 1)), np.empty(k - 1)
    for l in range(known.shape[1]):
        for i in range(k - 1):
            moved[i] = s * effects[l * k + (i if i < c else i + 1)]
            gradient[i] += known[1, l] * moved[i]
            for j in range(i + 1):
                A[i, j] += known[0, l] * moved[i] * moved[j]
    return conditional_step(c, b, s, sigma, eta, slope, gradient, A, root, mean)


@jit(f8(*_PROBLEM, i8, i8, f8, GENERATOR_TYPE))
def draw_conditional(link, family, table, rows, walk, f, c, likelihood, rng):  # type: ignore[no-untyped-def]
    """Propose and accept how effect ``c`` of factor ``f`` follows from the others of its level.

    ``likelihood`` is that of the rows; return it afterwards.
    """
    k, linear = table.component[f + 1] - table.component[f], family.q + family.scalars
    low, high = linear + table.parameter[f], linear + table.parameter[f + 1]
    own, prior = walk.theta[low:high], np.ascontiguousarray(family.prior[low:high, :COLUMNS])
    effects = walk.effects[table.effect[f] : table.effect[f + 1]]
    known, sigma = np.empty((3, table.first[f + 1] - table.first[f])), np.zeros((k, k))
    new, b, slope = np.empty_like(own), np.empty(k - 1), np.empty_like(own)
    root, back_root = np.zeros((k - 1, k - 1)), np.zeros((k - 1, k - 1))
    mean, back, away = np.empty(k - 1), np.empty(k - 1), np.empty(k - 1)
    covariance_of(own, sigma)
    s, eta = conditional(sigma, c, b), prior[k, SHAPE] - 0.5 * (k - 2.0)
    expand_effect(link, family, table, rows, walk, f, c, known)
    density = likelihood + conditional_prior(own, k, prior, slope)
    if not _step_of_rows(effects, known, c, b, s, sigma, eta, slope[c], root, mean):
        return likelihood
    wide = spread(k - 1, rng)
    for i in range(k - 1):
        away[i] = rng.standard_normal() * wide
    solve_upper(root, away)
    there = mean + away
    write_conditional(sigma, c, there, s)
    if not write_parameters(sigma, new):
        return likelihood
    before = effects[c::k].copy()
    for l in range(known.shape[1]):
        for i in range(k - 1):
            effects[l * k + c] += s * (there[i] - b[i]) * effects[l * k + (i if i < c else i + 1)]
    proposed = expand_effect(link, family, table, rows, walk, f, c, known)
    value = proposed + conditional_prior(new, k, prior, slope)
    if math.isfinite(value) and _step_of_rows(
        effects, known, c, there, s, sigma, eta, slope[c], back_root, back
    ):
        gain = value - density + log_t(back_root, b - back) - log_t(root, there - mean)
        if math.log(1.0 - rng.random()) < gain:
            own[:] = new
            return proposed
    for l in range(known.shape[1]):
        effects[l * k + c] = before[l]
    return likelihood


@inline
def draw_weak(link, family, table, rows, walk, f, likelihood, rng):  # type: ignore[no-untyped-def]
    """Draw an effect of factor ``f`` of which the rows say little, with its part of the covariance.

    Apart, the oftener the more often that has been accepted; else how it follows from the others.
    """
    k, levels = table.component[f + 1] - table.component[f], table.first[f + 1] - table.first[f]
    weak = np.zeros(k)
    for at in range(table.effect[f], table.effect[f + 1], k):
        for c in range(k):
            weak[c] += walk.power[at + c] / levels
    apart = weak * walk.chance[table.component[f] : table.component[f + 1]]
    left = rng.random() * max(apart.sum(), 1.0)
    for c in range(k):
        left -= apart[c]
        if left < 0.0:
            return draw_apart(link, family, table, rows, walk, f, c, likelihood, rng)
    if table.parameter[f + 1] - table.parameter[f] == k:
        return likelihood
    weak += 0.1
    left = rng.random() * weak.sum()
    for c in range(k):
        left -= weak[c]
        if left < 0.0 or c == k - 1:
            return draw_conditional(link, family, table, rows, walk, f, c, likelihood, rng)
    return likelihood


@jit(f8(*_PROBLEM, i8, GENERATOR_TYPE))
def draw_theta(link, family, table, rows, walk, climb, rng):  # type: ignore[no-untyped-def]
    """Propose and accept theta but for partial correlations; return :func:`expand`'s value.

    Effects move with their scales.
    """
    steps, theta, linear = family.steps, walk.theta, family.q + family.scalars
    D = steps.shape[0]
    A, root, back_root = np.zeros((D + 1, D)), np.zeros((D, D)), np.zeros((D, D))
    gradient, away, mean, back = np.zeros(D), np.zeros(D), np.zeros(D), np.zeros(D)
    curvature, slope, old = np.zeros_like(theta), np.zeros_like(theta), theta.copy()
    value = expand(link, family, table, rows, walk, gradient, A)
    information, convexity = walk.information[0], walk.information[1]
    density = value + log_prior(old, family.prior, slope)
    for j in range(D):
        gradient[j] += slope[steps[j]]
    prior_curvature(old, family.prior, curvature)
    if _newton(family, climb, A, gradient, curvature, old, root, mean) == 0:
        return value
    if climb:
        length = _length(rng)
        for j in range(D):
            theta[steps[j]] += length * (mean[j] - old[steps[j]])
    else:
        wide = spread(D, rng)
        for j in range(D):
            away[j] = rng.standard_normal() * wide
        solve_upper(root, away)
        for j in range(D):
            theta[steps[j]] = mean[j] + away[j]
    walk.before[:] = walk.effects
    for f in range(table.first.shape[0] - 1):
        k = table.component[f + 1] - table.component[f]
        for c in range(k):
            at = linear + table.parameter[f] + c
            for place in range(table.effect[f] + c, table.effect[f + 1], k):
                walk.effects[place] *= math.exp(walk.power[place] * (theta[at] - old[at]))
    new = expand(link, family, table, rows, walk, gradient, A)
    slope[:] = 0.0
    proposed = new + log_prior(theta, family.prior, slope)
    for j in range(D):
        gradient[j] += slope[steps[j]]
    prior_curvature(theta, family.prior, curvature)
    accepted = False
    if climb:
        accepted = proposed > density
    elif (
        math.isfinite(proposed)
        and _newton(family, 0, A, gradient, curvature, theta, back_root, back) == 1
    ):
        for j in range(D):
            away[j] = old[steps[j]] - back[j]
        ratio = proposed - density + log_t(back_root, away)
        for j in range(D):
            away[j] = theta[steps[j]] - mean[j]
        ratio -= log_t(root, away)
        accepted = math.log(1.0 - rng.random()) < ratio
    if accepted:
        value = new
    else:
        walk.effects[:] = walk.before
        theta[:] = old
        walk.information[0], walk.information[1] = information, convexity
    return value


@inline
def _constant(family, table, f, c, l, j):  # type: ignore[no-untyped-def]
    """Return column ``j`` over that of component ``c`` of a factor, NaN where it varies."""
    column = table.column[table.component[f] + c]
    if column < 0:
        return family.constant[l, j]
    return 1.0 if column == j else math.nan


@jit(types.void(FAMILY_TYPE, CROSSED_TYPE, i8, WALK_TYPE, GENERATOR_TYPE))
def shift(family, table, f, walk, rng):  # type: ignore[no-untyped-def]
    """Move coefficients against the effects of factor ``f``, every predictor staying as it is."""
    first, last, linear = table.first[f], table.first[f + 1], family.q + family.scalars
    k = table.component[f + 1] - table.component[f]
    inverse, Q, slope = np.empty((k, k)), np.empty((k, k)), np.zeros_like(walk.theta)
    own = walk.theta[linear + table.parameter[f] : linear + table.parameter[f + 1]]
    write_precision(own, k, inverse, Q)
    for c in range(k):
        for j in range(family.q):
            if not math.isfinite(_constant(family, table, f, c, first, j)):
                continue
            precision = total = 0.0
            for l in range(first, last):
                x, at = _constant(family, table, f, c, l, j), table.effect[f] + (l - first) * k
                precision += x * x
                for d in range(k):
                    total += x * Q[c, d] * walk.effects[at + d]
            precision *= Q[c, c]
            if not precision > 0.0:
                continue
            delta = total / precision + rng.standard_normal() / math.sqrt(precision)
            before = log_prior(walk.theta, family.prior, slope)
            walk.theta[j] += delta
            ratio = log_prior(walk.theta, family.prior, slope) - before
            if math.log(1.0 - rng.random()) < ratio:
                for l in range(first, last):
                    at = table.effect[f] + (l - first) * k + c
                    walk.effects[at] -= delta * _constant(family, table, f, c, l, j)
            else:
                walk.theta[j] -= delta


@jit(f8(*_PROBLEM, i8, GENERATOR_TYPE))
def sweep(link, family, table, rows, walk, climb, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    F, linear = table.first.shape[0] - 1, family.q + family.scalars
    walk.apart[:] = math.nan
    if not climb:
        shift_nested(table, family.prior, linear, walk.theta[linear:], walk.effects, rng)
    for f in range(F):
        likelihood = draw_effects(link, family, table, rows, walk, f, climb, rng)
        if climb:
            continue
        shift(family, table, f, walk, rng)
        k, at = table.component[f + 1] - table.component[f], linear + table.parameter[f]
        scatter = np.zeros((k, k))
        for place in range(table.effect[f], table.effect[f + 1], k):
            for c in range(k):
                for d in range(c + 1):
                    scatter[c, d] += walk.effects[place + c] * walk.effects[place + d]
        own, levels = walk.theta[at : linear + table.parameter[f + 1]], table.first[f + 1]
        draw_scales(own, k, float(levels - table.first[f]), scatter, family.prior, at, rng)
        for _ in range(min(k, 2)):
            likelihood = draw_weak(link, family, table, rows, walk, f, likelihood, rng)
    value = draw_theta(link, family, table, rows, walk, climb, rng)
    for f in range(F):  # the density of v becomes that of the effects
        k = table.component[f + 1] - table.component[f]
        for c in range(k):
            scale = walk.theta[linear + table.parameter[f] + c]
            for place in range(table.effect[f] + c, table.effect[f + 1], k):
                value -= walk.power[place] * scale
    return value


@jit(types.void(CROSSED_TYPE, WALK_TYPE), borrow=True)
def set_powers(table, walk):  # type: ignore[no-untyped-def]
    """Write how far each effect moves with its scale, from what has been learnt."""
    for f in range(table.first.shape[0] - 1):
        k, pair = table.component[f + 1] - table.component[f], table.pair[f]
        for at in range(table.effect[f], table.effect[f + 1], k):
            for c in range(k):
                own = table.own[pair + c * k + c] * walk.pull[table.component[f] + c]
                walk.power[at + c] = 1.0 - (own / (1.0 + own)) ** 2
            pair += k * k


@jit(types.void(CROSSED_TYPE, WALK_TYPE), borrow=True)
def learn(table, walk):  # type: ignore[no-untyped-def]
    """Let a sweep of warm-up count for how the next ones move."""
    F = table.first.shape[0] - 1
    per_weight = walk.information[0] * table.rows / table.total
    linear = walk.theta.shape[0] - table.parameter[F]
    for f in range(F):
        for c in range(table.component[f + 1] - table.component[f]):
            scale = walk.theta[linear + table.parameter[f] + c]
            at = table.component[f] + c
            walk.pull[at] += _LEARNT * (per_weight * math.exp(2.0 * scale) - walk.pull[at])
            if math.isfinite(walk.apart[at]):
                chance = walk.chance[at] + _LEARNT * (walk.apart[at] - walk.chance[at])
                walk.chance[at] = max(chance, _LEAST_CHANCE)
    set_powers(table, walk)
