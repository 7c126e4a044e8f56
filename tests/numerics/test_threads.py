from __future__ import annotations

import os
from pathlib import Path

import pytest

import streammc
from streammc.numerics.process_limits import available_threads


def test_threads_are_those_of_the_affinity_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 6}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert 3 == available_threads()
    monkeypatch.delattr(os, "sched_getaffinity")
    assert 8 == available_threads()


def test_no_other_file_counts_cores() -> None:
    package = Path(streammc.__file__).parent
    folders = (package, package / "stores", package / "cli")
    counting = {
        path.name
        for folder in folders
        for path in folder.rglob("*.py")
        if any(word in path.read_text() for word in ("cpu_count", "sched_getaffinity"))
    }
    assert {"process_limits.py"} == counting
