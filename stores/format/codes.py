"""Factors that a store holds as codes: the attribute ``codes``, and the columns it stands for.

The member ``codes`` (row, K) uint16 has for each of K factors one integer a row: 0, or the number
of its column whose indicator is 1, counted from 1. An indicator is stored standardised elsewhere,
so a column has the value ``(1 - mean) / scale`` in the rows of its level, and ``-mean / scale`` in
all others, both rounded to the dtype of ``X``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.numerics.coded_matrix import (
    CodedColumns,
    CodedMatrix,
    coded_columns,
)
from streammc.stores.format.layout import CODES


def described_codes(column: str, first: int, columns: int) -> dict[str, Any]:
    """Return an entry of the attribute ``codes``: a factor, its first column and their number."""
    return {"column": column, "first": first, "columns": columns}


def read_columns(attributes: Mapping[str, Any]) -> CodedColumns | None:
    """Return the columns of a store with codes; ``None`` without codes."""
    stated: Sequence[Mapping[str, Any]] = attributes.get(CODES, ())
    if not stated:
        return None
    q, table = len(attributes["features"]), attributes["standardization"] or {}
    mean = np.asarray(table.get("mean", np.zeros(q)), np.float64)
    scale = np.asarray(table.get("scale", np.ones(q)), np.float64)
    dtype = attributes["dtype"]
    return coded_columns(
        q,
        np.array([each["first"] for each in stated]),
        np.array([each["columns"] for each in stated]),
        ((1.0 - mean) / scale).astype(dtype).astype(np.float64),
        ((0.0 - mean) / scale).astype(dtype).astype(np.float64),
    )


def with_codes(
    dense: NDArray[Any], codes: NDArray[Any] | None, columns: CodedColumns | None
) -> Any:
    """Return the design: the array as it is without codes."""
    if columns is None:
        return dense
    assert codes is not None
    return CodedMatrix(dense, codes, columns)


def checked_codes(design: CodedMatrix, start: int, root: str | Path) -> CodedMatrix:
    """Return rows whose codes are those of a column; ``start`` is the number of the first.

    Raises
    ------
    StoreError
        If a code is above the number of columns of its factor.
    """
    fault = design.fault()
    if fault is None:
        return design
    row, block, code = fault
    raise StoreError(
        f"expected codes of 0 to {design.columns.width[block]} in column {block} of {CODES!r} of "
        f"store {str(root)!r}, found {code} in row {start + row}: copy or make the store again"
    )
