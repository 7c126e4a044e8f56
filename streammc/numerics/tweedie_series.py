r"""Tweedie density of powers between 1 and 2, at its mean, with derivatives.

A Tweedie variable of mean ``mu`` and variance ``phi mu^p``, ``1 < p < 2``, is a sum of a Poisson
number of gamma variables (Jorgensen 1987). Its density at ``y > 0`` is the product of
``exp(-d(y, mu) / (2 phi))``, d the unit deviance, and of the density at the mean ``mu = y``, which
is ``f(xi, p) / y`` with ``xi = phi y^(p - 2)``: the family is closed under a change of unit. What
has no closed form is ``log f``, a function of two numbers.

With ``s = p - 1``, ``r = 2 - p``, ``a = r / s``, the number of gamma variables has the mean
``lambda = 1 / (r xi)``, and the series of Dunn and Smyth (2005, eq. 13 to 15) is

    f = sum over j >= 1 of exp(T_j),
    T_j = -(j log(j / lambda) - j + lambda) / s + G(j) - log j + G(a j),
    G(x) = x log x - x - log Gamma(x).

In this form large terms have cancelled before they are computed. The terms are log-concave in j,
with the largest near lambda; they are summed outwards until they are below exp(-38) of it. Where
many count, their sum is the integral of an analytic function, and steps of half of its standard
deviation give as many digits as steps of 1 (the trapezoidal rule: Trefethen and Weideman 2014), so
that no more than about 45 terms are summed. Derivatives are moments: with weights ``w_j`` in
proportion to ``exp(T_j)``, the gradient is ``E[T']`` and the Hessian ``E[T''] + Cov[T']``.

For small ``xi`` and a standard deviation of j above 1.7 it is the saddlepoint expansion

    log f = -log(2 pi xi) / 2 + c_1 xi + ... + c_6 xi^6,

with polynomials ``c_k`` of s from the cumulants ``xi^(n - 1) p (2 p - 1) ... ((n - 2) p - n + 3)``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.numerics.jit import f8, inline, jit
from streammc.numerics.special import LOG_FACTORIALS, exp, log, log1p_parts, quick_normalizer
from streammc.protocols import Matrix

_HALF_LOG_2PI: Final = 0.9189385332046728
_SMALL: Final = 1.0 / 64.0
"""Below this xi the expansion is used: its first omitted term is 1.4e-16."""
_SMOOTH_LOG: Final = math.log(3.0)
"""Log of the variance of j above which a sum over whole numbers is an integral, within 2e-26."""
_MANY: Final = 50.0
"""Size of the exponent at j = 0 above which steps need not be 1."""
_FEW: Final = 10.0
_NEGLIGIBLE: Final = 38.0
_STEEP: Final = 20.0
"""``1 / s`` above which neighbouring terms may differ by a factor that is large."""
_MOST_LOG: Final = 600.0
"""Logarithms of xi are clipped to it, either way."""
_MOST_ODDS: Final = 30.0
"""Log odds of ``p - 1`` are clipped to it, either way."""


def _table(rows: tuple[tuple[float, ...], ...]) -> Matrix:
    table = np.zeros((len(rows), max(map(len, rows))))
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


# fmt: off
_EXPANSION: Final[Matrix] = _table((
    (-1/12, -1/24, 1/24),
    (0.0, -1/24, 1/48, 1/24, -1/48),
    (1/360, -7/1440, -13/240, 173/1920, 143/5760, -161/1920, 161/5760),
    (0.0, 1/80, -13/360, -137/1440, 1957/5760, -31/180, -691/2880, 367/1440, -367/5760),
    (-1/1260, 11/3360, 19499/362880, -168449/725760, -110053/1451520, 4026359/2903040,
     -1026971/580608, -178397/1451520, 1149709/725760, -601285/580608, 120257/580608),
    (0.0, -5/504, 523/10080, 9553/45360, -183193/120960, 1269/896, 2026589/362880, -824483/60480,
     938101/120960, 490013/72576, -443533/40320, 39793/7560, -39793/45360),
))
# fmt: on
"""Coefficients of powers of s in ``c_1, ..., c_6``."""


@inline
def _term(j, mean, over_s, a, log_a):  # type: ignore[no-untyped-def]
    """Return ``T_j``, ``D = j log(j / lambda) - j + lambda``, and ``x G'`` and its derivative.

    The latter are those of ``G(x)`` in ``log x`` at ``x = a j``.
    """
    log_j = log(j)
    if j < mean:
        t = (mean - j) / j
        _, excess, g, _ = log1p_parts(t, 1.0 + t)
        deviance = j * (t * g - excess)
    else:
        t = (j - mean) / mean
        _, excess, _, _ = log1p_parts(t, 1.0 + t)
        deviance = j * excess
    if j < _FEW and j == math.floor(j):
        number = (j * log_j - j) - LOG_FACTORIALS[np.uint64(j)]
    else:
        number, _, _ = quick_normalizer(j, log_j)
        number -= log_j
    size, slope, bend = quick_normalizer(a * j, log_a + log_j)
    return number + size - deviance * over_s, deviance, slope, bend


@jit(types.UniTuple(f8, 6)(f8, f8))
def _series(log_xi, log_odds):  # type: ignore[no-untyped-def]
    """Return :func:`tweedie_parts` by the sum over the number of gamma variables."""
    s = 1.0 / (1.0 + math.exp(-log_odds))
    r = 1.0 / (1.0 + math.exp(log_odds))
    a = math.exp(-log_odds)
    over_s = 1.0 + a
    mean = math.exp(-log_xi) * (1.0 + math.exp(log_odds))
    centre = max(1.0, math.floor(mean + 0.5))
    step = 1.0
    if mean * over_s > _MANY:
        step = max(1.0, 0.5 * math.sqrt(mean * s))
    if over_s > _STEEP and step == 1.0:  # the larger neighbour of lambda need not be the nearer
        other = centre + 1.0 if mean > centre else max(1.0, centre - 1.0)
        if (
            _term(other, mean, over_s, a, -log_odds)[0]
            > _term(centre, mean, over_s, a, -log_odds)[0]
        ):
            centre = other
    top, deviance0, slope0, bend0 = _term(centre, mean, over_s, a, -log_odds)
    # Moments of j, D, x G' and its derivative, about their values at the centre.
    weights = 1.0
    sum_j = sum_d = sum_g = sum_b = sum_u = sum_jj = sum_ju = sum_uu = 0.0
    for side in range(2):
        way = step if side == 0 else -step
        away = way
        while centre + away > 0.25:
            value, deviance, slope, bend = _term(centre + away, mean, over_s, a, -log_odds)
            if value < top - _NEGLIGIBLE:
                break
            w = exp(value - top)
            d = deviance - deviance0
            u = a * d + away - (slope - slope0)
            weights += w
            sum_j += w * away
            sum_d += w * d
            sum_g += w * (slope - slope0)
            sum_b += w * (bend - bend0)
            sum_u += w * u
            sum_jj += w * (away * away)
            sum_ju += w * (away * u)
            sum_uu += w * (u * u)
            away += way
    each = 1.0 / weights
    sum_j *= each
    sum_u *= each
    apart = (centre - mean) + sum_j  # of the mean of j from lambda
    deviance = deviance0 + sum_d * each
    slope = slope0 + sum_g * each
    bend = bend0 + sum_b * each
    variance = sum_jj * each - sum_j * sum_j
    return (
        top + math.log(weights * step),
        -apart * over_s,
        (a * deviance0 + (centre - mean) - slope0) + sum_u,
        (variance * over_s - mean) * over_s,
        (mean + a * apart) - (sum_ju * each - sum_j * sum_u) * over_s,
        (bend - a * deviance - r * apart - mean * s) + (sum_uu * each - sum_u * sum_u),
    )


@jit(types.UniTuple(f8, 6)(f8, f8))
def _expanded(log_xi, log_odds):  # type: ignore[no-untyped-def]
    """Return :func:`tweedie_parts` by the expansion in xi."""
    xi = math.exp(log_xi)
    s = 1.0 / (1.0 + math.exp(-log_odds))
    r = 1.0 / (1.0 + math.exp(log_odds))
    value = slope_v = slope_u = curve_v = curve_uv = curve_u = 0.0
    power = 1.0
    for k in range(_EXPANSION.shape[0]):
        power *= xi
        c = c1 = c2 = 0.0  # c_k and its derivatives in s, the second halved
        for m in range(2 * k + 2, -1, -1):
            c2 = c2 * s + c1
            c1 = c1 * s + c
            c = c * s + _EXPANSION[k, m]
        n = k + 1.0
        by_u = c1 * (r * s)
        value += power * c
        slope_v += power * (n * c)
        curve_v += power * (n * n * c)
        slope_u += power * by_u
        curve_uv += power * (n * by_u)
        curve_u += power * (2.0 * c2 * (r * s) * (r * s) + by_u * (r - s))
    return (
        value - 0.5 * log_xi - _HALF_LOG_2PI,
        slope_v - 0.5,
        slope_u,
        curve_v,
        curve_uv,
        curve_u,
    )


@jit(types.UniTuple(f8, 6)(f8, f8))
def tweedie_parts(log_xi, log_odds):  # type: ignore[no-untyped-def]
    """Return ``log f(xi, p)``, its gradient, and the upper triangle of its Hessian.

    Parameters
    ----------
    log_xi
        ``log xi``, clipped to 600 either way; NaN for infinity.
    log_odds
        Log odds of ``p - 1``, clipped to 30 either way.

    Returns
    -------
    value, by_xi, by_odds, by_xi_xi, by_xi_odds, by_odds_odds
        Derivatives are in the two arguments.
    """
    if not abs(log_xi) < math.inf or log_odds != log_odds:
        return math.nan, math.nan, math.nan, math.nan, math.nan, math.nan
    v = max(-_MOST_LOG, min(_MOST_LOG, log_xi))
    u = max(-_MOST_ODDS, min(_MOST_ODDS, log_odds))
    if math.exp(v) < _SMALL and u - v > _SMOOTH_LOG:
        return _expanded(v, u)
    return _series(v, u)


def log_tweedie(log_xi: float, log_odds: float) -> float:
    """Return ``log f(xi, p)``: see :func:`tweedie_parts`."""
    value: float = tweedie_parts(log_xi, log_odds)[0]
    return value
