"""Times that are censored: how a store keeps them, in every way into it; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from streammc import append, from_arrays, from_table, ingest, open_store
from streammc.errors import ConfigError, DataError

T = [2.5, 1.0, 4.0, 0.5, 3.0, 3.0]
C = [0, 1, 0, 1, 0, 1]
X = [0.1, 0.7, -0.3, 0.2, 1.1, 1.1]
Y = [2.5, -1.0, 4.0, -0.5, 3.0, -3.0]
FORMULA = {"formula": "t ~ x", "censored": "c"}


def table(c: Any = None, t: Any = None) -> pa.Table:
    return pa.table({"t": T if t is None else t, "c": C if c is None else c, "x": X})


def responses(store: Any) -> Any:
    return np.asarray(store.rows().arrays[1])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("marks", ["numbers", "truth values"])
@pytest.mark.parametrize("options", [FORMULA, {"response": "t", "censored": "c"}])
def test_response_is_minus_the_time_where_it_is_censored(
    tmp_path: Any, suffix: str, marks: str, options: Any
) -> None:
    rows = table(C if marks == "numbers" else np.array(C, bool))
    path = tmp_path / f"t.{suffix}"
    pa.csv.write_csv(rows, path) if suffix == "csv" else pa.parquet.write_table(rows, path)
    ingest(path, tmp_path / "s.zarr", shuffle=False, **options)
    store = open_store(tmp_path / "s.zarr")
    assert responses(store).tolist() == Y
    assert store.attributes["censored"] == "c"
    assert store.feature_names == ("Intercept", "x")
    plain = from_table(rows, formula="t ~ x", shuffle=False)
    assert responses(plain).tolist() == T
    assert "censored" not in plain.attributes


def test_whole_times_keep_their_sign_in_a_dtype_that_has_one() -> None:
    y = responses(from_table(table(t=[2, 1, 200, 5, 3, 7]), shuffle=False, **FORMULA))
    assert y.tolist() == [2, -1, 200, -5, 3, -7]


def test_a_time_and_the_same_censored_are_two_cells() -> None:
    rows = pa.concat_tables([table()] * 50)
    store = from_table(rows, cells="yes", **FORMULA)
    assert store.n_rows == 6
    assert sorted(responses(store)) == sorted(Y)
    assert np.asarray(store.rows().arrays[3]).tolist() == [50.0] * 6


def test_rows_like_a_store_are_censored_alike(tmp_path: Any) -> None:
    ingest(table(), tmp_path / "s.zarr", shuffle=False, **FORMULA)
    store = open_store(tmp_path / "s.zarr")
    like = from_table(table(c=[1] * 6), like=store)
    assert responses(like).tolist() == [-t for t in T]
    unscored = "its rows can be predicted, not scored"
    with pytest.warns(UserWarning, match=unscored):
        alone = from_table(table().drop_columns(["t", "c"]), like=store)
    assert alone.response is None
    assert "censored" not in alone.attributes
    with pytest.raises(DataError, match="expected the column 'c' as censored"):
        from_table(table().drop_columns(["c"]), like=store)
    append(table(c=[1] * 6), tmp_path / "s.zarr")
    both = responses(open_store(tmp_path / "s.zarr"))
    assert both.tolist() == Y + [-t for t in T]


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (
            table(c=[0, 1, 2, 0, 3, 0]),
            FORMULA,
            "expected 0 or 1 in column 'c', found marks of censoring other than 0 and 1 in 2 rows, "
            r"first in data row 3 .*'2'.: write 1 where the event had not happened",
        ),
        (table(c=list("ynynyn")), FORMULA, "expected numbers in column 'c'.*given to --censored"),
        (
            table(t=[2.5, 0.0, -1.0, 2.0, 3.0, 3.0]),
            FORMULA,
            "expected times above 0 with --censored in column 't', found times of 0 or less in 2",
        ),
        (table(c=[1] * 6), FORMULA, "expected 0 in some row of 'c', found only 1"),
        (table(c=[0, 1, None, 0, 1, 0]), FORMULA, "expected no missing values in column 'c'"),
        (table(), {**FORMULA, "trials": "x"}, "expected --trials or --censored, found both"),
        (table(), {"censored": "c"}, "expected the column of times as --response with --censored"),
        (table(), {"formula": "t ~ x + c", "censored": "c"}, "'c' in the formula and as censored"),
    ],
)
def test_what_is_no_mark_or_no_time_is_refused_in_one_line(
    rows: Any, options: Any, words: str
) -> None:
    with pytest.raises((DataError, ConfigError), match=words) as caught:
        from_table(rows, **options)
    assert "\n" not in str(caught.value)


def test_arrays_are_censored_alike() -> None:
    X = np.ones((6, 1))
    for marks in (C, np.array(C, bool)):
        store = from_arrays(X, np.array(T), censored=marks)
        assert responses(store).tolist() == Y
        assert store.attributes["censored"] == "censored"
    whole = from_arrays(X, np.array([2, 1, 200, 5, 3, 7], np.uint8), censored=C)
    assert responses(whole).tolist() == [2, -1, 200, -5, 3, -7]


@pytest.mark.parametrize(
    ("y", "options", "words"),
    [
        (T, {"censored": [0, 1, 2, 0, 1, 0]}, "'censored', found marks of censoring other than"),
        ([0.0, *T[1:]], {"censored": C}, "times above 0 with --censored in column 'y'"),
        (T, {"censored": [1] * 6}, "with all times censored there is no event"),
        (None, {"censored": C}, "expected times as y with censored, found no y"),
        ([1.0] * 6, {"censored": C, "trials": [1] * 6}, "censored, found trials too"),
    ],
)
def test_arrays_that_are_no_censored_times_are_refused(y: Any, options: Any, words: str) -> None:
    with pytest.raises((DataError, ConfigError), match=words):
        from_arrays(np.ones((6, 1)), y, **options)
