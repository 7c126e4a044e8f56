"""Files whose rows a store has: how they are recorded, and known again under another name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc.stores.cloud.staging import pull
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.verify import info, verify
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import open_store


def write(path: Path, rows: int, seed: int) -> Path:
    """Write a table of numbers, as CSV or Parquet."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "y": rng.integers(0, 2, rows)})
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of ``a.csv``, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", 100, 1)
    ingest("a.csv", "s.zarr", response="y")
    return tmp_path / "s.zarr"


def as_of_before(path: Path, edit: Any) -> None:
    """Let a store look like one of an earlier version: records of appended files in attributes."""
    kept = info(path).get("generations", [])

    def put(document: dict[str, Any]) -> None:
        given = document["attributes"]["streammc"].get("generations", [])
        for number, each in enumerate(given):
            each["inputs"] = kept[number]["inputs"] if number else None

    edit(path, "zarr.json", put)
    assert "inputs" not in json.loads((path / MANIFEST).read_text())


def test_the_same_tables_appended_elsewhere_make_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for folder in (tmp_path / "here", tmp_path / "there"):
        write(folder / "a.csv", 100, 1)
        monkeypatch.chdir(folder)
        ingest("a.csv", "s.zarr", response="y")
        for number in (2, 3):
            table = write(folder / "more" / f"{number}.csv", 20, number)
            os.utime(table, ns=(number, len(folder.name)))
            append(table, "s.zarr")
        assert verify("s.zarr")["ok"]
        found.append(open_store("s.zarr"))
    assert found[0].fingerprint == found[1].fingerprint
    assert found[0].earlier(found[1].attributes["generations"][1]["fingerprint"]) is not None
    assert str(tmp_path) not in (tmp_path / "here" / "s.zarr" / "zarr.json").read_text()
    assert found[0].manifest.inputs != found[1].manifest.inputs


def test_a_copy_of_a_grown_store_knows_its_files(store: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "b.csv", 20, 2)
    append(table, store)
    shutil.copytree(store, tmp_path / "t.zarr")
    pull(str(store), tmp_path / "p.zarr")
    for copy in ("t.zarr", "p.zarr"):
        assert not append(table, tmp_path / copy)["new"]


def test_files_that_an_earlier_version_appended_are_known(
    store: Path, tmp_path: Path, edit: Any
) -> None:
    tables = [write(tmp_path / f"{name}.csv", 20, seed) for seed, name in enumerate("bcd", 2)]
    for table in tables[:2]:
        append(table, store)
    as_of_before(store, edit)
    before = open_store(store)
    assert not append(tables[0], store)["new"]
    assert append(tables[2], store)["new"]
    for table in tables:
        assert not append(table, store)["new"]
    assert str(tmp_path) not in (store / "zarr.json").read_text()
    assert open_store(store).earlier(before.fingerprint) is not None


def test_the_report_and_the_description_name_the_files(store: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "more" / "b.csv", 20, 2)
    for found in (append(table, store), info(store)):
        [record] = found["generations"][1]["inputs"]
        assert (str(table), table.stat().st_size) == (record["path"], record["bytes"])
        assert ["a.csv", "b.csv"] == found["sources"]
