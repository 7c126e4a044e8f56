"""A mixed model with the table whose groups it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from streammc.models.mixed.mixed_model import MixedModel
from streammc.models.mixed.table_link import link, table_constants
from streammc.protocols import Index, Matrix, RowBlock, Rows, Vector

_START_ROWS: Final = 2**16


@dataclass(frozen=True)
class TableModel(MixedModel):
    """A mixed model of the groups of a table, whose rows are ``(first row, number of rows)``."""

    table: Any = field(kw_only=True, compare=False, repr=False)
    """``protocols.Dataset`` of single rows, kept so that the addresses of its arrays stay valid."""

    link_kernel: ClassVar[Any] = link

    @property
    def constants(self) -> Vector:
        """Return the places of the table's arrays, and the constants of a group's link."""
        arrays: Sequence[NDArray[Any]] = self.table.rows().arrays
        return np.concatenate([table_constants(self.n_features, arrays), super().constants])

    def start(self, rows: Rows) -> Vector:
        """Return the start from up to 65,536 rows of the groups; see ``MixedModel.start``."""
        return super().start(self._rows_of(rows.X))

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return ``None``: a group has no response; its rows are seen by :meth:`fault`."""
        return None

    def fault(self, block: RowBlock) -> tuple[Index, Vector, str] | None:
        """Return rows of the table with an invalid response, the responses, and what was expected.

        ``block`` holds groups of a pass.
        """
        response = self.table.rows().arrays[1]
        if not response.size or not len(block.X):
            return None
        first, last = int(block.X[0, 0]), int(block.X[-1].sum())
        y = np.asarray(response[first:last], dtype=np.float64)
        found = super().response_fault(y)
        return None if found is None else (found[0] + first, y[found[0]], found[1])

    def _rows_of(self, places: Matrix) -> Rows:
        """Return the rows of the first groups that have ``_START_ROWS`` together, or of one."""
        first, count = places.astype(np.int64).T
        used = max(int(np.searchsorted(np.cumsum(count), _START_ROWS)), 1)
        first, count = first[:used], np.minimum(count[:used], _START_ROWS)
        before = np.repeat(np.cumsum(count) - count, count)
        at = np.repeat(first, count) + np.arange(int(count.sum())) - before
        m = len(at)
        out = Rows(np.empty((m, self.n_features)), np.empty(m), np.empty(m), np.empty(m))
        self.table.rows().gather(at, 1, out)
        return out


def bound(model: MixedModel, table: Any) -> TableModel:
    """Return a mixed model of the groups of ``table``."""
    given = {each.name: getattr(model, each.name) for each in fields(MixedModel)}
    return TableModel(**given, table=table)
