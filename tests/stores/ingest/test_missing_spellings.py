"""Spellings of a missing value in CSV: quoted they are text, and an option names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammc.errors import ConfigError, DataError
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows
from streammc.stores.sources import csv_source
from streammc.stores.store import open_store

QUOTED = 'y,x,c\n0,1,"NA"\n1,2,"DE"\n1,3,"NA"\n0,4,"null"\n'
PLAIN = QUOTED.replace('"', "")
FORMULA = "y ~ x + c"


def levels(table: Any, **options: Any) -> list[str]:
    store = from_table(table, formula=FORMULA, **options)
    found: list[str] = store.attributes["formula"]["states"]["c"]["levels"]
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


@pytest.mark.parametrize("missing", [None, [], ["NA"], ["NA", "null"]])
def test_a_quoted_spelling_of_a_missing_value_is_a_label(path: Path, missing: Any) -> None:
    path.write_text(QUOTED)
    assert ["DE", "NA", "null"] == levels(path, missing=missing)


def test_a_spelling_without_quotes_is_missing_and_the_message_says_what_to_do(path: Path) -> None:
    path.write_text(PLAIN)
    with pytest.raises(DataError, match=r"column 'c', found missing texts in 3 rows.*--missing ''"):
        levels(path)
    assert ["DE", "NA", "null"] == levels(path, missing=[])
    with pytest.raises(DataError, match="column 'c', found missing texts in 1 row"):
        levels(path, missing=["null"])


def test_an_empty_value_is_missing_with_quotes_and_without(path: Path) -> None:
    for empty in ("", '""'):
        path.write_text(QUOTED + f"1,5,{empty}\n")
        with pytest.raises(DataError, match=r"missing texts in 1 row, first in data row 5"):
            levels(path, missing=[])


@pytest.mark.parametrize("formula", ["y ~ x", FORMULA])
def test_quoted_numbers_may_be_missing_beside_quoted_labels(
    path: Path, formula: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_source, "_BLOCK", 1 << 12)  # the first such number is blocks away
    rng = np.random.default_rng(3)
    c, x = rng.choice(["NA", "DE", "FR"], 3000), rng.normal(size=3000)
    shown = [f'"{value:.6f}"' for value in x]
    for place, spelling in ((1500, '"NA"'), (1501, '""'), (2900, "NA"), (2901, "")):
        shown[place] = spelling
    y = np.arange(3000) % 2
    rows = [f'{a},{b},"{level}"' for a, b, level in zip(y, shown, c, strict=True)]
    path.write_text("\n".join(["y,x,c", *rows]) + "\n")
    with pytest.raises(DataError, match=r"column 'x', found missing values in 4 rows, .* row 1501"):
        from_table(path, formula=formula)
    options: dict[str, Any] = {"formula": formula, "drop_missing": True, "shuffle": False}
    kept = np.delete(np.arange(3000), [1500, 1501, 2900, 2901])
    table = {"y": y[kept], "x": np.round(x[kept], 6), "c": c[kept]}
    expected = from_table(table, formula=formula, shuffle=False)
    with pytest.warns(UserWarning, match="left out: 4"):
        found = from_table(path, **options)
    np.testing.assert_array_equal(expected._arrays[0], found._arrays[0])  # type: ignore[union-attr]
    path.write_text(path.read_text().replace('"NA","', '"nothing","', 1))
    with pytest.raises(DataError, match=r"numbers in column 'x', found text .*'nothing'"):
        from_table(path, **options)


@pytest.mark.parametrize("spelling", ["-999", "?", "."])
def test_numbers_have_the_spellings_that_are_named(path: Path, spelling: str) -> None:
    path.write_text(f"y,x\n0,1\n1,{spelling}\n1,3\n0,4\n")
    with pytest.warns(UserWarning, match="left out: 1"):
        store = from_table(path, response="y", drop_missing=True, missing=[spelling, "NA"])
    assert (3, ("Intercept", "x")) == (store.n_rows, store.feature_names)
    assert [spelling, "NA"] == store.attributes["missing"]


def test_rows_that_are_appended_or_predicted_have_the_spellings_of_the_store(
    path: Path, tmp_path: Path
) -> None:
    path.write_text(PLAIN)
    ingest(path, tmp_path / "s.zarr", formula=FORMULA, missing=[], shuffle=False)
    (tmp_path / "more.csv").write_text(PLAIN.replace("3,NA", "5,NA"))
    append(tmp_path / "more.csv", tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    assert 8 == store.n_rows
    written = np.asarray(store.rows().arrays[0])
    np.testing.assert_array_equal(written[:4, 2:], written[4:, 2:])
    (rows,) = encode_rows(store.attributes, tmp_path / "more.csv")
    like = from_table(tmp_path / "more.csv", like=store)
    np.testing.assert_allclose(like._arrays[0], rows.X, rtol=1e-6)  # type: ignore[union-attr]
    with pytest.raises(DataError, match="missing texts in 1 row"):
        from_table(tmp_path / "more.csv", like=store, missing=["null"])
    table = pa.table({"y": [1], "x": [1.0], "c": ["NA"]})
    pq.write_table(table, tmp_path / "more.parquet")
    assert 1 == from_table(tmp_path / "more.parquet", like=store).n_rows  # it has none to spell


def test_labels_of_groups_and_row_ids_may_be_NA(path: Path) -> None:
    path.write_text(QUOTED)
    store = from_table(path, formula="y ~ x", group="c")
    assert {b"NA", b"DE", b"null"} == {*store.groups.labels(0, 3).tolist()}  # type: ignore[union-attr]
    store = from_table(path, formula="y ~ x", row_id="c", shuffle=False)
    assert [b"NA", b"DE", b"NA", b"null"] == store.row_ids(0, 4).tolist()  # type: ignore[union-attr]


def test_spellings_for_other_tables_and_of_other_types_are_refused(path: Path) -> None:
    path.write_text(PLAIN)
    with pytest.raises(ConfigError, match="expected CSV files with --missing, found the table"):
        from_table({"y": [0, 1], "x": [1.0, 2.0]}, response="y", missing=["NA"])
    for wrong in ("NA", [1]):
        with pytest.raises(ConfigError, match="list of texts as missing"):
            from_table(path, response="y", missing=wrong)


def test_the_command_and_the_job_take_spellings(path: Path, tmp_path: Path) -> None:
    from command_line import streammc

    path.write_text(PLAIN)
    words = ("ingest", path, "--formula", FORMULA, "--json", "--quiet")
    for name, given, expected in (("a", "", []), ("b", "x,y", ["x", "y"])):
        done = streammc(*words, tmp_path / f"{name}.zarr", "--missing", given)
        assert (0, expected) == (done.code, done.json["missing"]), done.err
    assert 65 == streammc(*words, tmp_path / "c.zarr").code
    job = f"""
