from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streammc.errors import AccessError, ConfigError, MissingError, StoreError
from streammc.protocols import PassTask, RowBlock
from streammc.stores import open_store
from streammc.stores.format.layout import MANIFEST

Mutate = Callable[[dict[str, Any]], Any]


class Rows(PassTask[float]):
    def map(self, block: RowBlock) -> float:
        return float(block.weight.sum())

    def combine(self, left: float, right: float) -> float:
        return left + right


def _set(*path: Any, value: Any) -> Mutate:
    def change(document: dict[str, Any]) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


CHUNK = ("chunk_grid", "configuration", "chunk_shape")
HOSTILE = {
    "shape 2**62": ("X", _set("shape", value=[2**62, 3]), "positive integers up to"),
    "shape 10**30": ("X", _set("shape", value=[10**30, 3]), "positive integers up to"),
    "shape -1": ("X", _set("shape", value=[-1, 3]), "positive integers"),
    "shape 1.5": ("X", _set("shape", value=[1.5, 3]), "positive integers"),
    "shape text": ("X", _set("shape", value=["x", 3]), "positive integers"),
    "shape true": ("X", _set("shape", value=[True, 3]), "positive integers"),
    "wrong rank": ("X", _set("shape", value=[10_001]), "2 positive integers"),
    "wrong rank of y": ("y", _set("shape", value=[10_001, 1]), "1 positive integers"),
    "no shape": ("X", lambda d: d.pop("shape"), "'shape'"),
    "more rows than files": ("X", _set("shape", value=[20_000, 3]), "20000 rows as X has"),
    "unequal lengths": ("y", _set("shape", value=[10_000]), "10001 rows as X has"),
    "more columns": ("X", _set("shape", value=[10_001, 4]), "'chunk_shape'"),
    "chunk 0": ("X", _set(*CHUNK, value=[0, 3]), "positive integers"),
    "chunk 2**40": ("X", _set(*CHUNK, value=[2**40, 3]), "'chunk_shape'"),
    "chunk of 1 row": ("X", _set(*CHUNK, value=[1, 3]), "'chunk_shape'"),
    "chunk of part of a row": ("X", _set(*CHUNK, value=[4096, 2]), "'chunk_shape'"),
    "unequal chunks": ("y", _set(*CHUNK, value=[8192]), "4096 rows as X has"),
    "unknown codec": ("X", _set("codecs", value=[{"name": "pickle"}]), "found 'pickle'"),
    "zstd": (
        "X",
        lambda d: d["codecs"].append({"name": "zstd", "configuration": {"level": 1}}),
        "found 'zstd'",
    ),
    "codecs null": ("X", _set("codecs", value=None), "'codec'"),
    "big-endian": ("X", _set("codecs", 0, "configuration", "endian", value="big"), "'codecs'"),
    "object dtype": ("X", _set("data_type", value="object"), "float32 or float64"),
    "dtype list": ("X", _set("data_type", value=["float32"]), "float32 or float64"),
    "float16": ("X", _set("data_type", value="float16"), "float32 or float64"),
    "wider dtype": ("X", _set("data_type", value="float64"), "'data_type'|bytes, found"),
    "complex response": ("y", _set("data_type", value="complex128"), "'data_type'"),
    "float32 offset": ("offset", _set("data_type", value="float32"), "float64 as 'data_type'"),
    "other separator": (
        "X",
        _set("chunk_key_encoding", "configuration", "separator", value="/"),
        "'chunk_key_encoding'",
    ),
    "transformers": ("X", _set("storage_transformers", value=[{"name": "x"}]), "transformers"),
    "a group": ("X", _set("node_type", value="group"), "'node_type'"),
    "format 2": ("", _set("attributes", "streammc", "format", value=2), "expected 1 as 'format'"),
    "format true": ("", _set("attributes", "streammc", "format", value=True), "'format'"),
    "no attribute": ("", _set("attributes", value={}), "not a streammc store"),
    "other n_rows": ("", _set("attributes", "streammc", "n_rows", value=5), "'n_rows'"),
    "two equal names": (
        "",
        _set("attributes", "streammc", "features", value=["a", "a", "b"]),
        "different names",
    ),
    "surrogate in a name": (
        "",
        _set("attributes", "streammc", "features", value=["\ud800", "a", "b"]),
        "different names",
    ),
    "other names": (
        "",
        _set("attributes", "streammc", "features", value=["d0", "d1", "d2"]),
        "names in 'feature/c.0'",
    ),
    "scale 0": (
        "",
        _set(
            *("attributes", "streammc", "standardization"),
            value={"mean": [0, 0, 0], "scale": [1, 0, 1]},
        ),
        "positive scale",
    ),
    "zarr 2": ("", _set("zarr_format", value=2), "zarr v3 group"),
    "consolidated contradicts": (
        "",
        _set("consolidated_metadata", "metadata", "X", "shape", value=[5, 3]),
        "'consolidated_metadata'",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_metadata_is_refused_by_name(sample, edit: Callable, case: str) -> None:
    member, mutate, message = HOSTILE[case]
    edit(sample.path, f"{member}/zarr.json".lstrip("/"), mutate)
    before = time.monotonic()
    with pytest.raises(StoreError, match=message) as caught:
        open_store(sample.path)
    assert time.monotonic() - before < 2.0
    assert "\n" not in str(caught.value)


def test_the_store_that_is_made_hostile_opens_otherwise(sample, edit: Callable) -> None:
    edit(sample.path, "X/zarr.json", lambda document: None)
    assert 10_001 == open_store(sample.path).n_rows


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 10**6])
@pytest.mark.parametrize("key", ["zarr.json", "X/zarr.json", "feature/zarr.json", MANIFEST])
def test_broken_json_is_refused(sample, key: str, content: bytes) -> None:
    (sample.path / key).write_bytes(content)
    with pytest.raises(StoreError, match="JSON"):
        open_store(sample.path)


