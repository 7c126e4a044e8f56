"""Remainders ``l_i - q_i`` of expanded rows, their gradients, and the unit totals.

The difference estimator (Dang et al. 2019, eq. 8 and 14, with the unit as the
observation) is built from these in ``estimators.target``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.estimators.blocks import BLOCK_TYPE
from streammc.numerics.jit import LINK_TYPE, f8, i8, jit, matrix, vector
from streammc.protocols import Vector

TILE = 512
"""Rows evaluated at once: their predictors and derivatives stay in the first-level cache."""


class Scratch(NamedTuple):
    """Flat buffers for one tile; views of the exact width are cut from them."""

    eta: Vector
    """(p TILE,) predictors."""
    step: Vector
    """(p TILE,) predictors minus those at the expansion point."""
    out: Vector
    """((1 + p) TILE,) value and derivatives from the link."""


SCRATCH_TYPE: Any = types.NamedUniTuple(vector, 3, Scratch)


def allocate_scratch(p: int) -> Scratch:
    """Return buffers for ``p`` predictors."""
    size = 1 + p + p * (p + 1) // 2
    return Scratch(np.zeros(p * TILE), np.zeros(p * TILE), np.zeros(size * TILE))


@jit(
    types.void(LINK_TYPE, BLOCK_TYPE, vector, i8, i8, i8, SCRATCH_TYPE, vector, matrix),
    reassociate=True,
)
def remainders(link, block, delta, n_linear, lo, hi, scratch, value, slope):  # type: ignore[no-untyped-def]
    """Write ``r_i`` and ``dr_i / d eta_ai`` of rows ``lo`` to ``hi`` (at most ``TILE``).

    ``r_i = w_i l(eta_i) - [l* + g*.s + s'H*s / 2]``, ``s = eta_i - eta*_i``, where the
    expansion already carries the weight. ``delta`` (d,) is theta - theta_star.
    """
    q = block.design.shape[0]
    p = block.eta_star.shape[0]
    w = hi - lo
    eta = scratch.eta[: p * w].reshape((p, w))
    step = scratch.step[: p * w].reshape((p, w))
    size = block.expansion.shape[0]
    out = scratch.out[: size * w].reshape((size, w))
    for a in range(p):
        s = step[a]
        if a < n_linear:
            s[:] = 0.0
            base = a * q
            j = 0
            while j + 4 <= q:  # four columns a sweep: a quarter of the loads of s
                x0, x1 = block.design[j, lo:hi], block.design[j + 1, lo:hi]
                x2, x3 = block.design[j + 2, lo:hi], block.design[j + 3, lo:hi]
                d0, d1 = delta[base + j], delta[base + j + 1]
                d2, d3 = delta[base + j + 2], delta[base + j + 3]
                for i in range(w):
                    s[i] += d0 * x0[i] + d1 * x1[i] + d2 * x2[i] + d3 * x3[i]
                j += 4
            while j < q:
                x0, d0 = block.design[j, lo:hi], delta[base + j]
                for i in range(w):
                    s[i] += d0 * x0[i]
                j += 1
        else:
            s[:] = delta[n_linear * q + a - n_linear]
        star = block.eta_star[a, lo:hi]
        e = eta[a]
        for i in range(w):
            e[i] = star[i] + s[i]
    link(eta, block.y[lo:hi], 1, out)
    weight = block.weight[lo:hi]
    v = value[lo:hi]
    l_star, g_star = block.expansion[0, lo:hi], block.expansion[1, lo:hi]
    if p == 1:  # one sweep instead of four: 0.6 us of 1.8 at 100 rows
        h_star, s, d_value = block.expansion[2, lo:hi], step[0], slope[0, lo:hi]
        for i in range(w):
            l, g = weight[i] * out[0, i], weight[i] * out[1, i]
            l, g = (l, g) if weight[i] != 0.0 else (0.0, 0.0)
            v[i] = l - l_star[i] - s[i] * (g_star[i] + 0.5 * h_star[i] * s[i])
            d_value[i] = g - g_star[i] - h_star[i] * s[i]
        return
    for i in range(w):
        v[i] = (weight[i] * out[0, i] if weight[i] != 0.0 else 0.0) - l_star[i]
    h = 1 + p
    for a in range(p):
        g_star = block.expansion[1 + a, lo:hi]
        d_out = out[1 + a]
        d_value = slope[a, lo:hi]
        sa = step[a]
        for i in range(w):
            g = d_out[i]
            d_value[i] = (weight[i] * g if weight[i] != 0.0 else 0.0) - g_star[i]
            v[i] -= g_star[i] * sa[i]
    for a in range(p):
        for b in range(a, p):
            h_star = block.expansion[h, lo:hi]
            sa, sb = step[a], step[b]
            da, db = slope[a, lo:hi], slope[b, lo:hi]
            if a == b:
                for i in range(w):
                    v[i] -= 0.5 * h_star[i] * sa[i] * sa[i]
                    da[i] -= h_star[i] * sa[i]
            else:
                for i in range(w):
                    v[i] -= h_star[i] * sa[i] * sb[i]
                    da[i] -= h_star[i] * sb[i]
                    db[i] -= h_star[i] * sa[i]
            h += 1


@jit(types.void(BLOCK_TYPE, matrix, i8, i8, i8, vector), reassociate=True, absorb=True)
def pull_back(block, slope, n_linear, lo, hi, gradient):  # type: ignore[no-untyped-def]
    """Add ``sum_i sum_a slope[a, i] d eta_ai / d theta`` over rows ``lo`` to ``hi``."""
    q = block.design.shape[0]
    p = block.eta_star.shape[0]
    w = hi - lo
    for a in range(p):
        c = slope[a, lo:hi]
        if a < n_linear:
            base = a * q
            j = 0
            while j + 4 <= q:
                x0, x1 = block.design[j, lo:hi], block.design[j + 1, lo:hi]
                x2, x3 = block.design[j + 2, lo:hi], block.design[j + 3, lo:hi]
                s0 = s1 = s2 = s3 = 0.0
                for i in range(w):
                    s0 += c[i] * x0[i]
                    s1 += c[i] * x1[i]
                    s2 += c[i] * x2[i]
                    s3 += c[i] * x3[i]
                gradient[base + j] += s0
                gradient[base + j + 1] += s1
                gradient[base + j + 2] += s2
                gradient[base + j + 3] += s3
                j += 4
            while j < q:
                x0 = block.design[j, lo:hi]
                s0 = 0.0
                for i in range(w):
                    s0 += c[i] * x0[i]
                gradient[base + j] += s0
                j += 1
        else:
            total = 0.0
            for i in range(w):
                total += c[i]
            gradient[n_linear * q + a - n_linear] += total


@jit(types.void(vector, i8, i8, i8, i8, vector), absorb=True)
def unit_totals(value, unit_rows, row_start, unit_start, n_units, totals):  # type: ignore[no-untyped-def]
    """Write ``D_j``: the sums of ``unit_rows`` consecutive remainders."""
    for u in range(n_units):
        total = 0.0
        for i in range(row_start + u * unit_rows, row_start + (u + 1) * unit_rows):
            total += value[i]
        totals[unit_start + u] = total


@jit(types.UniTuple(f8, 2)(vector), reassociate=True, absorb=True)
def mean_and_scatter(totals):  # type: ignore[no-untyped-def]
    """Return the mean of the unit totals and ``sum_j (D_j - mean D)^2``, two-pass."""
    k = totals.shape[0]
    mean = 0.0
    for j in range(k):
        mean += totals[j]
    mean /= k
    scatter = 0.0
    for j in range(k):
        scatter += (totals[j] - mean) * (totals[j] - mean)
    return mean, scatter
