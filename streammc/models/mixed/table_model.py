"""A mixed model with the table whose groups it is for."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ModelError
from streammc.models.mixed.mixed_model import MixedModel
from streammc.models.mixed.table_link import link, table_constants
from streammc.protocols import Index, Matrix, Rows, Vector

_START_ROWS: Final = 2**16
_TRIALS: Final = ("logistic", "probit", "binomial")
"""Models in which a row of weight 1 is one trial."""


@dataclass(frozen=True)
class TableModel(MixedModel):
    """A mixed model of the groups of a table, whose rows are ``(first row, number of rows)``."""

    table: Any = field(kw_only=True, compare=False, repr=False)
    """``protocols.Dataset`` of single rows, kept so that the addresses of its arrays stay valid."""

    link_kernel: ClassVar[Any] = link

    @property
    def constants(self) -> Vector:
        """Return the places of the table's arrays, and the constants of a group's link."""
        rows = self.table.rows()
        codes, columns = getattr(rows, "codes", None), getattr(rows, "columns", None)
        table = table_constants(self.n_features, rows.arrays, codes, columns)
        return np.concatenate([table, super().constants])

    def start(self, rows: Rows) -> Vector:
        """Return the start from up to 65,536 rows of the groups; see ``MixedModel.start``."""
        return super().start(self.rows_of(rows.X)[0])

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return ``None``: a group has no response; its rows are seen by :meth:`fault`."""
        return None

    def fault(self, X: Matrix) -> tuple[Index, Vector, str] | None:
        """Return rows with an invalid response, the responses, and what was expected.

        ``X`` (m, 2) holds the first row and the number of rows of groups.
        """
        response = self.table.rows().arrays[1]
        if not response.size or not len(X):
            return None
        at = _rows_in(*X.astype(np.int64).T)
        y = np.asarray(response[at], dtype=np.float64)
        found = super().response_fault(y)
        share_fault = getattr(self.inner, "share_fault", None)
        if found is None and share_fault is not None and not self.table.attributes.get("trials"):
            weight = self.table.rows().arrays[3]
            found = share_fault(y, weight[at] if weight.size else np.ones(len(at)))
        return None if found is None else (at[found[0]], y[found[0]], found[1])

    def rows_of(self, places: Matrix) -> tuple[Rows, Index]:
        """Return rows of groups with at most about 65,536 rows, and the group (m,) of each.

        ``places`` (K, 2) holds the first row and the number of rows of groups; groups are numbered
        from 0 on. Of one group with more rows than that, the first are taken.
        """
        first, count = places.astype(np.int64).T
        used = max(int(np.searchsorted(np.cumsum(count), _START_ROWS)), 1)
        first, count = first[:used], np.minimum(count[:used], _START_ROWS)
        at = _rows_in(first, count)
        m = len(at)
        out = Rows(np.empty((m, self.n_features)), np.empty(m), np.empty(m), np.empty(m))
        self.table.rows().gather(at, 1, out)
        return out, np.repeat(np.arange(len(count)), count)


def _rows_in(first: Index, count: Index) -> Index:
    """Return the numbers of the rows of runs of ``count`` rows from ``first``."""
    before = np.repeat(np.cumsum(count) - count, count)
    rows: Index = np.repeat(first, count) + np.arange(int(count.sum())) - before
    return rows


def bound(model: MixedModel, table: Any) -> TableModel:
    """Return a mixed model of the groups of ``table``.

    Raises
    ------
    ModelError
        If the groups do not identify the standard deviation of their effects.
    """
    _check_identified(model, table)
    given = {each.name: getattr(model, each.name) for each in fields(MixedModel)}
    return TableModel(**given, table=table)


def _check_identified(model: MixedModel, table: Any) -> None:
    """Refuse groups of one row each whose response shows no variation between groups."""
    if table.groups.n_groups < table.n_rows:
        return
    inner, weight = model.inner.name, table.rows().arrays[3]
    label = model.group_parameters[0].name
    if inner in _TRIALS and (not weight.size or float(np.max(weight)) <= 1.0):
        why = f"one trial a group says nothing about {label}"
    elif inner == "gaussian":
        why = f"only sigma^2 + {label}^2 is identified"
    else:
        return
    raise ModelError(
        f"{inner}: expected groups of several rows in column {model.column!r}, found "
        f"{table.groups.n_groups} groups of one row each: {why}; leave the groups out, or name a "
        "coarser column"
    )
