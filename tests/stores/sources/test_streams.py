"""Tables of other libraries, by the Arrow C stream interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.ingestion import from_table, ingest

RNG = np.random.default_rng(8)
ROWS = 400
TABLE = pa.table(
    {
        "x": RNG.normal(size=ROWS),
        "g": RNG.choice(["a", "b", "c", "d"], ROWS),
        "h": RNG.choice(["u", "v", "w"], ROWS),
        "y": RNG.integers(0, 2, ROWS),
    }
)


class Once:
    """A stream that can be taken once."""

    def __init__(self) -> None:
        self._reader: Any = TABLE.to_reader(50)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        return reader.__arrow_c_stream__(requested_schema)


OPTIONS: dict[str, dict[str, Any]] = {
    "columns": {"response": "y", "features": ["x"]},
    "a factor": {"formula": "y ~ x + C(g)"},
    "knots and products": {"formula": "y ~ bs(x, df=4) * C(g)"},
    "groups": {"formula": "y ~ x + (1 | g)"},
    "ids": {"formula": "y ~ x", "row_id": "g"},
}


@pytest.mark.parametrize("make", [Once, lambda: TABLE.to_reader(50)], ids=["object", "reader"])
@pytest.mark.parametrize("case", OPTIONS)
def test_a_stream_that_is_read_once_gives_the_rows_of_its_table(case: str, make: Any) -> None:
    options = OPTIONS[case]
    expected = from_table(TABLE, **options).fingerprint
    assert expected == from_table(make(), **options).fingerprint


def test_a_stream_that_would_be_read_twice_is_refused(tmp_path: Path) -> None:
    formula = "y ~ x + (1 | g) + (1 | h)"
    with pytest.raises(DataError, match=r"found a stream that can be read once: .*pyarrow\.table"):
        ingest(Once(), tmp_path / "s.zarr", formula=formula)
    assert [] == list(tmp_path.iterdir())
    assert ROWS == from_table(pa.table(Once()), formula=formula).n_rows


def test_a_frame_of_polars_is_ingested(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    options: dict[str, Any] = {"formula": "y ~ x + C(g)", "seed": 2}
    frame = polars.from_arrow(TABLE)
    report = ingest(frame, tmp_path / "s.zarr", **options)
    assert ingest(TABLE, tmp_path / "t.zarr", **options)["fingerprint"] == report["fingerprint"]


def test_a_relation_of_duckdb_is_ingested(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("SELECT i % 7 AS x, i % 2 AS y FROM range(500) t(i)")
    report = ingest(relation, tmp_path / "s.zarr", response="y")
    assert (500, ["Intercept", "x"]) == (report["n_rows"], report["features"])


def test_two_relations_of_one_connection_are_one_line() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        pair = [connection.sql("SELECT i AS x, i % 2 AS y FROM range(9) t(i)") for _ in range(2)]
        with pytest.raises(DataError, match=r"that gives a stream of Arrow.*pyarrow\.table"):
            from_table(pair, response="y")
        tables = [each.to_arrow_table() for each in pair]
    assert 18 == from_table(tables, response="y").n_rows
