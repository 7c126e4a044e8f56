from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from streammc.errors import (
    AccessError,
    BusyError,
    ConfigError,
    DataError,
    IdentityError,
    OutputError,
    StorageIOError,
)
from streammc.stores import StoreWriter, open_store
from streammc.stores.format import partial as partial_module
from streammc.stores.format import writer as writer_module
from streammc.stores.store import verify


def test_blocks_of_any_size_give_the_same_store(tmp_path: Path) -> None:
    rows = np.arange(20_000.0)
    prints = set()
    for step in (1_000, 4_096, 7_777, 20_000):
        with StoreWriter(tmp_path / f"{step}", features=["a"], chunk_rows=4096) as writer:
            for start in range(0, rows.size, step):
                writer.append(rows[start : start + step, None], rows[start : start + step])
            writer.commit({"response": "y"})
        prints.add(open_store(tmp_path / f"{step}").fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize("rows", [5_000, 4_096, 3_000])
def test_chunks_in_any_order_give_the_same_store(tmp_path: Path, rows: int) -> None:
    X, y, weight = np.arange(2.0 * rows).reshape(rows, 2), np.arange(rows) % 2 == 0, np.ones(rows)
    options = {"features": ["a", "b"], "y_dtype": "uint8", "weight": True, "chunk_rows": 4096}
    with StoreWriter(tmp_path / "appended", **options) as writer:
        writer.append(X, y, weight=weight)
        writer.commit({"response": "y"})
    with StoreWriter(tmp_path / "put", **options) as writer:
        for chunk in range(-(-rows // 4096))[::-1]:
            part = slice(4096 * chunk, 4096 * (chunk + 1))
            writer.put_chunk(chunk, X[part], y[part], weight=weight[part])
        assert rows == writer.n_rows
        writer.commit({"response": "y"})
    assert 1 == len({open_store(tmp_path / name).fingerprint for name in ("appended", "put")})


@pytest.mark.parametrize("refused", ["nothing", "flag", "write"])
def test_a_store_larger_than_memory_is_written_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    X, y = np.arange(3.0 * 9_000).reshape(9_000, 3), np.arange(9_000) % 7
    options = {"features": list("abc"), "y_dtype": "uint8", "chunk_rows": 4096}
    control, write = fcntl.fcntl, os.write
    direct: dict[int, int] = {}
    asked: list[int] = []

    def watch(descriptor: int, command: int, flags: int) -> int:
        asked.append(flags)
        if refused == "flag":
            raise OSError(errno.EINVAL, "no")
        direct[descriptor] = flags
        return control(descriptor, command, 0 if refused == "write" else flags)

    def fussy(descriptor: int, content: memoryview) -> int:
        if refused == "write" and direct.get(descriptor):
            raise OSError(errno.EINVAL, "no")
        return write(descriptor, content)

    with StoreWriter(tmp_path / "cached", n_rows=9_000, **options) as writer:
        writer.append(X, y)
        writer.commit({"response": "y"})
    monkeypatch.setattr(writer_module.os, "sysconf", lambda _: 1)
    monkeypatch.setattr(partial_module.fcntl, "fcntl", watch)
    monkeypatch.setattr(partial_module.os, "write", fussy)
    with StoreWriter(tmp_path / "direct", n_rows=9_000, **options) as writer:
        writer.append(X, y)
        writer.commit({"response": "y"})
    assert os.O_DIRECT in asked
    assert (0 in asked) == (refused == "write")
    assert 1 == len({open_store(tmp_path / name).fingerprint for name in ("cached", "direct")})
    assert verify(tmp_path / "direct")["ok"]


def test_chunks_with_a_gap_are_not_committed(tmp_path: Path) -> None:
    ones = np.ones(4096)
    for name, chunks in {"gap": (0, 2), "short": (0, 1)}.items():
        rows = 4096 if name == "gap" else 4000
        with (
            pytest.raises(ConfigError, match="put every chunk once"),
            StoreWriter(tmp_path / name, features=["a"], chunk_rows=4096) as writer,
        ):
            for chunk in chunks:
                writer.put_chunk(chunk, ones[:rows, None], ones[:rows])
            writer.commit({"response": "y"})
    assert [] == list(tmp_path.iterdir())


def test_a_chunk_without_a_place_is_refused(tmp_path: Path) -> None:
    ones = np.ones(4097)
    with StoreWriter(tmp_path / "s", features=["a"], chunk_rows=4096) as writer:
        writer.put_chunk(1, ones[:9, None], ones[:9])
        for chunk, rows in ((1, 9), (-1, 9), (0, 4097), (0, 0)):
            with pytest.raises(ConfigError, match="rows of a new chunk"):
                writer.put_chunk(chunk, ones[:rows, None], ones[:rows])


def test_a_chunk_is_checked_as_appended_rows_are(tmp_path: Path) -> None:
    X = np.ones((4096, 1), np.float32)
    X[5] = np.nan
    with StoreWriter(tmp_path / "s", features=["a"], y_dtype="uint8", chunk_rows=4096) as writer:
        with pytest.raises(DataError, match=r"column 'a'.* in row 8197 "):
            writer.put_chunk(2, X, np.ones(4096, np.uint8))
        with pytest.raises(DataError, match=r"expected uint8 in column 'y', found 256 in row 0"):
            writer.put_chunk(0, X[:5], np.full(5, 256))


def test_one_chunk_has_no_padding(write_store: Callable, tmp_path: Path) -> None:
    path = write_store(tmp_path / "s", rows=101).path
    assert (path / "X/c.0.0").stat().st_size == 101 * 3 * 4


def test_the_last_of_many_chunks_is_padded_with_zeros(sample) -> None:
    last = np.fromfile(sample.path / "y/c.2", np.uint8)
    assert last.size == 4096
    assert np.array_equal(last[: 10_001 - 8_192], sample.y[8_192:])
    assert not last[10_001 - 8_192 :].any()


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
        raise KeyError
    assert [] == list(tmp_path.iterdir())


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    writer = StoreWriter(tmp_path / "s", features=["a"], chunk_rows=4096)
    monkeypatch.setattr(partial_module.os, "write", fail)
    with pytest.raises(StorageIOError, match="cannot write store"), writer:
        writer.append(np.ones((5_000, 1)), np.ones(5_000))
    monkeypatch.undo()
    assert [] == list(tmp_path.iterdir())


def test_a_failing_sync_does_not_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no")

    with pytest.raises(StorageIOError), StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
        monkeypatch.setattr(partial_module.os, "fsync", fail)
        writer.commit({"response": "y"})
    monkeypatch.undo()
    assert [] == list(tmp_path.iterdir())


def test_every_object_is_synced_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    sync, rename = os.fsync, os.rename

    def record_sync(descriptor: int) -> None:
        events.append(("sync", os.fstat(descriptor).st_ino))
        sync(descriptor)

    def record_rename(old: Path, new: Path) -> None:
        events.append(("rename", 0))
        rename(old, new)

    monkeypatch.setattr(partial_module.os, "fsync", record_sync)
    monkeypatch.setattr(partial_module.os, "rename", record_rename)
    with StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
        writer.commit({"response": "y"})
    at = events.index(("rename", 0))
    before = {inode for _, inode in events[:at]}
    assert {path.stat().st_ino for path in [tmp_path / "s", *(tmp_path / "s").rglob("*")]} == before
    assert [("sync", tmp_path.stat().st_ino)] == events[at + 1 :]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("no")])
def test_an_existing_path_is_refused_and_not_touched(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "s")

    def state() -> tuple[int, ...]:
        found = os.lstat(tmp_path / "s")  # a link that is read has another time of access
        return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    before = state()
    with pytest.raises(IdentityError, match="exists: choose another path"):
        StoreWriter(tmp_path / "s", features=["a"])
    assert before == state()


def test_a_path_that_comes_to_exist_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IdentityError), StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
        (tmp_path / "s").mkdir()
        writer.commit({"response": "y"})
    assert [tmp_path / "s"] == list(tmp_path.iterdir())


