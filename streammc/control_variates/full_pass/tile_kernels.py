"""Compiled operations of the full pass on one tile of rows.

A tile is transposed, (q, m): every loop then runs along the rows, and LLVM vectorises
it. Columns are padded with zeros to a multiple of four. BLAS is slower here: on tiles of
512 rows its product takes three times as long at 8 columns, and at 200 it computes both
halves of a symmetric matrix (2.2 times as long). These loops may reorder sums; the
compensated totals are formed in ``block_kernel``.
"""

from __future__ import annotations

from typing import Any

from numba import types

from streammc.numerics.jit import f8, i8, jit, matrix, vector

PAD = 8
"""Padding of a tile: rows a power of two apart would share one set of the L1 cache."""


@jit(
    *[
        types.void(types.Array(t, 2, "C", readonly=True), i8, i8, matrix)
        for t in (types.float32, f8)
    ],
    borrow=True,
)
def transpose(X, start, m, Z):  # type: ignore[no-untyped-def]
    """Write rows ``start`` to ``start + m`` of ``X`` (n, q) into ``Z`` (>= q, >= m), float64."""
    if start < 0:
        return
    q = X.shape[1]
    whole = m // 8 * 8
    for first in range(0, whole, 8):
        for j in range(q):
            for i in range(8):
                Z[j, first + i] = X[start + first + i, j]
    for i in range(whole, m):
        for j in range(q):
            Z[j, i] = X[start + i, j]


@jit(types.void(matrix, matrix, i8, matrix), reassociate=True, borrow=True)
def predict(columns, Z, m, products):  # type: ignore[no-untyped-def]
    """Write ``columns`` (k, q) times ``Z`` (q, m) into ``products`` (k, m); k even, q in fours."""
    k, q = columns.shape
    for s in range(0, k, 2):
        for j in range(0, q, 4):
            a0, a1, a2, a3 = columns[s, j], columns[s, j + 1], columns[s, j + 2], columns[s, j + 3]
            t = s + 1
            b0, b1, b2, b3 = columns[t, j], columns[t, j + 1], columns[t, j + 2], columns[t, j + 3]
            for i in range(m):
                z0, z1, z2, z3 = Z[j, i], Z[j + 1, i], Z[j + 2, i], Z[j + 3, i]
                a = a0 * z0 + a1 * z1 + a2 * z2 + a3 * z3
                b = b0 * z0 + b1 * z1 + b2 * z2 + b3 * z3
                if j > 0:
                    a += products[s, i]
                    b += products[t, i]
                products[s, i] = a
                products[t, i] = b


@jit(types.void(matrix, vector, i8, vector), reassociate=True, borrow=True)
def add_gradient(Z, c, m, sums):  # type: ignore[no-untyped-def]
    """Add ``Z`` (q, m) times ``c`` (m,) to ``sums`` (q,)."""
    for j in range(0, Z.shape[0], 4):
        s0 = 0.0
        s1 = 0.0
        s2 = 0.0
        s3 = 0.0
        for i in range(m):
            s0 += c[i] * Z[j, i]
            s1 += c[i] * Z[j + 1, i]
            s2 += c[i] * Z[j + 2, i]
            s3 += c[i] * Z[j + 3, i]
        sums[j] += s0
        sums[j + 1] += s1
        sums[j + 2] += s2
        sums[j + 3] += s3


