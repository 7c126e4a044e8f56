"""Scores of rows: which remainders dominate, and what the rest adds up to.

The score of a row is the root mean square of its remainder over the shifts. The
histogram keeps, per bin of log2 score (four an octave), power sums of the
remainders, so that everything below a threshold is a sum over the lower bins: no
cancellation, however large the rows above it are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.score_kernel import N_BINS, keep_high
from streammc.protocols import Index, Matrix, Vector


@dataclass(frozen=True)
class Histogram:
    """Power sums of the remainders by score bin; S draws.

    Attributes
    ----------
    counts
        (bins,) rows.
    moments
        (bins, S, 4) sums of r, r^2, r^3, r^4.
    maxima
        (bins, S) largest abs(r).
    """

    counts: Index
    moments: NDArray[np.float64]
    maxima: Matrix

    @staticmethod
    def empty(n_draws: int) -> Histogram:
        """Return a histogram without rows."""
        return Histogram(
            np.zeros(N_BINS, np.int64), np.zeros((N_BINS, n_draws, 4)), np.zeros((N_BINS, n_draws))
        )

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of rows."""
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf in the top bin
            moments = self.moments + other.moments
        return Histogram(self.counts + other.counts, moments, np.maximum(self.maxima, other.maxima))

    def below(self) -> tuple[Index, NDArray[np.float64], Matrix]:
        """Return counts, moments and maxima of all bins below 0, 1, ..., n_bins.

        Entry ``t`` is what remains when the rows of bins ``t`` and above are certain.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            moments = np.concatenate([np.zeros_like(self.moments[:1]), self.moments.cumsum(0)])
        counts = np.concatenate([[0], self.counts.cumsum()])
        maxima = np.concatenate(
            [np.zeros_like(self.maxima[:1]), np.maximum.accumulate(self.maxima, axis=0)]
        )
        return counts, moments, maxima


def top(rows: Index, scores: Vector, cap: int) -> tuple[Index, Vector]:
    """Return the ``cap`` rows of highest score, best first, ties by row index.

    Of two rows with one score, the first given must be the earlier. The order is total,
    so merging block by block gives the same list for any blocks.
    """
    # Stable, and fast on what is already in order: two lists are merged.
    order = np.argsort(-scores, kind="stable")[:cap]
    return rows[order], scores[order]


class HighScores:
    """The ``cap`` rows of highest positive score among those given so far, in their order.

    Attributes
    ----------
    square
        Sum of the squares of all scores.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rows, self._kept = np.empty(0, np.int64), np.empty(0)
        self._count = 0
        self._above = 0.0
        self._scores = np.empty(0)
        self.square = 0.0

    def room(self, m: int) -> Vector:
        """Return (m,) to write scores into, the same memory every time."""
        if len(self._scores) < m:
            self._scores = np.empty(m)
        return self._scores[:m]

    def add(self, start: int, scores: Vector) -> None:
        """Add rows from ``start`` on."""
        step = max(4096, self._cap)
        if not len(self._rows):
            self._rows = np.empty(2 * self._cap + step, np.int64)
            self._kept = np.empty(len(self._rows))
        for first in range(0, len(scores), step):
            part = scores[first : first + step]
            self._count, square = keep_high(
                part, start + first, self._above, self._rows, self._kept, self._count
            )
            self.square += square
            if self._count > 2 * self._cap:
                self._cut()

    def _cut(self) -> None:
        """Keep the best, in the order of the rows; a later row has to beat the last of them."""
        rows, scores = self._rows[: self._count], self._kept[: self._count]
        place = self._count - self._cap
        last = float(np.partition(scores, place)[place]) if self._cap else np.inf
        higher = np.flatnonzero(scores > last)
        equal = np.flatnonzero(scores == last)[: self._cap - len(higher)]
        chosen = np.sort(np.concatenate([higher, equal]))
        self._count = len(chosen)
        self._rows[: self._count], self._kept[: self._count] = rows[chosen], scores[chosen]
        self._above = last

    def finish(self) -> tuple[Index, Vector]:
        """Return the rows and their scores, best first."""
        return top(self._rows[: self._count], self._kept[: self._count], self._cap)
