"""Which units are drawn: by probability, ahead of use, by key, beside certainty rows.

Unequal probabilities: Walker's alias method with integer tickets (:class:`AliasTable`). Each of the
U units has a cell of 2^32 tickets, and unit j holds t_j of the U 2^32 tickets in all: its
probability is t_j / (U 2^32), exactly. A cell is shared by at most two units (Vose's construction),
so that one random ticket finds its unit with one comparison. After the tickets are rounded to whole
numbers nothing else is rounded, so that the estimator divides by exactly the probabilities of the
draws.

A unit is a run of ``unit_rows`` contiguous rows; ``k`` of the ``U`` units are in the
subsample, drawn with replacement, and split into ``G`` blocks of sizes that differ by at
most one. Iteration ``t`` proposes new units for block ``t mod G``.

If units have unequal probabilities omega_j, the rows of a drawn unit have the weight
``1 / (U omega_j)`` (Dang et al. 2019, eq. 9). The total of the unit is then
``D_j / (U omega_j)``, whose expectation is the mean of all ``D_j``: the formulas of the
estimate, of its variance and of their gradients stay the same.

Units are drawn ahead of the iterations that propose them (:class:`Lookahead`), so that their rows
are prefetched. They do not depend on theta. While one batch of iterations runs, the units of the
next batch are drawn from the subsample stream, sorted by row, and their rows are requested: disk
and processor work at the same time. A checkpoint stores the stream as if every unit had been drawn
when it was used, so that no bit of the draws depends on the number of units drawn ahead.

Units of an accept-reject decision follow from a key (:class:`KeyedUnits`): unit j does not depend
on the others. The number of units of a decision is not known in advance, so each decision has a
stream of its own, given by a 64-bit key: nothing has to be stored, skipped or drawn in order. With
replacement, unit ``j`` is a hash of the key and ``j``. Without replacement it is the image of ``j``
under a permutation that the key selects: a Feistel network (Black and Rogaway 2002) on the smallest
even power of two that is at least the number of units, repeated until the image is a unit. Memory
does not depend on the number of units.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.numerics.jit import i8, index_vector, inline, jit
from streammc.protocols import Index, RowSource, Vector

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


BITS = 32
CELL = 2**BITS
"""Number of tickets of a cell."""
TABLE_BYTES = 16
"""Bytes of the tables per unit while chains run."""


@jit("void(int64[::1], uint32[::1], uint32[::1], int64[::1])")
def fill_cells(left, threshold, alias, stack):  # type: ignore[no-untyped-def]
    """Write the two units that share each cell; ``left`` (U,) are the tickets of the units.

    The sum of ``left`` is U cells; each entry becomes one full cell. A ticket of cell j below
    ``threshold[j]`` belongs to unit j, any other to unit ``alias[j]``. ``stack`` (U,) is scratch:
    units with less than a cell from the start, units with more from the end.
    """
    n = left.shape[0]
    low, high = 0, n
    for j in range(n):
        threshold[j] = 0
        alias[j] = j
        if left[j] < CELL:
            stack[low] = j
            low += 1
        elif left[j] > CELL:
            high -= 1
            stack[high] = j
    while low > 0:  # the sum is exact: while a unit has too few tickets, another has too many
        low -= 1
        short, rich = stack[low], stack[high]
        threshold[short] = left[short]
        alias[short] = rich
        left[rich] -= CELL - left[short]
        left[short] = CELL
        if left[rich] <= CELL:
            high += 1
            if left[rich] < CELL:
                stack[low] = rich
                low += 1


class AliasTable:
    """Table of unequal selection probabilities of units.

    Parameters
    ----------
    relative
        (U,) probabilities over the uniform one, all positive; rounded to whole tickets.

    Attributes
    ----------
    tickets
        (U,) tickets of each unit, at least one.
    threshold, alias
        (U,) division of each cell, and the other unit of it; see :func:`fill_cells`.
    """

    def __init__(self, relative: NDArray[Any]) -> None:
        n = len(relative)
        share = np.asarray(relative, np.float64)
        if not (n and np.all(share > 0.0) and np.all(np.isfinite(share))):
            raise ValueError("expected probabilities above 0 and finite")
        tickets = np.rint(share * (CELL * (n / share.sum())))
        self.tickets: Index = np.maximum(tickets.astype(np.int64), 1)
        # Rounding leaves less than one ticket a unit: the unit with the most can take it all.
        self.tickets[np.argmax(self.tickets)] += n * CELL - int(self.tickets.sum())
        self.threshold: NDArray[np.uint32] = np.empty(n, np.uint32)
        self.alias: NDArray[np.uint32] = np.empty(n, np.uint32)
        fill_cells(self.tickets.copy(), self.threshold, self.alias, np.empty(n, np.int64))

    def draw(self, count: int, rng: np.random.Generator) -> Index:
        """Draw ``count`` units with replacement: one random number each."""
        ticket = rng.integers(0, len(self.tickets) * CELL, size=count, dtype=np.int64)
        cell = ticket >> BITS
        own = (ticket & (CELL - 1)) < self.threshold[cell]
        return np.where(own, cell, self.alias[cell].astype(np.int64))

    def weights(self, units: Index) -> Vector:
        """Return 1 / (U omega_j) of each unit: the weight of its rows in unbiased estimates."""
        weights: Vector = CELL / self.tickets[units]
        return weights


class _Drawn(NamedTuple):
    """Units in the order of the stream, and the stream before them."""

    state: dict[str, Any]
    units: Index


class Lookahead:
    """Units of one chain in the order of use, some of them drawn ahead.

    Parameters
    ----------
    design
        Sampling design of the units.
    source
        Source of rows; it is notified of the rows that will be gathered.
    rng
        The subsample stream of the chain.
    """

    def __init__(self, design: UnitDesign, source: RowSource, rng: np.random.Generator) -> None:
        self._design = design
        self._source = source
        self._rng = rng
        self._pending: deque[_Drawn] = deque()
        self._used = 0
        """Number of units used of the first entry of ``_pending``."""

    def prefetch(self, count: int) -> None:
        """Draw ahead until ``count`` units are waiting, and prefetch the rows of the new units."""
        missing = count + self._used - sum(len(drawn.units) for drawn in self._pending)
        if missing <= 0:
            return
        state = streams.get_state(self._rng)
        units = self._design.draw(missing, self._rng)
        self._pending.append(_Drawn(state, units))
        starts = np.sort(self._design.starts(units))
        self._source.will_need(starts, self._design.unit_rows)

    def take(self, count: int) -> Index:
        """Return the next ``count`` units."""
        self.prefetch(count)
        parts = [np.empty(0, np.int64)]
        while count > 0:
            units = self._pending[0].units[self._used : self._used + count]
            parts.append(units)
            count -= len(units)
            self._used += len(units)
            if self._used == len(self._pending[0].units):
                self._pending.popleft()
                self._used = 0
        return np.concatenate(parts)

    def get_state(self) -> dict[str, Any]:
        """Return the state of the stream after the units taken so far, as JSON."""
        if not self._pending:
            return streams.get_state(self._rng)
        replay = streams.from_state(self._pending[0].state)
        self._design.draw(self._used, replay)
        return streams.get_state(replay)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state of :meth:`get_state`; units drawn ahead are discarded."""
        self._rng = streams.from_state(state)
        self._pending.clear()
        self._used = 0


