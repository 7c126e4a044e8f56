"""Quadrature over the effects of a group: mode and curvature, nodes, panels.

The nodes are placed at the mode, by the curvature. With ``u = A v``, ``v ~ Normal(0, I)`` and
``g(v) = log f(y | A v) - v . v / 2``, Newton's method from a start finds a mode ``v^`` and ``-g'' =
I - A' W A`` there, with W the second derivatives of ``log f`` in u. From ``v = 0`` both are
functions of theta. A likelihood that is not log-concave in its predictor, Student's t, may have
more modes.

Over an intercept panels are halved until the error is small. Gauss-Hermite nodes around one mode
are few and good where the integrand is nearly normal. It is not where a group's responses are all 0
or all 1 and tau is large: the integrand is then half a normal density, cut off over a width of ``1
/ tau``. Nor is it where the integrand has several modes, as of a Student t with outliers. Here the
line is cut at every mode, and from it on at distances that double; a panel has the 15 nodes of
Kronrod (Piessens et al. 1983, QUADPACK), and is halved where the 7 Gauss nodes among them give
another integral.

Arguments ``facts``, ``rows``, ``eta``, ``terms`` and ``nodes`` are those of ``group_rows``, and
``inner`` the constants of the inner link. ``local`` (16,) is the scratch memory of a search: the
six sums of :func:`moments`, then the entries named below.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.models.mixed.group_constants import (
    EFFECTS,
    FIRST_NODE,
    NODES,
    STUDENT_T,
    STUDENT_T_FIXED,
)
from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PAIRS,
    BY_PRODUCTS,
    BY_ROWS,
    BY_SQUARES,
    CARRIER,
    EXPONENTIAL,
    FACTOR,
    FIRST,
    HIGHEST,
    INNER,
    KAPPA,
    LOG_TERM,
    MOST_OF_FACTOR,
    NODE_ROWS,
    NODE_U1,
    NODE_U2,
    NODE_V1,
    NODE_V2,
    PATH,
    PREDICTOR,
    RESPONSE,
    RHO,
    SHARE,
    TAU1,
    TAU2,
    TOTAL,
    VALUE,
    WEIGHT,
    WORK1,
    WORK2,
    gaussian_moments,
    logistic_logs,
    logistic_moments,
    pairs_fit,
    pairs_log_lik,
    poisson_moments,
    rows_at,
)
from streammc.numerics.jit import f8, i8, inline, jit, matrix, vector
from streammc.numerics.special import exp
from streammc.protocols import Matrix, Vector

_ITERATIONS: Final = 100
_HALVINGS: Final = 40
_DECREMENT: Final = 1e-9
"""Squared length of the last step in standard deviations: the one after it is 1e-9."""
_ROUNDING: Final = 1e-13
"""By which relative part ``g`` may fall in a step."""

# The entries of ``local`` after the sums.
_NEWTON1: Final = 6
_NEWTON2: Final = 7
"""Newton's step."""
_CURVE11: Final = 8
_CURVE12: Final = 9
_CURVE22: Final = 10
"""``-g''``."""
_DETERMINANT: Final = 11
_REMAINING: Final = 12
"""Squared length of the step in standard deviations, compared with ``_DECREMENT``."""
_POSITION: Final = 14
"""``v``, two entries."""

# The entries of ``mode`` (MODE,), the result of a search.
V1: Final = 0
V2: Final = 1
"""The mode ``v^``."""
A1: Final = 2
"""``C C' = (-g'')^-1`` with the columns a and b of C; a does not change ``u_2``."""
A2: Final = 3
B1: Final = 4
B2: Final = 5
LOG_DET: Final = 6
"""``log det C``."""
MODE: Final = 7