@jit(types.void(matrix, vector, i8, matrix, matrix), reassociate=True, borrow=True)
def add_hessian(Z, c, m, W, G):  # type: ignore[no-untyped-def]
    """Add ``Z diag(c) Z'`` to ``G`` (q, q): the blocks of four on and above the diagonal.

    ``W`` (q, m) is scratch. Sixteen sums stay in registers: eight loads serve sixteen
    multiply-adds.
    """
    q = Z.shape[0]
    for j in range(q):
        for i in range(m):
            W[j, i] = c[i] * Z[j, i]
    for j in range(0, q, 4):
        for k in range(j, q, 4):
            g00 = g01 = g02 = g03 = 0.0
            g10 = g11 = g12 = g13 = 0.0
            g20 = g21 = g22 = g23 = 0.0
            g30 = g31 = g32 = g33 = 0.0
            for i in range(m):
                w0, w1, w2, w3 = W[j, i], W[j + 1, i], W[j + 2, i], W[j + 3, i]
                z0, z1, z2, z3 = Z[k, i], Z[k + 1, i], Z[k + 2, i], Z[k + 3, i]
                g00 += w0 * z0
                g01 += w0 * z1
                g02 += w0 * z2
                g03 += w0 * z3
                g10 += w1 * z0
                g11 += w1 * z1
                g12 += w1 * z2
                g13 += w1 * z3
                g20 += w2 * z0
                g21 += w2 * z1
                g22 += w2 * z2
                g23 += w2 * z3
                g30 += w3 * z0
                g31 += w3 * z1
                g32 += w3 * z2
                g33 += w3 * z3
            G[j, k] += g00
            G[j, k + 1] += g01
            G[j, k + 2] += g02
            G[j, k + 3] += g03
            G[j + 1, k] += g10
            G[j + 1, k + 1] += g11
            G[j + 1, k + 2] += g12
            G[j + 1, k + 3] += g13
            G[j + 2, k] += g20
            G[j + 2, k + 1] += g21
            G[j + 2, k + 2] += g22
            G[j + 2, k + 3] += g23
            G[j + 3, k] += g30
            G[j + 3, k + 1] += g31
            G[j + 3, k + 2] += g32
            G[j + 3, k + 3] += g33


@jit(f8(vector, vector, vector), reassociate=True, borrow=True)
def weigh(weight, value, product):  # type: ignore[no-untyped-def]
    """Write ``weight * value`` (m,) into ``product``; return its sum."""
    total = 0.0
    for i in range(weight.shape[0]):
        c = weight[i] * value[i]
        product[i] = c
        total += c
    return total


_Remainder: Any = types.UniTuple(f8, 3)


@jit(
    _Remainder(matrix, matrix, matrix, vector, i8, vector, vector, matrix, i8),
    reassociate=True,
    borrow=True,
)
def remainder(out, out_moved, step, weight, order, slope, bend, remainders, s):  # type: ignore[no-untyped-def]
    """Write the remainders ``w (l - q)`` of a tile into row ``s`` of ``remainders``.

    ``out`` (1 + p + p(p + 1) / 2, m) is the expansion, ``out_moved[0]`` the log-likelihood
    after moving the predictors by ``step`` (p, m). Returns the weighted sums of the
    first-order terms, of the second-order terms, and of the squared second-order terms.
    """
    if s < 0:
        return 0.0, 0.0, 0.0
    p, m = step.shape
    for i in range(m):
        slope[i] = out[1, i] * step[0, i]
        bend[i] = 0.5 * out[1 + p, i] * step[0, i] * step[0, i]
    for a in range(1, p):
        for i in range(m):
            slope[i] += out[1 + a, i] * step[a, i]
    pair = 1 + p
    for a in range(p):
        for b in range(a, p):
            if b > 0:
                factor = 0.5 if a == b else 1.0
                for i in range(m):
                    bend[i] += factor * out[pair, i] * step[a, i] * step[b, i]
            pair += 1
    with_slope = 1.0 if order >= 1 else 0.0
    with_bend = 1.0 if order == 2 else 0.0
    first = 0.0
    second = 0.0
    square = 0.0
    for i in range(m):
        first += weight[i] * slope[i]
        c = weight[i] * bend[i]
        second += c
        square += c * c
        difference = out_moved[0, i] - out[0, i]
        remainders[s, i] = weight[i] * (difference - with_slope * slope[i] - with_bend * bend[i])
    return first, second, square
