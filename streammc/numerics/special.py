"""Special functions that LLVM can vectorise: without branches, tables and calls.

A call of ``exp`` of the C library keeps a loop scalar and takes more time than the rest of a
link. The functions here are polynomials over a reduced range, evaluated with multiply-adds by
Estrin's scheme; the coefficients come from interpolation at Chebyshev nodes with 60 digits
(``bench/link_kernels.py`` measures speed and error). They return NaN for NaN. All rounding is
fixed by the source, so that the value of a row does not depend on its position in a block.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from streammc.numerics.jit import f8, inline, jit
from streammc.protocols import Vector

_LOG2_E: Final = 1.4426950408889634
# The leading 33 bits of log 2, so that n * _LN2_HIGH is exact, and the rest.
_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
# Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the sum.
_ROUND: Final = 6755399441055744.0
_EXP_MIN: Final = -708.0
_EXP_MAX: Final = 709.79

# (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2: relative error of exp 1.6e-17.
_E0: Final = 0.5000000000000001
_E1: Final = 0.16666666666666669
_E2: Final = 0.04166666666662413
_E3: Final = 0.008333333333330062
_E4: Final = 0.0013888888917213717
_E5: Final = 0.00019841269863053618
_E6: Final = 2.4801521295954376e-05
_E7: Final = 2.7557268459997064e-06
_E8: Final = 2.7620088445409746e-07
_E9: Final = 2.510038549551032e-08

# (atanh(s) / s - 1) / s^2 as a polynomial in s^2 <= 1/9: relative error 7.4e-18.
_L0: Final = 0.3333333333333333
_L1: Final = 0.20000000000007292
_L2: Final = 0.1428571428355438
_L3: Final = 0.11111111358713932
_L4: Final = 0.09090894718066429
_L5: Final = 0.07692785032479312
_L6: Final = 0.06657072104827468
_L7: Final = 0.06000536404795356
_L8: Final = 0.04400369243072337
_L9: Final = 0.08082022805971766

_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
_ROUND_BITS: Final = 0x4338000000000000

TABLE_SIZE: Final = 256
LOG_FACTORIALS: Final[Vector] = np.array([math.log(math.factorial(k)) for k in range(TABLE_SIZE)])
"""``log k!`` for ``k < 256``."""


@intrinsic  # type: ignore[untyped-decorator]
def multiply_add(_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once where the processor can."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double] * 3)
        function = builder.module.declare_intrinsic("llvm.fmuladd", [double], kind)
        return builder.call(function, args)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def select(_context: Any, condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` if ``condition``, else ``b``; both are evaluated.

    Several conditional expressions on one condition would become one branch with all code
    between them, and the loop would stay scalar: ten times slower.
    """

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return types.float64(types.boolean, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _bits(_context: Any, x: Any) -> Any:
    """Return the bits of a float64 as an int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _from_bits(_context: Any, x: Any) -> Any:
    """Return the float64 with these bits."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@inline
def exp(x):  # type: ignore[no-untyped-def]
    """Return ``exp(x)`` within 2 ulp; ``inf`` above 709.78, ``exp(-708)`` below -708.

    ``x = n log 2 + r`` (Cody and Waite 1980). Subnormal results are avoided, because each
    takes as much time as ten rows.
    """
    # Both comparisons are written so that NaN stays NaN.
    low = _EXP_MIN if x < _EXP_MIN else x
    clamped = _EXP_MAX if low > _EXP_MAX else low
    shifted = multiply_add(clamped, _LOG2_E, _ROUND)
    n = shifted - _ROUND
    r = multiply_add(n, -_LN2_LOW, multiply_add(n, -_LN2_HIGH, clamped))
    r2 = r * r
    r4 = r2 * r2
    low_half = multiply_add(multiply_add(_E3, r, _E2), r2, multiply_add(_E1, r, _E0))
    high_half = multiply_add(multiply_add(_E7, r, _E6), r2, multiply_add(_E5, r, _E4))
    top = multiply_add(_E9, r, _E8)
    p = multiply_add(multiply_add(top, r4, high_half), r4, low_half)
    p = multiply_add(p, r2, r) + 1.0
    # Twice 2^(n - 1) in place of 2^n: 2^1024 is not a float64.
    return (p + p) * _from_bits((_bits(shifted) << 52) + (1022 << 52))


@inline
def within(x, bound):  # type: ignore[no-untyped-def]
    """Return ``x`` clipped to ``[-bound, bound]``; NaN for NaN."""
    low = select(x < -bound, -bound, x)
    return select(low > bound, bound, low)


@inline
def _atanh_tail(s):  # type: ignore[no-untyped-def]
    """Return ``2 (atanh(s) - s)`` for ``|s| <= 1/3``."""
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    low_half = multiply_add(multiply_add(_L3, z, _L2), z2, multiply_add(_L1, z, _L0))
    high_half = multiply_add(multiply_add(_L7, z, _L6), z2, multiply_add(_L5, z, _L4))
    top = multiply_add(_L9, z, _L8)
    p = multiply_add(multiply_add(top, z4, high_half), z4, low_half)
    return (p * z) * (s + s)


@inline
def _split(x):  # type: ignore[no-untyped-def]
    """Return ``k``, ``m`` with ``x = 2^k m`` and ``m`` in [sqrt(1/2), sqrt(2)), x normal."""
    bits = _bits(x)
    exponent = (bits - _SQRT_HALF_BITS) >> 52
    return _from_bits(exponent + _ROUND_BITS) - _ROUND, _from_bits(bits - (exponent << 52))


@inline
def log(x):  # type: ignore[no-untyped-def]
    """Return ``log(x)`` within 2 ulp of a normal ``x > 0``; NaN for NaN, ``inf`` for ``inf``.

    ``x = 2^k m`` and ``log m = 2 atanh((m - 1) / (m + 1))``. For zero, negative and
    subnormal numbers the result has no meaning.
    """
    k, m = _split(x)
    s = (m - 1.0) / (m + 1.0)
    low = multiply_add(k, _LN2_LOW, _atanh_tail(s))
    result = multiply_add(k, _LN2_HIGH, (s + s) + low)
    return select(x < math.inf, result, x)


@inline
def log1p_parts(t, u):  # type: ignore[no-untyped-def]
    """Return ``log u``, ``log u - t / (1 + t)``, ``t / (1 + t)`` and ``1 / (1 + t)``.

    For finite ``t >= 0`` and ``u = 1 + t`` rounded, within 4 ulp; NaN for NaN. The second is
    ``t^2 / 2`` for small ``t``: with ``s = t / (2 + t)`` it is
    ``s t / (1 + t) + 2 (atanh(s) - s)``, computed without cancellation. Above ``t = 1`` the
    caller may pass another ``u``, if ``t`` would overflow.
    """
    small = t <= 1.0
    h = 1.0 / (1.0 + t)
    g = t * h
    k, m = _split(u)
    s = select(small, t, m - 1.0) / (select(small, 2.0, 1.0) + select(small, t, m))
    tail = _atanh_tail(s)
    n = select(small, 0.0, k)
    low = multiply_add(n, _LN2_LOW, tail)
    value = multiply_add(n, _LN2_HIGH, (s + s) + low)
    value = select(u < math.inf, value, u)
    excess = select(small, multiply_add(s, g, tail), value - g)
    return value, excess, g, h


@inline
def log1p_unit_parts(t):  # type: ignore[no-untyped-def]
    """Return ``log(1 + t)``, ``log(1 + t) - t / (1 + t)`` and ``1 / (1 + t)``, t in [0, 1]."""
    s = t / (2.0 + t)
    tail = _atanh_tail(s)
    h = 1.0 / (1.0 + t)
    return tail + (s + s), multiply_add(s, t * h, tail), h


@inline
def log1p_unit(x):  # type: ignore[no-untyped-def]
    """Return ``log(1 + x)`` for ``x`` in [0, 1], within 2 ulp.

    ``log(1 + x) = 2 atanh(x / (2 + x))``.
    """
    s = x / (2.0 + x)
    return _atanh_tail(s) + (s + s)


@jit(f8(f8))
def _stirling(y):  # type: ignore[no-untyped-def]
    """Return ``log y!`` for ``y >= 256``; the first omitted term is 1e-20. NaN below 0."""
    if not y >= 0.0:
        return math.nan
    x = y + 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0))
    return (x - 0.5) * math.log(x) - x + 0.9189385332046728 + series


@inline
def log_factorial(y):  # type: ignore[no-untyped-def]
    """Return ``log y!`` of an integer ``y >= 0``; NaN for NaN and below 0.

    From a table below 256, by Stirling's series from there on (Abramowitz and Stegun
    1964, 6.1.41).
    """
    # An unsigned index needs no test for a negative index.
    return LOG_FACTORIALS[np.uint64(y)] if 0.0 <= y < TABLE_SIZE else _stirling(y)
