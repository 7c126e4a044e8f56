from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from streammc.errors import (
    BusyError,
    IdentityError,
    MissingError,
    OutputError,
    StorageIOError,
    StoreError,
)
from streammc.trace.datatree import facts, open_rows
from streammc.trace.row_arrays import GROUPS, Column, RowArrays, check_chunks, read_meta
from streammc.trace.row_tables import file_digest

VALUES = np.arange(10.0) * 1.5


def write(path, order=(4, 0, 8)):
    with RowArrays(path, ["mean"], 10, 4) as writer:
        for start in order:
            writer.target.write(start, {"mean": VALUES[start : start + 4]})
        small = {"auc": (("draw",), np.array([0.5, 0.75]))}
        writer.commit({"answer": 42, "none": np.nan}, small)


def test_any_order_of_chunks_reads_back(tmp_path):
    write(tmp_path / "p")
    found = open_rows(tmp_path / "p")
    np.testing.assert_array_equal(VALUES, found["mean"])
    np.testing.assert_array_equal([0.5, 0.75], found["auc"])
    assert facts(found) == {"answer": 42, "none": None}
    assert found.attrs["none"] == "null"
    assert ["p"] == [path.name for path in tmp_path.iterdir()]
    assert len(list(check_chunks(tmp_path / "p"))) == 4


def test_xarray_and_zarr_open_it_without_us(tmp_path):
    write(tmp_path / "p")
    np.testing.assert_array_equal(VALUES, xr.open_zarr(tmp_path / "p")["mean"])
    document = json.loads((tmp_path / "p" / "mean" / "zarr.json").read_text())
    assert "crc32c" in [codec["name"] for codec in document["codecs"]]


def test_flipped_bit_is_found(tmp_path):
    write(tmp_path / "p")
    where = tmp_path / "p" / "mean" / "c.1"
    data = bytearray(where.read_bytes())
    data[5] ^= 1
    where.write_bytes(data)
    with pytest.raises(StoreError, match=r"c\.1"):
        list(check_chunks(tmp_path / "p"))
    with pytest.raises(ValueError, match="checksum"):
        xr.open_zarr(tmp_path / "p")["mean"].load()


@pytest.mark.parametrize("lost", ["zarr.json", "mean/zarr.json", "mean/c.2", "auc/c.0"])
def test_missing_file_is_found(tmp_path, lost):
    write(tmp_path / "p")
    (tmp_path / "p" / lost).unlink()
    with pytest.raises(StoreError):
        list(check_chunks(tmp_path / "p"))


def test_missing_chunk_is_no_result(tmp_path):
    with pytest.raises(StorageIOError, match="chunk 2"):
        write(tmp_path / "p", order=(0, 4))
    assert not list(tmp_path.iterdir())


def test_leaving_without_commit_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), RowArrays(tmp_path / "p", ["mean"], 10, 4) as writer:
        writer.target.write(0, {"mean": VALUES[:4]})
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_existing_path_is_refused_also_at_the_end(tmp_path):
    (tmp_path / "p").write_text("mine")
    with pytest.raises(IdentityError):
        write(tmp_path / "p")
    with pytest.raises(IdentityError), RowArrays(tmp_path / "q", ["mean"], 4, 4) as writer:
        writer.target.write(0, {"mean": VALUES[:4]})
        (tmp_path / "q").mkdir()
        writer.commit({})
    assert {"p", "q"} == {path.name for path in tmp_path.iterdir()}


def test_debris_is_collected_and_a_living_writer_kept(tmp_path):
    (tmp_path / ".p.partial-1").mkdir()
    (tmp_path / ".p.partial-1" / "mean").mkdir()
    write(tmp_path / "p")
    assert ["p"] == [path.name for path in tmp_path.iterdir()]
    with RowArrays(tmp_path / "q", ["mean"], 4, 4), pytest.raises(BusyError):
        RowArrays(tmp_path / "q", ["mean"], 4, 4)


def test_impossible_path_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write(tmp_path / "file" / "p")
    with pytest.raises(OutputError):
        write(tmp_path / "nowhere" / "p")


def test_foreign_groups_are_refused(tmp_path):
    with pytest.raises(MissingError):
        read_meta(tmp_path / "p")
    (tmp_path / "p").mkdir()
    with pytest.raises(StoreError):
        read_meta(tmp_path / "p")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_has_a_line_for_each_row_and_coordinate_in_their_order(tmp_path, suffix):
    import pandas as pd

    path = tmp_path / f"t{suffix}"
    columns = {"mean": Column("float64", ("effect",), (2,)), "rows": Column("int64")}
    values = np.arange(20.0).reshape(10, 2)
    names = np.array([f"g,{k}" for k in range(10)])
    with RowArrays(path, columns, 10, 4, "string", of=GROUPS) as writer:
        for start in (8, 0, 4):
            here = slice(start, start + 4)
            writer.write_ids(start, names[here])
            writer.target.write(start, {"mean": values[here], "rows": np.arange(10)[here]})
        effects = {"effect": (("effect",), np.array(["Intercept", "x"]))}
        made = writer.commit({"answer": 42}, effects)
    assert made == {"fingerprint": file_digest(path)}
    assert [path.name] == [each.name for each in tmp_path.iterdir()]
    found = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert ["group", "effect", "mean", "rows"] == list(found.columns)
    assert np.repeat(names, 2).tolist() == found["group"].tolist()
    assert ["Intercept", "x"] * 10 == found["effect"].tolist()
    np.testing.assert_array_equal(values.ravel(), found["mean"])
    np.testing.assert_array_equal(np.repeat(np.arange(10), 2), found["rows"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_without_one_of_its_chunks_is_no_result(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    with RowArrays(path, ["mean"], 10, 4) as writer:
        writer.target.write(0, {"mean": VALUES[:4]})
        writer.target.write(8, {"mean": VALUES[8:]})
        with pytest.raises(StorageIOError, match="chunk 1 of 'mean'"):
            writer.commit({})
    assert [] == list(tmp_path.iterdir())
