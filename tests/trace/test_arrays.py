import os
import random
import re
from contextlib import suppress

import numpy as np
import pytest
import xarray as xr

from streammc.errors import ConfigError, MissingError, OutputError, StorageIOError, StoreError
from streammc.trace.arrays import read_arrays, write_arrays

ARRAYS = {
    "hessian": np.arange(9.0).reshape(3, 3) / 7.0,
    "rows": np.arange(5, dtype=np.int64),
    "flags": np.array([True, False]),
    "single": np.float32(1.5),
    "empty": np.zeros((0, 4)),
    "names": np.array(["a", "é", ""]),
}
META = {"order": 2, "certificate": {"decrement": 1e-300, "passes": [1, 2]}}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "cv.zarr"
    write_arrays(path, ARRAYS, META)
    return path


def assert_right(path):
    arrays, meta = read_arrays(path)
    assert {*arrays} == {*ARRAYS}
    assert meta == META
    for name, expected in ARRAYS.items():
        np.testing.assert_array_equal(expected, arrays[name])
        assert arrays[name].dtype == np.asarray(expected).dtype
        assert arrays[name].flags.writeable


def test_arrays_are_read_back_unchanged(written):
    assert_right(written)


def test_xarray_reads_saved_arrays(written):
    for consolidated in (True, False):
        found = xr.open_dataset(written, engine="zarr", consolidated=consolidated)
        np.testing.assert_array_equal(ARRAYS["hessian"], found["hessian"])
        assert found.attrs["order"] == 2


def test_an_older_result_is_replaced_and_nothing_stays_behind(written):
    write_arrays(written, {"rows": np.arange(3)}, {})
    assert {*read_arrays(written)[0]} == {"rows"}
    assert os.listdir(written.parent) == ["cv.zarr"]


def test_other_files_are_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("text")
    for target in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(OutputError, match="something else"):
            write_arrays(target, ARRAYS, META)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_failure_leaves_the_older_result(written, monkeypatch):
    def failing(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageIOError, match="Input/output error"):
        write_arrays(written, {"rows": np.arange(3)}, {})
    assert_right(written)
    assert os.listdir(written.parent) == ["cv.zarr"]


def test_any_flipped_bit_is_found_or_harmless(written):
    draw = random.Random(7)
    for where in sorted(p for p in written.rglob("*") if p.is_file()):
        good = where.read_bytes()
        for _ in range(6):
            bad = bytearray(good)
            bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
            where.write_bytes(bad)
            with suppress(StoreError):
                assert_right(written)
                continue
            with pytest.raises(StoreError, match=re.escape(str(where))):
                read_arrays(written)
        where.write_bytes(good)


def test_missing_truncated_and_swapped_files_are_found(written):
    for where in sorted(written.rglob("c*")):
        good = where.read_bytes()
        for bad in (good[:-1], b"", good + b"0"):
            where.write_bytes(bad)
            with pytest.raises(StoreError) as caught:
                read_arrays(written)
            assert str(where) in str(caught.value)
        where.unlink()
        with pytest.raises(StoreError):
            read_arrays(written)
        where.write_bytes(good)
    # Of the right size and with a right checksum of its own, but another array.
    write_arrays(written.parent / "other", {"rows": np.arange(5) + 1}, {})
    (written / "rows" / "c.0").write_bytes((written.parent / "other" / "rows" / "c.0").read_bytes())
    with pytest.raises(StoreError, match="rows"):
        read_arrays(written)


def test_unsupported_arrays_names_and_attributes_are_refused(tmp_path):
    for name, values in (("a", np.array([{}])), ("../a", np.zeros(2)), ("c", np.zeros(2, complex))):
        with pytest.raises(ConfigError):
            write_arrays(tmp_path / "x", {name: values}, {})
    with pytest.raises(ConfigError, match="reserved"):
        write_arrays(tmp_path / "x", {}, {"streammc": 1})
    assert os.listdir(tmp_path) == []


def test_missing_path_and_foreign_folder_give_different_errors(tmp_path):
    with pytest.raises(MissingError):
        read_arrays(tmp_path / "x")
    with pytest.raises(StoreError, match=r"no zarr\.json"):
        read_arrays(tmp_path)


def test_a_run_is_not_arrays(job, tmp_path):
    job.create(tmp_path / "run")
    with pytest.raises(StoreError, match="kind 'run'"):
        read_arrays(tmp_path / "run")