def test_a_store_inside_a_store_is_refused(sample) -> None:
    with pytest.raises(ConfigError, match="outside every store"):
        StoreWriter(sample.path / "X" / "inner", features=["a"])


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot create"):
        StoreWriter(tmp_path / "no" / "s", features=["a"])


def test_a_read_only_folder_is_refused(open_folder: Path, unprivileged: Callable) -> None:
    (open_folder / "closed").mkdir()
    (open_folder / "closed").chmod(0o555)
    with unprivileged(), pytest.raises(AccessError, match="check the permissions"):
        StoreWriter(open_folder / "closed" / "s", features=["a"])


def test_two_writers_of_one_path_are_refused(tmp_path: Path) -> None:
    with (
        StoreWriter(tmp_path / "s", features=["a"]),
        pytest.raises(BusyError, match="wait for the other process"),
    ):
        StoreWriter(tmp_path / "s", features=["a"])


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, numpy as np\n"
        "from streammc.stores import StoreWriter\n"
        "writer = StoreWriter(sys.argv[1], features=['a'], chunk_rows=4096)\n"
        "writer.append(np.ones((9000, 1)), np.ones(9000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "s"], check=False)
    assert -signal.SIGKILL == done.returncode
    assert 1 == len(list(tmp_path.iterdir()))
    with StoreWriter(tmp_path / "s", features=["a"]) as writer:
        writer.append(np.ones((5, 1)), np.ones(5))
        writer.commit({"response": "y"})
    assert [tmp_path / "s"] == list(tmp_path.iterdir())
    assert verify(tmp_path / "s")["ok"]


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="at least one row"),
        StoreWriter(tmp_path / "s", features=["a"]) as writer,
    ):
        writer.commit({"response": "y"})
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_float32_cannot_hold_are_refused_by_column(
    tmp_path: Path, value: float
) -> None:
    X = np.ones((9_000, 2))
    X[8_000, 1] = value
    with StoreWriter(tmp_path / "s", features=["a", "b"], chunk_rows=4096) as writer:
        writer.append(X[:7_000], np.ones(7_000))
        with pytest.raises(DataError, match=r"column 'b'.* in row 8000 "):
            writer.append(X[7_000:], np.ones(2_000))


