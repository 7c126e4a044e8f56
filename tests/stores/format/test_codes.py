"""Codes in a store: described, checksummed, and never trusted."""

from __future__ import annotations

import json
import shutil

import google_crc32c
import numpy as np
import pytest
import xarray
import zarr
from coded_tables import FORMULA, made, table

import streammc
from streammc.errors import ConfigError, StoreError
from streammc.likelihood.blocks import allocate_rows
from streammc.protocols import PassTask, RowBlock
from streammc.stores import open_store
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import Entry, make_manifest, read_manifest
from streammc.stores.format.schema import good_codes
from streammc.stores.ingest.from_xarray import from_xarray
from streammc.stores.store import info, verify


class Count(PassTask[float]):
    def map(self, block: RowBlock) -> float:
        return float(block.weight.sum())

    def combine(self, left: float, right: float) -> float:
        return left + right


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes") / "s.zarr"
    made(table(), path=folder)
    return folder


@pytest.fixture
def copy(path, tmp_path):
    return shutil.copytree(path, tmp_path / "copy.zarr")


def sealed(root, key):
    """Write the manifest again after a change of one object."""
    entries = dict(read_manifest(root).entries)
    content = (root / key).read_bytes()
    entries[key] = Entry(len(content), int(google_crc32c.value(content)))
    (root / MANIFEST).write_bytes(make_manifest(entries).encode())


def test_info_and_verify_know_the_codes(path):
    found = info(path)
    assert {"dtype": "uint16", "shape": [3000, 2]} == found["arrays"]["codes"]
    assert {"dtype": "float32", "shape": [3000, 5]} == found["arrays"]["X"]
    assert [
        {"column": "C(tail)", "first": 2, "columns": 89},
        {"column": "C(day)", "first": 92, "columns": 69},
    ] == found["codes"]
    assert 163 == found["n_features"]
    assert verify(path)["ok"]


def test_any_zarr_reader_opens_a_store_with_codes(path):
    with xarray.open_zarr(path) as dataset:
        assert {"row": 3000, "dense_feature": 5, "coded_factor": 2, "feature": 163} == dataset.sizes
    assert (3000, 2) == zarr.open(path)["codes"].shape


def test_flipped_bit_in_codes_is_found(copy):
    content = bytearray((copy / "codes/c.0.0").read_bytes())
    content[100] ^= 1
    (copy / "codes/c.0.0").write_bytes(content)
    assert ["codes/c.0.0"] == [fault["key"] for fault in verify(copy)["faults"]]
    with pytest.raises(StoreError, match=r"codes/c\.0\.0"):
        streammc.control_variates(open_store(copy), streammc.models.logistic())


def test_code_of_no_level_is_refused_by_pass_and_gather(copy):
    codes = np.fromfile(copy / "codes/c.0.0", np.uint16).reshape(-1, 2)
    codes[40, 1] = 70
    codes.tofile(copy / "codes/c.0.0")
    sealed(copy, "codes/c.0.0")
    store = open_store(copy)
    with pytest.raises(StoreError, match=r"codes of 0 to 69 in column 1.*found 70 in row 40"):
        store.reduce(Count(), scheduler="sync")
    out = allocate_rows(1, store.n_features)
    store.rows().gather(np.array([39]), 1, out)
    with pytest.raises(StoreError, match="found 1 above the number of levels"):
        store.rows().gather(np.array([40]), 1, out)


def edited(root, change):
    document = json.loads((root / "zarr.json").read_text())
    change(document["attributes"]["streammc"])
    (root / "zarr.json").write_text(json.dumps(document, indent=1) + "\n")
    sealed(root, "zarr.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda stated: stated.pop("codes"),
        lambda stated: stated["codes"].pop(),
        lambda stated: stated["codes"][0].update(columns=90),
        lambda stated: stated["codes"][0].update(first="2"),
        lambda stated: stated["codes"][1].update(first=50),
        lambda stated: stated.update(codes=[]),
        lambda stated: stated.update(codes={}),
        lambda stated: stated["codes"].append(3),
    ],
)
def test_attribute_that_contradicts_the_arrays_is_refused(copy, change):
    edited(copy, change)
    with pytest.raises(StoreError, match="make the store again"):
        open_store(copy)


def test_codes_need_a_dense_column():
    stated = {"features": ["a", "b"], "codes": [{"column": "g", "first": 0, "columns": 2}]}
    assert not good_codes(stated)
    stated["features"].append("c")
    assert good_codes(stated)


def test_dataset_of_a_store_with_codes_is_the_store_or_refused(path):
    with xarray.open_zarr(path) as dataset:
        assert from_xarray(dataset).fingerprint == open_store(path).fingerprint
        some = dataset.isel(row=slice(0, 50)).load()
        for given in (some, some.drop_vars("codes"), some["X"]):
            with pytest.raises(ConfigError, match="a store without its factors"):
                from_xarray(given, response=None)


class EveryRow(PassTask[list[np.ndarray]]):
    """Task of a pass: the rows with every column, in order."""

    def map(self, block: RowBlock) -> list[np.ndarray]:
        return [np.column_stack([block.X, block.y])]

    def combine(self, left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
        return left + right


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_of_shards_with_codes_are_those_of_the_mapped_store(path, tmp_path, compression):
    options = {"layout": "cloud", "compression": compression, "formula": FORMULA}
    streammc.ingest(table(), tmp_path / "shards.zarr", **options)
    mapped, shards = open_store(path), open_store(tmp_path / "shards.zarr")
    assert mapped.attributes["codes"] == shards.attributes["codes"]
    starts = np.random.default_rng(2).integers(-1, 3000, 400)
    found = [allocate_rows(800, mapped.n_features) for _ in range(2)]
    for store, rows in zip((mapped, shards), found, strict=True):
        store.rows().gather(starts, 2, rows)
    assert found[0].X[:, 3:].any()
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)
    passed = [np.concatenate(store.reduce(EveryRow())) for store in (mapped, shards)]
    assert np.array_equal(*passed)


def test_a_wrong_code_in_a_shard_is_refused(tmp_path):
    streammc.ingest(table(), tmp_path / "s.zarr", layout="cloud", formula=FORMULA)
    store = open_store(tmp_path / "s.zarr")
    reader = store.rows()._reader
    reader._coded = reader._coded._replace(width=np.zeros_like(reader._coded.width))
    with pytest.raises(StoreError, match="expected codes of 0 to 0"):
        store.rows().gather(np.arange(10), 1, allocate_rows(10, store.n_features))