[source]
files = ["t.csv"]
[ingest]
formula = "{FORMULA}"
missing = [""]
[model]
name = "logistic"
[outputs]
store = "d.zarr"
run = "run"
"""
    (tmp_path / "job.toml").write_text(job)
    done = streammc("check", tmp_path / "job.toml", "--json")
    assert 0 == done.code, done.err
    assert 4 == json.loads(done.out)["stages"][0]["columns"]


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_left_out_are_counted_by_column_with_the_remedy_for_labels(
    path: Path, lazy: bool
) -> None:
    path.write_text(
        "y,x,c,g\n0,1,NA,a\n1,,DE,b\n1,3,NA,b\n0,NA,DE,a\n0,5,FR,\n1,5,FR,a\n1,2,DE,b\n"
    )
    options: dict[str, Any] = {"formula": "y ~ x + c", "drop_missing": True}
    counts = r"left out: 5 \(2 in 'x', 2 in 'c', 1 in 'g'\)"
    with pytest.warns(UserWarning, match=counts + "; where NA, null or the like is a label"):
        from_table(path, **options, group="g")
    with pytest.warns(UserWarning, match=r"left out: 4 \(2 in 'x', 2 in 'c'\)$"):
        from_table(path, **options, missing=["NA"])
    with pytest.warns(UserWarning, match=r"left out: 2 \(2 in 'x'\)$"):
        from_table(path, response="y", features=["x"], drop_missing=True)
    table = pa.table({"y": [0, 1, 1, 0], "x": [1.0, np.nan, None, 3.0], "c": ["a", "b", None, "b"]})
    source = table.to_reader() if lazy else table
    with pytest.warns(UserWarning, match=r"left out: 2 \(2 in 'x', 1 in 'c'\)$"):
        from_table(source, **options)
