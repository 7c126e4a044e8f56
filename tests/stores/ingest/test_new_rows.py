"""New rows are encoded as the store was, or refused by column, row and value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from streammc.errors import DataError
from streammc.stores import open_store
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows
from streammc.stores.rows.row_blocks import whole

FORMULA = "y ~ C(g) * bs(x, df=5) + poly(z, 2) + scale(log(z)) + flag + offset(z)"


def frame(rows: int = 500, seed: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, rows),
            "x": rng.uniform(0, 1, rows),
            "z": rng.uniform(1, 2, rows),
            "g": rng.choice(["a", "b", "c"], rows),
            "flag": rng.random(rows) < 0.5,
        }
    )


def encoded(attributes: Any, table: Any) -> tuple[Any, Any]:
    parts = list(encode_rows(attributes, table))
    return np.concatenate([p.X for p in parts]), np.concatenate([p.offset for p in parts])


def test_rows_of_the_table_itself_are_those_of_the_store(tmp_path: Path) -> None:
    table = frame()
    ingest(table, tmp_path / "s", formula=FORMULA, dtype="float64", shuffle=False)
    store = open_store(tmp_path / "s")
    (block,) = [whole(block) for block in store.blocks()]
    X, offset = encoded(store.attributes, table.drop(columns="y"))
    assert np.array_equal(block.X, X)
    assert np.array_equal(block.offset, offset)


def test_a_few_rows_do_not_change_the_encoding() -> None:
    table = frame()
    store = from_table(table, formula=FORMULA)
    whole, _ = encoded(store.attributes, table)
    some = table.iloc[[7, 400, 12]]
    X, offset = encoded(store.attributes, some.reset_index(drop=True))
    assert_allclose(X, whole[[7, 400, 12]], rtol=0, atol=0)
    assert_allclose(offset, some["z"])


def test_a_store_without_a_formula_encodes_too() -> None:
    table = frame().drop(columns="g")
    store = from_table(table, response="y", offset="z", shuffle=False, dtype="float64")
    X, offset = encoded(store.attributes, table.drop(columns="y"))
    (block,) = [whole(block) for block in store.blocks()]
    assert np.array_equal(block.X, X)
    assert np.array_equal(block.offset, offset)


def test_blocks_are_small_where_the_design_is_wide() -> None:
    table = {"y": np.arange(6_000) % 2, "g": [f"{row % 3_000:04d}" for row in range(6_000)]}
    with pytest.warns(UserWarning, match="3,000 columns"):
        store = from_table(table, formula="y ~ C(g)")
    parts = list(encode_rows(store.attributes, {"g": table["g"]}))
    assert 6_000 == sum(part.X.shape[0] for part in parts)
    assert max(part.X.nbytes for part in parts) < 16e6
    assert [part.start for part in parts] == list(range(0, 6_000, parts[0].X.shape[0]))


def test_a_product_that_overflows_is_refused_by_name() -> None:
    table = {"y": [0, 1, 1], "a": [1.0, 2.0, 4.0], "b": [1.0, 3.0, 2.0]}
    store = from_table(table, formula="y ~ a:b")
    with pytest.raises(DataError, match="column 'a:b', found undefined results in 1 row"):
        encoded(store.attributes, {"a": [1.0, 1e200], "b": [1.0, 1e200]})


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("g", "d", "column 'g', found unseen levels in 1 row, first in data row 3 .*'d'"),
        ("g", None, "column 'g', found missing values in 1 row, first in data row 3"),
        ("x", 1.5, "values out of bounds in 1 row, first in data row 3 .*'1.5'"),
        ("z", -1.0, "undefined results in 1 row, first in data row 3"),
        ("z", np.nan, "column 'z', found missing values in 1 row, first in data row 3"),
    ],
)
def test_unseen_levels_and_values_outside_the_knots_are_refused(
    column: str, value: Any, message: str
) -> None:
    store = from_table(frame(), formula=FORMULA)
    other = frame(10, seed=1)
    other.loc[2, column] = value
    with pytest.raises(DataError, match=message):
        encoded(store.attributes, other)


def test_an_unseen_number_names_column_and_level() -> None:
    table = frame()
    table["month"] = np.arange(500) % 12 + 1
    store = from_table(table, formula="y ~ C(month)")
    with pytest.raises(DataError, match=r"column 'month', found unseen levels in 2 rows.*'13'"):
        encoded(store.attributes, {"month": [3, 13, 0]})


def test_other_columns_are_refused() -> None:
    attributes = from_table(frame(), formula="y ~ x + g").attributes
    with pytest.raises(DataError, match="the column 'g'"):
        encoded(attributes, {"x": [1.0]})
    with pytest.raises(DataError, match="expected text in column 'g'"):
        encoded(attributes, {"x": [1.0], "g": [1.0]})
    with pytest.raises(DataError, match="expected numbers in column 'x'"):
        encoded(attributes, {"x": ["a"], "g": ["a"]})