@jit(
    types.void(vector, vector, matrix, matrix, matrix, vector, vector),
    borrow=True,
)
def moments(v, facts, rows, eta, terms, inner, sums):  # type: ignore[no-untyped-def]
    """Write ``L, L_1, L_2, L_11, L_12, L_22``: the log-likelihood at ``v``, its derivatives in u.

    Second derivatives of single rows above 0 count as 0, so that ``-g''`` is at least I.
    """
    u1 = facts[TAU1] * v[0]
    u2 = facts[TAU2] * (facts[RHO] * v[0] + facts[KAPPA] * v[1])
    for k in range(6):
        sums[k] = 0.0
    path = int(facts[PATH])
    if path == BY_SQUARES:
        gaussian_moments(u1, u2, facts, sums)
    elif path == BY_COUNTS:
        poisson_moments(u1, facts, sums)
    elif path == BY_PRODUCTS and facts[HIGHEST] + u1 < MOST_OF_FACTOR and u1 > -600.0:
        logistic_moments(u1, facts, rows[EXPONENTIAL], sums)
    else:
        sums[0] = rows_at(u1, u2, facts, rows, eta, terms, inner, 2)
        curve = terms[1 + eta.shape[0]]
        for i in range(eta.shape[1]):
            w, x = rows[WEIGHT, i], rows[CARRIER, i]
            slope = w * terms[1, i]
            bend = w * min(curve[i], 0.0)
            sums[1] += slope
            sums[2] += slope * x
            sums[3] += bend
            sums[4] += bend * x
            sums[5] += bend * x * x


@jit(types.void(vector, vector, vector), borrow=True)
def _newton(v, facts, local):  # type: ignore[no-untyped-def]
    """Write Newton's step, ``-g''``, its determinant and the decrement into ``local``.

    Its moments are those at ``v``.
    """
    t1, t2 = facts[TAU1], facts[TAU2]
    r, k = t2 * facts[RHO], t2 * facts[KAPPA]
    g1 = t1 * local[1] + r * local[2] - v[0]
    g2 = k * local[2] - v[1]
    a = -(t1 * t1 * local[3] + 2.0 * t1 * r * local[4] + r * r * local[5])
    b = -k * (t1 * local[4] + r * local[5])
    c = -k * k * local[5]
    # Not (1 + a) (1 + c) - b^2, which loses what rows of a single carrier leave.
    product = (t1 * k) * (t1 * k) * (local[3] * local[5] - local[4] * local[4])
    det = 1.0 + a + c + max(product, 0.0)
    local[_NEWTON1] = ((1.0 + c) * g1 - b * g2) / det
    local[_NEWTON2] = ((1.0 + a) * g2 - b * g1) / det
    local[_CURVE11] = 1.0 + a
    local[_CURVE12] = b
    local[_CURVE22] = 1.0 + c
    local[_DETERMINANT] = det
    local[_REMAINING] = g1 * local[_NEWTON1] + g2 * local[_NEWTON2]


@jit(types.void(vector, vector, vector), borrow=True)
def _write_columns(facts, local, mode):  # type: ignore[no-untyped-def]
    """Write C and its log determinant: b along ``(-g'')^-1 r``, with ``u_2 = tau_2 r . v``."""
    rho, kappa, det = facts[RHO], facts[KAPPA], local[_DETERMINANT]
    along1 = (local[_CURVE22] * rho - local[_CURVE12] * kappa) / det
    along2 = (local[_CURVE11] * kappa - local[_CURVE12] * rho) / det
    length = math.sqrt(rho * along1 + kappa * along2)
    mode[B1] = along1 / length
    mode[B2] = along2 / length
    other = 1.0 / (length * math.sqrt(det))
    mode[A1] = kappa * other
    mode[A2] = -rho * other
    mode[LOG_DET] = -0.5 * math.log(det)


