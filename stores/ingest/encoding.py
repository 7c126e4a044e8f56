"""Fixed-length records of rows, standardised and in the dtypes of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.coded_matrix import CODE_DTYPE
from streammc.protocols import Matrix, Vector
from streammc.stores.format.layout import CODES, GROUP, ROW_ID
from streammc.stores.ingest.columns import Columns
from streammc.stores.rows.row_weights import proportions


@dataclass(frozen=True)
class Encoding:
    """Encoder of table blocks as records.

    A record has, if there are any, the fields ``X`` of dense columns without the intercept, and
    ``codes`` (K,), ``y``, ``offset`` and ``weight``; ``record_expansion.Expansion`` makes the
    arrays of a store of it. With trials ``y`` is the proportion of successes, and
    ``weight`` is multiplied by the trials. The last fields are ``row_id`` and ``group`` or
    ``row_group``, if there are row ids or labels of groups.
    """

    columns: Columns
    x_dtype: str
    y_dtype: str | None
    mean: Vector
    """(number of dense features,) subtracted from them; zeros without standardisation."""
    scale: Vector
    """(number of dense features,) their divisors; ones without standardisation."""
    id_dtype: str | None = None
    """Dtype of the row ids, ``int64`` or ``S`` and a length; ``None`` if not stored."""
    group_dtype: str | None = None
    """Dtype of the labels of the groups, likewise."""
    group_field: str = GROUP
    """``group`` if rows are brought together, ``row_group`` if they keep their order."""
    n_codes: int = 0
    """Number of coded factors, the last of the features of a block."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Structured dtype of a record."""
        fields: list[tuple[Any, ...]] = []
        if len(self.mean):
            fields.append(("X", self.x_dtype, (len(self.mean),)))
        if self.n_codes:
            fields.append((CODES, CODE_DTYPE, (self.n_codes,)))
        for name, column, dtype in (
            ("y", self.columns.response, self.y_dtype),
            ("offset", self.columns.offset, "float64"),
            ("weight", self.columns.weight or self.columns.trials, "float64"),
        ):
            if column is not None:
                fields.append((name, dtype))
        for name, dtype in ((ROW_ID, self.id_dtype), (self.group_field, self.group_dtype)):
            if dtype is not None:
                fields.append((name, dtype))
        return np.dtype(fields)

    def encode(
        self,
        values: Matrix,
        ids: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return the records (m,) of a block ``values`` (c, m): X = (x - mean) / scale.

        ``ids`` (m,) are the row ids and ``labels`` (m,) those of the groups, if there are any.
        """
        records = np.empty(values.shape[1], self.dtype)
        dense = len(self.mean)
        for index in range(dense):
            records["X"][:, index] = (values[index] - self.mean[index]) / self.scale[index]
        if self.n_codes:
            records[CODES] = values[dense : dense + self.n_codes].T
        for name, column in (
            ("y", self.columns.response),
            ("offset", self.columns.offset),
            ("weight", self.columns.weight),
        ):
            position = self.columns.index(column)
            if position is not None:
                records[name] = values[position]
        trials = self.columns.index(self.columns.trials)
        if trials is not None:
            records["y"] = proportions(
                values[self.columns.index(self.columns.response)], values[trials]
            )
            records["weight"] = values[trials]
            if self.columns.weight is not None:
                records["weight"] *= values[self.columns.index(self.columns.weight)]
        if self.id_dtype is not None:
            records[ROW_ID] = ids
        if self.group_dtype is not None:
            records[self.group_field] = labels
        return records
