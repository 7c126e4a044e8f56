"""Means and standard deviations of columns in one pass.

Each block of ``n_b`` rows gives its mean ``m_b`` and ``M_b = sum (x - m_b)^2``, both corrected
for the rounding of ``m_b``. At the end they are combined around the overall mean ``m``,

    M = sum_b [M_b + n_b (m_b - m)^2]

(Chan, Golub and LeVeque 1983, eq. 1.5, for all blocks at once), with exactly rounded
sums. Blocks whose squares would overflow or underflow are scaled by a power of two.
"""

from __future__ import annotations

from math import fsum, ldexp, sqrt
from typing import Final

import numpy as np

from streammc.protocols import Matrix, Vector

_SHIFT: Final = 600


class Moments:
    """Accumulator of count, range, mean and standard deviation of c columns.

    Parameters
    ----------
    n_columns
        Number of columns c.
    """

    def __init__(self, n_columns: int) -> None:
        self.count = 0
        self.minimum: Vector = np.full(n_columns, np.inf)
        self.maximum: Vector = np.full(n_columns, -np.inf)
        self._blocks: list[tuple[int, Matrix]] = []

    def add(self, values: Matrix) -> None:
        """Add a block (c, m) of finite numbers."""
        m = values.shape[1]
        if m == 0:
            return
        # One column after the other, each within the second-level cache.
        low, high = (np.array([f(row) for row in values]) for f in (np.min, np.max))
        np.minimum(self.minimum, low, out=self.minimum)
        np.maximum(self.maximum, high, out=self.maximum)
        size = np.maximum(np.abs(low), np.abs(high))
        exponent = np.where(size > 2.0**480, _SHIFT, 0)
        exponent[(size < 2.0**-480) & (size > 0)] = -_SHIFT
        if exponent.any():
            values = np.ldexp(values, -exponent[:, np.newaxis])
        mean, rest = np.empty((2, len(values)))
        deviation = np.empty_like(values)
        for column, row in enumerate(values):
            mean[column] = row.mean()
            np.subtract(row, mean[column], out=deviation[column])
            rest[column] = deviation[column].sum() / m
        square = np.einsum("ij,ij->i", deviation, deviation) - m * rest * rest
        self.count += m
        self._blocks.append((m, np.stack([mean, rest, np.maximum(square, 0.0), exponent])))

    def finish(self) -> tuple[Vector, Vector]:
        """Return mean and standard deviation (divisor n); 0 exactly for a constant column."""
        n_columns = self.minimum.size
        mean, deviation = np.empty(n_columns), np.empty(n_columns)
        counts = np.array([m for m, _ in self._blocks], np.float64)
        table = np.stack([block for _, block in self._blocks], axis=-1)
        for column in range(n_columns):
            if self.minimum[column] == self.maximum[column]:
                mean[column], deviation[column] = self.minimum[column], 0.0
                continue
            means, rests, squares, exponents = table[:, column]
            top = int(exponents.max())
            shift = (exponents - top).astype(np.int64)
            pivot = ldexp(float(means[0]), int(shift[0]))
            # Differences from one block's mean are exact where they are small.
            off = np.ldexp(means, shift) - pivot + np.ldexp(rests, shift)
            centre = fsum(counts * off) / self.count
            total = fsum(np.ldexp(squares, 2 * shift)) + fsum(counts * (off - centre) ** 2)
            mean[column] = _scaled(pivot + centre, top)
            deviation[column] = _scaled(sqrt(total / self.count), top)
        return mean, deviation


def _scaled(value: float, exponent: int) -> float:
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return float("inf")
