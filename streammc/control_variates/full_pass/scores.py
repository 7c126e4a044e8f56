"""Scores of rows: the rows with the highest, and a histogram of the remainders by score.

The score of a row is the root mean square of its remainder over the shifts. The
histogram keeps, per bin of log2 score (four an octave), power sums of the
remainders, so that everything below a threshold is a sum over the lower bins: no
cancellation, however large the rows above it are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.full_pass.block_kernel import (
    BINS_PER_OCTAVE,
    LOWEST_OCTAVE,
    N_BINS,
    keep_high,
)
from streammc.protocols import Index, Matrix, Vector


@dataclass(frozen=True)
class Histogram:
    """Power sums of the remainders by score bin; S draws."""

    counts: Index
    """(bins,) rows."""
    moments: NDArray[np.float64]
    """(bins, S, 4) sums of r, r^2, r^3, r^4."""
    maxima: Matrix
    """(bins, S) largest abs(r)."""

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

        Entry ``t`` describes the sampled rows if the rows of bins ``t`` and above are certain.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            moments = np.concatenate([np.zeros_like(self.moments[:1]), self.moments.cumsum(0)])
        counts = np.concatenate([[0], self.counts.cumsum()])
        maxima = np.concatenate(
            [np.zeros_like(self.maxima[:1]), np.maximum.accumulate(self.maxima, axis=0)]
        )
        return counts, moments, maxima

    def below_weighted(self, uniform_share: float) -> tuple[Index, NDArray[np.float64], Matrix]:
        """Return :meth:`below` for rows drawn by score: sums of (r v)^p / v, v = 1 / (n omega).

        ``omega`` is a mixture of the uniform distribution, with weight ``uniform_share``, and of
        probabilities in proportion to the scores of the sampled rows. The score of a row is taken
        to be that of its bin.
        """
        counts = np.concatenate([[0], self.counts.cumsum()])
        moments = np.zeros((len(counts), *self.moments.shape[1:]))
        maxima = np.zeros((len(counts), self.maxima.shape[1]))
        score = np.exp2(LOWEST_OCTAVE + (np.arange(len(self.counts)) - 0.5) / BINS_PER_OCTAVE)
        score[0] = 0.0
        total = np.concatenate([[0.0], (self.counts * score).cumsum()])
        with np.errstate(invalid="ignore", over="ignore"):
            for t in range(1, len(counts)):
                if counts[t] == counts[t - 1]:
                    moments[t], maxima[t] = moments[t - 1], maxima[t - 1]
                    continue
                share = score[:t] * counts[-1] / total[t] if total[t] > 0.0 else np.ones(t)
                relative = uniform_share + (1.0 - uniform_share) * share
                powers = relative[:, None] ** -np.arange(4.0)
                moments[t] = np.sum(self.moments[:t] * powers[:, None, :], axis=0)
                maxima[t] = np.max(self.maxima[:t] / relative[:, None], axis=0)
        return counts, moments, maxima


def top(rows: Index, squares: Vector, cap: int) -> tuple[Index, Vector]:
    """Return the ``cap`` rows of highest square, best first, ties by row index.

    Rows with equal squares must be given in row order. The order is total, so merging block
    by block gives the same list for any blocks.
    """
    # The stable sort is fast here: it merges lists that are already in order.
    order = np.argsort(-squares, kind="stable")[:cap]
    return rows[order], squares[order]


class HighScores:
    """The ``cap`` rows with the highest positive scores so far.

    Scores are passed, compared and stored as their squares; ``total`` is the sum of all squares.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rows, self._kept = np.empty(0, np.int64), np.empty(0)
        self._count = 0
        self._above = 0.0
        self._squares = np.empty(0)
        self.total = 0.0

    def room(self, m: int) -> Vector:
        """Return an (m,) buffer for squared scores; every call returns the same memory."""
        if len(self._squares) < m:
            self._squares = np.empty(m)
        return self._squares[:m]

    def add(self, start: int, squares: Vector) -> None:
        """Add the squared scores of the rows from ``start`` on."""
        step = max(4096, self._cap)
        if not len(self._rows):
            self._rows = np.empty(2 * self._cap + step, np.int64)
            self._kept = np.empty(len(self._rows))
        for first in range(0, len(squares), step):
            part = squares[first : first + step]
            above = np.float64(self._above)
            self._count, total = keep_high(
                part,
                part.view(np.int64),
                start + first,
                above,
                above.view(np.int64),
                self._rows,
                self._kept,
                self._count,
            )
            self.total += total
            if self._count > 2 * self._cap:
                self._cut()

    def _cut(self) -> None:
        """Keep the ``cap`` best in row order; later rows must exceed the lowest of them."""
        rows, squares = self._rows[: self._count], self._kept[: self._count]
        place = self._count - self._cap
        last = float(np.partition(squares, place)[place]) if self._cap else np.inf
        higher = np.flatnonzero(squares > last)
        equal = np.flatnonzero(squares == last)[: self._cap - len(higher)]
        chosen = np.sort(np.concatenate([higher, equal]))
        self._count = len(chosen)
        self._rows[: self._count], self._kept[: self._count] = rows[chosen], squares[chosen]
        self._above = last

    def finish(self) -> tuple[Index, Vector]:
        """Return the rows and their squares, best first."""
        return top(self._rows[: self._count], self._kept[: self._count], self._cap)
