"""The compiled pass over rows: sums of the expansion, remainders, histogram.

Rows are taken in tiles and multiplied by BLAS; each tile's sums enter compensated
totals, so that the error does not grow with the number of tiles. Nothing is
reassociated and nothing runs in parallel inside. One function for everything:
compiling a second one for the remainders alone doubled the time of a cold start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types

from streammc.numerics.jit import LINK_TYPE, f8, i8, index_vector, inline, jit, matrix, vector
from streammc.numerics.summation import two_sum

BINS_PER_OCTAVE = 4
LOWEST_OCTAVE = -60
HIGHEST_OCTAVE = 24
N_BINS = BINS_PER_OCTAVE * (HIGHEST_OCTAVE - LOWEST_OCTAVE) + 2
"""Bins of log2 score; the first takes what is smaller, the last what is larger or not finite."""

_cube: Any = types.Array(f8, 3, "C")


def tile_rows(n_features: int) -> int:
    """Return the rows of a tile: 512, fewer where that exceeds half a megabyte."""
    return max(64, min(512, 65536 // max(n_features, 1) // 8 * 8))


@inline
def score_bin(score: float) -> int:
    """Return the histogram bin of a score."""
    if not score < np.inf:
        return N_BINS - 1
    if score <= 0.0:
        return 0
    place = math.floor((math.log2(score) - LOWEST_OCTAVE) * BINS_PER_OCTAVE) + 1
    return int(min(max(place, 0), N_BINS - 1))


@inline
def _expand(
    link: Any,
    constants: Any,
    Z: Any,
    side: Any,
    theta: Any,
    columns: Any,
    n_linear: int,
    n_scalar: int,
    products: Any,
    eta: Any,
    out: Any,
) -> None:
    """Write ``products[a]`` = Z columns[a], the predictors at theta and the link there."""
    m, q = Z.shape
    for a in range(n_linear):
        np.dot(Z, columns[a], products[a])
        for i in range(m):
            eta[a, i] = products[a, i, 0]
    for i in range(m):
        if n_linear > 0:
            eta[0, i] += side[1, i]
    for c in range(n_scalar):
        for i in range(m):
            eta[n_linear + c, i] = theta[n_linear * q + c]
    link(eta, Z.T, side[0], constants, 2, out)
    for i in range(m):
        if side[2, i] == 0.0:  # counts 0 times: inf * 0 must not become NaN
            for j in range(out.shape[0]):
                out[j, i] = 0.0


@inline
def _remainder(
    link: Any,
    constants: Any,
    Z: Any,
    s: int,
    start: int,
    side: Any,
    shifts: Any,
    q: int,
    n_linear: int,
    n_scalar: int,
    order: int,
    products: Any,
    eta: Any,
    moved: Any,
    out: Any,
    out_moved: Any,
    step: Any,
    slope: Any,
    bend: Any,
    remainders: Any,
) -> None:
    """Write ``w (l - q)`` at theta + shift of draw ``s``; ``slope``, ``bend`` are its two terms."""
    m = side.shape[1]
    p = n_linear + n_scalar
    for a in range(n_linear):
        for i in range(m):
            step[a, i] = products[a, i, 1 + s]
            moved[a, i] = eta[a, i] + step[a, i]
    for c in range(n_scalar):
        for i in range(m):
            step[n_linear + c, i] = shifts[s, n_linear * q + c]
            moved[n_linear + c, i] = eta[n_linear + c, i] + step[n_linear + c, i]
    link(moved, Z.T, side[0], constants, 0, out_moved)
    for i in range(m):
        if side[2, i] == 0.0:
            out_moved[0, i] = 0.0
        slope[i] = 0.0
        bend[i] = 0.0
    for a in range(p):
        for i in range(m):
            slope[i] += out[1 + a, i] * step[a, i]
    pair = 1 + p
    for a in range(p):
        for b in range(a, p):
            factor = 0.5 if a == b else 1.0
            for i in range(m):
                bend[i] += factor * out[pair, i] * step[a, i] * step[b, i]
            pair += 1
    with_slope = 1.0 if order >= 1 else 0.0
    with_bend = 1.0 if order == 2 else 0.0
    for i in range(m):
        difference = out_moved[0, i] - out[0, i]
        remainders[start + i, s] = side[2, i] * (
            difference - with_slope * slope[i] - with_bend * bend[i]
        )


@inline
def _add_tile(
    Z: Any, side: Any, out: Any, n_linear: int, n_scalar: int, totals: Any, W: Any, G: Any, v: Any
) -> None:
    """Add the log-likelihood, gradient and Hessian (blocks a <= b) of a tile to ``totals``."""
    m, q = Z.shape
    p = n_linear + n_scalar
    d = n_linear * q + n_scalar
    for j in range(1 + d):
        v[j] = 0.0
    for i in range(m):
        v[0] += side[2, i] * out[0, i]
    for a in range(p):
        at = 1 + a * q if a < n_linear else 1 + n_linear * q + a - n_linear
        for i in range(m):
            c = side[2, i] * out[1 + a, i]
            if a < n_linear:
                for j in range(q):
                    v[at + j] += c * Z[i, j]
            else:
                v[at] += c
    for j in range(1 + d):
        totals[0, j], error = two_sum(totals[0, j], v[j])
        totals[1, j] += error
    pair = 1 + p
    for a in range(p):
        for b in range(a, p):
            row = a * q if a < n_linear else n_linear * q + a - n_linear
            column = b * q if b < n_linear else n_linear * q + b - n_linear
            height = q if a < n_linear else 1
            width = q if b < n_linear else 1
            if width == q and b < n_linear:
                for i in range(m):
                    c = side[2, i] * out[pair, i]
                    for j in range(q):
                        W[i, j] = c * Z[i, j]
                np.dot(Z.T, W, G)
            else:
                for j in range(q):
                    G[j, 0] = 0.0
                for i in range(m):
                    c = side[2, i] * out[pair, i]
                    if a < n_linear:
                        for j in range(q):
                            G[j, 0] += c * Z[i, j]
                    else:
                        G[0, 0] += c
            for i in range(height):
                at = 1 + d + (row + i) * d + column
                for j in range(width):
                    totals[0, at + j], error = two_sum(totals[0, at + j], G[i, j])
                    totals[1, at + j] += error
            pair += 1


@jit(*[types.void(types.Array(t, 2, "C", readonly=True), matrix) for t in (types.float32, f8)])
def widen(X: Any, dense: Any) -> None:
    """Write ``X`` (m, q) as float64; NumPy's cast is four times slower."""
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            dense[i, j] = X[i, j]


