"""Collapsed Gibbs sampling of 0/1 responses with factors that cross, by latent variables.

Given latent variables of the rows a logistic or probit regression is a Gaussian one:

- logistic: ``omega_i ~ PG(m_i, eta_i)`` (Polya-Gamma; Polson, Scott and Windle 2013) makes ``k_i``
  successes of ``m_i`` trials a Gaussian response ``(k_i - m_i / 2) / omega_i`` of precision
  ``omega_i``;
- probit: ``z ~ Normal(eta_i, 1)`` of each trial, above 0 where it succeeds (Albert and Chib 1993).

They are drawn again for each factor, in the order of its levels, and added up at once: the draw of
``(beta, u_f)`` and of its scale given them is that of ``crossed`` with sigma 1. None is kept, so
that a chain has the size of its effects. Each such step leaves the posterior invariant.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.numerics.jit import GENERATOR_TYPE, f8, i8, inline, jit, matrix
from streammc.samplers.crossed.sweep import (
    CROSSED_TYPE,
    SCALES_TYPE,
    STATE_TYPE,
    draw_normal,
    slice_scale,
)

LOGIT: Final = 1
PROBIT: Final = 2
_CUT: Final = 0.64
"""Where the two series for the density of a Polya-Gamma variable meet."""
_SECOND: Final = 3.0 * math.exp(-4.0 / 0.64) * (1.0 + 1e-12)
_ROOT_HALF: Final = math.sqrt(0.5)
_HALF_LOG_2PI: Final = 0.9189385332046728


@inline
def _coefficient(n, x):  # type: ignore[no-untyped-def]
    """Return term ``n`` of the alternating series of the density at ``x``."""
    k = n + 0.5
    if x > _CUT:
        return math.pi * k * math.exp(-0.5 * k * k * math.pi * math.pi * x)
    return math.pi * k * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * k * k / x)


@inline
def _inverse_gaussian(z, rng):  # type: ignore[no-untyped-def]
    """Return a draw of the inverse Gaussian of mean ``1 / z`` and shape 1, below the cut."""
    if z * _CUT < 1.0:
        while True:
            first = rng.standard_exponential()
            second = rng.standard_exponential()
            if first * first <= 2.0 * second / _CUT:
                x = 1.0 + first * _CUT
                x = _CUT / (x * x)
                if rng.random() <= math.exp(-0.5 * z * z * x):
                    return x
    mean = 1.0 / z
    while True:
        y = rng.standard_normal()
        y *= mean * y
        x = mean + 0.5 * mean * (y - math.sqrt(4.0 * y + y * y))
        if rng.random() > mean / (mean + x):
            x = mean * mean / x
        if x <= _CUT:
            return x


def _share(z: float) -> float:
    """Return the share of the proposals above the cut, an exponential tail."""
    rate = 0.125 * math.pi * math.pi + 0.5 * z * z
    root = math.sqrt(_CUT)
    base = math.log(rate) + rate * _CUT
    below = math.exp(base - z) * 0.5 * math.erfc(-(_CUT * z - 1.0) / root * _ROOT_HALF)
    above = 0.5 * math.erfc((_CUT * z + 1.0) / root * _ROOT_HALF)
    if above > 0.0:
        below += math.exp(base + z + math.log(above))
    return 1.0 / (1.0 + 4.0 / math.pi * below)


_PER_UNIT: Final = 64
_SHARES: Final = np.array([_share(k / _PER_UNIT) for k in range(8 * _PER_UNIT + 1)])
"""Values of ``_share``, which falls with z: most proposals need no more than these."""
_share_at = inline(_share)


@inline
def _takes_tail(z, rng):  # type: ignore[no-untyped-def]
    """Return whether a proposal is one above the cut, with probability ``_share(z)``."""
    uniform = rng.random()
    cell = int(z * _PER_UNIT)
    if cell < _SHARES.shape[0] - 1:
        if uniform < _SHARES[cell + 1]:
            return True
        if uniform >= _SHARES[cell]:
            return False
    return uniform < _share_at(z)


@jit(f8(f8, GENERATOR_TYPE))
def polya_gamma(c, rng):  # type: ignore[no-untyped-def]
    """Return a draw of PG(1, c), by the method of Devroye (2009).

    The second term of the series is at most ``_SECOND`` of the first, so that most proposals are
    accepted before either is computed.
    """
    z = 0.5 * abs(c)
    while True:
        if _takes_tail(z, rng):
            x = _CUT + rng.standard_exponential() / (0.125 * math.pi * math.pi + 0.5 * z * z)
        else:
            x = _inverse_gaussian(z, rng)
        uniform = rng.random()
        if uniform <= 1.0 - _SECOND:
            return 0.25 * x
        total = _coefficient(0, x)
        level = uniform * total
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= _coefficient(n, x)
                if level <= total:
                    return 0.25 * x
            else:
                total += _coefficient(n, x)
                if level > total:
                    break


@jit(f8(f8, GENERATOR_TYPE))
def above_zero(mean, rng):  # type: ignore[no-untyped-def]
    """Return a draw of Normal(mean, 1) above 0 (Robert 1995)."""
    if mean > -0.5:
        while True:
            z = mean + rng.standard_normal()
            if z > 0.0:
                return z
    rate = 0.5 * (-mean + math.sqrt(mean * mean + 4.0))
    while True:
        z = rng.standard_exponential() / rate
        if rng.random() <= math.exp(-0.5 * (z - mean - rate) ** 2):
            return z


@inline
def _latent(kind, eta, successes, trials, rng):  # type: ignore[no-untyped-def]
    """Return precision, and precision times response, of the Gaussian row in place of this one."""
    precision = total = 0.0
    if kind == LOGIT:
        for _ in range(int(trials)):
            precision += polya_gamma(eta, rng)
        return precision, successes - 0.5 * trials
    for _ in range(int(successes)):
        total += above_zero(eta, rng)
    for _ in range(int(trials - successes)):
        total -= above_zero(-eta, rng)
    return trials, total


@inline
def _log_likelihood(kind, eta, successes, trials):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of a row, of single trials."""
    if kind == LOGIT:
        more = max(eta, 0.0) + math.log1p(math.exp(-abs(eta)))
        return successes * eta - trials * more
    value = 0.0
    for sign, count in ((1.0, successes), (-1.0, trials - successes)):
        if count > 0.0:
            x = sign * eta
            if x > -30.0:
                value += count * math.log(0.5 * math.erfc(-x * _ROOT_HALF))
            else:  # the tail of Mills
                value -= count * (0.5 * x * x + math.log(-x) + _HALF_LOG_2PI + 1.0 / (x * x))
    return value


