"""Scores of the rows of a tile, and the histogram of their remainders; compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streammc.numerics.jit import f8, i8, index_vector, jit, matrix, vector

BINS_PER_OCTAVE = 4
LOWEST_OCTAVE = -60
HIGHEST_OCTAVE = 24
N_BINS = BINS_PER_OCTAVE * (HIGHEST_OCTAVE - LOWEST_OCTAVE) + 2
"""Bins of log2 score; the first takes what is smaller, the last what is larger or not finite."""

_power_sums: Any = types.Array(f8, 4, "C")
_FRACTION = (1 << 52) - 1
# Of squares: two bins an octave, and twice as many octaves below 1.
_BEFORE_FIRST = 2 * (1023 + 2 * LOWEST_OCTAVE) - 1
_HALF_OCTAVE = int(np.float64(math.sqrt(2.0)).view(np.int64)) & _FRACTION


@jit(types.void(matrix, i8, i8, i8, vector), reassociate=True, borrow=True)
def score_rows(remainders, n_draws, m, start, squares):  # type: ignore[no-untyped-def]
    """Write ``squares[start : start + m]``, the mean squares of ``remainders`` (S, m).

    They are scores squared: their root costs more than the rest of the score.
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
    """Write the bins of the rows from ``start`` on, from the ``bits`` of their squares.

    The exponent is the octave of the square and the fraction tells its half; positive
    numbers are ordered as their bits.
    """
    if start < 0:
        return
    for i in range(bins.shape[0]):
        octave = bits[start + i] >> 52
        upper = np.int64((bits[start + i] & _FRACTION) >= _HALF_OCTAVE)
        place = 2 * octave + upper - _BEFORE_FIRST
        bins[i] = min(max(place, 0), N_BINS - 1)


@jit(types.void(matrix, index_vector, index_vector, _power_sums), borrow=True)
def add_to_histogram(remainders, bins, counts, sums):  # type: ignore[no-untyped-def]
    """Add the rows of a tile: their number, sums of r, r^2, r^3, r^4 and largest abs(r).

    ``remainders`` is (S, >= m) and ``sums`` (bins, S / 4, 5, 4), S a multiple of 4: four
    draws are one vector.
    """
    m = bins.shape[0]
    for i in range(m):
        counts[bins[i]] += 1
    for group in range(sums.shape[1]):
        s = 4 * group
        for i in range(m):
            b = bins[i]
            if b < 0:
                return
            r0 = remainders[s, i]
            r1 = remainders[s + 1, i]
            r2 = remainders[s + 2, i]
            r3 = remainders[s + 3, i]
            q0, q1, q2, q3 = r0 * r0, r1 * r1, r2 * r2, r3 * r3
            a0, a1, a2, a3 = abs(r0), abs(r1), abs(r2), abs(r3)
            h0 = sums[b, group, 4, 0]
            h1 = sums[b, group, 4, 1]
            h2 = sums[b, group, 4, 2]
            h3 = sums[b, group, 4, 3]
            sums[b, group, 0, 0] += r0
            sums[b, group, 0, 1] += r1
            sums[b, group, 0, 2] += r2
            sums[b, group, 0, 3] += r3
            sums[b, group, 1, 0] += q0
            sums[b, group, 1, 1] += q1
            sums[b, group, 1, 2] += q2
            sums[b, group, 1, 3] += q3
            sums[b, group, 2, 0] += q0 * r0
            sums[b, group, 2, 1] += q1 * r1
            sums[b, group, 2, 2] += q2 * r2
            sums[b, group, 2, 3] += q3 * r3
            sums[b, group, 3, 0] += q0 * q0
            sums[b, group, 3, 1] += q1 * q1
            sums[b, group, 3, 2] += q2 * q2
            sums[b, group, 3, 3] += q3 * q3
            sums[b, group, 4, 0] = h0 if a0 <= h0 else a0
            sums[b, group, 4, 1] = h1 if a1 <= h1 else a1
            sums[b, group, 4, 2] = h2 if a2 <= h2 else a2
            sums[b, group, 4, 3] = h3 if a3 <= h3 else a3


@jit(
    types.Tuple((i8, f8))(vector, i8, f8, index_vector, vector, i8),
    borrow=True,
)
def keep_high(squares, start, above, rows, kept, count):  # type: ignore[no-untyped-def]
    """Append the rows whose square exceeds ``above``; return how many are kept now.

    Row ``i`` of ``squares`` is row ``start + i``. ``rows`` and ``kept`` have room for all.
    The second value is the sum of the squares.
    """
    total = 0.0
    for i in range(squares.shape[0]):
        square = squares[i]
        total += square
        if square > above:
            rows[count] = start + i
            kept[count] = square
            count += 1
    return count, total
