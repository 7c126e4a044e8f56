"""Sampling designs: units, blocks of units, and draws of units.

A unit is a run of ``unit_rows`` contiguous rows; ``k`` of the ``U`` units are in the
subsample, drawn with replacement, and split into ``G`` blocks of sizes that differ by at
most one. Iteration ``t`` proposes new units for block ``t mod G``.

If units have unequal probabilities omega_j, the rows of a drawn unit have the weight
``1 / (U omega_j)`` (Dang et al. 2019, eq. 9). The total of the unit is then
``D_j / (U omega_j)``, whose expectation is the mean of all ``D_j``: the formulas of the
estimate, of its variance and of their gradients stay the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from streammc import rng as streams
from streammc.protocols import Index, Vector
from streammc.subsampling.alias import AliasTable

_WINDOW: Final = 1024


@dataclass(frozen=True)
class UnitDesign:
    """Sampling design of a subsample, fixed before the first iteration, shared by all chains."""

    n_rows: int
    unit_rows: int
    subsample_units: int
    """Number of units k of the subsample."""
    n_blocks: int
    """Number of blocks G."""
    probabilities: AliasTable | None = field(default=None, kw_only=True)
    """Probabilities of the units; ``None`` if all are the same."""

    @property
    def n_units(self) -> int:
        """Number of units U of the data; the last unit may be short."""
        return -(-self.n_rows // self.unit_rows)

    @property
    def subsample_size(self) -> int:
        """Number of rows of the subsample, ``m = k b``."""
        return self.subsample_units * self.unit_rows

    @property
    def capacity(self) -> int:
        """Largest number of units of the subsample."""
        return self.subsample_units

    def for_chain(self, seed: int, chain: int) -> UnitDesign:
        """Return the design as chain ``chain`` of a run sees it."""
        return self

    def block_bounds(self) -> Index:
        """Return (G + 1,) bounds of the blocks among the k units."""
        edges = np.arange(self.n_blocks + 1, dtype=np.int64) * self.subsample_units
        bounds: Index = edges // max(self.n_blocks, 1)
        return bounds

    def proposal_counts(self, iteration: int, n: int) -> Index:
        """Return the number of units proposed in each of ``n`` iterations from ``iteration`` on."""
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
    """Sampling design of a block-Poisson product: a Poisson number of factors of units.

    ``subsample_units`` is the expected number of units. The ``lambda`` products are split into
    ``n_blocks``; iteration ``t`` proposes the factors of block ``t mod G``, whose number
    is Poisson with the number of products of the block as its mean. The numbers of factors
    depend only on seed, chain and iteration.
    """

    factor_units: int = 1
    """Units in the mini-batch of a factor."""
    seed: int = 0
    chain: int = 0

    @property
    def products(self) -> int:
        """Number of products lambda: the expected number of factors."""
        return self.subsample_units // self.factor_units

    @property
    def capacity(self) -> int:
        """Largest number of units: those of twice the expected factors and twelve sd more."""
        mean = 2.0 * self.products
        return self.factor_units * math.ceil(mean + 12.0 * math.sqrt(mean) + 30.0)

    def for_chain(self, seed: int, chain: int) -> ProductDesign:
        """Return the design as chain ``chain`` of a run sees it."""
        return replace(self, seed=seed, chain=chain)

    def block_bounds(self) -> Index:
        """Return (G + 1,) bounds of the blocks among the products."""
        edges = np.arange(self.n_blocks + 1, dtype=np.int64) * self.products
        bounds: Index = edges // max(self.n_blocks, 1)
        return bounds

    def proposal_counts(self, iteration: int, n: int) -> Index:
        """Return the number of units proposed in each of ``n`` iterations from ``iteration`` on.

        Iterations ``-n_blocks`` to -1, the first of the stream, fill the subsample.
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
