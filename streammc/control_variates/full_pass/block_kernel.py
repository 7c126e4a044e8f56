"""The compiled pass over rows: sums of the expansion, remainders, histogram.

Rows are processed in tiles. Plain sums over at most 512 rows are added to compensated
totals, so that the error does not grow with the number of tiles; these additions are
neither reassociated nor run in parallel. One kernel computes everything: a second one for
the remainders alone doubled the time of a cold start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types

from streammc.control_variates.full_pass.level_kernel import add_levels, sum_levels
from streammc.control_variates.full_pass.pass_records import (
    PassPoints,
    PassRows,
    PassSums,
    Plain,
    Shifted,
)
from streammc.control_variates.full_pass.score_kernel import add_to_histogram, find_bins, score_rows
from streammc.control_variates.full_pass.tile_kernels import (
    PAD,
    add_gradient,
    add_hessian,
    predict,
    remainder,
    transpose,
    weigh,
)
from streammc.numerics.jit import LINK_TYPE, inline, jit, vector
from streammc.numerics.records import record_type
from streammc.numerics.summation import two_sum

SUM_ROWS = 512
"""Largest number of rows that are summed without compensation."""


def tile_rows(n_features: int) -> int:
    """Return the number of rows of a tile: 512, fewer if those exceed half a megabyte.

    It is a power of two, so that tiles begin at the same rows for any chunk size.
    """
    tile = SUM_ROWS
    while tile > 64 and tile * n_features > 65536:
        tile //= 2
    return tile


@inline
def _flush(V: Any, G: Any, totals: Any, d: int, q: int, n_linear: int, p: int) -> None:
    """Add the plain sums V and G to the compensated ``totals``, and set them to zero."""
    for j in range(1 + d):
        totals[0, j], error = two_sum(totals[0, j], V[j])
        totals[1, j] += error
        V[j] = 0.0
    pair = 0
    for a in range(p):
        for b in range(a, p):
            row = a * q if a < n_linear else n_linear * q + a - n_linear
            column = b * q if b < n_linear else n_linear * q + b - n_linear
            height = q if a < n_linear else 1
            width = q if b < n_linear else 1
            for i in range(height):
                at = 1 + d + (row + i) * d + column
                for j in range(i if a == b else 0, width):
                    # A symmetric block stores its upper half; a column block is stored as a row.
                    value = G[pair, min(i, j), max(i, j)]
                    totals[0, at + j], error = two_sum(totals[0, at + j], value)
                    totals[1, at + j] += error
            pair += 1
    G[:] = 0.0


@inline
def _add_tile(Z: Any, w: Any, out: Any, points: Any, plain: Any, c: Any) -> None:
    """Add the log-likelihood, gradient and Hessian (blocks a <= b) of a tile to plain sums."""
    V, G, W, g = plain
    n_linear, q = points.n_linear, points.n_features
    p = n_linear + points.n_scalar
    m = w.shape[0]
    V[0] += weigh(w, out[0], c)
    for a in range(p):
        total = weigh(w, out[1 + a], c)
        if a < n_linear:
            g[:] = 0.0
            add_gradient(Z, c, m, g)
            for j in range(q):
                V[1 + a * q + j] += g[j]
        else:
            V[1 + n_linear * q + a - n_linear] += total
    pair = 0
    for a in range(p):
        for b in range(a, p):
            total = weigh(w, out[1 + p + pair], c)
            if b < n_linear:
                add_hessian(Z, c, m, W, G[pair])
            elif a < n_linear:
                add_gradient(Z, c, m, G[pair, 0])
            else:
                G[pair, 0, 0] += total
            pair += 1


@inline
def _first_not_finite(out: Any, flags: Any, start: int) -> None:
    """Count the rows whose log-likelihood or derivatives are not finite; note the first."""
    for i in range(out.shape[1]):
        total = 0.0
        for j in range(out.shape[0]):
            total += out[j, i]
        if not math.isfinite(total):
            if flags[2] < 0:
                flags[2] = start + i
            flags[0] += 1


@inline
def _predictors(products: Any, points: Any, offset: Any, start: int, eta: Any) -> None:
    """Write the predictors (p, m) of a tile at theta."""
    n_linear, q = points.n_linear, points.n_features
    p, m = eta.shape
    stride = points.columns.shape[0] // max(n_linear, 1)
    for a in range(n_linear):
        for i in range(m):
            eta[a, i] = products[a * stride, i]
    if n_linear > 0:
        for i in range(m):
            eta[0, i] += offset[start + i]
    for a in range(n_linear, p):
        for i in range(m):
            eta[a, i] = points.theta[n_linear * q + a - n_linear]


@inline
def _clear_uncounted(w: Any, out: Any, width: int) -> int:
    """Set ``width`` rows of ``out`` to 0 where the weight is: inf * 0 must not become NaN."""
    m = w.shape[0]
    uncounted = 0
    for i in range(m):
        uncounted += w[i] == 0.0
    if uncounted:
        for j in range(width):
            for i in range(m):
                if w[i] == 0.0:
                    out[j, i] = 0.0
    return uncounted


@inline
def _all_finite(out: Any) -> bool:
    """Return whether every value is finite."""
    probe = 0.0
    for j in range(out.shape[0]):
        for i in range(out.shape[1]):
            probe += out[j, i] * 0.0
    return probe == 0.0


@inline
def _move(products: Any, points: Any, s: int, at: Any) -> None:
    """Write the predictors of a tile at shift ``s``, and their changes from theta."""
    n_linear, q = points.n_linear, points.n_features
    p, m = at.eta.shape
    stride = points.columns.shape[0] // max(n_linear, 1)
    for a in range(n_linear):
        for i in range(m):
            at.step[a, i] = products[a * stride + 1 + s, i]
            at.moved[a, i] = at.eta[a, i] + at.step[a, i]
    for a in range(n_linear, p):
        for i in range(m):
            at.step[a, i] = points.shifts[s, n_linear * q + a - n_linear]
            at.moved[a, i] = at.eta[a, i] + at.step[a, i]


@inline
def _add_terms(first: float, second: float, square: float, s: int, full: bool, terms: Any) -> None:
    """Add the terms of a tile at shift ``s``."""
    terms[0, s] += first
    terms[1, s] += second
    terms[2, s] += square
    if full:
        terms[3, s] += second * second


@jit(
    types.void(
        LINK_TYPE, vector, record_type(PassRows), record_type(PassPoints), record_type(PassSums)
    )
)
def reduce_rows(link: Any, constants: Any, parts: Any, points: Any, sums: Any) -> None:
    """Add rows to the sums at ``points.theta`` and score them at ``theta + shifts``.

    ``constants`` (c,) are those of the model's link; see the records for the rest.
    """
    rows, q, tile = parts.y.shape[0], points.n_features, points.tile
    p = points.n_linear + points.n_scalar
    d = points.n_linear * q + points.n_scalar
    n_shifts = points.shifts.shape[0]
    width = 1 + p + p * (p + 1) // 2
    q4 = (q + 3) // 4 * 4
    Z = np.zeros((q4, tile + PAD))
    W, g = np.empty((q4, tile + PAD)), np.empty(q4)
    plain = Plain(np.zeros(1 + d), np.zeros((p * (p + 1) // 2, q4, q4)), W, g)
    products = np.empty((points.columns.shape[0], tile + PAD))
    moved_by = np.zeros((sums.power_sums.shape[1] * 4, tile + PAD))
    bits = sums.squares.view(np.int64)
    flags = sums.flags
    coded = parts.codes.shape[0] > 0
    m = pending = 0
    flags[2] = -1
    for start in range(0, rows, tile):
        if min(tile, rows - start) != m:
            m = min(tile, rows - start)
            bins, c, out = np.empty(m, np.int64), np.empty(m), np.empty((width, m))
            eta, step, moved = np.empty((p, m)), np.empty((p, m)), np.empty((p, m))
            at = Shifted(eta, step, moved, np.empty((width, m)), np.empty(m), np.empty(m))
        if parts.single.shape[0] > 0:
            transpose(parts.single, start, m, Z)
        else:
            transpose(parts.double, start, m, Z)
        design = Z[:q, :m]
        response = parts.y[start : start + m]
        w = parts.weight[start : start + m]
        predict(points.columns, Z, m, products)
        if coded:
            add_levels(parts.codes, start, m, points.level_first, points.level_products, products)
        _predictors(products, points, parts.offset, start, eta)
        link(eta, design, response, constants, 2, out)
        uncounted = _clear_uncounted(w, out, width)
        if points.with_sums:
            if not _all_finite(out):
                _first_not_finite(out, flags, start)
            _add_tile(Z, w, out, points, plain, c)
            if coded:
                first, cross = points.level_first, points.level_cross
                codes = parts.codes
                sum_levels(Z, p, w, out, codes, start, first, cross, sums.levels, sums.crosses)
            pending += m
            if pending + tile > SUM_ROWS:
                _flush(plain.V, plain.G, sums.totals, d, q, points.n_linear, p)
                pending = 0
        full = m == tile
        flags[1] += full
        if n_shifts == 0:
            continue
        for s in range(n_shifts):
            _move(products, points, s, at)
            link(moved, design, response, constants, 0, at.out)
            if uncounted:
                _clear_uncounted(w, at.out, 1)
            slopes, second, square = remainder(
                out, at.out, step, w, points.order, at.slope, at.bend, moved_by, s
            )
            _add_terms(slopes, second, square, s, full, sums.terms)
            if sums.remainders.shape[1] > 0:
                for i in range(m):
                    sums.remainders[s, start + i] = moved_by[s, i]
        score_rows(moved_by, n_shifts, m, start, sums.squares)
        find_bins(bits, start, bins)
        add_to_histogram(moved_by, bins, sums.counts, sums.power_sums)
    if pending:
        _flush(plain.V, plain.G, sums.totals, d, q, points.n_linear, p)
