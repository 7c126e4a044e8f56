from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streammc.errors import StoreError
from streammc.stores import open_store
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import Entry, make_manifest, read_manifest


def test_manifest_lists_every_file_but_itself(sample) -> None:
    files = {
        path.relative_to(sample.path).as_posix()
        for path in sample.path.rglob("*")
        if path.is_file()
    }
    assert files - {MANIFEST} == set(read_manifest(sample.path).entries)


def test_fingerprint_does_not_depend_on_the_order() -> None:
    entries = {"b": Entry(1, 2), "a": Entry(3, 4)}
    other = {"a": Entry(3, 4), "b": Entry(1, 2)}
    assert make_manifest(entries).fingerprint == make_manifest(other).fingerprint


@pytest.mark.parametrize("changed", [{"a": Entry(3, 5)}, {"a": Entry(4, 4)}, {"b": Entry(3, 4)}])
def test_fingerprint_sees_key_size_and_checksum(changed: dict[str, Entry]) -> None:
    one = make_manifest({"a": Entry(3, 4)}).fingerprint
    assert one != make_manifest(changed).fingerprint


def test_same_rows_have_the_same_fingerprint(write_store: Callable, tmp_path: Path) -> None:
    prints = {open_store(write_store(tmp_path / n).path).fingerprint for n in ("a", "b")}
    assert len(prints) == 1


@pytest.mark.parametrize(
    "objects", [{"a": [1]}, {"a": [1, -2]}, {"a": [True, 2]}, {"a": [1.0, 2]}, {"a": "12"}, []]
)
def test_a_malformed_manifest_is_refused(sample, objects: object) -> None:
    document = {"format": 1, "fingerprint": "0", "objects": objects}
    (sample.path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(StoreError, match=r"expected \[size, crc32c\]|expected format 1"):
        read_manifest(sample.path)


FILE = {"path": "/a.csv", "bytes": 3, "modified_ns": -4, "crc32c": 5}


def test_records_of_input_files_are_no_part_of_the_fingerprint(sample) -> None:
    plain = read_manifest(sample.path)
    manifest = make_manifest(plain.entries, [None, [FILE]])
    (sample.path / MANIFEST).write_bytes(manifest.encode())
    found = read_manifest(sample.path)
    assert (found.fingerprint, found.inputs) == (plain.fingerprint, (None, [FILE]))
    assert open_store(sample.path).manifest == found
    assert b"inputs" not in plain.encode()


@pytest.mark.parametrize(
    "inputs", [{}, [3], [[3]], [[{**FILE, "path": 1}]], [[{**FILE, "bytes": -1}]], [[FILE, FILE]]]
)
def test_records_that_were_changed_are_refused(sample, inputs: object) -> None:
    manifest = make_manifest(read_manifest(sample.path).entries, [[FILE]])
    document = json.loads(manifest.encode())
    (sample.path / MANIFEST).write_text(json.dumps({**document, "inputs": inputs}))
    with pytest.raises(StoreError, match="the records of its input files as they were written"):
        open_store(sample.path)


def test_an_edited_manifest_contradicts_its_fingerprint(sample) -> None:
    document = json.loads((sample.path / MANIFEST).read_text())
    document["objects"]["X/c.0.0"][1] ^= 1
    (sample.path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(StoreError, match="with its own fingerprint, found another"):
        open_store(sample.path)
