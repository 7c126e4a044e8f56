"""Group log-likelihoods from sums, where a likelihood has them: logistic, Poisson, Gaussian.

With one group effect ``u``, ``exp(eta_i) = exp(x_i . beta) exp(u)``: n exponentials serve all
nodes, and of a Poisson likelihood only ``sum exp(x_i . beta)`` is left. A Gaussian one is
quadratic in the effects.
"""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.models.mixed.group_rows import (
    CARRIER,
    EXPONENTIAL,
    FIRST,
    HIGHEST,
    KAPPA,
    PREDICTOR,
    RESPONSE,
    RHO,
    SLOPES,
    TAU1,
    TAU2,
    TOTAL,
    WEIGHT,
)
from streammc.numerics.jit import f8, i8, jit, matrix, vector
from streammc.numerics.special import exp, log, log_factorial, within

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
