"""Stable logarithms of sums and differences of exponentials, for links made of expressions."""

from __future__ import annotations

import math
from typing import Final

from streammc.numerics.jit import inline
from streammc.numerics.special import exp, log, log1p_unit, select

_LEAST_NORMAL: Final = 2.2250738585072014e-308
_UP: Final = 2.0**54
_LOG_UP: Final = 54.0 * math.log(2.0)
_LOG_HALF: Final = -math.log(2.0)


@inline
def log_of(x):  # type: ignore[no-untyped-def]
    """Return ``log(x)`` within 2 ulp; ``-inf`` at 0, NaN below it."""
    tiny = x < _LEAST_NORMAL
    result = log(select(tiny, x * _UP, x)) - select(tiny, _LOG_UP, 0.0)
    return select(x > 0.0, result, select(x == 0.0, -math.inf, math.nan))


@inline
def logistic(x):  # type: ignore[no-untyped-def]
    """Return ``1 / (1 + exp(-x))`` within 4 ulp; 0 below -708."""
    e = exp(-abs(x))
    return select(x < 0.0, select(x < -708.0, 0.0, e), 1.0) / (1.0 + e)


@inline
def log1pexp(x):  # type: ignore[no-untyped-def]
    """Return ``log(1 + exp(x))`` within 4 ulp, 3e-308 below -708."""
    return select(x > 0.0, x, 0.0) + log1p_unit(exp(-abs(x)))


@inline
def log_add_exp(a, b):  # type: ignore[no-untyped-def]
    """Return ``log(exp(a) + exp(b))``; the error is 4 ulp of the larger of them and of 1."""
    apart = abs(a - b)
    larger = select(a > b, a, b)
    return larger + select(apart < math.inf, log1p_unit(exp(-apart)), 0.0)


@inline
def log1mexp(x):  # type: ignore[no-untyped-def]
    """Return ``log(1 - exp(x))`` of ``x < 0``, within 4 ulp; ``-inf`` at 0 (Maechler 2012)."""
    if x > _LOG_HALF:
        return math.log(-math.expm1(x)) if x < 0.0 else select(x == 0.0, -math.inf, math.nan)
    return math.log1p(-exp(x))
