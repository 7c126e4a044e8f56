"""Logistic and Poisson likelihoods of groups with intercept and slope, from factors.

With ``exp(eta_i) = exp(x_i . beta + d_i u_2) exp(u_1)`` and nodes placed so that ``u_2`` has one
value for all nodes of a block, n exponentials serve a block.
"""

from __future__ import annotations

import math

from numba import types

from streammc.models.mixed.group_constants import LOGISTIC
from streammc.models.mixed.group_rows import (
    BY_PAIRS,
    BY_PRODUCTS,
    BY_ROWS,
    CARRIER,
    EXPONENTIAL,
    FARTHEST,
    FIRST,
    HIGHEST,
    INNER,
    LEAST_SHARE,
    LOG_TERM,
    LOWEST,
    NODE_U1,
    NODE_U2,
    NODE_V1,
    NODE_V2,
    ONES,
    PATH,
    PREDICTOR,
    RESPONSE,
    SHARE,
    SLOPES,
    TOTAL,
    WEIGHT,
)
from streammc.models.mixed.group_sums import MOST_OF_FACTOR, directions
from streammc.numerics.jit import f8, i8, jit, matrix, vector
from streammc.numerics.special import exp, log_factorial

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
