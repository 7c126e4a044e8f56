"""The compiled pass over rows: sums of the expansion, remainders, histogram.

Rows are processed in tiles. Plain sums over at most 512 rows are added to compensated
totals, so that the error does not grow with the number of tiles; these additions are
neither reassociated nor run in parallel. One kernel computes everything: a second one for
the remainders alone doubled the time of a cold start.

A tile is transposed, (q, m): every loop then runs along the rows, and LLVM vectorises
it. Columns are padded with zeros to a multiple of four. BLAS is slower here: on tiles of
512 rows its product takes three times as long at 8 columns, and at 200 it computes both
halves of a symmetric matrix (2.2 times as long). These loops may reorder sums; the
compensated totals are formed in :func:`reduce_rows`.

With codes a row has one indicator of a factor at most. With K factors and q dense columns it costs
K look-ups a draw and K (q + p + 1) + K (K - 1) / 2 additions, however many levels there are.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streammc.numerics.expand_runs import codes_type
from streammc.numerics.jit import (
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    record_type,
    vector,
)
from streammc.numerics.summation import two_sum
from streammc.protocols import Index, Matrix, Vector

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


BINS_PER_OCTAVE = 4
LOWEST_OCTAVE = -60
HIGHEST_OCTAVE = 24
N_BINS = BINS_PER_OCTAVE * (HIGHEST_OCTAVE - LOWEST_OCTAVE) + 2
"""Number of bins of log2 score; the outer ones take all lower, and all higher or infinite."""

_power_sums: Any = types.Array(f8, 4, "C")
_FRACTION = (1 << 52) - 1
# In terms of squared scores: two bins an octave, and twice as many octaves below 1.
_BEFORE_FIRST = 2 * (1023 + 2 * LOWEST_OCTAVE) - 1
_HALF_OCTAVE = int(np.float64(math.sqrt(2.0)).view(np.int64)) & _FRACTION


@jit(types.void(matrix, i8, i8, i8, vector), reassociate=True, borrow=True)
def score_rows(remainders, n_draws, m, start, squares):  # type: ignore[no-untyped-def]
    """Write ``squares[start : start + m]``, the mean squares of ``remainders`` (S, m).

    These are squared scores: the square root would cost more than the sums.
    """
    if start < 0:
        return
    scale = 1.0 / n_draws
    for i in range(m):
        squares[start + i] = scale * remainders[0, i] * remainders[0, i]
    for s in range(1, n_draws):
        for i in range(m):
            squares[start + i] += scale * remainders[s, i] * remainders[s, i]
    for i in range(m):
        square = squares[start + i]
        squares[start + i] = square if square < np.inf else np.inf


@jit(types.void(index_vector, i8, index_vector), borrow=True)
def find_bins(bits, start, bins):  # type: ignore[no-untyped-def]
    """Write the histogram bins of the rows from ``start`` on, from the ``bits`` of their squares.

    The exponent is the octave of the square, and the fraction decides between its two halves.
    """
    if start < 0:
        return
    for i in range(bins.shape[0]):
        octave = bits[start + i] >> 52
        upper = np.int64((bits[start + i] & _FRACTION) >= _HALF_OCTAVE)
        place = 2 * octave + upper - _BEFORE_FIRST
        bins[i] = min(max(place, 0), N_BINS - 1)


@intrinsic  # type: ignore[untyped-decorator]
def _add_four_draws(_context: Any, sums: Any, at: Any, remainders: Any, first: Any) -> Any:
    """Add a row's r, r^2, r^3, r^4 and largest abs(r) for four draws to ``sums[at : at + 20]``.

    The draws are four entries of a column of ``remainders``, from flat index ``first`` on.
    Explicit vector instructions: scalar code, which LLVM had to vectorise, took three times
    as long.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> None:
        into, source = (
            context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 2)
        )
        stride = builder.extract_value(source.shape, 1)
        four = ir.VectorType(ir.DoubleType(), 4)
        r, place = ir.Constant(four, ir.Undefined), args[3]
        for k in range(4):
            value = builder.load(builder.gep(source.data, [place]))
            r = builder.insert_element(r, value, ir.Constant(ir.IntType(32), k))
            place = builder.add(place, stride)
        absolute = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(four, [four]), "llvm.fabs.v4f64"
        )
        square = builder.fmul(r, r)
        powers = (r, square, builder.fmul(square, r), builder.fmul(square, square))
        place = args[1]
        for value in (*powers, None):
            pointer = builder.bitcast(builder.gep(into.data, [place]), four.as_pointer())
            old = builder.load(pointer, align=8)
            if value is None:
                size = builder.call(absolute, [r])
                new = builder.select(builder.fcmp_ordered("<=", size, old), old, size)
            else:
                new = builder.fadd(old, value)
            builder.store(new, pointer, align=8)
            place = builder.add(place, ir.Constant(ir.IntType(64), 4))

    return types.void(sums, types.int64, remainders, types.int64), generate


