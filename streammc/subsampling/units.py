"""Units, blocks of units, and drawing them.

A unit is a run of ``unit_rows`` contiguous rows; ``k`` of the ``U`` units are in the
subsample, drawn with replacement, and split into ``G`` blocks of sizes that differ by at
most one. Iteration ``t`` proposes new units for block ``t mod G``.

Where units have unequal probabilities omega_j, the rows of a drawn unit count
``1 / (U omega_j)`` times (Dang et al. 2019, eq. 9). Its total is then ``D_j / (U omega_j)``,
of which the mean over draws is the mean of all ``D_j``: to the estimate, its variance and
their gradients these are units like any others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from streammc import rng as streams
from streammc.protocols import Index, Vector
from streammc.subsampling.alias import AliasTable

UNIFORM: Final = "uniform"
SCORES: Final = "scores"
PROBABILITIES: Final = (UNIFORM, SCORES)
"""The same for all units, or in proportion to what they contribute."""

_WINDOW: Final = 1024


@dataclass(frozen=True)
class UnitDesign:
    """The sampling design: fixed before the first iteration, shared by all chains."""

    n_rows: int
    unit_rows: int
    subsample_units: int
    """k."""
    n_blocks: int
    """G."""
    probabilities: AliasTable | None = field(default=None, kw_only=True)
    """Of the units; ``None`` where all have the same."""

    @property
    def n_units(self) -> int:
        """U: the last unit may be short."""
        return -(-self.n_rows // self.unit_rows)

    @property
    def subsample_size(self) -> int:
        """Rows in the subsample, ``m = k b``."""
        return self.subsample_units * self.unit_rows

    @property
    def capacity(self) -> int:
        """Units that the subsample can hold."""
        return self.subsample_units

    def for_chain(self, seed: int, chain: int) -> UnitDesign:
        """Return the design as chain ``chain`` of a run sees it."""
        return self

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
        """Draw ``count`` units with replacement."""
        if self.probabilities is not None:
            return self.probabilities.draw(count, rng)
        return rng.integers(0, self.n_units, size=count, dtype=np.int64)

    def starts(self, units: Index) -> Index:
        """Return the first row of each unit."""
        return units * self.unit_rows

    def reweigh(self, units: Index, weight: Vector) -> None:
        """Multiply the weights (m,) of the rows of ``units`` by 1 / (U omega), in place."""
        if self.probabilities is not None:
            weight *= np.repeat(self.probabilities.weights(units), self.unit_rows)


@dataclass(frozen=True)
class ProductDesign(UnitDesign):
    """The design of a block-Poisson product: factors of units, Poisson many.

    ``subsample_units`` is their expected number. The ``lambda`` products are split into
    ``n_blocks``; iteration ``t`` proposes the factors of block ``t mod G``, whose number
    is Poisson with the products of the block as its mean. These numbers depend on
    nothing but seed, chain and iteration.
    """

    factor_units: int = 1
    """Units in the mini-batch of a factor."""
    seed: int = 0
    chain: int = 0

    @property
    def products(self) -> int:
        """Number of products, lambda."""
        return self.subsample_units // self.factor_units

    @property
    def capacity(self) -> int:
        """Units that fit: twice the expected factors and twelve deviations more."""
        mean = 2.0 * self.products
        return self.factor_units * math.ceil(mean + 12.0 * math.sqrt(mean) + 30.0)

    def for_chain(self, seed: int, chain: int) -> ProductDesign:
        """Return the design as chain ``chain`` of a run sees it."""
        return replace(self, seed=seed, chain=chain)

    def block_bounds(self) -> Index:
        """Return (G + 1,) positions at which the products are cut into blocks."""
        edges = np.arange(self.n_blocks + 1, dtype=np.int64) * self.products
        bounds: Index = edges // max(self.n_blocks, 1)
        return bounds

    def proposal_counts(self, iteration: int, n: int) -> Index:
        """Return how many units each of iterations ``iteration .. iteration + n`` proposes.

        The first ``n_blocks`` of the stream fill the subsample: iterations from
        ``-n_blocks`` to -1.
        """
        first = iteration + self.n_blocks
        sizes = np.diff(self.block_bounds())
        parts = []
        for window in range(first // _WINDOW, (first + n - 1) // _WINDOW + 1):
            place = np.arange(window * _WINDOW, (window + 1) * _WINDOW)
            rng = streams.stream(self.seed, self.chain, streams.Role.COUNTS, window)
            parts.append(rng.poisson(sizes[place % self.n_blocks]))
        counts: Index = np.concatenate([np.empty(0, np.int64), *parts])
        offset = first % _WINDOW
        return counts[offset : offset + n] * self.factor_units
