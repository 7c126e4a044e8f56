"""Log-gamma, its derivatives, and their differences without cancellation.

Above 10 by Stirling's series (Abramowitz and Stegun 1964, 6.1.41, 6.3.18, 6.4.12: the
first omitted term is below 1e-16), below by the recurrence. The difference
``log Gamma(a + y) - log Gamma(a)`` at ``a = 1e8`` would lose all digits if formed from
its two terms; :func:`rising` returns its difference from ``y log a`` in closed form.
"""

from __future__ import annotations

import math
from typing import Final

from numba import types

from streammc.numerics.jit import f8, jit
from streammc.numerics.special import log1p_parts

_ASYMPTOTIC: Final = 10.0
_DIRECT: Final = 16.0
_HALF_LOG_2PI: Final = 0.9189385332046728


@jit(f8(f8))
def _stirling(r):  # type: ignore[no-untyped-def]
    """Return ``x (log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2)``, ``r = x^-2``."""
    high = 1.0 / 1188.0 + r * (-691.0 / 360360.0 + r * (1.0 / 156.0 - r * (3617.0 / 122400.0)))
    return 1.0 / 12.0 + r * (-1.0 / 360.0 + r * (1.0 / 1260.0 + r * (-1.0 / 1680.0 + r * high)))


@jit(f8(f8))
def _digamma_tail(r):  # type: ignore[no-untyped-def]
    """Return ``x^2 (log x - 1 / (2 x) - digamma(x))``, ``r = x^-2``."""
    high = 1.0 / 132.0 + r * (-691.0 / 32760.0 + r * (1.0 / 12.0 - r * (3617.0 / 8160.0)))
    return 1.0 / 12.0 + r * (-1.0 / 120.0 + r * (1.0 / 252.0 + r * (-1.0 / 240.0 + r * high)))


@jit(f8(f8))
def _trigamma_tail(r):  # type: ignore[no-untyped-def]
    """Return ``x^3 (trigamma(x) - 1 / x - 1 / (2 x^2))``, ``r = x^-2``."""
    high = 5.0 / 66.0 + r * (-691.0 / 2730.0 + r * (7.0 / 6.0 - r * (3617.0 / 510.0)))
    return 1.0 / 6.0 + r * (-1.0 / 30.0 + r * (1.0 / 42.0 + r * (-1.0 / 30.0 + r * high)))


