"""Units drawn ahead of the iterations that propose them, so that their rows are prefetched.

Units do not depend on theta. While one batch of iterations runs, the units of the next
batch are drawn from the subsample stream, sorted by row, and their rows are requested:
disk and processor work at the same time. A checkpoint stores the stream as if every unit
had been drawn when it was used, so that no bit of the draws depends on the number of
units drawn ahead.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from streammc import rng as streams
from streammc.protocols import Index, RowSource
from streammc.subsampling.units import UnitDesign


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
