"""The compiled pass over one block: sums of the expansion, remainders, histogram.

Rows are taken in tiles, converted to float64 and multiplied by BLAS; each tile's
sums enter compensated totals (two-sum), so that the error does not grow with the
number of tiles. Nothing is reassociated and nothing runs in parallel inside.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types

from streammc.numerics.jit import LINK_TYPE, f8, i8, index_vector, inline, jit, matrix, vector

BINS_PER_OCTAVE = 4
LOWEST_OCTAVE = -60
HIGHEST_OCTAVE = 24
N_BINS = BINS_PER_OCTAVE * (HIGHEST_OCTAVE - LOWEST_OCTAVE) + 2
"""Bins of log2 score; the first takes what is smaller, the last what is larger or not finite."""

_cube: Any = types.Array(f8, 3, "C")
_frozen: Any = types.Array(f8, 1, "C", readonly=True)
_single: Any = types.Array(types.float32, 2, "C", readonly=True)
_double: Any = types.Array(f8, 2, "C", readonly=True)


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
def _two_sum_into(high: Any, low: Any, values: Any) -> None:
    """Add ``values`` to ``high``, and the rounding error of each addition to ``low``."""
    for i in range(values.shape[0]):
        before = high[i]
        total = before + values[i]
        virtual = total - before
        low[i] += (before - (total - virtual)) + (values[i] - virtual)
        high[i] = total


@inline
def _fill(X: Any, y: Any, offset: Any, weight: Any, start: int, Z: Any, side: Any) -> None:
    """Copy one tile: ``Z`` (m, q) float64, ``side`` (3, m) response, offset, weight."""
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            Z[i, j] = X[start + i, j]
        side[0, i] = y[start + i]
        side[1, i] = offset[start + i]
        side[2, i] = weight[start + i]


@inline
def _expand(
    link: Any,
    Z: Any,
    side: Any,
    theta: Any,
    columns: Any,
    n_linear: int,
    n_scalar: int,
    order: int,
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
    for s in range(n_scalar):
        for i in range(m):
            eta[n_linear + s, i] = theta[n_linear * q + s]
    link(eta, side[0], order, out)


@inline
def _remainder(
    link: Any,
    s: int,
    side: Any,
    shift: Any,
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
    remainder: Any,
    slope: Any,
) -> None:
    """Write ``w (l - q)`` at theta + shift of draw ``s``, and the slope ``w dl.shift``."""
    m = side.shape[1]
    p = n_linear + n_scalar
    for a in range(n_linear):
        for i in range(m):
            step[a, i] = products[a, i, 1 + s]
            moved[a, i] = eta[a, i] + step[a, i]
    for c in range(n_scalar):
        for i in range(m):
            step[n_linear + c, i] = shift[n_linear * q + c]
            moved[n_linear + c, i] = eta[n_linear + c, i] + step[n_linear + c, i]
    link(moved, side[0], 0, out_moved)
    for i in range(m):
        remainder[i] = out_moved[0, i] - out[0, i]
        slope[i] = 0.0
    for a in range(p):
        for i in range(m):
            slope[i] += out[1 + a, i] * step[a, i]
    if order >= 1:
        for i in range(m):
            remainder[i] -= slope[i]
    if order == 2:
        pair = 1 + p
        for a in range(p):
            for b in range(a, p):
                factor = 0.5 if a == b else 1.0
                for i in range(m):
                    remainder[i] -= factor * out[pair, i] * step[a, i] * step[b, i]
                pair += 1
    for i in range(m):
        remainder[i] *= side[2, i]
        slope[i] *= side[2, i]


@inline
def _add_tile(
    Z: Any, side: Any, out: Any, n_linear: int, n_scalar: int, totals: Any, W: Any, G: Any, v: Any
) -> None:
    """Add the log-likelihood, gradient and Hessian (blocks a <= b) of a tile to ``totals``."""
    m, q = Z.shape
    p = n_linear + n_scalar
    d = n_linear * q + n_scalar
    v[: 1 + d] = 0.0
    for i in range(m):
        v[0] += side[2, i] * out[0, i]
    for a in range(p):
        for i in range(m):
            c = side[2, i] * out[1 + a, i]
            if a >= n_linear:
                v[1 + n_linear * q + a - n_linear] += c
            else:
                for j in range(q):
                    v[1 + a * q + j] += c * Z[i, j]
    _two_sum_into(totals[0, : 1 + d], totals[1, : 1 + d], v[: 1 + d])
    pair = 1 + p
    for a in range(p):
        for b in range(a, p):
            if b < n_linear:
                for i in range(m):
                    c = side[2, i] * out[pair, i]
                    for j in range(q):
                        W[i, j] = c * Z[i, j]
                np.dot(Z.T, W, G)
                for j in range(q):
                    at = 1 + d + (a * q + j) * d + b * q
                    _two_sum_into(totals[0, at : at + q], totals[1, at : at + q], G[j])
            else:
                width = q if a < n_linear else 1
                row = a * q if a < n_linear else n_linear * q + a - n_linear
                column = n_linear * q + b - n_linear
                v[:width] = 0.0
                for i in range(m):
                    c = side[2, i] * out[pair, i]
                    if a < n_linear:
                        for j in range(q):
                            v[j] += c * Z[i, j]
                    else:
                        v[0] += c
                for j in range(width):
                    at = 1 + d + (row + j) * d + column
                    _two_sum_into(totals[0, at : at + 1], totals[1, at : at + 1], v[j : j + 1])
            pair += 1


def _signatures(*rest: Any) -> list[Any]:
    """Return the signature for float32 and for float64 rows."""
    shared = (_frozen, _frozen, _frozen, vector, _cube, matrix, i8, i8)
    return [types.void(LINK_TYPE, X, *shared, *rest) for X in (_single, _double)]


@jit(*_signatures(i8, i8, matrix, vector, index_vector, _cube, matrix, matrix, index_vector))
def reduce_block(
    link: Any,
    X: Any,
    y: Any,
    offset: Any,
    weight: Any,
    theta: Any,
    columns: Any,
    shifts: Any,
    n_linear: int,
    n_scalar: int,
    order: int,
    tile: int,
    totals: Any,
    scores: Any,
    counts: Any,
    moments: Any,
    maxima: Any,
    slopes: Any,
    faults: Any,
) -> None:
    """Add one block to the sums at ``theta`` and score its rows at ``theta + shifts``.

    Parameters
    ----------
    columns
        (n_linear, q, 1 + S): theta and the S shifts of each linear predictor.
    shifts
        (S, d); S = 0 leaves everything about remainders untouched.
    totals
        (2, 1 + d + d d) log-likelihood, gradient, Hessian: high parts, low parts.
    scores
        (rows,) root mean square over the shifts of the remainder; written.
    counts, moments, maxima
        Histogram by score: rows (bins,), sums of r, r^2, r^3, r^4 (bins, S, 4) and
        largest abs(r) (bins, S); added to.
    slopes
        (4, S): sums of z, z^2, (sum of z over a full tile)^2, that sum, for the first-order
        term z of each row; added to.
    faults
        (3,) rows whose log-likelihood or derivatives at theta are not finite, first
        such row, full tiles.
    """
    rows, q = X.shape
    p = n_linear + n_scalar
    d = n_linear * q + n_scalar
    n_shifts = shifts.shape[0]
    width = 1 + p + p * (p + 1) // 2
    G = np.empty((q, q))
    v = np.empty(max(1 + d, q))
    m = 0
    for start in range(0, rows, tile):
        if min(tile, rows - start) != m:
            m = min(tile, rows - start)
            Z = np.empty((m, q))
            W = np.empty((m, q))
            side = np.empty((3, m))
            products = np.empty((n_linear, m, 1 + n_shifts))
            eta = np.empty((p, m))
            moved = np.empty((p, m))
            step = np.empty((p, m))
            out = np.empty((width, m))
            out_moved = np.empty((width, m))
            remainders = np.empty((n_shifts, m))
            slope = np.empty(m)
        _fill(X, y, offset, weight, start, Z, side)
        _expand(link, Z, side, theta, columns, n_linear, n_scalar, 2, products, eta, out)
        for i in range(m):
            total = 0.0
            for j in range(width):
                total += out[j, i]
            if not math.isfinite(total) and side[2, i] != 0.0:
                if faults[0] == 0:
                    faults[1] = start + i
                faults[0] += 1
        _add_tile(Z, side, out, n_linear, n_scalar, totals, W, G, v)
        if n_shifts == 0:
            continue
        for s in range(n_shifts):
            r = remainders[s]
            _remainder(
                link, s, side, shifts[s], q, n_linear, n_scalar, order,
                products, eta, moved, out, out_moved, step, r, slope,
            )  # fmt: skip
            inside = 0.0
            for i in range(m):
                inside += slope[i]
                slopes[1, s] += slope[i] * slope[i]
            slopes[0, s] += inside
            if m == tile:
                slopes[2, s] += inside * inside
                slopes[3, s] += inside
        if m == tile:
            faults[2] += 1
        for i in range(m):
            square = 0.0
            for s in range(n_shifts):
                square += remainders[s, i] * remainders[s, i]
            score = math.sqrt(square / n_shifts)
            if not score < np.inf:
                score = np.inf
            scores[start + i] = score
            place = score_bin(score)
            counts[place] += 1
            for s in range(n_shifts):
                r1 = remainders[s, i]
                r2 = r1 * r1
                moments[place, s, 0] += r1
                moments[place, s, 1] += r2
                moments[place, s, 2] += r2 * r1
                moments[place, s, 3] += r2 * r2
                maxima[place, s] = max(maxima[place, s], abs(r1))


@jit(*_signatures(i8, i8, matrix))
def remainders_at(
    link: Any,
    X: Any,
    y: Any,
    offset: Any,
    weight: Any,
    theta: Any,
    columns: Any,
    shifts: Any,
    n_linear: int,
    n_scalar: int,
    order: int,
    tile: int,
    result: Any,
) -> None:
    """Write ``result`` (S, rows): the remainder of each row at each ``theta + shift``."""
    rows, q = X.shape
    p = n_linear + n_scalar
    n_shifts = shifts.shape[0]
    width = 1 + p + p * (p + 1) // 2
    m = 0
    for start in range(0, rows, tile):
        if min(tile, rows - start) != m:
            m = min(tile, rows - start)
            Z = np.empty((m, q))
            side = np.empty((3, m))
            products = np.empty((n_linear, m, 1 + n_shifts))
            eta = np.empty((p, m))
            moved = np.empty((p, m))
            step = np.empty((p, m))
            out = np.empty((width, m))
            out_moved = np.empty((width, m))
            slope = np.empty(m)
        _fill(X, y, offset, weight, start, Z, side)
        _expand(link, Z, side, theta, columns, n_linear, n_scalar, 2, products, eta, out)
        for s in range(n_shifts):
            _remainder(
                link, s, side, shifts[s], q, n_linear, n_scalar, order,
                products, eta, moved, out, out_moved, step, result[s, start : start + m], slope,
            )  # fmt: skip
