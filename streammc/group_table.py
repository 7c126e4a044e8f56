"""The groups of a mixed model: runs of contiguous rows, and factors that cross."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_PIECE: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class CrossedFactor:
    """A factor that crosses others: rows of a level stand anywhere in the table."""

    column: str
    """Name of its column, such as ``user``."""
    n_groups: int
    """Number of its levels."""
    labels: Callable[[int, int], NDArray[Any]]
    """``labels(start, stop)`` returns the labels of levels ``start`` to ``stop``: int64, or UTF-8
    texts as bytes."""
    terms: tuple[str, ...] = ("1",)
    """``("1",)`` for a random intercept, ``("1", "x")``, or slopes alone, ``("x", "z")``."""
    correlated: bool = False
    """Whether several effects are correlated."""


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Groups of rows with a common random effect; the rows of a group are contiguous."""

    column: str
    """Name of the grouping column, such as ``carrier``."""
    terms: tuple[str, ...]
    """``("1",)`` for a random intercept, ``("1", "distance")`` for intercept and slope."""
    correlated: bool
    """Whether intercept and slope are correlated; false for ``(1 + x || g)``."""
    offset: NDArray[np.int64]
    """(K + 1,) first row of each group, then the number of rows; read-only."""
    labels: Callable[[int, int], NDArray[Any]]
    """``labels(start, stop)`` returns the labels of groups ``start`` to ``stop``: int64, or
    UTF-8 texts as bytes."""
    largest_rows: int | None = None
    """:attr:`largest`, where it is recorded; ``None`` computes it at first use."""

    @property
    def n_groups(self) -> int:
        """Number of groups K."""
        return len(self.offset) - 1

    @cached_property
    def largest(self) -> int:
        """Number of rows of the largest group."""
        if self.largest_rows is not None:
            return self.largest_rows
        starts = range(0, self.n_groups, _PIECE)
        return max(int(np.diff(self.offset[start : start + _PIECE + 1]).max()) for start in starts)

    def labels_of_rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return the label of the group of each row from ``start`` to ``stop`` (m,)."""
        first = int(np.searchsorted(self.offset, start, side="right")) - 1
        last = int(np.searchsorted(self.offset, stop, side="left"))
        bounds: NDArray[np.int64] = np.clip(self.offset[first : last + 1], start, stop)
        return np.repeat(self.labels(first, last), bounds[1:] - bounds[:-1])

    def describe(self) -> dict[str, Any]:
        """Return the groups as in the attributes of a store, as plain JSON."""
        return {
            "column": self.column,
            "terms": list(self.terms),
            "correlated": self.correlated,
            "n_groups": self.n_groups,
            "largest": self.largest,
        }