def test_a_document_of_a_gigabyte_is_refused_unread(sample) -> None:
    os.truncate(sample.path / "zarr.json", 1 << 30)
    with pytest.raises(StoreError, match="at most"):
        open_store(sample.path)


def _replace(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.rename(path.with_name(".kept"))
        make(path)

    return change


@pytest.mark.parametrize("key", ["X/c.1.0", "y/c.0", "feature/c.0", "weight/zarr.json"])
@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, path.stat().st_size + 1),
        _replace(lambda path: path.symlink_to(path.with_name(".kept"))),
        _replace(os.mkfifo),
        _replace(Path.mkdir),
    ],
    ids=["deleted", "short", "long", "link", "fifo", "directory"],
)
def test_an_object_that_is_not_its_file_is_refused(
    sample, key: str, change: Callable[[Path], None]
) -> None:
    change(sample.path / key)
    with pytest.raises(StoreError, match=key.split("/")[0]):
        open_store(sample.path)


def test_a_linked_folder_is_refused(sample, tmp_path: Path) -> None:
    (sample.path / "X").rename(tmp_path / "elsewhere")
    (sample.path / "X").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="directory of its own"):
        open_store(sample.path)


def test_a_store_without_manifest_is_refused(sample) -> None:
    (sample.path / MANIFEST).unlink()
    with pytest.raises(StoreError, match="unfinished"):
        open_store(sample.path)


@pytest.mark.trust(53)
def test_a_manifest_that_escapes_is_refused(sample) -> None:
    document = json.loads((sample.path / MANIFEST).read_text())
    document["objects"]["../../etc/passwd"] = [1, 1]
    (sample.path / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(StoreError):
        open_store(sample.path)


def test_missing_path_is_a_missing_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="found nothing"):
        open_store(tmp_path / "no.zarr")


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError):
            open_store(path)


def test_a_folder_without_metadata_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="found an empty folder: not a streammc store"):
        open_store(tmp_path)
    (tmp_path / ".zgroup").touch()
    with pytest.raises(StoreError, match="found a zarr group of version 2: not a streammc store"):
        open_store(tmp_path)


def test_a_path_of_4096_characters_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long"):
        open_store("x" * 4096)


@pytest.mark.parametrize("key", ["", "zarr.json", "X", "X/c.0.0", MANIFEST])
def test_unreadable_store_is_an_access_error(
    write_store: Callable, open_folder: Path, unprivileged: Callable, key: str
) -> None:
    path = write_store(open_folder / "s").path
    open_store(path).reduce(Rows())
    (path / key).chmod(0)
    with unprivileged(), pytest.raises(AccessError, match=r"[Pp]ermission"):
        open_store(path).reduce(Rows())
    (path / key).chmod(0o700)


NAMES = ["a b", "a\nb", "🎲", "-x", "a%2eb", b"\xff".decode(errors="surrogateescape")]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_file_name_works(write_store: Callable, tmp_path: Path, name: str) -> None:
    table = write_store(tmp_path / name)
    store = open_store(str(table.path))
    assert 10_001 == store.rows().n_rows
    assert "\n" not in repr(store)


def test_a_relative_path_survives_a_change_of_directory(
    sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("table.zarr")
    monkeypatch.chdir("/")
    assert 10_001 == store.rows().n_rows


def test_stamps_change_with_the_files(sample) -> None:
    store = open_store(sample.path)
    stamps = store.stamps()
    assert (len(store.manifest.entries), 3) == stamps.shape
    os.utime(sample.path / "y/c.0", ns=(1, 1))
    assert 1 == np.any(store.stamps() != stamps, axis=1).sum()


def test_recheck_accepts_a_copy_and_refuses_damage(sample, tmp_path: Path) -> None:
    stamps = open_store(sample.path).stamps()
    shutil.copytree(sample.path, tmp_path / "copy")
    copy = open_store(tmp_path / "copy")
    copy.recheck(stamps)
    with (tmp_path / "copy/X/c.1.0").open("r+b") as file:
        file.write(b"\1")
    with pytest.raises(StoreError, match=r"crc32c .* of 'X/c\.1\.0'"):
        copy.recheck(stamps)
    with pytest.raises(StoreError, match="another store"):
        copy.recheck(stamps[1:])


def test_recheck_reads_only_what_changed(sample, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(sample.path)
    stamps = store.stamps()
    os.utime(sample.path / "y/c.0", ns=(1, 1))
    read: list[str] = []
    monkeypatch.setattr(
        "streammc.stores.store.check_object", lambda root, key, entry: read.append(key)
    )
    store.recheck(stamps)
    assert ["y/c.0"] == read