def test_a_fraction_in_an_integer_response_is_refused(tmp_path: Path) -> None:
    with (
        StoreWriter(tmp_path / "s", features=["a"], y_dtype="uint8") as writer,
        pytest.raises(DataError, match=r"expected uint8 in column 'y', found 1\.5 in row 2"),
    ):
        writer.append(np.ones((3, 1)), np.array([0.0, 1.0, 1.5]))


def test_a_missing_or_short_array_is_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", features=["a"], offset=True) as writer:
        with pytest.raises(ConfigError, match=r"expected offset in a block of rows .*, found none"):
            writer.append(np.ones((3, 1)), np.ones(3))
        with pytest.raises(ConfigError, match="expected 3 rows of offset"):
            writer.append(np.ones((3, 1)), np.ones(3), offset=np.ones(2))


@pytest.mark.parametrize(
    "options", [{"dtype": "float16"}, {"y_dtype": "complex128"}, {"chunk_rows": 2**30}]
)
def test_options_that_the_format_does_not_have_are_refused(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigError):
        StoreWriter(tmp_path / "s", features=["a"], **options)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("dtype", "most"), [("float32", 16_384), ("float64", 8_192)])
def test_more_columns_than_a_chunk_can_hold_are_refused(
    dtype: str, most: int, tmp_path: Path
) -> None:
    names = [f"x{column}" for column in range(most + 1)]
    with pytest.raises(ConfigError, match=f"at most {most:,} columns of {dtype}") as caught:
        StoreWriter(tmp_path / "s", features=names, dtype=dtype)
    assert "--features" in str(caught.value)
    assert ("float32 for up to 16,384" in str(caught.value)) == (dtype == "float64")
    assert [] == list(tmp_path.iterdir())
    with StoreWriter(tmp_path / "s", features=names[:-1], dtype=dtype):
        pass
