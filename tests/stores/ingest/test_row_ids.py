"""Row ids: their values, their order, and refusals."""

from __future__ import annotations

import uuid

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import table_files
import xarray as xr

import streammc
from streammc.errors import ConfigError, DataError, StoreError
from streammc.stores import StoreWriter, from_arrays, open_store
from streammc.stores.ingest import shuffle
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.store import verify

ROWS = 9000


def frame(n=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n).round(6),
            "z": rng.normal(size=n).round(6),
            "y": rng.integers(0, 2, n),
            "key": [str(uuid.UUID(int=7919 * i)) for i in range(n)],
            "number": 3 * np.arange(n) - 5,
            "code": [f"{i:05d}" for i in range(n)],
            "day": pd.Timestamp("2020-01-01"),
            "name": [f"Zo\xeb {i}"[: 3 + i % 5] for i in range(n)],
        }
    )


TABLE = frame()
CHOSEN = {"response": "y", "features": ["x", "z"], "chunk_rows": 4096}


def as_text(ids):
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


def column(store, place):
    """A feature on the scale of the table, row by row."""
    table = store.attributes["standardization"]
    values = np.asarray(store.rows().arrays[0][: store.n_rows, place], float)
    return values * table["scale"][place] + table["mean"][place]


@pytest.mark.parametrize("row_id", [None, "key", "number"])
@pytest.mark.parametrize("formula", [None, "y ~ x + z"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_ids_move_with_their_rows(tmp_path, row_id, formula, kind):
    path = table_files.WRITERS[kind](pa.Table.from_pandas(TABLE), tmp_path / f"table.{kind}")
    options = {"formula": formula, "chunk_rows": 4096} if formula else CHOSEN
    ingest(path, tmp_path / "store", row_id=row_id, **options)
    store = open_store(tmp_path / "store")
    expected = TABLE.set_index(np.arange(ROWS) if row_id is None else TABLE[row_id])
    found = as_text(store.row_ids())
    np.testing.assert_allclose(expected["x"][found], column(store, 1), atol=1e-6)
    assert not np.array_equal(found, expected.index), "not shuffled"
    assert sorted(found) == sorted(expected.index)
    np.testing.assert_array_equal(found[4000:5000], as_text(store.row_ids(4000, 5000)))
    assert store.attributes.get("row_id") == row_id
    assert verify(tmp_path / "store")["ok"]
    memory = from_table(path, row_id=row_id, **options)
    np.testing.assert_array_equal(found, as_text(memory.row_ids()))


def test_buckets_on_disk_carry_the_ids(tmp_path, monkeypatch):
    monkeypatch.setattr("streammc.stores.ingest.prepare.LEAF_BYTES", 1 << 16)
    monkeypatch.setattr(shuffle, "LEAF_BYTES", 1 << 16)
    ingest(TABLE, tmp_path / "store", row_id="key", **CHOSEN)
    store = open_store(tmp_path / "store")
    found = TABLE.set_index("key")["z"][as_text(store.row_ids())]
    np.testing.assert_allclose(found, column(store, 2), atol=1e-6)


def test_positions_count_rows_that_are_left_out(tmp_path):
    holes = TABLE.assign(x=TABLE["x"].where(TABLE.index % 3 != 0))
    left = TABLE.index[TABLE.index % 3 != 0]
    for shuffled in (False, True):
        for path in (None, tmp_path / f"store{shuffled}"):
            options = {"drop_missing": True, "shuffle": shuffled, "path": path, **CHOSEN}
            with pytest.warns(UserWarning, match="left out: 3000"):
                store = from_table(holes, **options)
            ids = store.row_ids()
            np.testing.assert_array_equal(left, ids if not shuffled else np.sort(ids))
            np.testing.assert_allclose(TABLE["x"][ids], column(store, 1), atol=1e-6)


def test_positions_count_over_all_sources(tmp_path):
    parts = []
    for place in range(3):
        parts.append(tmp_path / f"{place}.csv")
        TABLE[place * 3000 : (place + 1) * 3000].to_csv(parts[-1], index=False)
    store = from_table(parts, **CHOSEN)
    np.testing.assert_allclose(TABLE["x"][store.row_ids()], column(store, 1), atol=1e-6)


def test_a_row_in_its_place_needs_no_id(tmp_path):
    ingest(TABLE, tmp_path / "store", shuffle=False, **CHOSEN)
    assert not (tmp_path / "store" / "row_id").exists()
    np.testing.assert_array_equal(np.arange(70, 90), open_store(tmp_path / "store").row_ids(70, 90))


def test_like_keeps_the_order_of_the_table(tmp_path):
    train = from_table(TABLE, path=tmp_path / "train", row_id="key", **CHOSEN)
    new = frame(5000, 2)
    for like in (train, tmp_path / "train"):
        for path in (None, tmp_path / f"new{like is train}"):
            store = from_table(new, like=like, path=path)
            np.testing.assert_allclose(new["x"], column(store, 1), atol=1e-5)
            np.testing.assert_array_equal(new["key"], as_text(store.row_ids()))
    asked = from_table(new, like=train, shuffle=True)
    assert not np.array_equal(new["key"], as_text(asked.row_ids()))
    assert sorted(new["key"]) == sorted(as_text(asked.row_ids()))
    other = from_table(new, like=train, row_id="number")
    np.testing.assert_array_equal(new["number"], other.row_ids())
    with pytest.warns(UserWarning, match="'key'"):
        without = from_table(new.drop(columns="key"), like=train)
    np.testing.assert_array_equal(np.arange(5000), without.row_ids())


def test_text_of_a_csv_is_kept_as_it_is_written(tmp_path):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    for name in ("code", "name", "day"):
        store = from_table(tmp_path / "t.csv", row_id=name, shuffle=False, **CHOSEN)
        written = TABLE[name].astype(str).str.slice(0, 10)
        np.testing.assert_array_equal(written, as_text(store.row_ids()))


def test_large_integers_are_exact(tmp_path):
    large = TABLE.assign(key=2**62 + np.arange(ROWS))
    large.to_csv(tmp_path / "t.csv", index=False)
    store = from_table(large, row_id="key", shuffle=False, **CHOSEN)
    np.testing.assert_array_equal(large["key"], store.row_ids())
    text = from_table(tmp_path / "t.csv", row_id="key", shuffle=False, **CHOSEN)
    np.testing.assert_array_equal(large["key"].astype(str), as_text(text.row_ids()))


@pytest.mark.trust(50)
@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (TABLE["key"].where(TABLE.index != 7), "missing row ids in 1 row, first in data row 8"),
        (TABLE["x"], "unusable row ids"),
        (TABLE["day"], "timestamp"),
        (TABLE["key"] * 8, "unusable row ids"),
        (pd.Series(["a\0", *TABLE["key"][1:]]), "unusable row ids in 1 row"),
        (pd.Series(2**64 - 1 - np.arange(ROWS, dtype=np.uint64)), "unusable row ids"),
    ],
)
def test_invalid_row_ids_are_named(tmp_path, ids, words):
    with pytest.raises(DataError, match=words):
        from_table(TABLE.assign(key=ids), row_id="key", **CHOSEN)
    with pytest.raises(DataError, match=words):
        from_table(TABLE.assign(key=ids)[["x", "y", "key"]], row_id="key", formula="y ~ x")


