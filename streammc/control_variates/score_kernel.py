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
_ZEROTH = BINS_PER_OCTAVE * (1023 + LOWEST_OCTAVE) - 1
# Fractions of 2^(1/4), 2^(1/2) and 2^(3/4): positive numbers are ordered as their bits.
_ONE, _TWO, _THREE = (int(np.float64(2.0 ** (k / 4)).view(np.int64)) & _FRACTION for k in (1, 2, 3))


@jit(types.void(matrix, i8, i8, i8, vector), reassociate=True, borrow=True)
def score_rows(remainders, n_draws, m, start, scores):  # type: ignore[no-untyped-def]
    """Write ``scores[start : start + m]``, root mean squares of ``remainders`` (S, m)."""
    if start < 0:
        return
    for i in range(m):
        scores[start + i] = 0.0
    for s in range(n_draws):
        for i in range(m):
            scores[start + i] += remainders[s, i] * remainders[s, i]
    for i in range(m):
        score = math.sqrt(scores[start + i] / n_draws)
        scores[start + i] = score if score < np.inf else np.inf


@jit(types.void(index_vector, i8, index_vector), borrow=True)
def find_bins(bits, start, bins):  # type: ignore[no-untyped-def]
    """Write the histogram bins of the scores whose ``bits`` begin at ``start``.

    Four bins an octave from the exponent, and which of them from the fraction.
    """
    if start < 0:
        return
    for i in range(bins.shape[0]):
        octave = bits[start + i] >> 52
        rest = bits[start + i] & _FRACTION
        quarter = np.int64(rest >= _ONE) + np.int64(rest >= _TWO) + np.int64(rest >= _THREE)
        place = BINS_PER_OCTAVE * octave + quarter - _ZEROTH
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
def keep_high(scores, start, above, rows, kept, count):  # type: ignore[no-untyped-def]
    """Append the rows whose score exceeds ``above``; return how many are kept now.

    Row ``i`` of ``scores`` is row ``start + i``. ``rows`` and ``kept`` have room for all.
    The second value is the sum of squared scores.
    """
    square = 0.0
    for i in range(scores.shape[0]):
        score = scores[i]
        square += score * score
        if score > above:
            rows[count] = start + i
            kept[count] = score
            count += 1
    return count, square
