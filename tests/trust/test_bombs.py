"""Small files that ask for much memory, in a process with a limit: check 52."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bad_input_list import loaded
from command_line import snapshot, streammc

from streammc.errors import StoreError
from streammc.trace import commit
from streammc.trace.zarr_files import crc32c

Record = Callable[[str, object], None]
SECONDS, MEGABYTES = 5.0, 256
METADATA = (
    "shape 2**62", "shape 10**30", "shape -1", "shape 1.5", "chunks of no rows",
    "chunks of 2**40 rows", "a billion chunks of one row", "arrays of unequal length",
    "wrong rank", "truncated JSON", "JSON of a gigabyte", "JSON of depth 100,000", "a zstd bomb",
    "shards", "objects",
)  # fmt: skip


def growth(work: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds of a call, and the memory in MB that it added at most."""
    Path("/proc/self/clear_refs").write_text("5")
    before, started = peak(), time.monotonic()
    work()
    return time.monotonic() - started, peak() - before


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def manifest(content: bytes) -> Callable[[Path], None]:
    return lambda store: (store / "streammc-manifest.json").write_bytes(content)  # type: ignore[return-value]


BOMBS = {
    "manifest of a gigabyte": lambda store: os.truncate(store / "streammc-manifest.json", 1 << 30),
    "manifest of depth 100,000": manifest(b'{"a":' + b"[" * 10**5),
    "manifest of a number of 10 MB": manifest(b'{"a": ' + b"9" * 10**7 + b"}"),
    "chunk of 4 TB": lambda store: os.truncate(store / "X/c.0.0", 1 << 42),
}


@pytest.fixture
def store(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words = ("--rows", "3000", "--dim", "3", "--seed", "5", "--quiet")
    assert 0 == streammc("simulate", "logistic", "store.zarr", *words).code
    return tmp_path / "store.zarr"


@pytest.mark.trust(52)
@pytest.mark.parametrize("name", [*METADATA, *BOMBS])
def test_a_bomb_in_a_store_is_refused_before_its_memory_is_taken(
    name: str, store: Path, record_property: Record
) -> None:
    change = BOMBS.get(name) or loaded("cli/test_bad_stores.py").METADATA[name][0]
    change(store)
    before = snapshot(store.parent)
    results = []
    words = ("sample", "store.zarr", "-o", "out", "--model", "logistic", "--quiet")
    seconds, megabytes = growth(lambda: results.append(streammc(*words)))
    [done] = results
    assert 65 == done.code, done.err
    assert 1 == len(done.err.splitlines()), done.err
    assert seconds < SECONDS
    assert megabytes < MEGABYTES
    assert before == snapshot(store.parent)
    record_property("figure", f"{len(METADATA) + len(BOMBS) + 1} bombs: 65, 5 s, 256 MB")


def zipped(meta: bytes, size: int) -> bytes:
    """Return a checkpoint whose array has so many zeros, compressed."""
    buffer = io.BytesIO()
    head, shape = io.BytesIO(), {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(head, shape)
    text = io.BytesIO()
    np.save(text, np.frombuffer(meta, np.uint8))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.json.npy", text.getvalue())
        with archive.open("array.a.npy", "w", force_zip64=True) as file:
            file.write(head.getvalue())
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
    return buffer.getvalue()


@pytest.mark.trust(52)
@pytest.mark.slow
def test_a_checkpoint_that_is_larger_than_its_file_says_is_refused(tmp_path: Path) -> None:
    content = zipped(b"{}", 600 << 20)
    (tmp_path / "checkpoint").write_bytes(content)
    assert len(content) < 1 << 20

    def decode() -> None:
        with pytest.raises(StoreError, match="uncompressed arrays"):
            commit.read_checkpoint(tmp_path / "checkpoint", len(content), crc32c(content))

    seconds, megabytes = growth(decode)
    assert seconds < SECONDS
    assert megabytes < MEGABYTES


@pytest.mark.trust(52)
def test_memory_that_is_taken_is_seen(record_property: Record) -> None:
    _, megabytes = growth(lambda: np.ones(40 << 20))
    assert megabytes > MEGABYTES
    record_property("caught", "320 MB that are allocated and freed")