def test_missing_id_of_a_csv_is_named(tmp_path):
    TABLE.assign(key=TABLE["key"].where(TABLE.index != 7)).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="missing row ids in 1 row, first in data row 8"):
        ingest(tmp_path / "t.csv", tmp_path / "store", row_id="key", **CHOSEN)
    assert ["t.csv"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("options", [CHOSEN, {"formula": "y ~ x + z"}])
def test_column_of_ids_is_no_other_column(options):
    with pytest.raises((ConfigError, DataError), match="'x'"):
        from_table(TABLE, row_id="x", **options)
    with pytest.raises(DataError, match="did you mean 'number'"):
        from_table(TABLE, row_id="numbr", **options)


def test_ids_are_no_feature_unless_asked_for():
    store = from_table(TABLE[["x", "y", "number"]], response="y", row_id="number")
    assert store.feature_names == ("Intercept", "x")


@pytest.mark.parametrize("name", ["key", "number", "name"])
def test_arrays_dask_and_xarray_carry_ids(tmp_path, name):
    X, y, ids = TABLE[["x", "z"]].to_numpy(), TABLE["y"].to_numpy(), TABLE[name].to_numpy()
    memory = from_arrays(X, y, row_id=ids, chunk_rows=4096)
    np.testing.assert_array_equal(ids, as_text(memory.row_ids()))
    assert memory.fingerprint != from_arrays(X, y, row_id=ids[::-1], chunk_rows=4096).fingerprint
    lazy = da.from_array(X, chunks=(1000, 2))
    given = {"row_id": ids, "shuffle": True, "path": tmp_path / "dask"}
    store = streammc.from_dask(lazy, da.from_array(y, chunks=1000), **given)
    assert not np.array_equal(ids, as_text(store.row_ids()))
    found = TABLE.drop_duplicates(name).set_index(name)["x"]
    if TABLE[name].is_unique:
        np.testing.assert_array_equal(found[as_text(store.row_ids())], store.rows().arrays[0][:, 0])
    opened = xr.open_zarr(tmp_path / "dask")
    assert streammc.from_xarray(opened).address == str(tmp_path / "dask")
    copied = streammc.from_xarray(opened, path=tmp_path / "copy")
    np.testing.assert_array_equal(store.row_ids(), copied.row_ids())
    loaded = streammc.from_xarray(opened.load().drop_encoding())
    np.testing.assert_array_equal(store.row_ids(), loaded.row_ids())
    dataset = xr.Dataset(
        {"X": (("row", "feature"), X), "y": ("row", y)}, coords={"key": ("row", ids)}
    )
    named = streammc.from_xarray(dataset, row_id="key", path=tmp_path / "named")
    np.testing.assert_array_equal(ids, as_text(named.row_ids()))
    without = streammc.from_xarray(dataset)
    np.testing.assert_array_equal(np.arange(ROWS), without.row_ids())


def test_arrays_refuse_bad_ids():
    X = np.ones((3, 1))
    for bad in ([1, 2], [1.5, 2, 3], ["a", None, "b"], [[1], [2], [3]], [True, False, True]):
        with pytest.raises(DataError, match="row_id"):
            from_arrays(X, row_id=bad)
    for unit in ("D", "ns"):
        with pytest.raises(DataError, match="integers or text as row_id, found"):
            from_arrays(X, row_id=np.array([1, 2, 3], f"datetime64[{unit}]"))


def test_store_whose_rows_were_moved_without_ids_has_none(tmp_path):
    with StoreWriter(tmp_path / "old", features=["x"]) as writer:
        writer.append(np.ones((10, 1)), np.ones(10))
        writer.commit({"shuffle_seed": 0, "response": "y"})
    assert open_store(tmp_path / "old").row_ids() is None
    with StoreWriter(tmp_path / "left", features=["x"]) as writer:
        writer.append(np.ones((10, 1)), np.ones(10))
        writer.commit({"n_dropped": 3, "response": "y"})
    assert open_store(tmp_path / "left").row_ids() is None


def test_damaged_ids_are_found(tmp_path):
    ingest(TABLE, tmp_path / "store", row_id="key", **CHOSEN)
    where = tmp_path / "store" / "row_id" / "c.1.0"
    data = bytearray(where.read_bytes())
    data[11] ^= 1
    where.write_bytes(data)
    assert ["row_id/c.1.0"] == [fault["key"] for fault in verify(tmp_path / "store")["faults"]]
    store = open_store(tmp_path / "store")
    assert store.row_ids(0, 4096) is not None
    with pytest.raises(StoreError, match=r"row_id/c\.1\.0"):
        store.row_ids()


def test_a_pass_does_not_read_the_ids(tmp_path):
    ingest(TABLE, tmp_path / "store", row_id="key", **CHOSEN)
    store = open_store(tmp_path / "store")
    assert {"X", "y"} == {member.name for member in store.blocks()[0].members}
    assert store.rows().row_bytes == 3 * 4 + 1


def test_wide_ids_keep_chunks_small(tmp_path):
    wide = TABLE.assign(key=TABLE["key"] * 7)
    store = from_table(wide, path=tmp_path / "s", response="y", features=["x"], row_id="key")
    member = store.layout.member("row_id")
    assert member.row_bytes == 252
    assert store.layout.n_chunks * store.layout.chunk_bytes(member) < ROWS * 252 * 2 + 2**20
