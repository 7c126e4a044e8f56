"""Estimators of the log-likelihood from units: difference and block-Poisson.

The difference estimator (Dang et al. 2019, eq. 8 and 14, with the unit as the observation) is put
together in ``likelihood.target``, from the remainders ``r_i = l_i - q_i`` of expanded rows, their
gradients, and the totals ``D_j`` of units.

The block-Poisson estimator is one of the likelihood (Quiroz et al. 2018; Dang et al. 2019, eq. 15).
With ``N ~ Poisson(lambda)`` factors, each an unbiased estimate ``d_f`` of the remainder ``D = sum_j
D_j`` of all U units from a mini-batch of its own,

    L^(theta) = exp(sum_i q_i + sum_C r_i) exp(a + lambda) prod_f A_f,
    A_f       = (d_f - a) / lambda,    d_f = (U / units of f) sum_{j in f} D_j.

Below, lambda is ``intensity``, a is ``bound``, and ``U / units of f`` is ``scale``.

Factors are independent, so ``E prod A_f = sum_N e^-lambda lambda^N / N! (E A)^N =
exp(lambda (E A - 1)) = exp(D - a - lambda)``: the estimate is unbiased for every ``a``
and ``lambda``, and may be negative. The sampled density is ``|L^|``; its sign is recorded.

``log |L^|`` is a compound Poisson sum. Its variance is ``lambda E[(log |A|)^2]``, which
``sum_f (log |A_f|)^2`` estimates without bias. Under the density proportional to
``|L^|`` the mean sign is ``E L^ / E |L^| = exp(-2 lambda E[max(-A, 0)])``.

The bound ``a`` has to depend on ``theta``. With a fixed ``a``, estimates far from
``theta_star`` are large and of either sign, and ``E |L^| / L``, the reciprocal of that mean
sign, grows without limit: the density gets false modes, or is improper. Remainders grow with
the distance ``r = |z| / sqrt d``, z the whitened position (d,), as ``r^(order + 1)``. Therefore
``a(theta) = a* - lambda (g - 1)``, with ``a*`` the bound at theta_star, beyond the radius ``r0``
outside of which a Gaussian posterior has a millionth of its mass, and ``g`` goes from 1 to ``(1 +
(growth r^(order + 1))^4)^(1/4)``. Within ``r0``, ``g`` is 1: a larger ``g`` needs as many more
factors, and a chain hardly moves into such a region. ``growth`` is ``Base.bound_growth``.

Guards such as ``if lo < 0: return`` are never true: they tell the compiler that no index is
negative.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE, SCRATCH_TYPE
from streammc.numerics.jit import LINK_TYPE, i8, inline, jit, matrix, vector


@jit(types.void(matrix, vector, i8, i8, i8, matrix, i8), reassociate=True, borrow=True)
def predictor_step(design, delta, first, lo, w, step, a):  # type: ignore[no-untyped-def]
    """Write ``step[a] = sum_j delta[first + j] x_j`` over ``w`` rows from ``lo``.

    Four columns a sweep need a quarter of the loads of ``step``. Slices are avoided: each costs
    two atomic reference counts, together a third of the arithmetic at 100 rows.
    """
    if lo < 0 or first < 0 or a < 0:
        return
    q = design.shape[0]
    for i in range(w):
        step[a, i] = 0.0
    j = 0
    while j + 4 <= q:
        d0, d1 = delta[first + j], delta[first + j + 1]
        d2, d3 = delta[first + j + 2], delta[first + j + 3]
        for i in range(w):
            step[a, i] += (
                d0 * design[j, lo + i]
                + d1 * design[j + 1, lo + i]
                + d2 * design[j + 2, lo + i]
                + d3 * design[j + 3, lo + i]
            )
        j += 4
    while j < q:
        d0 = delta[first + j]
        for i in range(w):
            step[a, i] += d0 * design[j, lo + i]
        j += 1


@inline
def _predict(design, eta_star, delta, n_linear, lo, w, eta, step):  # type: ignore[no-untyped-def]
    """Write the predictors at theta_star + delta, and their change from theta_star."""
    q = design.shape[0]
    for a in range(eta.shape[0]):
        if a < n_linear:
            predictor_step(design, delta, a * q, lo, w, step, a)
        else:
            for i in range(w):
                step[a, i] = delta[n_linear * q + a - n_linear]
        for i in range(w):
            eta[a, i] = eta_star[a, lo + i] + step[a, i]


@jit(
    types.void(LINK_TYPE, vector, BLOCK_TYPE, vector, i8, i8, i8, SCRATCH_TYPE, vector, matrix),
    reassociate=True,
    borrow=True,
)
def remainders(link, constants, block, delta, n_linear, lo, hi, scratch, value, slope):  # type: ignore[no-untyped-def]
    """Write ``r_i`` and ``dr_i / d eta_ai`` of rows ``lo`` to ``hi`` (at most ``TILE``).

    ``r_i = w_i l(eta_i) - [l* + g*.s + s'H*s / 2]``, ``s = eta_i - eta*_i``, where the
    expansion already carries the weight. ``delta`` (d,) is theta - theta_star.
    """
    if lo < 0:
        return
    design, eta_star = block.design, block.eta_star
    p = eta_star.shape[0]
    w = hi - lo
    size = block.expansion.shape[0]
    eta = scratch.eta[: p * w].reshape((p, w))
    step = scratch.step[: p * w].reshape((p, w))
    out = scratch.out[: size * w].reshape((size, w))
    _predict(design, eta_star, delta, n_linear, lo, w, eta, step)
    link(eta, design[:, lo:hi], block.y[lo:hi], constants, 1, out)
    subtract_expansions(block, step, out, lo, w, value, slope)


@inline(reassociate=True)
def subtract_expansions(block, step, out, lo, w, value, slope):  # type: ignore[no-untyped-def]
    """Write remainders and derivatives of ``w`` rows from those of the link, ``out``.

    ``step`` (p, w) is the change of their predictors from the expansion point.
    """
    expansion, weight = block.expansion, block.weight
    p, size = step.shape[0], expansion.shape[0]
    if p == 1:  # one sweep instead of four: 0.6 us of 1.8 at 100 rows
        first = np.uint64(lo)  # a negative index would count from the end: the loop stays scalar
        for i in range(np.uint64(w)):
            at = first + i
            counts = weight[at] != 0.0
            l = weight[at] * out[0, i] if counts else 0.0
            g = weight[at] * out[1, i] if counts else 0.0
            s, g_star, h_star = step[0, i], expansion[1, at], expansion[2, at]
            value[at] = l - expansion[0, at] - s * (g_star + 0.5 * h_star * s)
            slope[0, at] = g - g_star - h_star * s
        return
    for i in range(w):
        counts = weight[lo + i] != 0.0
        value[lo + i] = (weight[lo + i] * out[0, i] if counts else 0.0) - expansion[0, lo + i]
    for a in range(p):
        for i in range(w):
            g = weight[lo + i] * out[1 + a, i] if weight[lo + i] != 0.0 else 0.0
            slope[a, lo + i] = g - expansion[1 + a, lo + i]
            value[lo + i] -= expansion[1 + a, lo + i] * step[a, i]
    h = 1 + p
    if size == h:  # there are no pairs
        return
    for a in range(p):
        for b in range(a, p):
            if a == b:
                for i in range(w):
                    h_star = expansion[h, lo + i]
                    value[lo + i] -= 0.5 * h_star * step[a, i] * step[a, i]
                    slope[a, lo + i] -= h_star * step[a, i]
            else:
                for i in range(w):
                    h_star = expansion[h, lo + i]
                    value[lo + i] -= h_star * step[a, i] * step[b, i]
                    slope[a, lo + i] -= h_star * step[b, i]
                    slope[b, lo + i] -= h_star * step[a, i]
            h += 1


@jit(
    types.void(LINK_TYPE, vector, BLOCK_TYPE, vector, i8, i8, i8, SCRATCH_TYPE, vector),
    reassociate=True,
    borrow=True,
)
def remainder_values(link, constants, block, delta, n_linear, lo, hi, scratch, value):  # type: ignore[no-untyped-def]
    """Write the remainders ``r_i`` as :func:`remainders`, without derivatives."""
    if lo < 0:
        return
    design, eta_star, expansion = block.design, block.eta_star, block.expansion
    weight = block.weight
    p = eta_star.shape[0]
    w = hi - lo
    size = expansion.shape[0]
    eta = scratch.eta[: p * w].reshape((p, w))
    step = scratch.step[: p * w].reshape((p, w))
    out = scratch.out[: size * w].reshape((size, w))
    _predict(design, eta_star, delta, n_linear, lo, w, eta, step)
    link(eta, design[:, lo:hi], block.y[lo:hi], constants, 0, out)
    for i in range(w):
        counts = weight[lo + i] != 0.0
        value[lo + i] = (weight[lo + i] * out[0, i] if counts else 0.0) - expansion[0, lo + i]
    h = 1 + p
    pairs = size > h
    for a in range(p):
        for i in range(w):
            value[lo + i] -= expansion[1 + a, lo + i] * step[a, i]
        for b in range(a, p if pairs else a):
            half = 0.5 if a == b else 1.0
            for i in range(w):
                value[lo + i] -= half * expansion[h, lo + i] * step[a, i] * step[b, i]
            h += 1


@inline
def pull_back(block, slope, n_linear, lo, hi, gradient):  # type: ignore[no-untyped-def]
    """Add ``sum_i sum_a slope[a, lo + i] d eta_ai / d theta`` over rows ``lo`` to ``hi``."""
    if lo < 0:
        return
    design = block.design
    q = design.shape[0]
    w = hi - lo
    for a in range(slope.shape[0]):
        if a < n_linear:
            base = a * q
            j = 0
            while j + 4 <= q:
                s0 = s1 = s2 = s3 = 0.0
                for i in range(w):
                    c = slope[a, lo + i]
                    s0 += c * design[j, lo + i]
                    s1 += c * design[j + 1, lo + i]
                    s2 += c * design[j + 2, lo + i]
                    s3 += c * design[j + 3, lo + i]
                gradient[base + j] += s0
                gradient[base + j + 1] += s1
                gradient[base + j + 2] += s2
                gradient[base + j + 3] += s3
                j += 4
            while j < q:
                s0 = 0.0
                for i in range(w):
                    s0 += slope[a, lo + i] * design[j, lo + i]
                gradient[base + j] += s0
                j += 1
        else:
            total = 0.0
            for i in range(w):
                total += slope[a, lo + i]
            gradient[n_linear * q + a - n_linear] += total


@inline
def unit_totals(value, unit_rows, start, n_units, totals):  # type: ignore[no-untyped-def]
    """Write ``D_j`` from ``totals[start]`` on: sums of ``unit_rows`` consecutive remainders."""
    if start < 0 or unit_rows < 0:
        return
    if unit_rows == 1:
        for u in range(n_units):
            totals[start + u] = value[u]
        return
    for u in range(n_units):
        total = 0.0
        for i in range(unit_rows):
            total += value[u * unit_rows + i]
        totals[start + u] = total


@inline
def mean_and_scatter(totals, k):  # type: ignore[no-untyped-def]
    """Return the mean of ``k`` unit totals and ``sum_j (D_j - mean D)^2``, two-pass."""
    mean = 0.0
    for j in range(k):
        mean += totals[j]
    mean /= k
    scatter = 0.0
    for j in range(k):
        scatter += (totals[j] - mean) * (totals[j] - mean)
    return mean, scatter


@inline
def weigh(slope, unit_weight, k, unit_rows, weighted):  # type: ignore[no-untyped-def]
    """Write ``slope`` (p, m) times the unit weight of each row into ``weighted``, ``k`` units."""
    for a in range(slope.shape[0]):
        if unit_rows == 1:
            for i in range(k):
                weighted[a, i] = slope[a, i] * unit_weight[i]
        else:
            for j in range(k):
                one = unit_weight[j]
                for i in range(j * unit_rows, (j + 1) * unit_rows):
                    weighted[a, i] = slope[a, i] * one


@inline
def log_factors(totals, start, n_factors, units, scale, intensity, bound):  # type: ignore[no-untyped-def]
    """Return ``sum_f log |A_f|`` over factors of ``units`` totals each, from ``start`` on.

    ``scale`` is ``U / units``, ``intensity`` lambda and ``bound`` a.
    """
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
    """Return the bound ``a`` at whitened ``z`` (d,), and the factor c of its gradient ``c z``.

    ``at_star`` is ``a*``; with ``growth`` 0 the bound is constant.
    """
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
    rise = growth**4 * power  # (growth r^(order + 1))^4 / r^2, with r^2 = square
    h = (1.0 + rise * square) ** 0.25
    h_by_square = 0.25 * (2 * max(order, 0) + 2) * rise / (h * h * h)
    # The share of h in g goes smoothly from 0 at r0^2 to 1, by way of 1/2 at 5/4 r0^2.
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
