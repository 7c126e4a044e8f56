"""Units, blocks of units, and drawing them.

A unit is a run of ``unit_rows`` contiguous rows; ``k`` of the ``U`` units are in the
subsample, drawn uniformly with replacement, and split into ``G`` blocks of sizes that
differ by at most one. Iteration ``t`` proposes new units for block ``t mod G``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streammc.protocols import Index


@dataclass(frozen=True)
class UnitDesign:
    """The sampling design: fixed before the first iteration, shared by all chains."""

    n_rows: int
    unit_rows: int
    subsample_units: int
    """k."""
    n_blocks: int
    """G."""

    @property
    def n_units(self) -> int:
        """U: the last unit may be short."""
        return -(-self.n_rows // self.unit_rows)

    @property
    def subsample_size(self) -> int:
        """Rows in the subsample, ``m = k b``."""
        return self.subsample_units * self.unit_rows

    def block_bounds(self) -> Index:
        """Return (G + 1,) positions at which the k units are cut into blocks."""
        edges = np.arange(self.n_blocks + 1, dtype=np.int64) * self.subsample_units
        bounds: Index = edges // max(self.n_blocks, 1)
        return bounds

    def proposal_counts(self, iteration: int, n: int) -> Index:
        """Return how many units each of iterations ``iteration .. iteration + n`` proposes."""
        sizes = np.diff(self.block_bounds())
        return sizes[(iteration + np.arange(n, dtype=np.int64)) % self.n_blocks]

    def draw(self, count: int, rng: np.random.Generator) -> Index:
        """Draw ``count`` units uniformly with replacement."""
        return rng.integers(0, self.n_units, size=count, dtype=np.int64)

    def starts(self, units: Index) -> Index:
        """Return the first row of each unit."""
        return units * self.unit_rows
