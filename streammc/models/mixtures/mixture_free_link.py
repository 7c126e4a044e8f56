"""The compiled link of a mixture in one column with free means, scales and weights.

Predictors of a row are the K means, or of two ordered ones the centre and the log of their
distance; then the logs of the K scales, where they are sampled; then the K - 1 log odds of
``numerics.simplex``. Derivatives are taken in means, and turned into those of centre and
distance at the end. Loops run along the rows of a tile, and LLVM vectorises them.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log, log1p_unit, select, within

_TILE: Final = 64
"""Rows whose responsibilities stay in the first-level cache."""
_MOST: Final = 80.0
"""Logs of scales and distances beyond it are moved to it: no power of them overflows."""
_HALF_LOG_2PI: Final = 0.9189385332046728


class Form(NamedTuple):
    """Which parameters a mixture has."""

    K: Any
    free: Any
    """Whether scales are sampled; else ``known`` is the log of the known one."""
    ordered: Any
    known: Any
    first: Any
    """Place of the first log odds among the predictors."""


Z, INVERSE, R, V, REST = range(5)
"""Rows of the scratch (5, K, _TILE) of a tile: ``(x - mu_k) / s_k``, ``1 / s_k``, the chances of
the components, those of the odds, and sums of chances."""
HALF, TOP, TOTAL = range(3)
"""Rows of its lines (3, _TILE): half the distance of the means; largest log term; sum."""


@inline
def _components(eta, X, lo, w, form, scratch, lines):  # type: ignore[no-untyped-def]
    """Write ``(x - mu_k) / s_k`` and ``1 / s_k`` (K, w), and half the distance (w,)."""
    if lo < 0:  # never: tells the compiler that no index counts from the end
        return
    K, free, ordered, known, _ = form
    z, inverse, half = scratch[Z], scratch[INVERSE], lines[HALF]
    for i in range(w):
        half[i] = 0.5 * exp(within(eta[1, lo + i], _MOST)) if ordered else 0.0
    for k in range(K):
        for i in range(w):
            log_scale = within(eta[K + k, lo + i], _MOST) if free else known
            mean = eta[k, lo + i]
            if ordered:
                # NaN in the distance stays one, through half.
                mean = eta[0, lo + i] + (half[i] if k == 1 else -half[i])
            inverse[k, i] = exp(-log_scale)
            z[k, i] = (X[0, lo + i] - mean) * inverse[k, i]


@inline
def _values(eta, lo, w, form, scratch, lines, out):  # type: ignore[no-untyped-def]
    """Write ``out[0]``, the odds' probabilities ``v`` (K - 1, w) and responsibilities ``r``."""
    if lo < 0:
        return
    K, free, _, known, first = form
    z, r, v = scratch[Z], scratch[R], scratch[V]
    top, total = lines[TOP], lines[TOTAL]
    for i in range(w):
        top[i] = -math.inf
        total[i] = 0.0  # log of what is left of the stick
    for k in range(K):
        for i in range(w):
            log_weight = total[i]
            if k < K - 1:
                u = eta[first + k, lo + i]
                e = exp(-abs(u))
                soft = log1p_unit(e)
                h = 1.0 / (1.0 + e)
                v[k, i] = select(u < 0.0, e * h, h)
                log_weight += select(u < 0.0, u, 0.0) - soft
                total[i] += select(u < 0.0, 0.0, -u) - soft
            log_scale = within(eta[K + k, lo + i], _MOST) if free else known
            r[k, i] = log_weight - log_scale - 0.5 * z[k, i] * z[k, i]
            # A NaN must win, and stay.
            top[i] = top[i] if r[k, i] <= top[i] else r[k, i]
    for i in range(w):
        total[i] = 0.0
    for k in range(K):
        for i in range(w):
            r[k, i] = exp(r[k, i] - top[i])
            total[i] += r[k, i]
    for i in range(w):
        out[0, lo + i] = top[i] + log(total[i]) - _HALF_LOG_2PI
    for k in range(K):
        for i in range(w):
            r[k, i] /= total[i]


@inline
def _slopes(lo, w, form, scratch, out):  # type: ignore[no-untyped-def]
    """Write the gradient in means, log scales and log odds; ``rest`` is ``sum_(k>=j) r_k``."""
    if lo < 0:
        return
    K, free, _, _, first = form
    z, inverse, r = scratch[Z], scratch[INVERSE], scratch[R]
    v, rest = scratch[V], scratch[REST]
    for i in range(w):
        rest[K - 1, i] = r[K - 1, i]
    for j in range(K - 2, -1, -1):
        for i in range(w):
            rest[j, i] = rest[j + 1, i] + r[j, i]
            # r_j (1 - v_j) - v_j sum_(k>j) r_k
            out[1 + first + j, lo + i] = r[j, i] - v[j, i] * rest[j, i]
    for k in range(K):
        for i in range(w):
            out[1 + k, lo + i] = r[k, i] * (z[k, i] * inverse[k, i])
        if free:
            for i in range(w):
                out[1 + K + k, lo + i] = r[k, i] * (z[k, i] * z[k, i] - 1.0)