_ROUNDS = 8
_LEAST_BITS = 4
# With halves of two bits, some orders of five units were 1.3 times as frequent as others.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LANE = np.uint64(0xD1342543DE82EF95)
_ONE = np.uint64(1)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_TO_UNIT = 2.0**-53

key_vector: Any = types.Array(types.uint64, 1, "C")
Keys = NDArray[np.uint64]


@inline
def mix(x):  # type: ignore[no-untyped-def]
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of ``x``."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@inline
def _permuted(j, key, n, half, mask):  # type: ignore[no-untyped-def]
    x = np.uint64(j)
    while True:
        left, right = x >> half, x & mask
        round_key = key
        for _ in range(_ROUNDS):
            round_key += _GAMMA
            left, right = right, left ^ (mix(right ^ mix(round_key)) & mask)
        x = (left << half) | right
        if x < n:
            return x


@jit(types.void(key_vector, i8, i8, i8, i8, index_vector), borrow=True)
def keyed_units(keys, first, count, n_units, replace, out):  # type: ignore[no-untyped-def]
    """Write units ``first`` to ``first + count`` of every key, one key after the other.

    ``replace`` 0 draws without replacement: ``first + count`` is at most ``n_units``.
    """
    n = np.uint64(n_units)
    bits = _LEAST_BITS
    while (_ONE << np.uint64(2 * bits)) < n:
        bits += 1
    half = np.uint64(bits)
    mask = (_ONE << half) - _ONE
    place = 0
    for t in range(keys.shape[0]):
        key = keys[t]
        for j in range(first, first + count):
            if replace == 1:
                hashed = mix(key + _GAMMA * np.uint64(j + 1))
                out[place] = np.int64(float(hashed >> _S11) * _TO_UNIT * n_units)
            else:
                out[place] = np.int64(_permuted(j, key, n, half, mask))
            place += 1


@jit(types.void(types.uint64, i8, types.uint64, key_vector), borrow=True)
def _fill_keys(root, iteration, lane, out):  # type: ignore[no-untyped-def]
    for t in range(out.shape[0]):
        out[t] = mix(mix(root + _GAMMA * np.uint64(iteration + t + 1)) + _LANE * (lane + _ONE))


class KeyedUnits:
    """Units of the decisions of one chain.

    Parameters
    ----------
    n_units, unit_rows
        U units of b rows.
    seed, chain
        Seed of the run and number of the chain, which give the key of each decision.
    """

    def __init__(self, n_units: int, unit_rows: int, seed: int, chain: int) -> None:
        self.n_units = n_units
        self.unit_rows = unit_rows
        rng = streams.stream(seed, chain, streams.Role.SUBSAMPLE)
        self._root = rng.integers(0, 2**64, dtype=np.uint64)

    def draw(
        self, iteration: int, n: int, first: int, count: int, *, lane: int, replace: bool
    ) -> Index:
        """Return (n * count,) units: ``first`` to ``first + count`` of each of ``n`` iterations.

        Iterations are independent of each other, and so are the lanes of an iteration.
        """
        keys = np.empty(n, dtype=np.uint64)
        _fill_keys(self._root, iteration, np.uint64(lane), keys)
        out = np.empty(n * count, dtype=np.int64)
        keyed_units(keys, first, count, self.n_units, int(replace), out)
        return out


@jit("void(int64[::1], int64, int64[::1], float64[::1])")
def leave_out(starts, unit_rows, certainty_rows, weight):  # type: ignore[no-untyped-def]
    """Set the weights of gathered rows that are in the sorted ``certainty_rows`` to 0."""
    n = certainty_rows.shape[0]
    if n == 0:
        return
    for u in range(starts.shape[0]):
        position = np.searchsorted(certainty_rows, starts[u])
        for i in range(unit_rows):
            row = starts[u] + i
            while position < n and certainty_rows[position] < row:
                position += 1
            if position < n and certainty_rows[position] == row:
                weight[u * unit_rows + i] = 0.0
