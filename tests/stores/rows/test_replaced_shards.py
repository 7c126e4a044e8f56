"""An open store of shards whose files are replaced behind its back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc.errors import BusyError
from streammc.protocols import Rows
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.rows.piece_cache import StorePieces
from streammc.stores.store import open_store, verify

OPTIONS: dict[str, Any] = {
    "response": "y",
    "features": ["x"],
    "layout": "cloud",
    "chunk_rows": 65_536,
    "standardize": False,
    "shuffle": False,
}


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.normal(size=rows), "y": rng.integers(0, 2, rows)})


def x_of(store: Any, rows: list[int]) -> np.ndarray:
    n = len(rows)
    out = Rows(np.empty((n, store.n_features)), np.empty(n), np.empty(n), np.empty(n))
    store.rows().gather(np.array(rows), 1, out)
    return out.X[:, 1]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("change", ["replaced", "appended"])
def test_rows_of_another_store_are_never_read(
    tmp_path: Path, compression: str | None, change: str
) -> None:
    path = tmp_path / "s.zarr"
    options = {**OPTIONS, "compression": compression}
    ingest(frame(100_000, 1), path, **options)
    store, unread = open_store(path), open_store(path)
    x_of(store, [5])
    if change == "replaced":
        ingest(frame(100_000, 2), path, **options, overwrite=True)
    else:
        append(frame(50_000, 2), path)
    with pytest.raises(BusyError, match="found another in its place"):
        x_of(store, [99_999])
    with pytest.raises(BusyError, match="found another in its place"):
        x_of(unread, [5])


def test_a_reader_without_tags_reads_rows_of_the_other_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(100_000, 1), path, **OPTIONS)
    store = open_store(path)
    x_of(store, [70_000, 5])
    ingest(frame(100_000, 2), path, **OPTIONS, overwrite=True)
    monkeypatch.setattr(StorePieces, "_refuse_another", lambda self: None)
    np.testing.assert_array_equal(x_of(open_store(path), [99_999]), x_of(store, [99_999]))


def test_a_store_that_was_copied_to_its_place_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(100_000, 1), path, **OPTIONS)
    store = open_store(path)
    expected = x_of(open_store(path), [5, 99_999])
    x_of(store, [5])
    shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(path)
    os.rename(tmp_path / "copy", path)
    np.testing.assert_array_equal(expected, x_of(store, [5, 99_999]))


def test_shards_with_other_rows_have_another_fingerprint(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zarr", tmp_path / "b.zarr"
    prints = [
        ingest(frame(1000, seed), path, **OPTIONS)["fingerprint"]
        for seed, path in ((1, first), (2, second))
    ]
    assert prints[0] != prints[1]
    assert verify(first)["ok"]
    shutil.copy(second / "y" / "c.0", first / "y" / "c.0")
    found = verify(first)["faults"]
    assert ["y/c.0"] == [fault["key"] for fault in found]
