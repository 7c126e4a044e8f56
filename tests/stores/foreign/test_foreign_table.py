from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import streammc
from streammc.errors import IdentityError, SamplingWarning, StoreError, StreammcError
from streammc.protocols import Rows
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import Store, open_store

N = 9000


def table() -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, 3)).astype("float32")
    return X, (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype("int8")


def write(path: Path, version: Any, *, X: Any = None, y: Any = None, **options: Any) -> str:
    default_X, default_y = table()
    group = zarr.open_group(path, mode="w", zarr_format=version)
    shape = {"chunks": (1000, 2)} | options
    full = {"write_empty_chunks": True}
    group.create_array("rows", data=default_X if X is None else X, config=full, **shape)
    group.create_array("label", data=default_y if y is None else y, chunks=(700,), config=full)
    return f"{path}#X=rows&y=label"


def draws_of(store: Store) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(
            store,
            streammc.models.logistic(),
            sampler=streammc.samplers.hmc_ecs(),
            chains=2,
            draws=40,
            warmup=40,
            seed=1,
        )
    return run["posterior"]["beta"].values


@pytest.mark.trust(50)
@pytest.mark.parametrize(
    ("version", "options"),
    [
        (3, {}),
        (2, {}),
        (3, {"chunks": (500, 3), "shards": (2000, 3)}),
        (3, {"chunks": (500, 1), "shards": (2000, 3), "compressors": None}),
    ],
)
def test_draws_from_a_foreign_group_are_those_of_an_ingested_copy(
    version: int, options: dict[str, Any], tmp_path: Path
) -> None:
    X, y = table()
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"label": y}
    plain = {"shuffle": False, "standardize": False, "intercept": False}
    ingest(columns, tmp_path / "own.zarr", response="label", **plain)
    foreign = open_store(write(tmp_path / "f.zarr", version, **options))
    assert ("x0", "x1", "x2") == foreign.feature_names
    np.testing.assert_array_equal(draws_of(open_store(tmp_path / "own.zarr")), draws_of(foreign))


def test_arrays_called_X_and_y_need_no_names(tmp_path: Path) -> None:
    X, y = table()
    group = zarr.open_group(tmp_path / "f.zarr", mode="w")
    group.create_array("X", data=X)
    group.create_array("y", data=y, config={"write_empty_chunks": True})
    store = open_store(tmp_path / "f.zarr")
    assert (N, 3) == (store.n_rows, store.n_features)
    assert "y" == store.response


def test_rows_are_not_appended_to_arrays_of_another_program(tmp_path: Path) -> None:
    address = write(tmp_path / "f.zarr", 3)
    before = open_store(address).fingerprint
    with pytest.raises(IdentityError, match="found arrays of another program"):
        streammc.append({"label": [0.0], "x": [1.0]}, address)
    assert before == open_store(address).fingerprint


@pytest.mark.parametrize("version", [2, 3])
def test_missing_chunk_is_an_error_and_never_the_fill_value(version: int, tmp_path: Path) -> None:
    address = write(tmp_path / "f.zarr", version)
    store = open_store(address)
    chunk = tmp_path / "f.zarr" / "rows" / ("c/4/0" if version == 3 else "4.0")
    chunk.unlink()
    out = Rows(np.empty((1, 3)), np.empty(1), np.empty(1), np.empty(1))
    with pytest.raises(StoreError, match="found nothing"):
        store.rows().gather(np.array([4500]), 1, out)
    with pytest.raises(StoreError, match="found 1 absent"):
        list(store.blocks()[0].pieces())
    with pytest.raises(StoreError, match=r"18 chunks of 'rows' .* 1 absent, .*4.0' first"):
        open_store(address)
    # zarr by itself reads zeros there.
    group = zarr.open_group(tmp_path / "f.zarr", mode="r")
    array = group["rows"]
    assert isinstance(array, zarr.Array)
    assert not np.asarray(array[4500, :2]).any()


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_that_zarr_leaves_out_are_refused_until_they_are_written(
    version: Any, tmp_path: Path
) -> None:
    X = table()[0]
    X[:3500] = 0.0
    group = zarr.open_group(tmp_path / "f.zarr", mode="w", zarr_format=version)
    group.create_array("X", data=X, chunks=(1000, 3))
    absent = f"9 chunks of 'X' .*, found 3 absent, 'X/{'c/0/0' if version == 3 else '0.0'}' first"
    with pytest.raises(StoreError, match=f"{absent}: .*write_empty_chunks=True") as caught:
        open_store(tmp_path / "f.zarr")
    assert "copy or make the store again" not in str(caught.value)
    with zarr.config.set({"array.write_empty_chunks": True}):
        array: Any = zarr.open_array(tmp_path / "f.zarr" / "X", mode="r+")
        for start in range(0, N, 1000):
            array[start : start + 1000] = array[start : start + 1000]
    out = Rows(np.empty((1, 3)), np.empty(1), np.empty(1), np.empty(1))
    open_store(tmp_path / "f.zarr").rows().gather(np.array([3500]), 1, out)
    np.testing.assert_array_equal(out.X, X[3500:3501])


