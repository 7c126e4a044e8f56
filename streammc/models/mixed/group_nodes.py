"""Quadrature over the group effects: nodes, the log of the integral, weights of the nodes."""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.models.mixed.group_constants import EFFECTS, FIRST_NODE, NODES
from streammc.models.mixed.group_mode import A1, A2, B1, B2, LOG_DET, V1, V2
from streammc.models.mixed.group_pairs import pairs_fit, pairs_log_lik
from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PAIRS,
    BY_PRODUCTS,
    BY_ROWS,
    BY_SQUARES,
    EXPONENTIAL,
    FACTOR,
    FIRST,
    HIGHEST,
    KAPPA,
    LOG_TERM,
    NODE_U1,
    NODE_U2,
    NODE_V1,
    NODE_V2,
    PATH,
    RHO,
    SHARE,
    TAU1,
    TAU2,
    TOTAL,
    WORK1,
    WORK2,
    rows_at,
)
from streammc.models.mixed.group_sums import (
    MOST_OF_FACTOR,
    gaussian_moments,
    logistic_logs,
    poisson_moments,
)
from streammc.numerics.jit import f8, i8, inline, jit, matrix, vector
from streammc.numerics.special import exp

_MOST_LOG_TAU: Final = 300.0


@inline
def padded(count):  # type: ignore[no-untyped-def]
    """Return the number of nodes, padding included: a multiple of 4, at least 8."""
    return max((count + 3) // 4 * 4, 8)


@jit(types.void(vector, vector, vector), borrow=True)
def set_effects(theta, constants, facts):  # type: ignore[no-untyped-def]
    """Write the standard deviations and the correlation: the last components of ``theta``."""
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
    """Return whether no product overflows, and no factor is lost by underflow."""
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
        along = mode[V1] * facts[RHO] + mode[V2] * facts[KAPPA]  # no part of a, see group_mode
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
