"""Text and categories as polars hands them over: Arrow views, plain or in a dictionary."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.ingestion import from_table

ROWS = 120
RNG = np.random.default_rng(4)
BASE = {"y": RNG.integers(0, 2, ROWS), "x": RNG.normal(size=ROWS)}
WORDS = RNG.choice(["a", "b", "c"], ROWS).tolist()
FORMULA = "y ~ x + C(g)"
LEVELS = ["c", "b", "a", "never"]


class Stream:
    """Any object of another library with ``__arrow_c_stream__``."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def categories(*, ordered: bool, values: list[Any] | None = None) -> pa.Array:
    """Return a dictionary of string views, as polars makes of Categorical and Enum."""
    codes = [None if word is None else LEVELS.index(word) for word in values or WORDS]
    words = pa.array(LEVELS, pa.string_view())
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint32()), words, ordered=ordered)


def stored(table: Any, **options: Any) -> tuple[list[str], str]:
    store = from_table(table, **({"formula": FORMULA} | options))
    return list(store.feature_names), store.fingerprint


def table(column: Any, name: str = "g") -> pa.Table:
    return pa.table({**BASE, "g": WORDS} | {name: column})


@pytest.mark.parametrize("wrap", [Stream, lambda given: given])
@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_views_are_those_of_plain_text(wrap: Any, ordered: bool) -> None:
    plain = pa.DictionaryArray.from_arrays(
        categories(ordered=ordered).indices, pa.array(LEVELS), ordered=ordered
    )
    names, fingerprint = stored(wrap(table(plain)))
    assert (names, fingerprint) == stored(wrap(table(categories(ordered=ordered))))
    assert ["Intercept", "x", "C(g)[T.b]", "C(g)[T.a]"] == names


def test_views_in_an_arrow_file_and_as_row_ids(tmp_path: Path) -> None:
    ids = [f"row {i}" for i in range(ROWS)]
    views = pa.DictionaryArray.from_arrays(
        pa.array(range(ROWS), pa.uint32()), pa.array(ids, pa.string_view())
    )
    given = table(categories(ordered=True)).append_column("id", views)
    with pa.ipc.new_file(tmp_path / "t.arrow", given.schema) as sink:
        sink.write_table(given, max_chunksize=50)
    plain = table(categories(ordered=True)).append_column("id", pa.array(ids))
    assert stored(plain, row_id="id")[0] == stored(tmp_path / "t.arrow", row_id="id")[0]
    store = from_table(tmp_path / "t.arrow", formula=FORMULA, row_id="id")
    assert ROWS == store.n_rows


def test_missing_categories_are_missing() -> None:
    column = categories(ordered=False, values=[None, *WORDS[1:]])
    with pytest.raises(DataError, match="missing values in 1 row"):
        stored(table(column))
    with pytest.warns(UserWarning, match="left out: 1"):
        store = from_table(table(column), formula=FORMULA, drop_missing=True)
    assert ROWS - 1 == store.n_rows


def test_categories_as_numbers_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"column 'g', found text in 120 rows.*C\(g\)"):
        stored(table(categories(ordered=False)), formula=None, response="y")


def test_bytes_of_views_are_text() -> None:
    words = [word.encode() for word in WORDS]
    assert (
        stored(table(pa.array(words, pa.binary())))[0]
        == (stored(table(pa.array(words, pa.binary_view())))[0])
    )


def polars_columns(pl: Any) -> dict[str, Any]:
    text = pl.Series(WORDS)
    return {
        "text": text,
        "Categorical": text.cast(pl.Categorical),
        "Enum": text.cast(pl.Enum(LEVELS)),
    }


@pytest.mark.parametrize("kind", ["text", "Categorical", "Enum"])
def test_polars_gives_what_pandas_gives(kind: str) -> None:
    pl, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    appeared = list(dict.fromkeys(WORDS))
    levels = {"text": None, "Categorical": appeared, "Enum": LEVELS}[kind]
    given = pandas.Series(WORDS)
    if levels is not None:
        given = pandas.Categorical(WORDS, categories=levels, ordered=kind == "Enum")
    frame = pl.DataFrame({**BASE, "g": polars_columns(pl)[kind]})
    assert stored(pandas.DataFrame({**BASE, "g": given})) == stored(frame)
    like = from_table(frame, formula=FORMULA)
    assert like.feature_names == from_table(frame.head(7), like=like).feature_names


def test_polars_dates_are_a_factor_of_iso_text() -> None:
    pl = pytest.importorskip("polars")
    days = [datetime.date(2020, 2, 1 + row % 3) for row in range(ROWS)]
    text = pl.DataFrame({**BASE, "g": [day.isoformat() for day in days]})
    assert stored(text) == stored(pl.DataFrame({**BASE, "g": days}))


@pytest.mark.parametrize("name", ["Date", "Datetime", "Time"])
def test_polars_dates_are_refused_by_name(name: str) -> None:
    pl = pytest.importorskip("polars")
    moment = datetime.datetime(2020, 2, 1, 3, 4)
    value = {"Date": moment.date(), "Datetime": moment, "Time": moment.time()}[name]
    frame = pl.DataFrame({**BASE, "g": [value] * ROWS})
    with pytest.raises(DataError, match=r"numbers in column 'g' of the table, found (dates|times)"):
        stored(frame, formula=None, response="y")


def test_a_type_that_arrow_does_not_know_is_refused_by_the_name_of_its_column() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({**BASE, "g": pl.Series(range(ROWS)).cast(pl.Int128)})
    with pytest.raises(DataError, match="column 'g' of the table, found the type Int128"):
        stored(frame)
    assert ["Intercept", "x"] == stored(frame, formula="y ~ x")[0]
