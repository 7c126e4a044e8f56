"""A uniform random sample of the rows of a table, taken in one pass."""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.protocols import Vector
from streammc.rng import Role, stream

SAMPLE_ROWS: Final = 100_000


class Sample:
    """A uniform random sample of fixed size from a stream of rows.

    Row number i replaces a random row of the sample with probability ``size / (i + 1)``
    (Vitter 1985, algorithm R). The sample depends on the seed, not on the cuts into blocks.
    """

    def __init__(self, seed: int, size: int | None = None) -> None:
        self._rng = stream(seed, 0, Role.KNOTS)
        self._size = SAMPLE_ROWS if size is None else size
        self._values = np.empty(self._size)
        self.seen = 0

    @property
    def values(self) -> Vector:
        """Values of the rows in the sample; fewer than ``size`` for a short stream."""
        return self._values[: min(self.seen, self._size)]

    def add(self, values: Vector) -> None:
        """Add the values (m,) of the next rows."""
        fill = min(values.size, max(0, self._size - self.seen))
        self._values[self.seen : self.seen + fill] = values[:fill]
        rest = values[fill:]
        if rest.size:
            row = self.seen + fill + np.arange(rest.size)
            place = (self._rng.random(rest.size) * (row + 1)).astype(np.int64)
            taken = place < self._size
            self._values[place[taken]] = rest[taken]  # the last row of an equal place stays
        self.seen += values.size
