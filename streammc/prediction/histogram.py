"""Weighted counts of scores in bins of arbitrary edges, for each draw."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import f8, i8, jit, matrix, vector
from streammc.protocols import Vector

_CELLS: Final = 2**16
_cube: Any = types.Array(f8, 3, "C")
_cells: Any = types.Array(types.int32, 1, "C")
bin_matrix: Any = types.Array(types.uint16, 2, "C")


class Thresholds(NamedTuple):
    """Edges of the bins of a score, with a table of cells that shortens the search."""

    padded: Vector
    """The B - 1 rising edges, padded with infinities that a search may read past the end."""
    starts: NDArray[np.int32]
    """(cells,) number of edges in the cells of equal width before each cell."""
    low: float
    scale: float
    """The cell of a score x is ``(x - low) scale``, rounded down."""
    steps: int
    """Halving steps that find an edge in the fullest cell."""

    @property
    def edges(self) -> Vector:
        """The B - 1 rising edges."""
        return self.padded[np.isfinite(self.padded)]


def find_thresholds(edges: Vector) -> Thresholds:
    """Return the thresholds of ``edges`` with the table of cells for a short search."""
    low, high = (float(edges[0]), float(edges[-1])) if len(edges) else (0.0, 0.0)
    scale = _CELLS / (high - low) if high > low else 0.0
    scale = scale if np.isfinite(scale) else 0.0
    cells = np.minimum(np.maximum((edges - low) * scale, 0.0), _CELLS - 1).astype(np.int64)
    starts = np.searchsorted(cells, np.arange(_CELLS + 1))
    steps = int(np.diff(starts).max()).bit_length()
    padded = np.append(edges, np.full(4 * 2**steps, np.inf))
    return Thresholds(padded, starts[:-1].astype(np.int32), low, scale, steps)


@jit(types.void(matrix, vector, _cells, f8, f8, i8, i8, bin_matrix))
def find_bins(scores, padded, starts, low, scale, steps, first, bins):  # type: ignore[no-untyped-def]
    """Write the bins of ``scores`` (S, m) into the columns of ``bins`` from ``first`` on.

    The bin is the number of edges not above the score. Cells increase with scores, so that
    an edge in a lower cell is below the score and an edge in a higher cell above it. Every
    score takes the same number of steps: branch mispredictions at the end of a search would
    cost more. Cells are computed first, in a loop that vectorises, and the usual two steps
    are unrolled: 3 ns per score instead of 11.
    """
    if first < 0:
        return
    m = scores.shape[1]
    last = float(starts.shape[0] - 1)
    cells = np.empty(m, np.int32)
    # An unsigned index needs no check for a negative index.
    one, two = np.uint64(1), np.uint64(2)
    most = one << np.uint64(max(steps - 1, 0))
    for s in range(scores.shape[0]):
        for i in range(m):
            cell = (scores[s, i] - low) * scale
            cell = 0.0 if cell < 0.0 else cell
            cells[i] = np.int32(last if cell > last else cell)
        for i in range(m if steps <= 2 else 0):
            at = np.uint64(starts[np.uint64(cells[i])])
            at += two * np.uint64(padded[at + one] <= scores[s, i])
            at += np.uint64(padded[at] <= scores[s, i])
            bins[s, first + i] = at
        for i in range(m if steps > 2 else 0):
            at = np.uint64(starts[np.uint64(cells[i])])
            half = most
            for _ in range(steps):
                at += half * np.uint64(padded[at + half - one] <= scores[s, i])
                half >>= one
            bins[s, first + i] = at


@jit(types.void(bin_matrix, vector, vector, _cube), borrow=True)
def add_bins(bins, y, weight, counts):  # type: ignore[no-untyped-def]
    """Add ``weight (1 - y)`` and ``weight y`` of the first rows in ``bins`` (S, M) to ``counts``.

    ``counts`` is (S, B, 2). Call it with thousands of rows: the counts of one draw then stay
    in a cache, unlike those of all draws. A response of 0 or 1 adds to one count: 1.7 ns per
    row and draw; a proportion of trials adds to two: 2.8 ns.
    """
    two = np.uint64(2)
    binary = True
    for i in range(y.shape[0]):
        binary = binary and (y[i] == 0.0 or y[i] == 1.0)
    for s in range(counts.shape[0] if binary else 0):
        flat = counts[s].reshape(2 * counts.shape[1])
        row = bins[s]
        for i in range(y.shape[0]):
            flat[two * np.uint64(row[i]) + np.uint64(y[i])] += weight[i]
    for s in range(0 if binary else counts.shape[0]):
        for i in range(y.shape[0]):
            at = np.int64(bins[s, i])
            ones = weight[i] * y[i]
            counts[s, at, 0] += weight[i] - ones
            counts[s, at, 1] += ones
