"""Log-likelihood of the rows of a group at given effects: row by row, or from sums.

Row i has the predictor ``eta_i = x_i . beta + offset_i + u_1 + d_i u_2``: ``u_1`` is the effect on
the intercept, ``u_2`` that on the slope of the column ``d``. The effects are integrated out by
quadrature. A node is a value ``u = A v`` of them, with ``v ~ Normal(0, I)`` and ``A A'`` the
covariance of the effects: ``u_1 = tau_1 v_1``, ``u_2 = tau_2 (rho v_1 + kappa v_2)``. ``p_q`` is
the share of node q in the integral. The rows of a design ``X`` are features, offset and weight.

Functions named ``..._moments`` write ``sums`` (6,): the log-likelihood, its derivatives in ``u_1``
and ``u_2``, and its second derivatives 11, 12 and 22; with one effect, entries 0, 1 and 3.

Scratch memory: ``rows`` (7 + c, n) with the rows named below, ``eta`` (p, n) and ``terms``
(1 + p + p (p + 1) / 2, n) for the inner link, ``facts`` (32,) with numbers of the whole group.

Logistic, Poisson and Gaussian likelihoods have sums. With one group effect ``u``, ``exp(eta_i) =
exp(x_i . beta) exp(u)``: n exponentials serve all nodes, and of a Poisson likelihood only ``sum
exp(x_i . beta)`` is left. A Gaussian one is quadratic in the effects.

With intercept and slope they follow from factors. With ``exp(eta_i) = exp(x_i . beta + d_i u_2)
exp(u_1)`` and nodes placed so that ``u_2`` has one value for all nodes of a block, n exponentials
serve a block.
"""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.models.glm import (
    bernoulli_logit,
    bernoulli_probit,
    binomial_logit,
    gamma_log,
    gaussian_identity,
    negative_binomial_log,
    ordinal_logit,
    poisson_log,
    student_t_identity,
)
from streammc.models.mixed.group_constants import (
    AT_ADDRESS,
    BINOMIAL,
    FEATURES,
    GAMMA,
    GAUSSIAN,
    KIND,
    LOGISTIC,
    NEGATIVE_BINOMIAL,
    ORDINAL,
    POISSON,
    PROBIT,
    SLOPE,
    STUDENT_T,
    STUDENT_T_FIXED,
)
from streammc.numerics.addresses import link_at
from streammc.numerics.jit import design_view, f8, i8, jit, matrix, vector
from streammc.numerics.special import exp, log, log_factorial, within

PREDICTOR: Final = 0
"""``x_i . beta + offset_i``."""
WEIGHT: Final = 1
RESPONSE: Final = 2
CARRIER: Final = 3
"""Column of the slope; zeros without one."""
PLACE: Final = 4
"""Number of the row in the design; it differs here, since rows of weight 0 are left out."""
EXPONENTIAL: Final = 5
"""``exp`` of the predictor, less its maximum for counts; logistic and Poisson."""
SLOPES: Final = 6
"""``w_i E[d log f_i / d eta_i]``: its product with the design is the gradient in beta."""
CURVES: Final = 7
"""From here on, as ``SLOPES``, those of the columns of the Hessian."""

# facts: of the rows ...
HIGHEST: Final = 0
"""Largest predictor."""
LOWEST: Final = 1
ONES: Final = 2
"""1 where all weights are 1."""
TOTAL: Final = 3
"""``sum w y``."""
FIRST: Final = 4
"""First of up to eight sums over the rows, see :func:`logistic_moments` and those below."""
PATH: Final = 12
"""How the group is evaluated: one of the following."""
INNER: Final = 13
"""Inner likelihood, as ``group_constants.KIND``."""
# ... and of the group effects.
TAU1: Final = 14
TAU2: Final = 15
RHO: Final = 16
KAPPA: Final = 17
"""``sqrt(1 - rho^2)``."""
FARTHEST: Final = 18
"""Largest absolute value of the slope's column."""
VALUE: Final = 19
"""Log of the integral over the effects."""
FACTS: Final = 20