@inline
def _own(s, t, K, lo, w, scratch, row):  # type: ignore[no-untyped-def]
    """Write the second derivatives in parameters ``s <= t`` of one component, ``k``.

    ``r ((1 - r) g_s g_t + h_st)``, g and h the derivatives of its log density.
    """
    if lo < 0:
        return
    k = s % K
    z, inverse, r = scratch[Z], scratch[INVERSE], scratch[R]
    if t < K:
        for i in range(w):
            g = z[k, i] * inverse[k, i]
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * g) - inverse[k, i] * inverse[k, i])
    elif s < K:
        for i in range(w):
            g = z[k, i] * inverse[k, i]
            other = z[k, i] * z[k, i] - 1.0
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * other) - 2.0 * g)
    else:
        for i in range(w):
            square = z[k, i] * z[k, i]
            g = square - 1.0
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * g) - 2.0 * square)


@inline
def _curvatures(lo, w, p, form, scratch, out):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian in means, log scales and log odds."""
    if lo < 0:
        return
    K, _, _, _, first = form
    r, v, rest = scratch[R], scratch[V], scratch[REST]
    pair = 1 + p
    for s in range(p):
        for t in range(s, p):
            if s >= first:  # two log odds
                j, other = s - first, t - first
                if j == other:
                    for i in range(w):
                        # sum_k r_k D_kj^2 - (sum_k r_k D_kj)^2 - v (1 - v) sum_(k>=j) r_k
                        split = r[j, i] * rest[j + 1, i] + (1.0 - rest[j, i]) * (
                            r[j, i] * (1.0 - v[j, i]) ** 2 + rest[j + 1, i] * v[j, i] ** 2
                        )
                        # with D in {0, 1 - v, -v}: the variance of three points
                        split -= v[j, i] * (1.0 - v[j, i]) * rest[j, i]
                        out[pair, lo + i] = split
                else:
                    for i in range(w):
                        slope = out[1 + t, lo + i]
                        out[pair, lo + i] = -slope * (v[j, i] + out[1 + s, lo + i])
            elif t >= first:  # a component and log odds
                k, j = s % K, t - first
                here = 1.0 if k == j else 0.0
                beyond = 1.0 if k >= j else 0.0
                for i in range(w):
                    at = here - beyond * v[j, i]  # 1 - v, -v, or 0 before it
                    out[pair, lo + i] = out[1 + s, lo + i] * (at - out[1 + t, lo + i])
            elif s % K == t % K:  # the same component
                _own(s, t, K, lo, w, scratch, out[pair])
            else:
                for i in range(w):
                    out[pair, lo + i] = -out[1 + s, lo + i] * out[1 + t, lo + i]
            pair += 1


@inline
def _order_slopes(lo, w, half, out):  # type: ignore[no-untyped-def]
    """Turn derivatives in two means into those of their centre and log distance."""
    if lo < 0:
        return
    for i in range(w):
        first, second = out[1, lo + i], out[2, lo + i]
        out[1, lo + i] = first + second
        out[2, lo + i] = half[i] * (second - first)


@inline
def _order_curvatures(lo, w, p, half, out):  # type: ignore[no-untyped-def]
    """Turn the rows of two means in the triangle; before :func:`_order_slopes`."""
    if lo < 0:
        return
    one, two = 1 + p, 1 + 2 * p  # places of the diagonal entries of the first two rows
    for i in range(w):
        h = half[i]
        a, b, c = out[one, lo + i], out[one + 1, lo + i], out[two, lo + i]
        pull = out[2, lo + i] - out[1, lo + i]
        out[one, lo + i] = a + 2.0 * b + c
        out[one + 1, lo + i] = h * (c - a)
        out[two, lo + i] = h * (h * (a - 2.0 * b + c) + pull)
    for t in range(2, p):
        for i in range(w):
            a, b = out[one + t, lo + i], out[two + t - 1, lo + i]
            out[one + t, lo + i] = a + b
            out[two + t - 1, lo + i] = half[i] * (b - a)


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``log sum_k w_k N(x; mu_k, s_k)`` and its derivatives; see ``protocols.Model``.

    ``constants`` holds K, whether the means are ordered, whether the scales are sampled,
    and the log of the known one.
    """
    K, m, p = int(constants[0]), y.shape[0], eta.shape[0]
    ordered, free, known = constants[1] == 1.0, constants[2] == 1.0, constants[3]
    form = Form(K, free, ordered, known, 2 * K if free else K)
    scratch, lines = np.empty((5, K, _TILE)), np.empty((3, _TILE))
    for lo in range(0, m, _TILE):
        w = min(_TILE, m - lo)
        _components(eta, X, lo, w, form, scratch, lines)
        _values(eta, lo, w, form, scratch, lines, out)
        if order >= 1:
            _slopes(lo, w, form, scratch, out)
        if order == 2:
            _curvatures(lo, w, p, form, scratch, out)
            if ordered:
                _order_curvatures(lo, w, p, lines[HALF], out)
        if order >= 1 and ordered:
            _order_slopes(lo, w, lines[HALF], out)
