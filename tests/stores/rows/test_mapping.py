from __future__ import annotations

import ctypes
import errno
import re
from pathlib import Path

import numpy as np
import pytest

from streammc.errors import OutOfMemoryError, StoreError
from streammc.protocols import Rows
from streammc.stores import open_store
from streammc.stores.rows import mapping
from streammc.stores.simulation import simulate


def _anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def test_files_become_one_contiguous_array(shared_sample) -> None:
    store = open_store(shared_sample.path)
    for name in ("X", "y", "offset", "weight"):
        member = store.layout.member(name)
        assert member is not None
        array = mapping.map_member(shared_sample.path, store.layout, member)
        assert array.flags.c_contiguous
        assert 3 * 4096 == len(array)
        assert np.array_equal(getattr(shared_sample, name), array[: store.n_rows])


def test_chunks_that_are_not_whole_pages_are_read_instead(
    shared_sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(shared_sample.path)
    monkeypatch.setattr(mapping.mmap, "PAGESIZE", 65_536)
    member = store.layout.member("y")
    assert member is not None
    array = mapping.map_member(shared_sample.path, store.layout, member)
    assert np.array_equal(shared_sample.y, array[: store.n_rows])
    assert not array.flags.writeable


def test_too_many_mappings_are_out_of_memory(
    shared_sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = mapping._libc.mmap, []

    def limited(*arguments: object) -> int:
        calls.append(arguments)
        if len(calls) > 2:
            ctypes.set_errno(errno.ENOMEM)
            return ctypes.c_void_p(-1).value or 0
        return int(real(*arguments))

    store = open_store(shared_sample.path)
    monkeypatch.setattr(mapping._libc, "mmap", limited)
    with pytest.raises(OutOfMemoryError, match="larger --chunk-rows"):
        store.rows()


def test_a_file_that_changed_its_length_since_opening_is_not_mapped(sample) -> None:
    store = open_store(sample.path)
    with (sample.path / "X/c.1.0").open("ab") as file:
        file.write(b"1")
    with pytest.raises(StoreError, match=r"X/c\.1\.0"):
        store.rows()


def test_gathering_from_files_takes_no_anonymous_memory(tmp_path: Path) -> None:
    simulate("logistic", tmp_path / "s", 1_000_000, 20, 1)
    source = open_store(tmp_path / "s").rows()
    starts = np.random.default_rng(0).integers(0, 1_000_000, 1_000)
    out = Rows(np.empty((1_000, 20)), np.empty(1_000), np.empty(1_000), np.empty(1_000))
    source.gather(starts, 1, out)
    before = _anonymous_bytes()
    for _ in range(20):
        source.gather(starts, 1, out)
        starts = (starts * 48_271 + 11) % 1_000_000
    touched = float(sum(np.add.reduce(array[::50], axis=None) for array in source.arrays[:2]))
    assert np.isfinite(touched)
    assert _anonymous_bytes() - before < 8 << 20