@jit(types.void(matrix, index_vector, index_vector, _power_sums), borrow=True)
def add_to_histogram(remainders, bins, counts, sums):  # type: ignore[no-untyped-def]
    """Add the rows of a tile to the histogram: counts, sums of r, ..., r^4, largest abs(r).

    ``remainders`` is (S, >= m) and ``sums`` (bins, S / 4, 5, 4), S a multiple of 4.
    """
    m = bins.shape[0]
    groups = sums.shape[1]
    for i in range(m):
        counts[bins[i]] += 1
    for i in range(m):
        at = bins[i] * groups * 20
        for group in range(groups):
            first = 4 * group * remainders.shape[1] + i
            _add_four_draws(sums, at + 20 * group, remainders, first)


@jit(
    types.Tuple((i8, f8))(vector, index_vector, i8, f8, i8, index_vector, vector, i8),
    reassociate=True,
    borrow=True,
)
def keep_high(squares, bits, start, above, least, rows, kept, count):  # type: ignore[no-untyped-def]
    """Append the rows whose square exceeds ``above``; return the number kept, sum of squares.

    Entry ``i`` of ``squares`` and of their ``bits`` belongs to row ``start + i``; ``least`` are
    the bits of ``above``. ``rows`` and ``kept`` must have room for all rows.
    """
    total = 0.0
    for first in range(0, squares.shape[0], 64):
        last = min(first + 64, squares.shape[0])
        # Maximum of integers: one of floats is not vectorised.
        highest = np.int64(0)
        for i in range(first, last):
            total += squares[i]
            highest = max(highest, bits[i])
        if highest <= least:
            continue
        for i in range(first, last):
            if squares[i] > above:
                rows[count] = start + i
                kept[count] = squares[i]
                count += 1
    return count, total


class PassRows(NamedTuple):
    """Rows of one call: (m, q) design, and (m,) vectors."""

    single: Annotated[Any, types.Array(types.float32, 2, "C", readonly=True)]
    """The design as float32, or an array without rows."""
    double: Annotated[Any, types.Array(types.float64, 2, "C", readonly=True)]
    """The design as float64, or an array without rows."""
    codes: Annotated[Any, codes_type]
    """(m, K) codes of the factors whose columns are not in the design; or (0, 0)."""
    y: Vector
    offset: Vector
    weight: Vector


class PassPoints(NamedTuple):
    """Points at which rows are evaluated, and sizes."""

    theta: Vector
    """(d,) expansion point."""
    columns: Matrix
    """(n_linear R, q rounded up to fours): theta and the S shifts of each linear predictor,
    in R >= 1 + S rows."""
    shifts: Matrix
    """(S, d) shifts from ``theta`` at which remainders are evaluated."""
    n_linear: int
    n_scalar: int
    n_features: int
    order: int
    """Order of the control variates."""
    tile: int
    """Rows of a tile."""
    level_first: Index
    """(K,), see :func:`sum_levels`."""
    level_cross: Index
    level_products: Matrix
    """(levels, R) what each level adds to the linear predictor."""
    with_sums: int
    """0: nothing is added to ``totals``."""


class PassSums(NamedTuple):
    """Results: ``remainders`` and ``squares`` are written, all others added to."""

    totals: Matrix
    """(2, 1 + d + d d) log-likelihood, gradient, upper half of the Hessian: high and low parts."""
    remainders: Matrix
    """(S, m) remainders, or (S, 0) for none."""
    squares: Vector
    """(m,) mean squares of the remainders over the shifts."""
    counts: Index
    """Rows by score; see ``add_to_histogram``."""
    power_sums: Annotated[Any, types.Array(types.float64, 4, "C")]
    terms: Matrix
    """(4, S) sum of the first-order terms; of the second-order terms c; of c^2; of (sum of c over
    a full tile)^2."""
    levels: Matrix
    """Sums by level and, in ``crosses``, by pairs of levels; see :func:`sum_levels`."""
    crosses: Matrix
    flags: Index
    """(3,) counts of the rows whose log-likelihood or derivatives at theta are not finite, and of
    full tiles; then the first such row of this call, or -1."""


class Plain(NamedTuple):
    """Sums of at most ``block_kernel.SUM_ROWS`` rows, and buffers to make them."""

    V: Any
    """(1 + d,) log-likelihood and gradient."""
    G: Any
    """(p (p + 1) / 2, q4, q4) Hessian by pair of predictors."""
    W: Any
    """(q4, tile) weighted design."""
    g: Any
    """(q4,)."""


class Shifted(NamedTuple):
    """Buffers of a tile for the remainders at the shifts."""

    eta: Any
    """(p, m) predictors at theta; ``step`` their changes, ``moved`` their sum."""
    step: Any
    moved: Any
    out: Any
    """(1 + p + p (p + 1) / 2, m) output of the link at the shift."""
    slope: Any
    bend: Any


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