@jit(f8(f8))
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Return ``log Gamma(x)`` for ``x > 0``; error below 1e-14 of the larger of it and 1."""
    if not x > 0.0:
        return math.nan
    product = 1.0
    while x < _ASYMPTOTIC:
        product *= x
        x += 1.0
    inverse = 1.0 / x
    series = inverse * _stirling(inverse * inverse)
    return ((x - 0.5) * math.log(x) - x) + (_HALF_LOG_2PI + series) - math.log(product)


@jit(f8(f8))
def digamma(x):  # type: ignore[no-untyped-def]
    """Return the derivative of ``log Gamma`` at ``x > 0``."""
    if not x > 0.0:
        return math.nan
    total = 0.0
    while x < _ASYMPTOTIC:
        total += 1.0 / x
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    return math.log(x) - (0.5 * inverse + square * _digamma_tail(square)) - total


@jit(f8(f8))
def trigamma(x):  # type: ignore[no-untyped-def]
    """Return the second derivative of ``log Gamma`` at ``x > 0``."""
    if not x > 0.0:
        return math.nan
    total = 0.0
    while x < _ASYMPTOTIC:
        total += (1.0 / x) / x
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    return total + (inverse + square * (0.5 + inverse * _trigamma_tail(square)))


@jit(types.UniTuple(f8, 3)(f8, f8))
def gamma_normalizer(a, log_a):  # type: ignore[no-untyped-def]
    """Return ``a log a - a - log Gamma(a)`` and its first two derivatives in ``log a``.

    Each is within 1e-14 of the larger of itself and 1 for ``a > 0``: above 10 what its terms
    have in common is taken out before they are formed.
    """
    if a < _ASYMPTOTIC:  # log Gamma(a) = log Gamma(1 + a) - log a
        slope = a * (log_a - digamma(1.0 + a)) + 1.0
        bend = slope + a - (a * a) * trigamma(1.0 + a) - 1.0
        return (a * log_a - a) - log_gamma(1.0 + a) + log_a, slope, bend
    low = 1.0 / a
    square = low * low
    value = (0.5 * log_a - _HALF_LOG_2PI) - low * _stirling(square)
    tail = low * _digamma_tail(square)
    return value, 0.5 + tail, tail - low * _trigamma_tail(square)


@jit(types.UniTuple(f8, 5)(f8, f8, f8))
def _rising_sum(a, log_a, y):  # type: ignore[no-untyped-def]
    """Return :func:`rising` for an integer ``y`` below 16, term by term."""
    if not y >= 1.0:
        zero = 0.0 * (a + y)  # NaN stays NaN
        return zero, zero, zero, zero, zero
    large = a > 1.0
    step = 1.0 / a if large else 1.0
    first = 1.0 if large else a
    product = 1.0
    slope = 1.0
    shortfall = 0.0
    bend = 0.0
    j = 1.0
    while j < y:
        product *= first + j * step
        inverse = 1.0 / (a + j)
        part = a * inverse
        slope += part
        shortfall += j * inverse
        bend += part * (j * inverse)
        j += 1.0
    if large:
        excess = math.log(product)
        return excess + y * log_a, excess, slope, shortfall, bend
    ratio = math.log(product) + log_a
    return ratio, ratio - y * log_a, slope, shortfall, bend


@jit(types.UniTuple(f8, 4)(f8, f8))
def _rising_series(a, y):  # type: ignore[no-untyped-def]
    """Return the last four of :func:`rising` for ``a >= 10``."""
    u = y / a
    value, rest, g, h = log1p_parts(u, 1.0 + u)
    low = 1.0 / a
    high = 1.0 / (a + y)
    low2 = low * low
    high2 = high * high
    excess = (a + y) * rest - 0.5 * value + (high * _stirling(high2) - low * _stirling(low2))
    tail1 = high * h * _digamma_tail(high2) - low * _digamma_tail(low2)
    tail2 = high * (h * h) * _trigamma_tail(high2) - low * _trigamma_tail(low2)
    slope = a * value + (0.5 * g - tail1)
    shortfall = (y * g - a * rest) - 0.5 * g + tail1
    bend = a * rest - 0.5 * (g * h) + (tail2 - tail1)
    return excess, slope, shortfall, bend


@jit(types.UniTuple(f8, 5)(f8, f8, f8))
def _rising_shifted(a, log_a, y):  # type: ignore[no-untyped-def]
    """Return :func:`rising` for ``0 < a < 10``: series at ``a + n >= 10``, then recurrence."""
    # The first factor is separate: y / a may overflow.
    first = math.log1p(y / a) if y < a else math.log(a + y) - log_a
    slope = y / (a + y)  # a (digamma(a + y) - digamma(a))
    bend = -slope * (a / (a + y))
    product = 1.0
    b = a + 1.0
    while b < _ASYMPTOTIC:
        product *= 1.0 + y / b
        low = a / b
        step = low * (y / (b + y))
        slope += step
        bend += step * (1.0 - low - a / (b + y))
        b += 1.0
    excess_b, slope_b, _, bend_b = _rising_series(b, y)
    ratio = (excess_b + y * math.log(b)) - math.log(product) - first
    low = a / b
    step = low * slope_b
    slope += step
    bend += step * (1.0 - low) + low * low * bend_b
    return ratio, ratio - y * log_a, slope, y - slope, bend


@jit(types.UniTuple(f8, 5)(f8, f8, f8))
def rising(a, log_a, y):  # type: ignore[no-untyped-def]
    r"""Return ``log Gamma(a + y) - log Gamma(a)`` and its derivatives in ``log a``.

    Parameters
    ----------
    a, log_a
        A number above zero and its logarithm.
    y
        A number at or above zero.

    Returns
    -------
    ratio, excess, slope, shortfall, bend
        ``R = log Gamma(a + y) - log Gamma(a)``; ``R - y log a``; the derivative
        ``a (digamma(a + y) - digamma(a))`` of ``R`` in ``log a``; ``y`` minus this derivative;
        the second derivative. Excess, shortfall and bend vanish like ``1 / a``, and are
        computed without cancellation.

    Notes
    -----
    With ``u = y / a``, ``L = log(1 + u)`` and ``S`` the tail of Stirling's series,
    ``R - y log a = (a + y) (L - u / (1 + u)) - L / 2 + S(a + y) - S(a)``. For an integer ``y``
    below 16 the sums over ``a, a + 1, ...`` are shorter.
    """
    if y < _DIRECT and y == math.floor(y):
        return _rising_sum(a, log_a, y)
    if a < _ASYMPTOTIC:
        return _rising_shifted(a, log_a, y)
    excess, slope, shortfall, bend = _rising_series(a, y)
    return y * log_a + excess, excess, slope, shortfall, bend


@jit(f8(f8, f8))
def log_gamma_ratio(a, y):  # type: ignore[no-untyped-def]
    """Return ``log Gamma(a + y) - log Gamma(a)`` for ``a > 0``, ``y >= 0``."""
    ratio, _, _, _, _ = rising(a, math.log(a), y)
    return ratio


@jit(f8(f8, f8))
def digamma_difference(a, y):  # type: ignore[no-untyped-def]
    """Return ``digamma(a + y) - digamma(a)`` for ``a > 0``, ``y >= 0``."""
    _, _, slope, _, _ = rising(a, math.log(a), y)
    return slope / a


@jit(f8(f8, f8))
def trigamma_difference(a, y):  # type: ignore[no-untyped-def]
    """Return ``trigamma(a + y) - trigamma(a)`` for ``a > 0``, ``y >= 0``."""
    _, _, slope, _, bend = rising(a, math.log(a), y)
    return ((bend - slope) / a) / a
