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

from streammc.control_variates.score_kernel import N_BINS
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

    The order is total, so merging block by block gives the same list for any blocks.
    """
    if len(rows) > 2 * cap and cap > 0:
        cut = np.partition(scores, len(scores) - cap)[len(scores) - cap]
        keep = np.flatnonzero(scores >= cut)
        rows, scores = rows[keep], scores[keep]
    order = np.lexsort((rows, -scores))[:cap]
    return rows[order], scores[order]