@jit(types.void(f8, vector, matrix, matrix, matrix, vector, vector, vector), borrow=True)
def find_mode(start, facts, rows, eta, terms, inner, local, mode):  # type: ignore[no-untyped-def]
    """Write the mode, ``C`` and its log determinant into ``mode``; the search starts at ``start``.

    Where ``g`` is not finite at the start the mode is NaN. A step that is no shorter than half the
    one before is doubled: far out the derivative of an exponential falls by a factor e per step.
    """
    v = local[_POSITION : _POSITION + 2]
    v[0], v[1] = start, 0.0
    moments(v, facts, rows, eta, terms, inner, local)
    value = local[0] - 0.5 * start * start
    stretch = last = 0.0
    for _ in range(_ITERATIONS):
        _newton(v, facts, local)
        step1, step2 = local[_NEWTON1], local[_NEWTON2]
        _write_columns(facts, local, mode)
        mode[V1] = v[0]
        mode[V2] = v[1]
        if not local[_REMAINING] > _DECREMENT:  # NaN too
            mode[V1] += step1
            mode[V2] += step2
            return
        size = step1 * step1 + step2 * step2
        stretch = 2.0 * stretch if stretch >= 1.0 and size > 0.25 * last else 1.0
        last = size
        accepted = False
        for _ in range(_HALVINGS):
            v[0] = mode[V1] + stretch * step1
            v[1] = mode[V2] + stretch * step2
            moments(v, facts, rows, eta, terms, inner, local)
            trial = local[0] - 0.5 * (v[0] * v[0] + v[1] * v[1])
            if trial >= value - _ROUNDING * abs(value):
                accepted = True
                break
            stretch *= 0.5
        if not accepted:
            return
        value = trial


_MOST_LOG_TAU: Final = 300.0
"""Logarithms of standard deviations beyond it are moved to it: no square overflows."""


