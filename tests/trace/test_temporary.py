"""Temporary folders: their files are complete, and nothing waits for the disk."""

from __future__ import annotations

import os

from streammc.trace.run_directory import RunDirectory
from streammc.trace.temporary import is_temporary, temporary_folder


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
