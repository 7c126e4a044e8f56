"""Draws of units with unequal probabilities: Walker's alias method with integer tickets.

Each of the U units has a cell of 2^32 tickets, and unit j holds t_j of the U 2^32 tickets
in all: its probability is t_j / (U 2^32), exactly. A cell is shared by at most two units
(Vose's construction), so that one random ticket finds its unit with one comparison.
After the tickets are rounded to whole numbers nothing else is rounded, so that the estimator
divides by exactly the probabilities of the draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.jit import jit
from streammc.protocols import Index, Vector

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
