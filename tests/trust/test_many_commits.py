"""A run of very many commits: memory, descriptors, folders and the time of a commit: check 49."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checks_of_trust import rounds

from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

PARTS = 20
"""Parts of the commits, of which the median time is taken."""


def memory() -> int:
    """Return the bytes of memory of this process that are resident and in use."""
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests have freed would hide what grows
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def committed(path: Path, commits: int, keep: list[np.ndarray] | None = None) -> dict[str, float]:
    """Commit so many intervals of one draw; return what grew, per 10,000 commits."""
    layout = make_layout(["a"], ["a"], 1, 1, {"lp": "float64"})
    plan = {"layout": layout, "draws": commits, "warmup": 0}
    value, seconds, resident = np.ones((1, 1, 1)), [], []
    gc.collect()
    gc.freeze()  # what earlier tests have left is not searched at every part
    with RunDirectory.hold(path, identity={"seed": 1}, **plan) as run:
        opened = None
        for number in range(commits):
            value += 0.5
            begun = time.process_time()
            run.append("draws", value, {"lp": value[:, :, 0]}, ({"at": value[0, 0]}, {"n": number}))
            seconds.append(time.process_time() - begun)
            if keep is not None:
                keep.append(np.ones(1000))
            if number % (commits // PARTS) == 0:
                gc.collect()
                resident.append(memory())
                opened = descriptors() if opened is None else opened
                assert opened == descriptors()
    middle = resident[PARTS // 4 :]
    slope = np.polyfit(np.arange(len(middle)) * (commits / PARTS / 1e4), middle, 1)[0]
    part = commits // PARTS
    medians = [float(np.median(seconds[i : i + part])) for i in range(0, commits, part)]
    found = {
        "slope": float(slope),
        "checkpoint": len(os.listdir(path / "checkpoint")),
        "chunks": len(os.listdir(path / "posterior" / "a")),
        "root": (path / "zarr.json").stat().st_size,
        "ratio": min(medians[-2:]) / min(medians[1:3]),
    }
    shutil.rmtree(path)
    return found


@pytest.mark.trust(49)
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_commits_cost_the_same_after_very_many(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of the disk, not of streammc
    commits = rounds(2_000, 100_000)
    few, found = committed(tmp_path / "few", 100), committed(tmp_path / "many", commits)
    # At small counts the allocator's own pages are a larger share of the slope.
    assert found["slope"] < rounds(20, 1) * 2**20
    assert found["checkpoint"] == few["checkpoint"]
    assert commits + 1 == found["chunks"]  # the draws themselves, and a document
    assert found["root"] < few["root"] + 100
    assert found["ratio"] < 1.5
    record_property(
        "figure",
        f"{commits:,} commits: {found['slope'] / 2**20:.2f} MB per 10,000, descriptors constant, "
        f"{found['checkpoint']:.0f} files of checkpoints, time at the end {found['ratio']:.2f} "
        "of that at the start",
    )


@pytest.mark.trust(49)
@pytest.mark.slow
def test_a_growing_list_of_draws_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    found = committed(tmp_path / "run", 600, keep=[])
    assert found["slope"] > 20 * 2**20
    record_property(
        "caught", f"8 kB kept of each commit: {found['slope'] / 2**20:.0f} MB per 10,000"
    )