BY_ROWS: Final = 0
"""By the inner model's link."""
BY_PRODUCTS: Final = 1
"""Logistic, an intercept, no weights: from ``exp`` of the predictors."""
BY_COUNTS: Final = 2
"""Poisson, an intercept: from sums over the rows."""
BY_SQUARES: Final = 3
"""Gaussian: from sums over the rows."""
BY_PAIRS: Final = 4
"""Logistic and Poisson with intercept and slope: ``exp`` of predictor and slope."""

# Rows of the array of nodes (NODE_ROWS, number of nodes with padding): a column per node.
NODE_V1: Final = 0
NODE_V2: Final = 1
"""``v``; with one effect only the first."""
NODE_U1: Final = 2
NODE_U2: Final = 3
LOG_TERM: Final = 4
"""Log of the node's term of the sum, ``-inf`` for padding."""
SHARE: Final = 5
"""Its share of the sum: the posterior weight of the node."""
FACTOR: Final = 6
"""``exp(u)``; 0 for padding."""
WORK1: Final = 7
WORK2: Final = 8
TURNS: Final = 9
"""From here on scratch memory of :func:`directions`."""
NODE_ROWS: Final = 18
LEAST_SHARE: Final = 1e-25
"""Nodes below it are left out of derivatives."""


@jit(types.void(i8, matrix, design_view, vector, vector, i8, matrix), borrow=True)
def inner_link(kind, eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Call the link of the inner likelihood ``kind``; see ``protocols.Model.link``."""
    if kind == LOGISTIC:
        bernoulli_logit.link(eta, X, y, constants, order, out)
    elif kind == POISSON:
        poisson_log.link(eta, X, y, constants, order, out)
    elif kind == NEGATIVE_BINOMIAL:
        negative_binomial_log.link(eta, X, y, constants, order, out)
    elif kind == BINOMIAL:
        binomial_logit.link(eta, X, y, constants, order, out)
    elif kind == PROBIT:
        bernoulli_probit.link(eta, X, y, constants, order, out)
    elif kind == GAMMA:
        gamma_log.link(eta, X, y, constants, order, out)
    elif kind == STUDENT_T:
        student_t_identity.link_sampled(eta, X, y, constants, order, out)
    elif kind == STUDENT_T_FIXED:
        student_t_identity.link_fixed(eta, X, y, constants, order, out)
    elif kind == GAUSSIAN:
        gaussian_identity.link(eta, X, y, constants, order, out)
    elif kind == ORDINAL:
        ordinal_logit.link(eta, X, y, constants, order, out)
    elif kind == AT_ADDRESS:
        link_at(types.int64(constants[0]))(eta, X, y, constants, order, out)


@jit(i8(design_view, i8), borrow=True)
def count_used(X, row):  # type: ignore[no-untyped-def]
    """Return how many entries of a row of ``X`` are not 0; NaN counts."""
    n = 0
    for i in range(X.shape[1]):
        if X[row, i] != 0.0:
            n += 1
    return n


@jit(types.void(vector, design_view, vector, vector, matrix, vector), borrow=True)
def collect(theta, X, y, constants, rows, facts):  # type: ignore[no-untyped-def]
    """Write the rows of nonzero weight into ``rows``, and their extremes into ``facts``."""
    q = int(constants[FEATURES])
    slope = int(constants[SLOPE])
    highest = -1e308
    lowest = 1e308
    ones = 1.0
    total = 0.0
    n = 0
    for i in range(X.shape[1]):
        weight = X[q + 1, i]
        if weight == 0.0:
            continue
        predictor = X[q, i]
        for j in range(q):
            predictor += X[j, i] * theta[j]
        rows[PREDICTOR, n] = predictor
        rows[WEIGHT, n] = weight
        rows[RESPONSE, n] = y[i]
        rows[CARRIER, n] = X[slope, i] if slope >= 0 else 0.0
        rows[PLACE, n] = i
        # Both comparisons are false for NaN, which the sums below keep.
        highest = predictor if predictor > highest else highest
        lowest = predictor if predictor < lowest else lowest
        if weight != 1.0:
            ones = 0.0
        total += weight * y[i]
        n += 1
    facts[HIGHEST] = highest
    facts[LOWEST] = lowest
    facts[ONES] = ones
    facts[TOTAL] = total
    if constants[KIND] in (LOGISTIC, POISSON):
        shift = highest if constants[KIND] == POISSON else 0.0
        for i in range(n):
            rows[EXPONENTIAL, i] = exp(rows[PREDICTOR, i] - shift)


@jit(f8(f8, f8, vector, matrix, matrix, matrix, vector, i8), borrow=True)
def rows_at(u1, u2, facts, rows, eta, terms, inner, order):  # type: ignore[no-untyped-def]
    """Evaluate the rows at group effects ``u``; return their log-likelihood.

    ``terms`` holds the terms of each row and their derivatives, without weights; ``inner``
    are the constants of the inner link.
    """
    for i in range(eta.shape[1]):
        eta[0, i] = rows[PREDICTOR, i] + u1 + u2 * rows[CARRIER, i]
    inner_link(int(facts[INNER]), eta, rows, rows[RESPONSE], inner, order, terms)
    value = 0.0
    for i in range(eta.shape[1]):
        value += rows[WEIGHT, i] * terms[0, i]
    return value


_HALF_LOG_2PI: Final = 0.9189385332046728
_MOST: Final = 700.0
"""Beyond it, either way, exp(log sigma) stays where it is: as in the Gaussian link."""
MOST_OF_FACTOR: Final = 40.0
"""Largest predictor for products of 16 factors: ``(1 + exp(40))^16`` is 1e278."""


@jit(types.void(f8, vector, vector, vector), borrow=True, reassociate=True)
def logistic_moments(u, facts, e, sums):  # type: ignore[no-untyped-def]
    """Write the log-likelihood at group effect ``u`` and two derivatives in ``u``."""
    n = e.shape[0]
    c = math.exp(u)
    logs = 0.0
    rest = 0.0
    squares = 0.0
    for start in range(0, n - n % 16, 16):
        product = 1.0
        for i in range(start, start + 16):
            x = 1.0 + e[i] * c
            s = 1.0 / x
            product *= x
            rest += s
            squares += s * s
        logs += math.log(product)
    product = 1.0
    for i in range(n - n % 16, n):
        x = 1.0 + e[i] * c
        s = 1.0 / x
        product *= x
        rest += s
        squares += s * s
    logs += math.log(product)
    sums[0] = facts[FIRST] + facts[TOTAL] * u - logs
    sums[1] = facts[TOTAL] - (n - rest)
    sums[3] = squares - rest


@jit(types.void(vector, vector, vector, vector), borrow=True)
def logistic_logs(e, c, product, out):  # type: ignore[no-untyped-def]
    """Write ``sum_i log(1 + e_i c_q)`` for all nodes into ``out``: one log per 16 rows."""
    n, size = e.shape[0], c.shape[0]
    for q in range(size):
        out[q] = 0.0
    for start in range(0, n, 16):
        stop = min(start + 16, n)
        for q in range(size):
            product[q] = 1.0
        i = start
        while i + 4 <= stop:
            e0, e1, e2, e3 = e[i], e[i + 1], e[i + 2], e[i + 3]
            for q in range(size):
                first = (1.0 + e0 * c[q]) * (1.0 + e1 * c[q])
                product[q] *= first * ((1.0 + e2 * c[q]) * (1.0 + e3 * c[q]))
            i += 4
        while i < stop:
            e0 = e[i]
            for q in range(size):
                product[q] *= 1.0 + e0 * c[q]
            i += 1
        for q in range(size):
            out[q] += log(product[q])


@jit(types.void(vector, vector, vector, vector, vector), borrow=True, reassociate=True)
def logistic_failures(e, c, share, rest, by_node):  # type: ignore[no-untyped-def]
    """Write ``sum_q p_q / (1 + e_i c_q)`` per row, and ``p_q sum_i`` of it per node.

    One division for four rows: ``1 / (x_0 x_1 x_2 x_3)`` times the other three.
    """
    n, size = e.shape[0], c.shape[0]
    for q in range(size):
        by_node[q] = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        e0, e1, e2, e3 = e[i], e[i + 1], e[i + 2], e[i + 3]
        r0 = r1 = r2 = r3 = 0.0
        for q in range(size):
            x0, x1 = 1.0 + e0 * c[q], 1.0 + e1 * c[q]
            x2, x3 = 1.0 + e2 * c[q], 1.0 + e3 * c[q]
            low, high = x0 * x1, x2 * x3
            all4 = share[q] / (low * high)
            low, high = all4 * high, all4 * low
            s0, s1, s2, s3 = low * x1, low * x0, high * x3, high * x2
            r0 += s0
            r1 += s1
            r2 += s2
            r3 += s3
            by_node[q] += (s0 + s1) + (s2 + s3)
        rest[i], rest[i + 1], rest[i + 2], rest[i + 3] = r0, r1, r2, r3
    for i in range(whole, n):
        e0 = e[i]
        r0 = 0.0
        for q in range(size):
            s0 = share[q] / (1.0 + e0 * c[q])
            r0 += s0
            by_node[q] += s0
        rest[i] = r0


@jit(types.void(matrix, vector), borrow=True)
def poisson_facts(rows, facts):  # type: ignore[no-untyped-def]
    """Write ``sum w (y x . beta - log y!)`` and ``log sum w exp(x . beta)``."""
    value = 0.0
    rate = 0.0
    for i in range(rows.shape[1]):
        y = rows[RESPONSE, i]
        power = 0.0 if y == 0.0 else y * rows[PREDICTOR, i]
        value += rows[WEIGHT, i] * (power - log_factorial(y))
        rate += rows[WEIGHT, i] * rows[EXPONENTIAL, i]
    facts[FIRST] = value
    facts[FIRST + 1] = facts[HIGHEST] + math.log(rate)


@jit(types.void(f8, vector, vector), borrow=True)
def poisson_moments(u, facts, sums):  # type: ignore[no-untyped-def]
    """Write the log-likelihood at group effect ``u`` and two derivatives in ``u``."""
    rate = math.exp(facts[FIRST + 1] + u)
    sums[0] = facts[FIRST] + facts[TOTAL] * u - rate
    sums[1] = facts[TOTAL] - rate
    sums[3] = -rate


@jit(types.void(f8, matrix, vector), borrow=True)
def gaussian_facts(log_sigma, rows, facts):  # type: ignore[no-untyped-def]
    """Write the sums of ``w z^2``, ``w z d`` and ``w d d'`` over sigma, with ``d = (1, x)``."""
    precision = exp(-within(log_sigma, _MOST))
    weight = square = b1 = b2 = g12 = g22 = 0.0
    for i in range(rows.shape[1]):
        w, x = rows[WEIGHT, i], rows[CARRIER, i] * precision
        z = (rows[RESPONSE, i] - rows[PREDICTOR, i]) * precision
        weight += w
        square += w * z * z
        b1 += w * z
        b2 += w * z * x
        g12 += w * x
        g22 += w * x * x
    facts[FIRST] = -weight * (log_sigma + _HALF_LOG_2PI)
    facts[FIRST + 1] = weight
    facts[FIRST + 2] = square
    facts[FIRST + 3] = b1 * precision
    facts[FIRST + 4] = b2
    facts[FIRST + 5] = weight * precision * precision
    facts[FIRST + 6] = g12 * precision
    facts[FIRST + 7] = g22


@jit(f8(f8, f8, vector, vector), borrow=True)
def gaussian_moments(u1, u2, facts, sums):  # type: ignore[no-untyped-def]
    """Write the log-likelihood at group effects ``u`` and its derivatives.

    Returns ``sum w (y - eta)^2 / sigma^2``.
    """
    pull1 = facts[FIRST + 5] * u1 + facts[FIRST + 6] * u2
    pull2 = facts[FIRST + 6] * u1 + facts[FIRST + 7] * u2
    sums[1] = facts[FIRST + 3] - pull1
    sums[2] = facts[FIRST + 4] - pull2
    square = facts[FIRST + 2] - u1 * (facts[FIRST + 3] + sums[1])
    square -= u2 * (facts[FIRST + 4] + sums[2])
    sums[0] = facts[FIRST] - 0.5 * square
    sums[3] = -facts[FIRST + 5]
    sums[4] = -facts[FIRST + 6]
    sums[5] = -facts[FIRST + 7]
    return square


@jit(types.void(f8, f8, f8, matrix), borrow=True)
def gaussian_slopes(log_sigma, u1, u2, rows):  # type: ignore[no-untyped-def]
    """Write ``w (y - eta) / sigma^2`` at the mean effects ``u``: it is linear in them."""
    precision = exp(-within(log_sigma, _MOST))
    for i in range(rows.shape[1]):
        eta = rows[PREDICTOR, i] + u1 + u2 * rows[CARRIER, i]
        rows[SLOPES, i] = rows[WEIGHT, i] * ((rows[RESPONSE, i] - eta) * precision) * precision


@jit(types.void(f8, f8, vector, i8, matrix), borrow=True)
def directions(v1, v2, facts, count, out):  # type: ignore[no-untyped-def]
    """Write the derivatives of ``u`` in log tau_1, log tau_2 and atanh rho at fixed ``v``.

    ``out`` (>= 9, 2): a row per parameter, then from row 3 the second derivatives, upper
    triangle of 3 x 3 row by row.
    """
    rho, kappa = facts[RHO], facts[KAPPA]
    for k in range(9):
        out[k, 0] = out[k, 1] = 0.0
    out[0, 0] = out[3, 0] = facts[TAU1] * v1
    if count >= 2:
        out[1, 1] = out[6, 1] = facts[TAU2] * (rho * v1 + kappa * v2)
    if count == 3:
        turn = kappa * (kappa * v1 - rho * v2)
        bend = -kappa * (2.0 * rho * kappa * v1 + (kappa * kappa - rho * rho) * v2)
        out[2, 1] = out[7, 1] = facts[TAU2] * turn
        out[8, 1] = facts[TAU2] * bend


_FAR = 300.0
_CONSTANT, _CARRIED, _CARRIERS = FIRST, FIRST + 1, FIRST + 2
"""``sum w log f`` without ``exp``, ``sum w y d`` and ``sum d``."""


@jit(types.void(matrix, vector), borrow=True)
def choose_path(rows, facts):  # type: ignore[no-untyped-def]
    """Write the sums of factors; change to ``BY_ROWS`` where weights or predictors forbid them."""
    if facts[PATH] != BY_PRODUCTS and facts[PATH] != BY_PAIRS:
        return
    logistic = facts[INNER] == LOGISTIC
    constant = carried = carriers = farthest = 0.0
    for i in range(rows.shape[1]):
        y, x = rows[RESPONSE, i], rows[CARRIER, i]
        constant += rows[WEIGHT, i] * (0.0 if y == 0.0 else y * rows[PREDICTOR, i])
        if not logistic:
            constant -= rows[WEIGHT, i] * log_factorial(y)
        carried += rows[WEIGHT, i] * y * x
        carriers += x
        farthest = max(farthest, abs(x))
    fits = not logistic or (facts[ONES] == 1.0 and facts[HIGHEST] < MOST_OF_FACTOR)
    fits = fits and facts[LOWEST] > -600.0 and abs(facts[HIGHEST]) < 600.0
    if fits and math.isfinite(constant + facts[TOTAL] + carried + carriers):
        facts[_CONSTANT] = constant
        facts[_CARRIED] = carried
        facts[_CARRIERS] = carriers
        facts[FARTHEST] = farthest
    else:
        facts[PATH] = BY_ROWS


@jit(types.boolean(i8, matrix, vector), borrow=True)
def pairs_fit(count, nodes, facts):  # type: ignore[no-untyped-def]
    """Return whether no exponential and no product of 16 factors overflows."""
    highest = lowest = nodes[NODE_U1, 0]
    far = 0.0
    for m in range(count):
        highest = max(highest, nodes[NODE_U1, m])
        lowest = min(lowest, nodes[NODE_U1, m])
        far = max(far, abs(nodes[NODE_U2, m]))
    far *= facts[FARTHEST]
    if facts[INNER] == LOGISTIC and not facts[HIGHEST] + far + highest < MOST_OF_FACTOR:
        return False
    return far < _FAR and lowest > -_FAR and highest < _FAR


@jit(types.void(f8, f8, matrix), borrow=True)
def _block(u2, shift, rows):  # type: ignore[no-untyped-def]
    """Write ``exp(x_i . beta + d_i u_2 - shift)``."""
    for i in range(rows.shape[1]):
        rows[EXPONENTIAL, i] = exp(rows[PREDICTOR, i] + rows[CARRIER, i] * u2 - shift)


@jit(f8(vector, f8), borrow=True, reassociate=True)
def _logs(e, c):  # type: ignore[no-untyped-def]
    """Return ``sum_i log(1 + e_i c)``, one log for 16 rows."""
    n = e.shape[0]
    total = 0.0
    for start in range(0, n - n % 16, 16):
        product = 1.0
        for i in range(start, start + 16):
            product *= 1.0 + e[i] * c
        total += math.log(product)
    product = 1.0
    for i in range(n - n % 16, n):
        product *= 1.0 + e[i] * c
    return total + math.log(product)


@jit(types.UniTuple(f8, 2)(matrix), borrow=True, reassociate=True)
def _weighted(rows):  # type: ignore[no-untyped-def]
    """Return ``sum w e`` and ``sum w e d``."""
    plain = carried = 0.0
    for i in range(rows.shape[1]):
        each = rows[WEIGHT, i] * rows[EXPONENTIAL, i]
        plain += each
        carried += each * rows[CARRIER, i]
    return plain, carried


@jit(types.void(i8, vector, matrix, matrix), borrow=True)
def pairs_log_lik(per_effect, facts, rows, nodes):  # type: ignore[no-untyped-def]
    """Add the log-likelihood at each node to its term."""
    logistic = facts[INNER] == LOGISTIC
    shift = 0.0 if logistic else facts[HIGHEST]
    for first in range(0, per_effect * per_effect, per_effect):
        u2 = nodes[NODE_U2, first]
        _block(u2, shift, rows)
        rate = 0.0
        if not logistic:
            rate, _ = _weighted(rows)
        for m in range(first, first + per_effect):
            u1 = nodes[NODE_U1, m]
            if logistic:
                nodes[LOG_TERM, m] -= _logs(rows[EXPONENTIAL], math.exp(u1))
            else:
                nodes[LOG_TERM, m] -= math.exp(shift + u1) * rate
            nodes[LOG_TERM, m] += facts[_CONSTANT] + facts[TOTAL] * u1 + facts[_CARRIED] * u2


@jit(types.UniTuple(f8, 2)(f8, f8, matrix), borrow=True, reassociate=True)
def _failures(share, c, rows):  # type: ignore[no-untyped-def]
    """Add ``p / (1 + e_i c)`` to the slopes; return its sum, and that with ``d_i``."""
    plain = carried = 0.0
    for i in range(rows.shape[1]):
        failure = share / (1.0 + rows[EXPONENTIAL, i] * c)
        rows[SLOPES, i] += failure
        plain += failure
        carried += failure * rows[CARRIER, i]
    return plain, carried


@jit(types.void(i8, i8, vector, matrix, matrix, matrix, vector), borrow=True)
def pairs_gradient(groups, per_effect, facts, rows, nodes, turns, out):  # type: ignore[no-untyped-def]
    """Write the slopes of the rows and the gradient in the group parameters (groups,)."""
    logistic = facts[INNER] == LOGISTIC
    shift = 0.0 if logistic else facts[HIGHEST]
    n = rows.shape[1]
    for i in range(n):
        rows[SLOPES, i] = rows[WEIGHT, i] * rows[RESPONSE, i] - (1.0 if logistic else 0.0)
    for first in range(0, per_effect * per_effect, per_effect):
        _block(nodes[NODE_U2, first], shift, rows)
        plain = carried = mean = 0.0
        if not logistic:
            plain, carried = _weighted(rows)
        for m in range(first, first + per_effect):
            share = nodes[SHARE, m]
            if not share > LEAST_SHARE:
                continue
            c = math.exp(shift + nodes[NODE_U1, m])
            if logistic:
                sum1, sum2 = _failures(share, c, rows)
                pull1 = share * (facts[TOTAL] - n) + sum1
                pull2 = share * (facts[_CARRIED] - facts[_CARRIERS]) + sum2
            else:
                mean += share * c
                pull1 = share * (facts[TOTAL] - c * plain)
                pull2 = share * (facts[_CARRIED] - c * carried)
            directions(nodes[NODE_V1, m], nodes[NODE_V2, m], facts, groups, turns)
            for a in range(groups):
                out[a] += turns[a, 0] * pull1 + turns[a, 1] * pull2
        if not logistic:
            for i in range(n):
                rows[SLOPES, i] -= mean * rows[WEIGHT, i] * rows[EXPONENTIAL, i]
