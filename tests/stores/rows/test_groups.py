"""Groups of a mixed model in data sets: as pandas groups them, from every source."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import table_files
import tampering
import xarray as xr

from streammc.errors import ConfigError, DataError, StoreError
from streammc.group_table import GroupTable
from streammc.stores import Store, StoreWriter, from_arrays, open_store
from streammc.stores.format import group_arrays
from streammc.stores.ingest import prepare, shuffle
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.store import info, verify

ROWS = 9_001
CHOSEN: dict[str, Any] = {"response": "y", "features": ["x", "z"], "chunk_rows": 4096}


def frame(n: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    code = rng.zipf(1.4, n) % 211
    day = pd.Timestamp("2024-02-01") + pd.to_timedelta(code % 40, "D")
    return pd.DataFrame(
        {
            "x": rng.normal(size=n).round(6),
            "z": rng.normal(size=n).round(6),
            "y": rng.integers(0, 2, n),
            "number": code - 30,
            "whole": (code * 2.0),
            "text": [f"Zo\xeb {k}" for k in code],
            "key": [f"{k:05d}" for k in code],
            "category": pd.Categorical([f"c{k % 50}" for k in code]),
            "flag": code % 2 == 0,
            "day": day,
        }
    )


TABLE = frame()
COLUMNS = ["number", "whole", "text", "key", "category", "flag", "day"]


def label_texts(labels: Any) -> list[str]:
    return [one.decode() if isinstance(one, bytes) else str(one) for one in labels]


def expected_rows(column: str) -> dict[str, list[int]]:
    """Rows of each label, as pandas groups them."""
    values = TABLE[column]
    if column in ("flag", "whole"):
        values = values.astype(int)
    if column == "day":
        values = values.dt.strftime("%Y-%m-%d")
    return {
        str(label): list(rows)
        for label, rows in values.groupby(values, observed=True).indices.items()
    }


def check(store: Any, column: str, expected: dict[str, list[int]] | None = None) -> None:
    """Groups, rows, ids and design of a data set are those of the table."""
    groups, ids = store.groups, store.row_ids()
    assert isinstance(groups, GroupTable)
    labels = label_texts(groups.labels(0, groups.n_groups))
    found = {
        label: ids[low:high].tolist()
        for label, low, high in zip(labels, groups.offset[:-1], groups.offset[1:], strict=True)
    }
    expected = expected_rows(column) if expected is None else expected
    assert expected == found
    assert len(labels) == groups.n_groups
    assert max(map(len, expected.values())) == groups.largest
    assert groups.describe() == store.attributes["groups"]
    assert not groups.offset.flags.writeable
    assert labels[2:5] == label_texts(groups.labels(2, 5))
    y = np.asarray(store.rows().arrays[1])[: store.n_rows]
    assert np.array_equal(TABLE["y"].to_numpy()[ids], y)


@pytest.mark.parametrize("column", COLUMNS)
def test_groups_are_those_of_pandas(tmp_path: Path, column: str) -> None:
    ingest(TABLE, tmp_path / "s", group=column, **CHOSEN)
    store = open_store(tmp_path / "s")
    check(store, column)
    memory = from_table(TABLE, group=column, **CHOSEN)
    check(memory, column)
    assert np.array_equal(memory.groups.offset, store.groups.offset)
    assert np.array_equal(memory.row_ids(), store.row_ids())


@pytest.mark.parametrize("column", ["number", "text", "key"])
@pytest.mark.parametrize("formula", [None, "y ~ x + z + (1 | {})"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_files_give_the_same_groups(
    tmp_path: Path, kind: str, column: str, formula: str | None
) -> None:
    path = table_files.WRITERS[kind](pa.Table.from_pandas(TABLE), tmp_path / f"table.{kind}")
    options: dict[str, Any] = {"group": column, **CHOSEN}
    if formula is not None:
        options = {"formula": formula.format(column), "chunk_rows": 4096}
    ingest(path, tmp_path / "s", **options)
    store = open_store(tmp_path / "s")
    check(store, column)
    assert ["Intercept", "x", "z"] == list(store.feature_names)


@pytest.mark.parametrize("column", ["number", "text"])
def test_buckets_on_disk_give_the_same_store(
    tmp_path: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ingest(TABLE, tmp_path / "whole", group=column, seed=3, **CHOSEN)
    again = ingest(TABLE, tmp_path / "again", group=column, seed=3, **CHOSEN)
    phases = set()
    monkeypatch.setattr(prepare, "LEAF_BYTES", 10_000)
    report = ingest(
        TABLE, tmp_path / "cut", group=column, seed=3, **CHOSEN,
        progress=lambda done, total, phase: phases.add(phase),
    )  # fmt: skip
    assert "shuffle" in phases
    assert whole["fingerprint"] == again["fingerprint"] == report["fingerprint"]
    other = ingest(TABLE, tmp_path / "other", group=column, seed=4, **CHOSEN)
    assert other["fingerprint"] != whole["fingerprint"]


def test_groups_of_equal_hashes_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "keyed_hash", lambda labels, key: np.zeros(len(labels), "u8"))
    ingest(TABLE, tmp_path / "s", group="text", **CHOSEN)
    check(open_store(tmp_path / "s"), "text")


def test_many_groups_fill_several_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (group_arrays, __import__("streammc.stores.format.schema", fromlist=["x"])):
        monkeypatch.setattr(module, "choose_chunk_rows", lambda row_bytes: 4096)
    rows = 10_000
    table = pd.DataFrame(
        {"y": np.arange(rows) % 2, "x": np.sin(np.arange(rows)), "g": np.arange(rows)}
    )
    for group in (table["g"], table["g"].astype(str)):
        path = tmp_path / str(group.dtype)
        ingest(table.assign(g=group), path, response="y", group="g")
        store = open_store(path)
        groups = store.groups
        assert (path / "group_offset" / "c.2").exists()
        assert np.array_equal(np.arange(rows + 1), groups.offset)
        ids = label_texts(groups.labels(0, rows))
        assert list(map(str, store.row_ids())) == ids
        assert ids[4_000:9_000] == label_texts(groups.labels(4_000, 9_000))
        assert verify(path)["ok"]


def test_slope_and_correlation_are_kept(tmp_path: Path) -> None:
    ingest(TABLE, tmp_path / "s", formula="y ~ x + z + (1 + x || text)")
    groups = open_store(tmp_path / "s").groups
    assert groups is not None
    assert ("text", ("1", "x"), False) == (groups.column, groups.terms, groups.correlated)


def test_default_features_leave_the_group_out() -> None:
    table = TABLE[["x", "y", "number"]]
    assert ("Intercept", "x") == from_table(table, response="y", group="number").feature_names


def test_row_ids_of_a_column_stay_with_their_rows(tmp_path: Path) -> None:
    table = TABLE.assign(id=np.arange(ROWS) * 3)
    ingest(table, tmp_path / "s", group="text", row_id="id", **CHOSEN)
    store = open_store(tmp_path / "s")
    check_ids = {k: [3 * row for row in rows] for k, rows in expected_rows("text").items()}
    groups, ids = store.groups, store.row_ids()
    assert groups is not None
    assert ids is not None
    labels = label_texts(groups.labels(0, groups.n_groups))
    for label, low, high in zip(labels, groups.offset[:-1], groups.offset[1:], strict=True):
        assert check_ids[label] == ids[low:high].tolist()


@pytest.mark.parametrize("formula", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_without_a_label_are_refused_or_left_out(
    tmp_path: Path, kind: str, formula: bool
) -> None:
    gaps = TABLE["text"].where(TABLE.index % 10 != 4)
    table = TABLE[["x", "z", "y"]].assign(text=gaps)
    path = table_files.WRITERS[kind](pa.Table.from_pandas(table), tmp_path / f"table.{kind}")
    options: dict[str, Any] = {"formula": "y ~ x + z + (1 | text)"}
    if not formula:
        options = {"response": "y", "group": "text"}
    with pytest.raises(DataError, match="missing group labels in 900 rows, first in data row 5 "):
        ingest(path, tmp_path / "s", **options)
    ingest(path, tmp_path / "s", drop_missing=True, **options)
    store = open_store(tmp_path / "s")
    assert 900 == store.attributes["n_dropped"]
    expected = {
        label: kept
        for label, rows in expected_rows("text").items()
        if (kept := [row for row in rows if row % 10 != 4])
    }
    check(store, "text", expected)


def test_a_number_that_is_nan_is_a_missing_label() -> None:
    table = TABLE.assign(whole=TABLE["whole"].where(TABLE.index != 7))
    with pytest.raises(DataError, match="missing group labels in 1 row, first in data row 8 "):
        from_table(table, group="whole", **CHOSEN)
    with pytest.warns(UserWarning, match="left out: 1"):
        store = from_table(table, group="whole", drop_missing=True, **CHOSEN)
    assert ROWS - 1 == store.n_rows


def test_from_arrays_brings_groups_together() -> None:
    X, y = TABLE[["x", "z"]].to_numpy(), TABLE["y"].to_numpy()
    offset, weight = np.sin(X[:, 0]), 1 + X[:, 1] ** 2
    for column in COLUMNS:
        store = from_arrays(X, y, offset=offset, weight=weight, groups=TABLE[column])
        check(store, column)
        ids = store.row_ids()
        for given, found in zip((X, y, offset, weight), store.rows().arrays, strict=True):
            assert np.array_equal(given[ids], found)
        assert column == store.groups.column


def test_from_arrays_takes_a_slope_and_ids() -> None:
    X, y = TABLE[["x", "z"]].to_numpy(), TABLE["y"].to_numpy()
    labels = TABLE["text"].tolist()
    store = from_arrays(
        X, y, groups=labels, terms=("1", "x1"), correlated=False, row_id=TABLE["x"].astype(str)
    )
    groups = store.groups
    assert ("group", ("1", "x1"), False) == (groups.column, groups.terms, groups.correlated)
    assert [str(x) for x in store.rows().arrays[0][:, 0]] == label_texts(store.row_ids())
    plain = from_arrays(X, y, groups=labels)
    assert 3 == len({store.fingerprint, plain.fingerprint, from_arrays(X, y).fingerprint})


def test_fingerprint_in_memory_depends_on_the_labels() -> None:
    X, y = np.ones((4, 1)), np.zeros(4)
    first, second = (from_arrays(X, y, groups=labels) for labels in ([1, 1, 2, 2], [1, 1, 3, 3]))
    assert first.fingerprint != second.fingerprint


def test_data_sets_without_groups_are_the_bytes_of_before(tmp_path: Path) -> None:
    i = np.arange(9_000)
    table = pd.DataFrame({"x": (i * 7919 % 1000) / 7.0, "y": i % 2, "g": (i % 13).astype(str)})
    report = ingest(table, tmp_path / "s", formula="y ~ x + C(g)")
    assert "groups" not in report
    assert FIXED[0] == report["fingerprint"]
    data = from_arrays(table[["x"]], table["y"])
    assert FIXED[1] == data.fingerprint
    assert data.groups is None
    assert open_store(tmp_path / "s").groups is None


# Of the version before groups, but for the means of indicators, which are exact since then.
FIXED = (
    "4b7e69ce874fa2c53a93dba6e0ad506c71778721babc3188f42f92d4791aa4b5",
    "0067ad7a99bb9c95dbcbae1b4c7420eb43c8d0e4423b9983d451537d7a66ed4e",
)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no such column": ({"group": "txt"}, DataError, "did you mean 'text'"),
    "the response": ({"group": "y"}, ConfigError, "'y' as response and group"),
    "a feature": ({"group": "x"}, ConfigError, "'x' as group and again as a feature"),
    "order of the file": ({"group": "text", "shuffle": False}, ConfigError, "--no-shuffle"),
    "one group": ({"group": "one"}, DataError, "at least 2 groups in column 'one', found 1"),
    "fractions": ({"group": "z2"}, DataError, "unusable group labels in 9001 rows"),
    "long labels": ({"group": "long"}, DataError, "texts of at most 256 bytes"),
    "lists": ({"group": "list"}, DataError, "integers or text as group labels"),
    "times of the row id": ({"group": "key", "row_id": "key"}, ConfigError, "row id and group"),
}
FORMULAS: dict[str, tuple[type[Exception], str]] = {
    "y ~ x + (1 | txt)": (DataError, "did you mean 'text'"),
    "y ~ x + (1 | y)": (DataError, "'y' in the formula and as group"),
    "y ~ key + (0 + key | text)": (ConfigError, "columns of the slopes of 'text' .* found 'key"),
    "y ~ x + (1 | one)": (DataError, "at least 2 groups"),
}


def wrong_table() -> pa.Table:
    table = pa.Table.from_pandas(TABLE, preserve_index=False)
    long = ["x" * 10_000_000, *["a"] * (ROWS - 1)]
    return (
        table.append_column("one", pa.array([5] * ROWS))
        .append_column("z2", pa.array(np.arange(ROWS) + 0.5))
        .append_column("long", pa.array(long))
        .append_column("list", pa.array([[1]] * ROWS))
    )


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_groups_are_refused_in_a_short_line(tmp_path: Path, case: str) -> None:
    options, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text) as caught:
        ingest(wrong_table(), tmp_path / "s", **CHOSEN, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("formula", FORMULAS)
def test_wrong_groups_of_a_formula_are_refused(tmp_path: Path, formula: str) -> None:
    kind, text = FORMULAS[formula]
    with pytest.raises(kind, match=text):
        ingest(wrong_table(), tmp_path / "s", formula=formula)


def test_groups_are_given_once() -> None:
    with pytest.raises(ConfigError, match="both 'text' and 'key': leave out --group"):
        from_table(TABLE, formula="y ~ x + (1 | text)", group="key")


def test_one_group_that_is_left_over_is_refused(tmp_path: Path) -> None:
    table = TABLE.assign(x=TABLE["x"].where(TABLE["number"] == TABLE["number"][0]))
    for path in (None, tmp_path / "s"):
        with pytest.raises(DataError, match="at least 2 groups in column 'number', found 1"):
            from_table(table, group="number", drop_missing=True, path=path, **CHOSEN)


ARRAYS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "length": ({"groups": [1, 2]}, DataError, "expected 4 values of groups"),
    "missing": ({"groups": [1, None, 2, 2]}, DataError, "missing group labels in 1 row"),
    "one": ({"groups": "aaaa"}, DataError, "expected 4 values of groups"),
    "one group": ({"groups": [1] * 4}, DataError, "at least 2 groups"),
    "objects": ({"groups": [{}] * 4}, DataError, "integers or text as groups"),
    "long": ({"groups": ["a" * 10_000_000, "b", "c", "d"]}, DataError, "unusable group labels"),
    "no groups": ({"terms": ("1", "x0")}, ConfigError, "found none: pass the labels as groups"),
    "no intercept": ({"groups": [1, 1, 2, 2], "terms": ("x0",)}, ConfigError, "one slope"),
    "two slopes": ({"groups": [1, 1, 2, 2], "terms": ("1", "x0", "x0")}, ConfigError, "one slope"),
    "no feature": ({"groups": [1, 1, 2, 2], "terms": ("1", "u")}, ConfigError, "one slope"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_wrong_groups_of_arrays_are_refused(case: str) -> None:
    options, kind, text = ARRAYS[case]
    with pytest.raises(kind, match=text):
        from_arrays(np.ones((4, 1)), np.zeros(4), **options)


@pytest.fixture
def grouped_store(tmp_path: Path) -> Path:
    ingest(TABLE, tmp_path / "s", group="text", **CHOSEN)
    return tmp_path / "s"


def test_info_and_xarray_know_the_groups(grouped_store: Path) -> None:
    found = info(grouped_store)
    n_groups = len(expected_rows("text"))
    assert n_groups == found["groups"]["n_groups"]
    assert [n_groups + 1] == found["arrays"]["group_offset"]["shape"]
    with xr.open_zarr(grouped_store) as table:
        assert ("group_bound",) == table["group_offset"].dims
        assert ("group", "group_byte") == table["group"].dims
        assert ROWS == table["group_offset"].values[-1]


@pytest.mark.parametrize("key", ["group_offset/c.0", "group/c.0.0"])
def test_a_flipped_bit_is_found(grouped_store: Path, key: str) -> None:
    content = bytearray((grouped_store / key).read_bytes())
    content[9] ^= 1
    (grouped_store / key).write_bytes(content)
    report = verify(grouped_store)
    assert [key] == [fault["key"] for fault in report["faults"]]
    store = open_store(grouped_store)
    with pytest.raises(StoreError, match=key):
        assert store.groups is not None
        store.groups.labels(0, 3)


OFFSETS = {
    "0 first": lambda offset: offset + (np.arange(len(offset)) == 0),
    "increasing numbers": lambda offset: np.where(np.arange(len(offset)) == 2, offset[1], offset),
    f"{ROWS} rows": lambda offset: offset - (np.arange(len(offset)) == len(offset) - 1),
    "a largest group of": lambda offset: np.append(np.arange(len(offset) - 1), ROWS),
}


@pytest.mark.parametrize("text", OFFSETS)
def test_inconsistent_offsets_are_refused(grouped_store: Path, text: str) -> None:
    key = "group_offset/c.0"
    offset = np.fromfile(grouped_store / key, np.int64)
    OFFSETS[text](offset).astype(np.int64).tofile(grouped_store / key)
    tampering.seal(grouped_store, key)
    with pytest.raises(StoreError, match=f"expected {text}.* in 'group_offset' of store"):
        _ = open_store(grouped_store).groups
    report = verify(grouped_store)
    assert not report["ok"]
    assert "group_offset" in report["faults"][0]["detail"]


ATTRIBUTES: dict[str, tuple[str, Any]] = {
    "no column": ("column", None),
    "no intercept": ("terms", ["x"]),
    "no such feature": ("terms", ["1", "u"]),
    "no groups": ("n_groups", 0),
    "other number": ("n_groups", 5),
    "not a number": ("largest", "9"),
    "neither": ("correlated", 1),
}


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_attributes_of_groups_are_checked(grouped_store: Path, case: str) -> None:
    name, value = ATTRIBUTES[case]

    def change(document: dict[str, Any]) -> None:
        document["attributes"]["streammc"]["groups"][name] = value

    tampering.edit(grouped_store, "zarr.json", change)
    with pytest.raises(StoreError, match=r"groups|'shape' in 'group_offset"):
        open_store(grouped_store)


@pytest.mark.parametrize("name", ["group", "group_offset"])
def test_a_store_without_one_of_the_arrays_is_refused(grouped_store: Path, name: str) -> None:
    (grouped_store / name).rename(grouped_store.parent / name)
    with pytest.raises(StoreError, match=f"'{name}'"):
        open_store(grouped_store)


def test_writer_takes_groups_of_its_own(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", features=["x"], y_dtype=None, group="S3") as writer:
        assert writer.groups is not None
        writer.append(np.arange(6.0)[:, np.newaxis])
        for labels in ([b"abc", b"abc"], [b"abc", b"d"], [b"e", b"e"]):
            writer.groups.add_rows(np.array(labels, "S3"))
        writer.commit({"groups": {"column": "g", "terms": ["1"], "correlated": True}})
    store = open_store(tmp_path / "s")
    assert isinstance(store, Store)
    assert store.groups is not None
    assert [0, 3, 4, 6] == store.groups.offset.tolist()
    assert [b"abc", b"d", b"e"] == store.groups.labels(0, 3).tolist()
    assert 3 == store.groups.largest


def test_dates_are_labels_in_their_iso_form() -> None:
    days = [datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)] * 2
    store = from_arrays(np.ones((4, 1)), np.zeros(4), groups=days)
    assert {b"2024-02-29", b"2024-03-01"} == {*store.groups.labels(0, 2)}
