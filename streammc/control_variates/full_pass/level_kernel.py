"""Compiled operations of the full pass on the codes of factors, one tile of rows.

A row has one indicator of a factor at most. With K factors and q dense columns it costs K
look-ups a draw and K (q + p + 1) + K (K - 1) / 2 additions, however many levels there are.
"""

from __future__ import annotations

from numba import types

from streammc.numerics.expand_runs import codes_type
from streammc.numerics.jit import i8, index_vector, jit, matrix, vector
from streammc.numerics.summation import two_sum


@jit(types.void(codes_type, i8, i8, index_vector, matrix, matrix), borrow=True)
def add_levels(codes, start, m, first, levels, products):  # type: ignore[no-untyped-def]
    """Add the entries of ``levels`` (sum of L_k + 1, R) of each row to ``products`` (R, >= m).

    Row ``first[k] + code`` of ``levels`` belongs to the code of factor k.
    """
    if start < 0:
        return
    R = levels.shape[1]
    for i in range(m):
        for k in range(first.shape[0]):
            level = first[k] + codes[start + i, k]
            for s in range(R):
                products[s, i] += levels[level, s]


@jit(
    types.void(
        matrix, i8, vector, matrix, codes_type, i8, index_vector, index_vector, matrix, matrix
    )
)
def sum_levels(Z, p, w, out, codes, start, first, cross, levels, crosses):  # type: ignore[no-untyped-def]
    """Add the derivatives of a tile to the compensated sums by level.

    Parameters
    ----------
    Z
        (q4, >= m) dense columns.
    p
        Number of predictors.
    w
        (m,) weights.
    out
        (1 + p + p (p + 1) / 2, m) expansion of the log-likelihood.
    codes, start
        (n, K) codes, and the first row of the tile.
    first
        (K,) first row of each factor in ``levels``.
    cross
        (K K,) first entry of each pair k < l in ``crosses``, and (K,) widths L_k + 1.
    levels
        (sum of L_k + 1, 2 (q4 + p + 1)): sums of c z by dense column, of c, of the first
        derivative and of c with the other p - 1 predictors, where c is the second derivative in
        the linear predictor; then their low parts.
    crosses
        (2, ..) sums of c by pairs of levels: high and low parts.
    """
    K = first.shape[0]
    q4 = Z.shape[0]
    half = q4 + p + 1
    for i in range(w.shape[0]):
        c = w[i] * out[1 + p, i]
        for k in range(K):
            code = codes[start + i, k]
            sums = levels[first[k] + code]
            for j in range(q4):
                sums[j], error = two_sum(sums[j], c * Z[j, i])
                sums[half + j] += error
            sums[q4], error = two_sum(sums[q4], c)
            sums[half + q4] += error
            sums[q4 + 1], error = two_sum(sums[q4 + 1], w[i] * out[1, i])
            sums[half + q4 + 1] += error
            for b in range(1, p):
                at = q4 + 1 + b
                sums[at], error = two_sum(sums[at], w[i] * out[1 + p + b, i])
                sums[half + at] += error
            for l in range(k + 1, K):
                width = cross[K * K + l]
                at = cross[k * K + l] + code * width + codes[start + i, l]
                crosses[0, at], error = two_sum(crosses[0, at], c)
                crosses[1, at] += error
