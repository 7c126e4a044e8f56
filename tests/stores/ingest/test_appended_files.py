"""Files whose rows a store has: how they are recorded, and known again under another name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc.errors import IdentityError
from streammc.stores.cloud.staging import pull
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import make_manifest
from streammc.stores.ingest.append import append, recorded_generations
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.sources import input_files
from streammc.stores.sources.input_files import content_crc
from streammc.stores.store import info, open_store, verify


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
            each["sources"] = kept[number]["sources"]

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
            table = write(folder / "more" / f"{folder.name}-{number}.csv", 20, number)
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


@pytest.mark.parametrize("inputs", [3, [3], [{"path": 1}], [{"path": "/b", "bytes": 1}]])
def test_records_of_an_earlier_version_that_are_none_are_ignored(
    store: Path, tmp_path: Path, edit: Any, inputs: object
) -> None:
    append(write(tmp_path / "b.csv", 20, 2), store)

    def put(document: dict[str, Any]) -> None:
        document["attributes"]["streammc"]["generations"][1] |= {"inputs": inputs, "sources": None}

    edit(store, "zarr.json", put)
    assert [None, None] == [each["inputs"] for each in info(store)["generations"]]
    assert append(tmp_path / "b.csv", store)["new"]


def test_the_report_and_the_description_name_the_files(store: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "more" / "b.csv", 20, 2)
    for found in (append(table, store), info(store)):
        [record] = found["generations"][1]["inputs"]
        assert (str(table), table.stat().st_size) == (record["path"], record["bytes"])
        assert ["a.csv", str(table)] == found["sources"]


def test_the_table_that_a_store_was_made_of_is_not_appended_to_it(store: Path) -> None:
    before = open_store(store)
    assert [["crc32c", "rows"]] == [list(each)[-2:] for each in before.manifest.inputs[0] or ()]
    found = append("a.csv", store)
    assert (False, 1, 100) == (found["new"], found["generation"], found["appended_rows"])
    write(Path("b.csv"), 20, 2)
    with pytest.raises(IdentityError, match=r"'a\.csv' among others, which it was made of: name"):
        append("*.csv", store)
    assert before.fingerprint == open_store(store).fingerprint
    assert append("b.csv", store)["new"]


@pytest.mark.parametrize("receipt", [True, False])
def test_the_tables_of_a_store_of_before_are_those_of_its_receipt(
    store: Path, receipt: bool
) -> None:
    (store / MANIFEST).write_bytes(make_manifest(open_store(store).manifest.entries).encode())
    stamp = os.stat("a.csv")
    source = {"path": "a.csv", "bytes": stamp.st_size, "modified_ns": stamp.st_mtime_ns}
    if receipt:
        Path("s.zarr.config.json").write_text(json.dumps({"asked": {"sources": [source]}}))
    assert receipt != append("a.csv", store)["new"]
    if receipt:
        shutil.copy("a.csv", "copy.csv")
        with pytest.raises(IdentityError, match=r"'copy.csv' with those of .*a.csv', which it was"):
            append("copy.csv", store)
        append(write(Path("b.csv"), 20, 2), store)
        assert ["a.csv"] == [Path(each["path"]).name for each in recorded(store)[0]]


def recorded(path: Path) -> list[Any]:
    """Return the records of the files of each generation."""
    return [each["inputs"] for each in recorded_generations(open_store(path))]


def linked(first: Path) -> Path:
    os.symlink(first, "link.csv")
    return Path("link.csv")


def moved(first: Path) -> Path:
    return first.rename("moved.csv")


def copied(first: Path) -> Path:
    return Path(shutil.copy(first, "copy.csv"))


def touched(first: Path) -> Path:
    os.utime(first, ns=(1, 1))
    return first


def below_a_link(first: Path) -> Path:
    os.symlink(first.parent.resolve(), "folder")
    return Path("folder") / first.name


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        (linked, None),
        (below_a_link, None),
        (moved, "found 'moved.csv' with those of .*/b.csv', which was appended before: leave it"),
        (copied, "found 'copy.csv' with those of .*/b.csv', which was appended before: leave it"),
        (touched, "found 'b.csv' with another time and the same contents, which was appended be"),
    ],
)
def test_rows_of_a_file_are_appended_once_whatever_its_name(
    store: Path, rename: Callable[[Path], Path], expected: str | None
) -> None:
    table = write(Path("b.csv"), 20, 2)
    assert append(table, store)["new"]
    other = rename(table)
    if expected is None:
        assert not append(other, store)["new"]
    else:
        with pytest.raises(IdentityError, match=expected):
            append(other, store)
    assert 120 == open_store(store).n_rows
    assert append(other, store, again=True)["new"]
    assert 140 == open_store(store).n_rows
    assert not append(other, store)["new"]


def test_a_file_named_twice_counts_once_and_its_copy_is_refused(store: Path) -> None:
    table = write(Path("b.csv"), 20, 2)
    shutil.copy(table, "copy.csv")
    with pytest.raises(IdentityError, match=r"'copy.csv' with the contents of 'b.csv': leave it"):
        append([table, "copy.csv"], store)
    assert ["a.csv", "b.csv", "copy.csv", "s.zarr"] == sorted(os.listdir())
    assert append([table, "./b.csv"], store)["appended_rows"] == 20
    assert append([table, "copy.csv"], store, again=True)["appended_rows"] == 40


def test_files_without_rows_may_be_equal(store: Path) -> None:
    for number in (1, 2):
        tables = [write(Path(f"{number}.csv"), 20, number + 1)]
        for name in "ab":
            tables.append(Path(f"empty-{number}{name}.csv"))
            tables[-1].write_text("x,y\n")
        assert append(tables, store)["appended_rows"] == 20
    assert [20, 0, 0] == [each["rows"] for each in recorded(store)[2]]


def test_equal_files_below_other_folders_have_other_rows(tmp_path: Path) -> None:
    days = tmp_path / "days"
    write(days / "day=1" / "a.csv", 30, 1)
    write(days / "day=2" / "a.csv", 30, 2)
    ingest(days, tmp_path / "s.zarr", response="y")
    (days / "day=3").mkdir()
    shutil.copy(days / "day=1" / "a.csv", days / "day=3")
    assert append(str(days / "day=[3]" / "a.csv"), tmp_path / "s.zarr")["new"]
    assert 90 == open_store(tmp_path / "s.zarr").n_rows


def test_a_file_that_was_read_is_not_read_again_while_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    monkeypatch.setattr(input_files, "time_ns", lambda: 2**62)  # long after it was written
    found = content_crc(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(input_files, "google_crc32c", None)
        assert found == content_crc(str(path))
    path.write_bytes(b"another")
    assert found != content_crc(str(path))


def test_a_file_is_read_again_after_it_was_written_again(tmp_path: Path) -> None:
    path, found = tmp_path / "a", []
    for content in (b"one", b"two", b"one"):
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        found += [content_crc(str(path)), content_crc(str(path))]
    assert found[:2] == found[4:]
    assert found[0] == found[1] != found[2] == found[3]
