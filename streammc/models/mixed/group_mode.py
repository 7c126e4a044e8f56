"""Mode and curvature of the group effects: where the quadrature nodes are placed.

With ``u = A v``, ``v ~ Normal(0, I)`` and ``g(v) = log f(y | A v) - v . v / 2``, Newton's method
from a start finds a mode ``v^`` and ``-g'' = I - A' W A`` there. From ``v = 0`` both are functions
of theta. A likelihood that is not log-concave in its predictor, Student's t, may have more modes.
"""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PRODUCTS,
    BY_SQUARES,
    CARRIER,
    EXPONENTIAL,
    HIGHEST,
    KAPPA,
    PATH,
    RHO,
    TAU1,
    TAU2,
    WEIGHT,
    rows_at,
)
from streammc.models.mixed.group_sums import (
    MOST_OF_FACTOR,
    gaussian_moments,
    logistic_moments,
    poisson_moments,
)
from streammc.numerics.jit import f8, jit, matrix, vector

_ITERATIONS: Final = 100
_HALVINGS: Final = 40
_DECREMENT: Final = 1e-9
"""Squared length of the last step in standard deviations: the one after it is 1e-9."""
_ROUNDING: Final = 1e-13
"""By which relative part ``g`` may fall in a step."""

# Of the result.
V1: Final = 0
V2: Final = 1
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
    """Write ``L, L_1, L_2, L_11, L_12, L_22``: the log-likelihood, its derivatives in ``u``.

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
    """Write Newton's step, ``-g''``, its determinant and the decrement, from the moments."""
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
    local[6] = ((1.0 + c) * g1 - b * g2) / det
    local[7] = ((1.0 + a) * g2 - b * g1) / det
    local[8] = 1.0 + a
    local[9] = b
    local[10] = 1.0 + c
    local[11] = det
    local[12] = g1 * local[6] + g2 * local[7]


@jit(types.void(vector, vector, vector), borrow=True)
def _write_columns(facts, local, mode):  # type: ignore[no-untyped-def]
    """Write C and its log determinant: b along ``(-g'')^-1 r``, with ``u_2 = tau_2 r . v``."""
    rho, kappa, det = facts[RHO], facts[KAPPA], local[11]
    along1 = (local[10] * rho - local[9] * kappa) / det
    along2 = (local[8] * kappa - local[9] * rho) / det
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

    ``local`` (16,) is scratch memory. Where ``g`` is not finite at the start the mode is NaN.
    A step that is no shorter than half the one before is doubled: far out the derivative of an
    exponential falls by a factor e per step.
    """
    v = local[14:16]
    v[0], v[1] = start, 0.0
    moments(v, facts, rows, eta, terms, inner, local)
    value = local[0] - 0.5 * start * start
    stretch = last = 0.0
    for _ in range(_ITERATIONS):
        _newton(v, facts, local)
        step1, step2 = local[6], local[7]
        _write_columns(facts, local, mode)
        mode[V1] = v[0]
        mode[V2] = v[1]
        if not local[12] > _DECREMENT:  # NaN too
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