@inline
def _trials_and_offset(table, offset, f, i):  # type: ignore[no-untyped-def]
    """Return trials and offset of a row in the order of factor ``f``."""
    trials = table.row_weight[f, i] if table.row_weight.shape[1] > 0 else 1.0
    return trials, offset[f, i] if offset.shape[1] > 0 else 0.0


_VALUES: Final = [types.Array(each, 3, "C") for each in (types.float32, types.float64)]
"""Types of the rows, as the store has them."""


@jit(
    *(
        types.void(CROSSED_TYPE, own, matrix, i8, SCALES_TYPE, i8, STATE_TYPE, GENERATOR_TYPE)
        for own in _VALUES
    )
)
def draw_factor(table, values, offset, kind, priors, f, state, rng):  # type: ignore[no-untyped-def]
    """Draw the latent variables, then beta and the effects of factor ``f``, and its scale twice.

    ``values`` (F, n, q + 1) are the rows in the order of each factor: columns, and successes;
    ``offset`` (F, n) theirs, or (F, 0).
    """
    F, q = table.first.shape[0] - 1, state.beta.shape[0]
    low, high = table.first[f], table.first[f + 1]
    effects, beta = state.effects, state.beta
    own = math.exp(-2.0 * state.log_scale[f])
    weight, rest, design = np.zeros(high - low), np.zeros(high - low), np.zeros((high - low, q))
    A, b = priors.precision.copy(), priors.shift.copy()
    for l in range(low, high):
        S = design[l - low]
        n = total = 0.0
        for i in range(table.start[l + f], table.start[l + f + 1]):
            trials, known = _trials_and_offset(table, offset, f, i)
            successes = np.float64(values[f, i, q])
            for place in range(F - 1):
                known += effects[table.codes[f * (F - 1) + place, i]]
            linear = 0.0
            for j in range(q):
                linear += values[f, i, j] * beta[j]
            w, wz = _latent(kind, known + linear + effects[l], successes, trials, rng)
            r = wz - w * known
            n += w
            total += r
            for j in range(q):
                x = values[f, i, j]
                S[j] += w * x
                b[j] += x * r
                for k in range(j + 1):
                    A[j, k] += w * x * values[f, i, k]
        weight[l - low], rest[l - low] = n, total
        share = 1.0 / (n + own)
        for j in range(q):
            b[j] -= S[j] * total * share
            for k in range(j + 1):
                A[j, k] -= S[j] * S[k] * share
    draw_normal(A, b, state.beta, rng)
    squares = 0.0
    for l in range(high - low):
        for j in range(q):
            rest[l] -= design[l, j] * beta[j]
        k = 1.0 / (weight[l] + own)
        u = k * rest[l] + math.sqrt(k) * rng.standard_normal()
        effects[low + l] = u
        squares += u * u
    t = slice_scale(0, state.log_scale[f], float(high - low), squares, priors.table, f, rng)
    linear = square = 0.0
    divisor = math.exp(-t)
    for l in range(high - low):
        v = effects[low + l] * divisor
        linear += v * rest[l]
        square += weight[l] * v * v
    moved = slice_scale(1, t, linear, square, priors.table, f, rng)
    ratio = math.exp(moved - t)
    for l in range(low, high):
        effects[l] *= ratio
    state.log_scale[f] = moved
    state.spread[f] = squares * ratio * ratio