@jit(
    types.void(
        LINK_TYPE, vector, matrix, matrix, vector, _cube, matrix, i8, i8, i8, i8, i8,
        matrix, matrix, vector, index_vector, _cube, matrix, matrix, index_vector,
    )
)  # fmt: skip
def reduce_rows(
    link: Any,
    constants: Any,
    X: Any,
    side: Any,
    theta: Any,
    columns: Any,
    shifts: Any,
    n_linear: int,
    n_scalar: int,
    order: int,
    tile: int,
    with_sums: int,
    totals: Any,
    remainders: Any,
    scores: Any,
    counts: Any,
    moments: Any,
    maxima: Any,
    terms: Any,
    flags: Any,
) -> None:
    """Add rows to the sums at ``theta`` and score them at ``theta + shifts``.

    Parameters
    ----------
    constants
        (c,) of the model.
    X, side
        (m, q) design and (3, m) response, offset, weight.
    columns
        (n_linear, q, 1 + S): theta and the S shifts of each linear predictor.
    shifts
        (S, d).
    with_sums
        0 leaves ``totals`` alone.
    totals
        (2, 1 + d + d d) log-likelihood, gradient, Hessian: high parts, low parts.
    remainders, scores
        (m, S), and (m,) root mean square over the shifts; written.
    counts, moments, maxima
        Histogram by score: rows (bins,), sums of r, r^2, r^3, r^4 (bins, S, 4) and
        largest abs(r) (bins, S); added to.
    terms
        (4, S), added to: sum of the first-order terms; of the second-order terms c; of
        c^2; of (sum of c over a full tile)^2.
    flags
        (3,) added to: rows whose log-likelihood or derivatives at theta are not finite,
        full tiles; and the first such row of this call.
    """
    rows, q = X.shape
    p = n_linear + n_scalar
    n_shifts = shifts.shape[0]
    width = 1 + p + p * (p + 1) // 2
    G = np.empty((q, q))
    v = np.empty(1 + theta.shape[0])
    m = 0
    flags[2] = -1
    for start in range(0, rows, tile):
        if min(tile, rows - start) != m:
            m = min(tile, rows - start)
            W = np.empty((m, q))
            near = np.empty((3, m))
            products = np.empty((n_linear, m, 1 + n_shifts))
            eta = np.empty((p, m))
            moved = np.empty((p, m))
            step = np.empty((p, m))
            out = np.empty((width, m))
            out_moved = np.empty((width, m))
            slope = np.empty(m)
            bend = np.empty(m)
        Z = X[start : start + m]
        for i in range(m):
            for j in range(3):
                near[j, i] = side[j, start + i]
        _expand(link, constants, Z, near, theta, columns, n_linear, n_scalar, products, eta, out)
        if with_sums:
            for i in range(m):
                total = 0.0
                for j in range(width):
                    total += out[j, i]
                if not math.isfinite(total):
                    if flags[2] < 0:
                        flags[2] = start + i
                    flags[0] += 1
            _add_tile(Z, near, out, n_linear, n_scalar, totals, W, G, v)
        if m == tile:
            flags[1] += 1
        for s in range(n_shifts):
            _remainder(
                link, constants, Z, s, start, near, shifts, q, n_linear, n_scalar, order, products,
                eta, moved, out, out_moved, step, slope, bend, remainders, )  # fmt: skip
            first = 0.0
            second = 0.0
            square = 0.0
            for i in range(m):
                c = near[2, i] * bend[i]
                first += near[2, i] * slope[i]
                second += c
                square += c * c
            terms[0, s] += first
            terms[1, s] += second
            terms[2, s] += square
            if m == tile:
                terms[3, s] += second * second
        for i in range(m):
            if n_shifts == 0:
                break
            square = 0.0
            for s in range(n_shifts):
                square += remainders[start + i, s] * remainders[start + i, s]
            score = math.sqrt(square / n_shifts)
            if not score < np.inf:
                score = np.inf
            scores[start + i] = score
            place = score_bin(score)
            counts[place] += 1
            for s in range(n_shifts):
                r1 = remainders[start + i, s]
                r2 = r1 * r1
                moments[place, s, 0] += r1
                moments[place, s, 1] += r2
                moments[place, s, 2] += r2 * r1
                moments[place, s, 3] += r2 * r2
                if not abs(r1) <= maxima[place, s]:
                    maxima[place, s] = abs(r1)
