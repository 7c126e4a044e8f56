"""The block-Poisson estimator of the likelihood (Quiroz et al. 2018; Dang et al. 2019, eq. 15).

With ``N ~ Poisson(lambda)`` factors, each an unbiased estimate ``d_f`` of the sampled
remainder ``d(theta)`` from a mini-batch of its own,

    L^(theta) = exp(sum_i q_i + sum_C r_i) exp(a + lambda) prod_f A_f,
    A_f       = (d_f - a) / lambda,    d_f = (U / units of f) sum_{j in f} D_j.

Factors are independent, so ``E prod A_f = sum_N e^-lambda lambda^N / N! (E A)^N =
exp(lambda (E A - 1)) = exp(d - a - lambda)``: the estimate is unbiased for every ``a``
and ``lambda``, and may be negative. The sampled density is ``|L^|``; its sign is recorded.

``log |L^|`` is a compound Poisson sum. Its variance is ``lambda E[(log |A|)^2]``, which
``sum_f (log |A_f|)^2`` estimates without bias. Under the density proportional to
``|L^|`` the mean sign is ``E L^ / E |L^| = exp(-2 lambda E[max(-A, 0)])``.

The bound ``a`` has to depend on ``theta``. With a fixed ``a``, estimates far from
``theta_star`` are large and of either sign, and ``E |L^| / L``, the reciprocal of that mean
sign, grows without limit: the density gets false modes, or is improper. Remainders grow with
the distance ``r = |z| / sqrt d`` as ``r^(order + 1)``. Therefore ``a(theta) = a* - lambda
(g - 1)`` beyond the radius ``r0`` outside of which a Gaussian posterior has a millionth of its
mass, and ``g`` goes from 1 to ``(1 + (growth r^(order + 1))^4)^(1/4)``. Within ``r0``, ``g`` is
1: a larger ``g`` needs as many more factors, and a chain hardly moves into such a region.
"""

from __future__ import annotations

import math

from streammc.numerics.jit import inline


@inline
def log_factors(totals, start, n_factors, units, scale, intensity, bound):  # type: ignore[no-untyped-def]
    """Return ``sum_f log |A_f|`` over factors of ``units`` totals each, from ``start`` on."""
    if start < 0 or units < 1:
        return 0.0
    result = 0.0
    for f in range(n_factors):
        total = 0.0
        for j in range(start + f * units, start + (f + 1) * units):
            total += totals[j]
        result += math.log(abs((scale * total - bound) / intensity))
    return result


@inline
def soft_bound(at_star, growth, intensity, order, z):  # type: ignore[no-untyped-def]
    """Return the bound ``a`` at whitened ``z``, and the factor c of its gradient ``c z``."""
    d = z.shape[0]
    square = 0.0
    for j in range(d):
        square += z[j] * z[j]
    square /= d
    # The chi-square quantile at 1 - 1e-6, over d (Wilson and Hilferty 1931).
    nearest = (1.0 - 2.0 / (9.0 * d) + 4.75 * math.sqrt(2.0 / (9.0 * d))) ** 3
    beyond = square - nearest
    if growth == 0.0 or beyond <= 0.0:
        return at_star, 0.0
    power = 1.0
    for _ in range(2 * max(order, 0) + 1):
        power *= square
    rise = growth**4 * power  # over square
    h = (1.0 + rise * square) ** 0.25
    h_by_square = 0.25 * (2 * max(order, 0) + 2) * rise / (h * h * h)
    half = nearest * nearest / 16.0
    share = beyond * beyond / (beyond * beyond + half)
    share_by_square = 2.0 * beyond * half / (beyond * beyond + half) ** 2
    g = 1.0 + share * (h - 1.0)
    by_square = share_by_square * (h - 1.0) + share * h_by_square
    return at_star - intensity * (g - 1.0), -intensity * by_square * 2.0 / d


@inline
def log_product(totals, k, units, scale, intensity, bound, unit_weight):  # type: ignore[no-untyped-def]
    """Return ``log |exp(a + lambda) prod_f A_f|``, its variance, sign and derivative in ``a``.

    ``totals`` holds ``k`` unit totals, ``units`` of them to a factor; ``scale`` is
    ``U / units``. The variance is an unbiased estimate. Writes ``unit_weight`` (k,), the
    derivative of the logarithm in each total.
    """
    log = bound + intensity
    variance = 0.0
    sign = 1.0
    by_bound = 1.0
    for f in range(k // units):
        total = 0.0
        for j in range(f * units, (f + 1) * units):
            total += totals[j]
        excess = scale * total - bound
        if excess < 0.0:
            sign = -sign
        one = math.log(abs(excess) / intensity)
        log += one
        variance += one * one
        by_bound -= 1.0 / excess
        for j in range(f * units, (f + 1) * units):
            unit_weight[j] = scale / excess
    return log, variance, sign, by_bound
