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
from streammc.numerics.jit import LINK_TYPE, f8, i8, index_vector, inline, jit, matrix, vector
from streammc.numerics.summation import two_sum

SUM_ROWS = 512
"""Largest number of rows that are summed without compensation."""

_power_sums: Any = types.Array(f8, 4, "C")
_design: Any = [types.Array(t, 2, "C", readonly=True) for t in (types.float32, f8)]


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
def _add_tile(
    Z: Any, w: Any, out: Any, n_linear: int, p: int, q: int, V: Any, G: Any, W: Any, c: Any, g: Any
) -> None:
    """Add the log-likelihood, gradient and Hessian (blocks a <= b) of a tile to V and G."""
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


@jit(
    types.void(
        LINK_TYPE, vector, *_design, vector, vector, vector, vector, matrix, matrix,
        i8, i8, i8, i8, i8, i8, matrix, matrix, vector, index_vector, _power_sums, matrix,
        index_vector,
    )
)  # fmt: skip
def reduce_rows(
    link: Any,
    constants: Any,
    X_single: Any,
    X_double: Any,
    y: Any,
    offset: Any,
    weight: Any,
    theta: Any,
    columns: Any,
    shifts: Any,
    n_linear: int,
    n_scalar: int,
    n_features: int,
    order: int,
    tile: int,
    with_sums: int,
    totals: Any,
    remainders: Any,
    squares: Any,
    counts: Any,
    power_sums: Any,
    terms: Any,
    flags: Any,
) -> None:
    """Add rows to the sums at ``theta`` and score them at ``theta + shifts``.

    Parameters
    ----------
    constants
        (c,) constants of the model's link.
    X_single, X_double
        (m, q) design as float32 or float64; the other array has no rows.
    y, offset, weight
        (m,).
    columns
        (n_linear R, q rounded up to fours): theta and the S shifts of each linear
        predictor, in R >= 1 + S rows.
    shifts
        (S, d).
    with_sums
        0: nothing is added to ``totals``.
    totals
        (2, 1 + d + d d) log-likelihood, gradient, Hessian (its upper half): high parts,
        low parts.
    remainders, squares
        Outputs: (S, m) remainders, or (S, 0) for none; (m,) mean squares over the shifts.
    counts, power_sums
        Histogram by score, see ``add_to_histogram``; added to.
    terms
        (4, S), added to: sum of the first-order terms; of the second-order terms c; of
        c^2; of (sum of c over a full tile)^2.
    flags
        (3,) counts, added to, of the rows whose log-likelihood or derivatives at theta are
        not finite, and of full tiles; then the first such row of this call, or -1.
    """
    rows = y.shape[0]
    q = n_features
    p = n_linear + n_scalar
    d = n_linear * q + n_scalar
    n_shifts = shifts.shape[0]
    width = 1 + p + p * (p + 1) // 2
    stride = columns.shape[0] // max(n_linear, 1)
    q4 = (q + 3) // 4 * 4
    Z = np.zeros((q4, tile + PAD))
    W = np.empty((q4, tile + PAD))
    G = np.zeros((p * (p + 1) // 2, q4, q4))
    V = np.zeros(1 + d)
    g = np.empty(q4)
    products = np.empty((columns.shape[0], tile + PAD))
    moved_by = np.zeros((power_sums.shape[1] * 4, tile + PAD))
    bits = squares.view(np.int64)
    m = 0
    pending = 0
    flags[2] = -1
    for start in range(0, rows, tile):
        if min(tile, rows - start) != m:
            m = min(tile, rows - start)
            bins = np.empty(m, np.int64)
            c = np.empty(m)
            eta = np.empty((p, m))
            moved = np.empty((p, m))
            step = np.empty((p, m))
            out = np.empty((width, m))
            out_moved = np.empty((width, m))
            slope = np.empty(m)
            bend = np.empty(m)
        if X_single.shape[0] > 0:
            transpose(X_single, start, m, Z)
        else:
            transpose(X_double, start, m, Z)
        design = Z[:q, :m]
        response = y[start : start + m]
        w = weight[start : start + m]
        predict(columns, Z, m, products)
        for a in range(n_linear):
            for i in range(m):
                eta[a, i] = products[a * stride, i]
        if n_linear > 0:
            for i in range(m):
                eta[0, i] += offset[start + i]
        for a in range(n_linear, p):
            for i in range(m):
                eta[a, i] = theta[n_linear * q + a - n_linear]
        link(eta, design, response, constants, 2, out)
        uncounted = 0
        for i in range(m):
            uncounted += w[i] == 0.0
        if uncounted:  # rows of weight 0: inf * 0 must not become NaN
            for j in range(width):
                for i in range(m):
                    if w[i] == 0.0:
                        out[j, i] = 0.0
        if with_sums:
            probe = 0.0
            for j in range(width):
                for i in range(m):
                    probe += out[j, i] * 0.0
            if probe != 0.0:
                _first_not_finite(out, flags, start)
            _add_tile(Z, w, out, n_linear, p, q, V, G, W, c, g)
            pending += m
            if pending + tile > SUM_ROWS:
                _flush(V, G, totals, d, q, n_linear, p)
                pending = 0
        if m == tile:
            flags[1] += 1
        if n_shifts == 0:
            continue
        for s in range(n_shifts):
            for a in range(n_linear):
                for i in range(m):
                    step[a, i] = products[a * stride + 1 + s, i]
                    moved[a, i] = eta[a, i] + step[a, i]
            for a in range(n_linear, p):
                for i in range(m):
                    step[a, i] = shifts[s, n_linear * q + a - n_linear]
                    moved[a, i] = eta[a, i] + step[a, i]
            link(moved, design, response, constants, 0, out_moved)
            if uncounted:
                for i in range(m):
                    if w[i] == 0.0:
                        out_moved[0, i] = 0.0
            first, second, square = remainder(
                out, out_moved, step, w, order, slope, bend, moved_by, s
            )
            terms[0, s] += first
            terms[1, s] += second
            terms[2, s] += square
            if m == tile:
                terms[3, s] += second * second
            if remainders.shape[1] > 0:
                for i in range(m):
                    remainders[s, start + i] = moved_by[s, i]
        score_rows(moved_by, n_shifts, m, start, squares)
        find_bins(bits, start, bins)
        add_to_histogram(moved_by, bins, counts, power_sums)
    if pending:
        _flush(V, G, totals, d, q, n_linear, p)