def test_shard_without_one_of_its_pieces_is_refused(tmp_path: Path) -> None:
    X, y = table()
    X[500:1000] = 0.0
    group = zarr.open_group(tmp_path / "f.zarr", mode="w")
    group.create_array("X", data=X, chunks=(500, 3), shards=(2000, 3))
    group.create_array("y", data=y, config={"write_empty_chunks": True})
    store = open_store(tmp_path / "f.zarr")
    with pytest.raises(StoreError, match="write_empty_chunks=True"):
        list(store.blocks()[0].pieces())


def test_changed_chunk_makes_another_fingerprint_and_fails_the_recheck(tmp_path: Path) -> None:
    address = write(tmp_path / "f.zarr", 3)
    store = open_store(address)
    stamps = store.stamps()
    store.recheck(stamps)
    assert store.fingerprint == open_store(address).fingerprint
    assert store.fingerprint == pickle.loads(pickle.dumps(store)).fingerprint
    (block,) = pickle.loads(pickle.dumps(store.blocks()))
    np.testing.assert_array_equal(table()[0], next(block.pieces()).X)
    (tmp_path / "f.zarr" / "label" / "c" / "0").touch()
    assert store.fingerprint != open_store(address).fingerprint
    with pytest.raises(StoreError, match="changed chunks"):
        store.recheck(stamps)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_number_that_is_not_finite_is_named_with_its_row(value: float, tmp_path: Path) -> None:
    X, _ = table()
    X[4321, 1] = value
    store = open_store(write(tmp_path / "f.zarr", 3, X=X))
    with pytest.raises(StoreError, match="row 4321"):
        list(store.blocks()[0].pieces())


def test_integer_that_float64_would_round_is_refused(tmp_path: Path) -> None:
    y = np.zeros(N, np.int64)
    y[77] = 2**53 + 1
    store = open_store(write(tmp_path / "f.zarr", 3, y=y))
    with pytest.raises(StoreError, match="row 77"):
        list(store.blocks()[0].pieces())


@pytest.mark.trust(50)
@pytest.mark.parametrize("dtype", [">f8", "f2", "i1", "u4", "b1"])
def test_dtypes_are_converted_exactly(dtype: str, tmp_path: Path) -> None:
    values = np.arange(N * 3).reshape(N, 3) % 120
    X = values.astype(dtype)
    store = open_store(write(tmp_path / "f.zarr", 2, X=X))
    out = Rows(np.empty((N, 3)), np.empty(N), np.empty(N), np.empty(N))
    store.rows().gather(np.arange(N), 1, out)
    np.testing.assert_array_equal(X.astype("f8"), out.X)


def edited(path: Path, version: int, **changes: Any) -> str:
    address = write(path, version)
    file = path / "rows" / ("zarr.json" if version == 3 else ".zarray")
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return address


@pytest.mark.parametrize(
    ("version", "changes", "expected"),
    [
        (2, {"compressor": {"id": "pickle"}}, "a compressor among"),
        (2, {"filters": [{"id": "pickle"}]}, "filters among"),
        (2, {"dtype": "|O"}, "numbers as dtype"),
        (2, {"dtype": "<c16"}, "numbers as dtype"),
        (3, {"codecs": [{"name": "numcodecs.pickle"}]}, "codecs among"),
        (3, {"data_type": "string"}, "numbers as data_type"),
        (3, {"shape": [2**62, 3]}, "as shape"),
        (3, {"shape": [-1, 3]}, "as shape"),
        (3, {"shape": [9000]}, "2 dimensions"),
        (3, {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}}, "chunk"),
        (
            3,
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**40, 3]}}},
            "256 MB",
        ),
        (
            3,
            {
                "shape": [10**9, 3],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 3]}},
            },
            "rechunk",
        ),
        (3, {"shape": [8999, 3]}, "rows in 'label'"),
    ],
)
def test_hostile_metadata_are_refused_before_anything_is_read(
    version: int, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=expected):
        open_store(edited(tmp_path / "f.zarr", version, **changes))


def test_group_without_the_array_says_how_to_name_it(tmp_path: Path) -> None:
    write(tmp_path / "f.zarr", 3)
    with pytest.raises(StreammcError, match="#X=NAME&y=NAME"):
        open_store(tmp_path / "f.zarr")


def test_damaged_chunk_is_an_error(tmp_path: Path) -> None:
    store = open_store(write(tmp_path / "f.zarr", 3))
    block = store.blocks()[0]
    (tmp_path / "f.zarr" / "rows" / "c" / "3" / "0").write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 50)
    with pytest.raises(StoreError, match="cannot be decoded"):
        list(block.pieces())
    with pytest.raises(StoreError, match="changed chunks"):
        store.blocks()
