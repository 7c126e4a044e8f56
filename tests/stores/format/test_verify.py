from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from streammc.errors import MissingError, StoreError
from streammc.protocols import PassTask, RowBlock
from streammc.stores import open_store
from streammc.stores.format.layout import MANIFEST
from streammc.stores.store import info, verify


class Count(PassTask[float]):
    def map(self, block: RowBlock) -> float:
        return float(block.weight.sum())

    def combine(self, left: float, right: float) -> float:
        return left + right


def test_undamaged_store_has_no_fault(shared_sample) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(shared_sample.path, lambda done, total: seen.append((done, total)))
    assert report["ok"]
    assert [] == report["faults"]
    assert 3 * 4 + 5 + 2 == report["objects"]
    assert seen[-1] == (report["bytes"], report["bytes"])
    json.dumps(report)


@pytest.mark.trust(20)
def test_40_random_faults_are_all_found(shared_sample, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    root = tmp_path / "copy"
    shutil.copytree(shared_sample.path, root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for trial in range(40):
        path = files[rng.integers(len(files))]
        kept = path.read_bytes()
        if trial % 4 == 3:
            os.truncate(path, int(rng.integers(len(kept))))
        else:
            bit = int(rng.integers(8 * len(kept)))
            damaged = bytearray(kept)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
        assert not verify(root)["ok"], path
        with pytest.raises(StoreError):
            open_store(root).reduce(Count(), scheduler="sync")
        path.write_bytes(kept)
    assert verify(root)["ok"]


def test_every_fault_is_listed_with_its_kind(sample, tmp_path: Path) -> None:
    (sample.path / "X/c.0.0").unlink()
    (sample.path / "X/c.9.0").touch()
    os.truncate(sample.path / "y/c.1", 3)
    (sample.path / "weight/c.0").unlink()
    (sample.path / "weight/c.0").symlink_to("c.1")
    (sample.path / ".DS_Store").touch()
    kinds = {fault["key"]: fault["kind"] for fault in verify(sample.path)["faults"]}
    expected = {
        "X/c.0.0": "missing",
        "X/c.9.0": "extra",
        "y/c.1": "changed",
        "weight/c.0": "changed",
    }
    assert expected == kinds


@pytest.mark.trust(21)
def test_swapped_chunks_are_two_faults(sample) -> None:
    one, two = sample.path / "X/c.0.0", sample.path / "X/c.1.0"
    one.rename(sample.path / "t")
    two.rename(one)
    (sample.path / "t").rename(two)
    assert ["X/c.0.0", "X/c.1.0"] == [fault["key"] for fault in verify(sample.path)["faults"]]


def test_a_sealed_contradiction_is_inconsistent(sample, edit) -> None:
    edit(sample.path, "zarr.json", lambda d: d["attributes"]["streammc"].update(n_rows=7))
    (fault,) = verify(sample.path)["faults"]
    assert "inconsistent" == fault["kind"]
    assert "n_rows" in fault["detail"]


def test_a_damaged_manifest_is_a_fault_and_a_missing_one_an_error(sample) -> None:
    (sample.path / MANIFEST).write_text("{}")
    assert MANIFEST == verify(sample.path)["faults"][0]["key"]
    (sample.path / MANIFEST).unlink()
    with pytest.raises(StoreError):
        verify(sample.path)


def test_missing_path_is_a_missing_error(tmp_path: Path) -> None:
    for read in (verify, info):
        with pytest.raises(MissingError):
            read(tmp_path / "no")


def test_a_manifest_with_a_huge_size_allocates_nothing(sample, seal) -> None:
    from streammc.stores.format.manifest import Entry, make_manifest, read_manifest

    entries = read_manifest(sample.path).entries | {"X/c.0.0": Entry(2**61, 1)}
    (sample.path / MANIFEST).write_bytes(make_manifest(dict(entries)).encode())
    assert ["X/c.0.0"] == [fault["key"] for fault in verify(sample.path)["faults"]]


def test_info_describes_the_store(shared_sample) -> None:
    found = info(shared_sample.path)
    assert {"dtype": "float32", "shape": [10_001, 3]} == found["arrays"]["X"]
    assert {"dtype": "uint8", "shape": [10_001]} == found["arrays"]["y"]
    assert (3, 4096, "late") == (found["n_chunks"], found["chunk_rows"], found["response"])
    assert open_store(shared_sample.path).fingerprint == found["fingerprint"]
    json.dumps(found)
