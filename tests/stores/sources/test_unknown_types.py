"""Columns that Arrow cannot hold: refused by name where they are used, of no account elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.ingestion import from_table

ROWS = 40
RNG = np.random.default_rng(9)
BASE = {"y": RNG.integers(0, 2, ROWS).astype(float), "x": RNG.normal(size=ROWS)}
COLUMNS: dict[str, tuple[Any, str]] = {
    "sparse": (
        pd.Series(pd.arrays.SparseArray(np.eye(ROWS)[0])),
        r"a sparse column of pandas: make it dense, frame\['s'\]",
    ),
    "beyond int64": ([2**70] * ROWS, r"integers beyond 64 bits \(1180591620717411303424\)"),
    "beyond int64, some": (
        pd.Series([1, 2, None, -(2**64)] * (ROWS // 4), dtype=object),
        "integers beyond 64 bits",
    ),
    "mixed": ([1, "a"] * (ROWS // 2), r"values of different types \(int, str\)"),
    "objects": ([object()] * ROWS, "the type object"),
    "complex": (np.ones(ROWS) * 1j, "the type complex128"),
}


def tables(column: Any) -> dict[str, Any]:
    """Return a data frame, one with an index that Arrow cannot hold, and a mapping."""
    frame = pd.DataFrame({**BASE, "s": column})
    mixed_index = frame.set_axis(pd.Index([0, "a"] * (ROWS // 2)))
    return {"frame": frame, "index": mixed_index, "mapping": {**BASE, "s": column}}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in COLUMNS
        for kind in ("frame", "index", "mapping")
        if (name, kind) != ("sparse", "mapping")  # Arrow takes a sparse series by itself
    ],
)
def test_a_column_that_arrow_cannot_hold_matters_where_it_is_used(name: str, kind: str) -> None:
    column, found = COLUMNS[name]
    table = tables(column)[kind]
    plain = from_table(pd.DataFrame(BASE), formula="y ~ x")
    assert plain.fingerprint == from_table(table, formula="y ~ x").fingerprint
    for options in ({"formula": "y ~ x + C(s)"}, {"response": "y"}, {"formula": "s ~ x"}):
        with pytest.raises(DataError, match=f"column 's' of the table, found {found}"):
            from_table(table, **options)
    for role in ("weight", "row_id", "group"):
        with pytest.raises(DataError, match=f"column 's' of the table, found {found}"):
            from_table(table, formula="y ~ x", **{role: "s"})


def test_an_index_that_arrow_cannot_hold_is_left_out() -> None:
    frame = pd.DataFrame(BASE, index=pd.Index([2**70, *range(1, ROWS)], name="key"))
    assert ("Intercept", "x") == from_table(frame, response="y").feature_names


class Foreign:
    """A table of another package whose columns cannot be exported."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise TypeError("no such type")


def test_a_table_that_cannot_be_exported_is_refused_in_one_line() -> None:
    with pytest.raises(DataError, match="in the table, found no such type: cast its columns"):
        from_table(Foreign(), response="y")
