"""Scores of the rows of a tile, and the histogram of their remainders; compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streammc.numerics.jit import f8, i8, index_vector, jit, matrix, vector

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