@jit(*(f8(CROSSED_TYPE, own, matrix, i8, STATE_TYPE) for own in _VALUES), borrow=True)
def log_density(table, values, offset, kind, state):  # type: ignore[no-untyped-def]
    """Return the log density of responses and effects, but for the prior."""
    F, q = table.first.shape[0] - 1, state.beta.shape[0]
    value = 0.0
    for l in range(table.first[1]):
        own = 0.0
        for i in range(table.start[l], table.start[l + 1]):
            trials, eta = _trials_and_offset(table, offset, 0, i)
            successes = np.float64(values[0, i, q])
            eta += state.effects[l]
            for place in range(F - 1):
                eta += state.effects[table.codes[place, i]]
            for j in range(q):
                eta += values[0, i, j] * state.beta[j]
            own += _log_likelihood(kind, eta, successes, trials)
        value += own
    for f in range(F):
        t, levels = state.log_scale[f], table.first[f + 1] - table.first[f]
        value -= levels * (t + _HALF_LOG_2PI) + 0.5 * state.spread[f] * math.exp(-2.0 * t)
    return value


@jit(
    *(f8(CROSSED_TYPE, own, matrix, i8, SCALES_TYPE, STATE_TYPE, GENERATOR_TYPE) for own in _VALUES)
)
def sweep(table, values, offset, kind, priors, state, rng):  # type: ignore[no-untyped-def]
    """Draw everything once; return the log density of responses and effects, but for the prior."""
    for f in range(table.first.shape[0] - 1):
        draw_factor(table, values, offset, kind, priors, f, state, rng)
    return log_density(table, values, offset, kind, state)