@inline
def padded(count):  # type: ignore[no-untyped-def]
    """Return the number of nodes, padding included: a multiple of 4, at least 8."""
    return max((count + 3) // 4 * 4, 8)


@jit(types.void(vector, vector, vector), borrow=True)
def set_effects(theta, constants, facts):  # type: ignore[no-untyped-def]
    """Write the standard deviations and the correlation of ``facts``, from the end of ``theta``."""
    d = theta.shape[0]
    correlated = constants[EFFECTS] == 2.0 and constants[EFFECTS + 1] != 0.0
    at = d - int(constants[EFFECTS]) - (1 if correlated else 0)
    facts[TAU1] = math.exp(min(theta[at], _MOST_LOG_TAU))
    facts[TAU2] = 0.0
    facts[RHO] = 0.0
    facts[KAPPA] = 1.0
    if constants[EFFECTS] == 2.0:
        facts[TAU2] = math.exp(min(theta[at + 1], _MOST_LOG_TAU))
    if correlated:
        facts[RHO] = math.tanh(theta[at + 2])
        facts[KAPPA] = 1.0 / math.cosh(theta[at + 2])
    for j in range(at, d):  # min() does not keep NaN
        if math.isnan(theta[j]):
            facts[TAU1] = math.nan


@jit(types.boolean(i8, matrix, vector), borrow=True)
def by_products(count, nodes, facts):  # type: ignore[no-untyped-def]
    """Return whether no product overflows, and no factor is lost by underflow.

    Exponentials of effects below -600 or above 600 are too near the ends of float64 for products.
    """
    if facts[PATH] != BY_PRODUCTS:
        return False
    low = high = nodes[NODE_U1, 0]
    for m in range(count):
        low = min(low, nodes[NODE_U1, m])
        high = max(high, nodes[NODE_U1, m])
    return facts[HIGHEST] + high < MOST_OF_FACTOR and low > -600.0 and high < 600.0


@jit(f8(vector, vector, vector, matrix, matrix, matrix, vector, matrix), borrow=True)
def integrate(constants, mode, facts, rows, eta, terms, inner, nodes):  # type: ignore[no-untyped-def]
    """Return the log of the integral; write nodes, their terms and shares.

    Where no node is finite it is ``-inf``, or NaN. ``facts[PATH]`` becomes ``BY_ROWS`` where
    products would overflow.
    """
    per_effect, effects = int(constants[NODES]), int(constants[EFFECTS])
    count = per_effect * per_effect if effects == 2 else per_effect
    z, a = constants[FIRST_NODE:], constants[FIRST_NODE + per_effect :]
    for m in range(count):
        first = m % per_effect
        second = m // per_effect
        z2 = z[second] if effects == 2 else 0.0
        v1 = mode[V1] + mode[A1] * z[first] + mode[B1] * z2
        v2 = mode[V2] + mode[A2] * z[first] + mode[B2] * z2
        nodes[NODE_V1, m] = v1
        nodes[NODE_V2, m] = v2
        nodes[NODE_U1, m] = facts[TAU1] * v1
        along = mode[V1] * facts[RHO] + mode[V2] * facts[KAPPA]  # no part of column a
        along += (mode[B1] * facts[RHO] + mode[B2] * facts[KAPPA]) * z2
        nodes[NODE_U2, m] = facts[TAU2] * along
        weight = a[first] + (a[second] if effects == 2 else 0.0) + mode[LOG_DET]
        nodes[LOG_TERM, m] = weight - 0.5 * (v1 * v1 + v2 * v2)
    for m in range(count, nodes.shape[1]):
        nodes[LOG_TERM, m] = -math.inf
        nodes[NODE_U1, m] = nodes[NODE_U2, m] = 0.0
    if by_products(count, nodes, facts):
        for m in range(nodes.shape[1]):
            nodes[FACTOR, m] = exp(nodes[NODE_U1, m]) if m < count else 0.0
        logistic_logs(rows[EXPONENTIAL], nodes[FACTOR], nodes[WORK1], nodes[WORK2])
        for m in range(count):
            linear = facts[FIRST] + facts[TOTAL] * nodes[NODE_U1, m]
            nodes[LOG_TERM, m] += linear - nodes[WORK2, m]
    elif facts[PATH] == BY_PAIRS and pairs_fit(count, nodes, facts):
        pairs_log_lik(per_effect, facts, rows, nodes)
    else:
        if facts[PATH] == BY_PRODUCTS or facts[PATH] == BY_PAIRS:
            facts[PATH] = BY_ROWS
        _each_node(count, facts, rows, eta, terms, inner, nodes)
    highest = -math.inf
    for m in range(count):
        highest = max(highest, nodes[LOG_TERM, m])
    if highest == -math.inf:
        return highest
    total = 0.0
    for m in range(nodes.shape[1]):
        nodes[SHARE, m] = exp(nodes[LOG_TERM, m] - highest)
        if m >= count:
            nodes[SHARE, m] = 0.0
        total += nodes[SHARE, m]
    for m in range(count):
        nodes[SHARE, m] /= total
    return highest + math.log(total)


@jit(types.void(i8, vector, matrix, matrix, matrix, vector, matrix), borrow=True)
def _each_node(count, facts, rows, eta, terms, inner, nodes):  # type: ignore[no-untyped-def]
    """Add the log-likelihood at each node to its term."""
    sums = nodes[WORK1]
    for m in range(count):
        u1, u2 = nodes[NODE_U1, m], nodes[NODE_U2, m]
        if facts[PATH] == BY_SQUARES:
            square = gaussian_moments(u1, u2, facts, sums)
            nodes[LOG_TERM, m] += facts[FIRST] - 0.5 * square
        elif facts[PATH] == BY_COUNTS:
            poisson_moments(u1, facts, sums)
            nodes[LOG_TERM, m] += sums[0]
        else:
            nodes[LOG_TERM, m] += rows_at(u1, u2, facts, rows, eta, terms, inner, 0)


_X: Final = np.array([
    0.9914553711208126, 0.9491079123427585, 0.8648644233597691, 0.7415311855993945,
    0.5860872354676911, 0.4058451513773972, 0.2077849550078985, 0.0,
])  # fmt: skip
_KRONROD: Final = np.array([
    0.0229353220105292, 0.0630920926299786, 0.1047900103222502, 0.1406532597155259,
    0.1690047266392679, 0.1903505780647854, 0.2044329400752989, 0.2094821410847278,
])  # fmt: skip
_GAUSS: Final = np.array([
    0.0, 0.1294849661688697, 0.0, 0.2797053914892767, 0.0, 0.3818300505051189, 0.0,
    0.4179591836734694,
])  # fmt: skip
NODES_15: Final = np.concatenate([-_X, _X[-2::-1]])
"""Nodes of a panel on [-1, 1]."""
KRONROD_15: Final = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
GAUSS_7: Final = np.concatenate([_GAUSS, _GAUSS[-2::-1]])
_SIZE: Final = 15


def _cells() -> tuple[Vector, Matrix]:
    """Return the middles of the 16 cells between the nodes, and their masses (16, 15).

    The mass of a cell is that of the polynomial through the integrand at the nodes.
    """
    ends = np.concatenate([[-1.0], NODES_15, [1.0]])
    legendre = np.polynomial.legendre.legvander(ends, _SIZE)
    below = np.empty((len(ends), _SIZE))
    below[:, 0] = ends + 1.0
    for j in range(1, _SIZE):
        below[:, j] = (legendre[:, j + 1] - legendre[:, j - 1]) / (2 * j + 1)
    to_legendre = np.linalg.inv(legendre[1:-1, :_SIZE])
    return 0.5 * (ends[1:] + ends[:-1]), np.ascontiguousarray(np.diff(below @ to_legendre, axis=0))


CELLS_16, MASSES_16 = _cells()
_STEP: Final = 2.5
"""Length of the first panel beside a mode, in standard deviations there."""
_STEP_OF_CELLS: Final = 1.0
"""The same where nodes are cells."""
_HALF_LOG_2PI: Final = 0.9189385332046728
_MOST_PANELS: Final = 256
_FALL: Final = 38.0
"""Fall of the log of the integrand from its maximum to the ends: 3e-17 of it."""
_ERROR: Final = 1e-6
"""Largest difference of the two integrals of a panel, relative to the whole."""
_MOST_STARTS: Final = 32
_FARTHEST: Final = 60
"""Largest absolute value of v, where the normal density is 0 in float64; and most doublings of a
step on the way there."""


@jit(f8(f8, vector, matrix, matrix, matrix, vector, vector), borrow=True)
def log_integrand(v, facts, rows, eta, terms, inner, sums):  # type: ignore[no-untyped-def]
    """Return ``log f(y | tau v) - v^2 / 2``; ``sums`` (6,) is scratch memory."""
    u = facts[TAU1] * v
    path = int(facts[PATH])
    if path == BY_SQUARES:
        gaussian_moments(u, 0.0, facts, sums)
        value = sums[0]
    elif path == BY_COUNTS:
        poisson_moments(u, facts, sums)
        value = sums[0]
    elif path == BY_PRODUCTS and facts[HIGHEST] + u < MOST_OF_FACTOR and u > -600.0:
        logistic_moments(u, facts, rows[EXPONENTIAL], sums)
        value = sums[0]
    else:
        value = rows_at(u, 0.0, facts, rows, eta, terms, inner, 0)
    value -= 0.5 * v * v
    return -math.inf if math.isnan(value) else value


@jit(vector(vector, matrix, matrix))
def mode_starts(facts, rows, eta):  # type: ignore[no-untyped-def]
    """Return where modes are searched from: 0 and, of a Student t, the optima of some rows."""
    t = facts[INNER] == STUDENT_T or facts[INNER] == STUDENT_T_FIXED
    n = rows.shape[1] if t and facts[TAU1] > 0.0 else 0
    optima = np.empty(n)
    for i in range(n):
        optima[i] = (rows[RESPONSE, i] - rows[PREDICTOR, i]) / facts[TAU1]
    optima.sort()
    width = math.exp(min(max(eta[1, 0], -300.0), 300.0)) / facts[TAU1] if n > 0 else 0.0
    found = np.zeros(1 + min(n, _MOST_STARTS))
    count = 1
    last = -math.inf
    for k in range(min(n, _MOST_STARTS)):
        at = optima[(2 * k + 1) * n // (2 * min(n, _MOST_STARTS))]
        if at - last > width and abs(at) < _FARTHEST:
            found[count] = last = at
            count += 1
    return found[:count]


@jit(matrix(vector, matrix, matrix, matrix, vector, vector, vector))
def _modes(facts, rows, eta, terms, inner, local, mode):  # type: ignore[no-untyped-def]
    """Return the modes (2, m) in order, and the standard deviation at each."""
    starts = mode_starts(facts, rows, eta)
    found = np.empty((3, len(starts)))
    count = 0
    highest = -math.inf
    for start in starts:
        find_mode(start, facts, rows, eta, terms, inner, local, mode)
        at = mode[V1]
        value = log_integrand(at, facts, rows, eta, terms, inner, local)
        if not (math.isfinite(at) and math.isfinite(value)):
            continue
        known = False
        for k in range(count):
            if abs(found[0, k] - at) < 0.1 * abs(mode[A1]):
                known = True
        if not known:
            found[0, count], found[1, count], found[2, count] = at, abs(mode[A1]), value
            highest = max(highest, value)
            count += 1
    kept = 0
    for k in range(count):
        if found[2, k] > highest - _FALL:
            found[:, kept] = found[:, k]
            kept += 1
    order = np.argsort(found[0, :kept])
    modes = np.empty((2, kept))
    for k in range(kept):
        modes[0, k], modes[1, k] = found[0, order[k]], found[1, order[k]]
    return modes


@jit(f8(f8, f8, f8, vector, matrix, matrix, matrix, vector, vector), borrow=True)
def _end(at, step, highest, facts, rows, eta, terms, inner, local):  # type: ignore[no-untyped-def]
    """Return a point beside a mode from which on the integrand is negligible."""
    for _ in range(_FARTHEST):
        if log_integrand(at + step, facts, rows, eta, terms, inner, local) < highest - _FALL:
            break
        if abs(at + step) > _FARTHEST:
            break
        step *= 2.0
    return at + step


@jit(vector(f8, matrix, f8, f8))
def _cuts(first, modes, low, high):  # type: ignore[no-untyped-def]
    """Return the ends of the panels in order: from the first on distances from a mode double."""
    m = modes.shape[1]
    cuts = np.empty(4 * _MOST_PANELS)
    cuts[0] = low
    count = 1
    for k in range(m):
        at, step = modes[0, k], first * modes[1, k]
        left = low if k == 0 else 0.5 * (modes[0, k - 1] + at)
        right = high if k == m - 1 else 0.5 * (at + modes[0, k + 1])
        reach = step
        while at - reach > left and reach < 1e4 * step:
            reach *= 2.0
        while reach >= step:
            if at - reach > left and count < _MOST_PANELS:
                cuts[count] = at - reach
                count += 1
            reach *= 0.5
        cuts[count] = at
        count += 1
        reach = step
        while at + reach < right and count < _MOST_PANELS:
            cuts[count] = at + reach
            count += 1
            reach *= 2.0
        cuts[count] = right
        count += 1
    return cuts[:count]


@jit(types.void(i8, matrix, matrix, f8, vector, matrix, matrix, matrix, vector, vector),
     borrow=True)  # fmt: skip
def _evaluate(p, panels, values, highest, facts, rows, eta, terms, inner, local):  # type: ignore[no-untyped-def]
    """Write the two integrals of panel ``p`` and the integrand at its nodes.

    ``panels`` (4, P): middle, half the length, integral, difference of the two; ``values`` (P, 15).
    """
    middle, half = panels[0, p], panels[1, p]
    kronrod = gauss = 0.0
    for q in range(_SIZE):
        v = middle + half * NODES_15[q]
        values[p, q] = log_integrand(v, facts, rows, eta, terms, inner, local)
        density = math.exp(min(values[p, q] - highest, 600.0))
        kronrod += KRONROD_15[q] * density
        gauss += GAUSS_7[q] * density
    panels[2, p] = half * kronrod
    panels[3, p] = half * abs(kronrod - gauss)


@jit(matrix(i8, vector, matrix, matrix, matrix, vector, vector, vector))
def panel_nodes(cells, facts, rows, eta, terms, inner, local, mode):  # type: ignore[no-untyped-def]
    """Return nodes (NODE_ROWS, m) with their shares; write the log of the integral.

    With ``cells`` 1, not 0, the panels are shorter and nodes are 16 cells of each, whose shares are
    their masses: for quantiles. ``local`` and ``mode`` are scratch memory.
    """
    first = _STEP_OF_CELLS if cells == 1 else _STEP
    modes = _modes(facts, rows, eta, terms, inner, local, mode)
    m = modes.shape[1]
    if m == 0:
        facts[VALUE] = log_integrand(0.0, facts, rows, eta, terms, inner, local)
        if math.isfinite(facts[VALUE]):
            facts[VALUE] = math.nan
        return np.zeros((NODE_ROWS, padded(0)))
    highest = -math.inf
    for k in range(m):
        at = log_integrand(modes[0, k], facts, rows, eta, terms, inner, local)
        highest = max(highest, at)
    low = _end(modes[0, 0], -first * modes[1, 0], highest, facts, rows, eta, terms, inner, local)
    last = m - 1
    step = first * modes[1, last]
    high = _end(modes[0, last], step, highest, facts, rows, eta, terms, inner, local)
    cuts = _cuts(first, modes, low, high)
    panels, values = np.empty((4, _MOST_PANELS)), np.empty((_MOST_PANELS, _SIZE))
    count = 0
    for k in range(len(cuts) - 1):
        if cuts[k + 1] > cuts[k] and count < _MOST_PANELS:
            panels[0, count] = 0.5 * (cuts[k] + cuts[k + 1])
            panels[1, count] = 0.5 * (cuts[k + 1] - cuts[k])
            _evaluate(count, panels, values, highest, facts, rows, eta, terms, inner, local)
            count += 1
    halved = True
    while halved:
        halved = False
        total = 0.0
        for p in range(count):
            total += panels[2, p]
        for p in range(count):
            if panels[3, p] > _ERROR * total and count < _MOST_PANELS:
                halved = True
                half = 0.5 * panels[1, p]
                panels[0, count], panels[1, count] = panels[0, p] + half, half
                panels[0, p], panels[1, p] = panels[0, p] - half, half
                for each in (p, count):
                    _evaluate(each, panels, values, highest, facts, rows, eta, terms, inner, local)
                count += 1
    used = 0
    for p in range(count):
        if panels[2, p] > 1e-17 * total:
            used += 1
    nodes = np.zeros((NODE_ROWS, padded((_SIZE + cells) * used)))
    nodes[LOG_TERM, :] = -math.inf
    at = 0
    density = np.empty(_SIZE)
    for p in range(count):
        middle, half = panels[0, p], panels[1, p]
        if not panels[2, p] > 1e-17 * total:
            continue
        for q in range(_SIZE):
            density[q] = math.exp(values[p, q] - highest)
        for q in range(_SIZE + cells):
            if cells == 0:
                v = middle + half * NODES_15[q]
                share = half * KRONROD_15[q] * density[q] / total
                nodes[LOG_TERM, at] = values[p, q] + math.log(half * KRONROD_15[q]) - _HALF_LOG_2PI
            else:
                v = middle + half * CELLS_16[q]
                share = 0.0
                for j in range(_SIZE):
                    share += half * MASSES_16[q, j] * density[j]
                share = max(share, 0.0) / total
            nodes[NODE_V1, at], nodes[NODE_U1, at] = v, facts[TAU1] * v
            nodes[SHARE, at] = share
            at += 1
    facts[VALUE] = highest + math.log(total) - _HALF_LOG_2PI
    if facts[PATH] == BY_PRODUCTS:
        if by_products(at, nodes, facts):
            for k in range(at):
                nodes[FACTOR, k] = exp(nodes[NODE_U1, k])
        else:
            facts[PATH] = BY_ROWS
    return nodes
