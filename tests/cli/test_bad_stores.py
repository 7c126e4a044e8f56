"""Stores that were damaged or made to harm, as ``sample``, ``summarize`` and ``info`` see them.

Metadata that ask for too much, contradict each other or name unknown codecs, chunks that
are missing, damaged, swapped or no files: exit code 65, one line that names the object,
within seconds, and no output. Where only bytes are wrong the manifest is left as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import snapshot, streammc
from tampering import edit, seal

Change = Callable[[Path], Any]
CHUNK = ("chunk_grid", "configuration", "chunk_shape")


def put(key: str, *path: Any, value: Any) -> Change:
    """Set one entry of a document, and seal the store again."""

    def mutate(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return lambda store: edit(store, key, mutate)


def codec(name: str, **configuration: Any) -> Change:
    def mutate(document: Any) -> None:
        document["codecs"].append({"name": name, "configuration": configuration})

    return lambda store: edit(store, "X/zarr.json", mutate)


def rows_of_one(store: Path) -> None:
    """Claim a billion chunks of one row, consistently."""
    for key, row in (("X/zarr.json", [3]), ("y/zarr.json", [])):
        put(key, "shape", value=[10**9, *row])(store)
        put(key, *CHUNK, value=[1, *row])(store)
    put("zarr.json", "attributes", "streammc", "n_rows", value=10**9)(store)


def text(key: str, content: bytes) -> Change:
    return lambda store: (store / key).write_bytes(content)


def repeated(store: Path) -> None:
    whole = (store / "X/zarr.json").read_text()
    (store / "X/zarr.json").write_text(whole.replace("{", '{"zarr_format": 3,', 1))
    seal(store, "X/zarr.json")


def contradiction(store: Path) -> None:
    group = json.loads((store / "zarr.json").read_text())
    group["consolidated_metadata"]["metadata"]["X"]["shape"][0] = 17
    (store / "zarr.json").write_text(json.dumps(group))
    seal(store, "zarr.json")


def version_two(store: Path) -> None:
    (store / "zarr.json").unlink()
    (store / ".zgroup").write_text('{"zarr_format": 2}')


METADATA: dict[str, tuple[Change, str]] = {
    "shape 2**62": (put("X/zarr.json", "shape", value=[2**62, 3]), "X/zarr.json"),
    "shape 10**30": (put("X/zarr.json", "shape", value=[10**30, 3]), "X/zarr.json"),
    "shape -1": (put("X/zarr.json", "shape", value=[-1, 3]), "'shape' in 'X/zarr.json'"),
    "shape 1.5": (put("X/zarr.json", "shape", value=[1.5, 3]), "'shape' in 'X/zarr.json'"),
    "shape of text": (put("X/zarr.json", "shape", value=["x", 3]), "'shape' in 'X/zarr.json'"),
    "chunks of no rows": (put("X/zarr.json", *CHUNK, value=[0, 3]), "'chunk_shape'"),
    "chunks of 2**40 rows": (put("X/zarr.json", *CHUNK, value=[2**40, 3]), "'chunk_shape'"),
    "a billion chunks of one row": (rows_of_one, "--chunk-rows"),
    "arrays of unequal length": (put("y/zarr.json", "shape", value=[17]), "'y/zarr.json'"),
    "wrong rank": (put("y/zarr.json", "shape", value=[3000, 1]), "1 positive integers"),
    "truncated JSON": (text("X/zarr.json", b'{"shape": ['), "X/zarr.json"),
    "JSON that is not UTF-8": (text("y/zarr.json", b'{"\xff": 1}'), "y/zarr.json"),
    "JSON of a gigabyte": (lambda s: os.truncate(s / "zarr.json", 1 << 30), "zarr.json"),
    "JSON of depth 100,000": (text("zarr.json", b'{"a":' + b"[" * 10**5), "zarr.json"),
    "JSON with a repeated key": (repeated, "a repeated key"),
    "an unknown codec": (codec("lzma9"), "found 'lzma9'"),
    "the pickle codec": (codec("pickle"), "found 'pickle'"),
    "a zstd bomb": (codec("zstd", level=1), "found 'zstd'"),
    "shards": (codec("sharding_indexed", chunk_shape=[1, 3]), "found 'sharding_indexed'"),
    "objects": (put("X/zarr.json", "data_type", value="object"), "'object'"),
    "half precision": (put("X/zarr.json", "data_type", value="float16"), "'float16'"),
    "complex numbers": (put("y/zarr.json", "data_type", value="complex128"), "'complex128'"),
    "dates": (put("y/zarr.json", "data_type", value="datetime64[s]"), "'datetime64[s]'"),
    "big-endian": (
        put("X/zarr.json", "codecs", 0, "configuration", "endian", value="big"),
        "'codecs' in 'X/zarr.json'",
    ),
    "zarr version 2": (version_two, "a zarr v2 store"),
    "consolidated metadata that contradict": (contradiction, "'consolidated_metadata'"),
    "a later format": (put("zarr.json", "attributes", "streammc", "format", value=2), "'format'"),
}


def cut(by: int) -> Change:
    def change(store: Path) -> None:
        path = store / "X/c.0.0"
        os.truncate(path, path.stat().st_size + by)

    return change


def flip(store: Path) -> None:
    path = store / "X/c.0.0"
    content = bytearray(path.read_bytes())
    content[1000] ^= 4
    path.write_bytes(content)


def instead(make: Callable[[Path], Any]) -> Change:
    def change(store: Path) -> None:
        (store / "X/c.0.0").rename(store.parent / "kept")
        make(store / "X/c.0.0")

    return change


def swapped(store: Path) -> None:
    a, b = store / "y/c.0", store / "feature/c.0"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


CHUNKS: dict[str, tuple[Change, str]] = {
    "one byte more": (cut(1), "X/c.0.0"),
    "one byte less": (cut(-1), "X/c.0.0"),
    "a wrong checksum": (flip, "X/c.0.0"),
    "missing": (lambda store: (store / "X/c.0.0").unlink(), "X/c.0.0"),
    "swapped": (swapped, "/c.0"),
    "a link out of the store": (
        instead(lambda path: path.symlink_to(path.parents[2] / "kept")),
        "X/c.0.0",
    ),
    "a pipe": (instead(os.mkfifo), "X/c.0.0"),
    "a device": (instead(lambda path: path.symlink_to("/dev/zero")), "X/c.0.0"),
    "a directory": (instead(Path.mkdir), "X/c.0.0"),
    "a linked folder": (
        lambda store: (
            (store / "X").rename(store.parent / "X"),
            (store / "X").symlink_to(store.parent / "X"),
        ),
        "'X'",
    ),
}

VERBS = [
    "sample store.zarr -o out --model logistic",
    "summarize store.zarr --model logistic -o out",
]


def assert_refused(words: str, culprit: str, here: Path) -> None:
    before, started = snapshot(here), time.monotonic()
    done = streammc(*words.split(), "--quiet")
    assert (65, "") == (done.code, done.out), done.err
    assert time.monotonic() - started < 5
    assert 1 == len(done.err.splitlines()), done.err
    assert culprit in done.err
    assert "Traceback" not in done.err
    assert before == snapshot(here)


@pytest.mark.parametrize("verb", [*VERBS, "info store.zarr"])
@pytest.mark.parametrize("case", METADATA)
def test_hostile_metadata_of_a_store_are_refused(case: str, verb: str, store: Path) -> None:
    change, culprit = METADATA[case]
    change(store)
    assert_refused(verb, culprit, store.parent)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", CHUNKS)
def test_damaged_chunks_of_a_store_are_refused(case: str, verb: str, store: Path) -> None:
    change, culprit = CHUNKS[case]
    change(store)
    assert_refused(verb, culprit, store.parent)


def test_undamaged_store_is_sampled(store: Path) -> None:
    edit(store, "X/zarr.json", lambda document: None)
    done = streammc(*VERBS[0].split(), "--draws", "20", "--warmup", "20", "--quiet")
    assert 0 == done.code, done.err


@pytest.mark.trust(50)
def test_chunk_of_zeros_is_written_and_noticed_when_deleted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "0,0\n" * 50 + "0,1\n" * 50)
    words = ("--response", "y", "--no-intercept", "--no-standardize", "--quiet")
    store = tmp_path / "s"
    assert 0 == streammc("ingest", tmp_path / "t.csv", store, *words).code
    assert bytes(400) == (store / "X/c.0.0").read_bytes()
    (store / "X/c.0.0").unlink()
    done = streammc("summarize", store, "--model", "logistic", "--quiet")
    assert 65 == done.code
    assert "X/c.0.0" in done.err


@pytest.mark.trust(50)
def test_control_variates_of_rows_that_changed_are_refused(store: Path) -> None:
    assert 0 == streammc(*VERBS[1].split(), "--quiet").code
    flip(store)
    words = "sample store.zarr -o run --model logistic --control-variates out"
    assert_refused(words, "X/c.0.0", store.parent)


@pytest.mark.trust(50)
def test_control_variates_of_another_store_are_refused(store: Path, made: Path) -> None:
    assert 0 == streammc(*VERBS[1].split(), "--quiet").code
    shutil.rmtree(store)
    words = ("--rows", "3000", "--dim", "3", "--seed", "6", "--quiet")
    assert 0 == streammc("simulate", "logistic", "store.zarr", *words).code
    before = snapshot(store.parent)
    done = streammc(*VERBS[0].split(), "--control-variates", "out", "--quiet")
    assert 78 == done.code
    assert "control variates 'out'" in done.err
    assert before == snapshot(store.parent)
