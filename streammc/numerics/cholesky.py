"""Cholesky factor and inverse of a covariance, by tiles, with products by BLAS.

``np.linalg.cholesky`` raises if a matrix is not positive definite, and compiled code
that catches this leaks the arrays of the call; here NaN is returned. A matrix is stored as
(t, t, b, b) contiguous tiles, of which those on and below the diagonal are used. It is padded
with rows of the identity, so that every tile is full.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.numerics.jit import f8, jit, matrix, vector

TILE: Final = 64
"""Rows of a tile: 48, 96 and 128 are slower at n = 128 and at 512, 32 is as fast."""

_tiles = types.Array(f8, 4, "C")


def tile_shape(n: int) -> tuple[int, int]:
    """Return tiles per side, and rows of a tile, for ``n`` rows."""
    b = min(n, TILE)
    return -(-n // b), b


@jit(f8(matrix, matrix), reassociate=True)
def _factor_tile(a, w):  # type: ignore[no-untyped-def]
    """Replace ``a`` (b, b) by its factor L, write ``w = L^-1``; return ``sum log L_ii`` or NaN."""
    b = a.shape[0]
    total = 0.0
    for i in range(b):
        for j in range(i + 1):
            rest = a[i, j]
            for k in range(j):
                rest -= a[i, k] * a[j, k]
            if j < i:
                a[i, j] = rest * w[j, j]
            elif rest > 0.0 and rest < math.inf:
                a[i, i] = math.sqrt(rest)
                w[i, i] = 1.0 / a[i, i]
                total += math.log(a[i, i])
            else:  # NaN too
                return math.nan
        for j in range(i + 1, b):
            a[i, j] = 0.0
            w[i, j] = 0.0
    # Row i of the inverse is computed from the rows above it: the inner loop runs along a row.
    for i in range(1, b):
        for j in range(i):
            w[i, j] = 0.0
        for k in range(i):
            pull = a[i, k]
            for j in range(k + 1):
                w[i, j] -= pull * w[k, j]
        for j in range(i):
            w[i, j] *= w[i, i]
    return total


@jit(f8(_tiles, _tiles))
def factor(a, w):  # type: ignore[no-untyped-def]
    """Replace ``a`` by its factor L; return ``log det a / 2``, NaN if there is no factor.

    The diagonal tiles of ``w`` become the inverses of those of L. The algorithm is left-looking:
    the updates from all earlier columns of tiles are applied to a column, then it is factored.
    """
    t, b = a.shape[0], a.shape[2]
    product = np.empty((b, b))
    total = 0.0
    for j in range(t):
        for i in range(j, t):
            for k in range(j):
                np.dot(a[i, k], a[j, k].T, product)
                a[i, j] -= product
            if i == j:
                total += _factor_tile(a[j, j], w[j, j])
                if math.isnan(total):
                    return math.nan
            else:
                np.dot(a[i, j], w[j, j].T, product)
                a[i, j] = product
    return total


@jit(types.void(_tiles, _tiles, vector))
def solve(a, w, x):  # type: ignore[no-untyped-def]
    """Replace ``x`` (t b,) by ``L^-1 x``, after :func:`factor`."""
    t, b = a.shape[0], a.shape[2]
    for i in range(t):
        part = x[i * b : (i + 1) * b]
        for k in range(i):
            part -= np.dot(a[i, k], x[k * b : (k + 1) * b])
        part[:] = np.dot(w[i, i], part)


@jit(types.void(_tiles, _tiles, vector))
def invert(a, w, x):  # type: ignore[no-untyped-def]
    """Replace ``w`` by ``L^-1``, ``a`` by the inverse ``L^-T L^-1``, after :func:`factor`.

    ``x`` (t b,) is replaced by ``L^-T x``.
    """
    t, b = a.shape[0], a.shape[2]
    product = np.empty((b, b))
    for j in range(t):
        for i in range(j + 1, t):
            w[i, j] = 0.0
            for k in range(j, i):
                np.dot(a[i, k], w[k, j], product)
                w[i, j] -= product
            np.dot(w[i, i], w[i, j], product)
            w[i, j] = product
    for j in range(t):
        part = np.zeros(b)
        for i in range(j, t):
            part += np.dot(w[i, j].T, x[i * b : (i + 1) * b])
        x[j * b : (j + 1) * b] = part
        for i in range(j, t):
            a[i, j] = 0.0
            for k in range(i, t):
                np.dot(w[k, i].T, w[k, j], product)
                a[i, j] += product
