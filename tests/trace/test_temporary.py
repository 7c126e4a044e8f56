"""Temporary folders: their files are complete, and nothing waits for the disk."""

from __future__ import annotations

import os

import pytest

from streammc import unfinished
from streammc.errors import StorageIOError
from streammc.trace.run_directory import RunDirectory
from streammc.unfinished import is_temporary, temporary_folder, write_later, write_now


def count_syncs(monkeypatch):
    """Return a list that grows with every fsync."""
    syncs, real = [], os.fsync

    def synced(descriptor):
        real(descriptor)
        syncs.append(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    return syncs


def test_a_temporary_run_is_the_same_without_fsync(job, tmp_path, monkeypatch):
    syncs = count_syncs(monkeypatch)
    job.sample(tmp_path / "run")
    assert len(syncs) > 30
    syncs.clear()
    folder = temporary_folder("streammc-test-")
    job.sample(folder)
    assert not syncs
    run = RunDirectory.open(folder)
    job.check_prefix(run)
    assert RunDirectory.open(tmp_path / "run").digest() == run.digest()


def test_only_temporary_folders_and_what_is_in_them_are_temporary(tmp_path):
    folder = temporary_folder("streammc-test-")
    assert is_temporary(folder)
    assert is_temporary(folder / "posterior" / "beta")
    assert not is_temporary(folder.parent)
    assert not is_temporary(tmp_path)


def test_a_result_that_cannot_be_written_stays_in_memory(monkeypatch):
    monkeypatch.setattr(unfinished, "_unwritten", {})
    monkeypatch.setattr(unfinished, "KEPT_BYTES", 1)
    folders = [temporary_folder("streammc-test-") for _ in range(2)]
    full, tried = [True], []

    def write():
        tried.append(full[0])
        if full[0]:
            raise StorageIOError("expected space, found none: make some")

    write_later(folders[0], 10, write)
    write_later(folders[1], 10, lambda: None)  # whose own result is not lost
    assert [True] == tried
    with pytest.raises(StorageIOError):
        write_now(folders[0])
    full[0] = False
    write_now(folders[0])
    write_now(folders[0])
    assert [True, True, False] == tried
