"""Log of the normal distribution function and its derivatives, accurate in both tails.

All three functions of a probit link come from one: ``D(x) = phi(x) / Phi(-x) - x`` for
``x >= 0``, the excess of the hazard of a normal variable over ``x``. It falls from
``sqrt(2 / pi)`` like ``1 / x``, so that hazard, logarithm and derivative are sums and
products of positive numbers. The code has no branches.
"""

from __future__ import annotations

from typing import Final

from streammc.numerics.jit import inline
from streammc.numerics.special import exp, log, log1p_unit, multiply_add, select

_HALF_LOG_2PI: Final = 0.9189385332046728
_RECIPROCAL_ROOT_2PI: Final = 0.3989422804014327
_CENTRE: Final = 3.25
_LARGEST: Final = 1e150
_SMALLEST_EXP: Final = 708.0

# D(x) (x + 2) as a polynomial in t = (x - 3.25) / (x + 3.25) in [-1, 1], from
# interpolation at Chebyshev nodes with 60 digits: relative error 2.1e-16.
_D0: Final = 1.3985745084609367
_D1: Final = -0.4268175912093854
_D2: Final = -0.08956413985678591
_D3: Final = 0.16546164817876957
_D4: Final = -0.019623621604799833
_D5: Final = -0.04787839832855597
_D6: Final = 0.011807653962342197
_D7: Final = 0.01519256364771862
_D8: Final = -0.004323328936935113
_D9: Final = -0.005196705886280611
_D10: Final = 0.0012428231012664953
_D11: Final = 0.0018214117655189997
_D12: Final = -0.0002470444162496359
_D13: Final = -0.0006161215028344628
_D14: Final = 9.929258740774359e-07
_D15: Final = 0.0001893111481519487
_D16: Final = 2.8158886595865467e-05
_D17: Final = -4.942569700417855e-05
_D18: Final = -1.5756124308886667e-05
_D19: Final = 9.9922161193229e-06
_D20: Final = 5.379702816504624e-06
_D21: Final = -1.3098824814473198e-06
_D22: Final = -1.2233106198663509e-06
_D23: Final = 5.792714172996066e-08
_D24: Final = 1.681115976567107e-07
_D25: Final = 6.820256569209026e-09
_D26: Final = -1.0098864894788519e-08


@inline
def _cubic(c3, c2, c1, c0, t, t2):  # type: ignore[no-untyped-def]
    """Return ``c0 + c1 t + c2 t^2 + c3 t^3``."""
    return multiply_add(multiply_add(c3, t, c2), t2, multiply_add(c1, t, c0))


@inline
def _hazard_excess(x):  # type: ignore[no-untyped-def]
    """Return ``phi(x) / Phi(-x) - x`` for ``0 <= x <= 1e150``."""
    t = (x - _CENTRE) / (x + _CENTRE)
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    p0 = multiply_add(_cubic(_D7, _D6, _D5, _D4, t, t2), t4, _cubic(_D3, _D2, _D1, _D0, t, t2))
    p1 = multiply_add(
        _cubic(_D15, _D14, _D13, _D12, t, t2), t4, _cubic(_D11, _D10, _D9, _D8, t, t2)
    )
    p2 = multiply_add(
        _cubic(_D23, _D22, _D21, _D20, t, t2), t4, _cubic(_D19, _D18, _D17, _D16, t, t2)
    )
    p3 = multiply_add(_D26, t2, multiply_add(_D25, t, _D24))
    p = multiply_add(multiply_add(multiply_add(p3, t8, p2), t8, p1), t8, p0)
    return p / (x + 2.0)


@inline
def log_ndtr_parts(a):  # type: ignore[no-untyped-def]
    """Return ``log Phi(a)``, ``M = phi(a) / Phi(a)`` and ``dM / da = -M (a + M)``.

    Relative error below 1e-14. Where ``Phi(a)`` rounds to 1 so far out that
    ``exp(-a^2 / 2)`` underflows (``a > 37.6``), all three are zero; at ``-inf`` they are
    the limits ``-inf``, ``inf`` and ``-1``. NaN for NaN.
    """
    # min and max depend on the order of their arguments for NaN: keep the order.
    size = abs(a)
    x = select(size > _LARGEST, _LARGEST, size)
    excess = _hazard_excess(x)
    hazard = x + excess
    square = size * size
    # lost: the rounding error of the square; exp is then multiplied by 1 - lost / 2.
    lost = multiply_add(x, x, -(x * x))
    half = 0.5 * square
    bell = select(half > _SMALLEST_EXP, 0.0, exp(-half) * _RECIPROCAL_ROOT_2PI)
    bell = multiply_add(bell, select(x < 64.0, -0.5 * lost, 0.0), bell)
    upper = bell / hazard
    lower = 1.0 - upper
    ratio = bell / lower
    negative = a < 0.0
    outside = -(half + _HALF_LOG_2PI + log(hazard))
    value = select(negative, outside, -log1p_unit(upper / lower))
    mills = select(negative, size + excess, ratio)
    slope = -select(negative, multiply_add(x, excess, excess * excess), ratio * (x + ratio))
    return value, mills, slope


@inline
def log_ndtr(a):  # type: ignore[no-untyped-def]
    """Return ``log Phi(a)``, the log of the normal distribution function."""
    value, _, _ = log_ndtr_parts(a)
    return value
