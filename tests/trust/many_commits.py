"""Commit very many intervals of one draw; print what grew: many_commits.py RUN COMMITS KEPT.

It is a program, so that its memory is its own: in a process of tests other tests' memory grows too.
KEPT bytes are kept of each commit, as by a list of draws that grows.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

PARTS = 20
"""Parts of the commits, of which the median time is taken."""


def memory() -> int:
    """Return the bytes of memory of this process that are resident and in use."""
    ctypes.CDLL(None).malloc_trim(0)  # what has been freed would hide what grows
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def commit(path: Path, commits: int, kept: int) -> dict[str, float]:
    """Commit so many intervals of one draw; return what grew, per 10,000 commits."""
    layout = make_layout(["a"], ["a"], 1, 1, {"lp": "float64"})
    plan = {"layout": layout, "draws": commits, "warmup": 0}
    value, seconds, resident, keep = np.ones((1, 1, 1)), [], [], []
    with RunDirectory.hold(path, identity={"seed": 1}, **plan) as run:
        opened = None
        for number in range(commits):
            value += 0.5
            begun = time.process_time()
            run.append("draws", value, {"lp": value[:, :, 0]}, ({"at": value[0, 0]}, {"n": number}))
            seconds.append(time.process_time() - begun)
            if kept:
                keep.append(b"1" * kept)
            if number % (commits // PARTS) == 0:
                gc.collect()
                resident.append(memory())
                opened = descriptors() if opened is None else opened
                assert opened == descriptors()
    middle = resident[PARTS // 4 :]
    slope = np.polyfit(np.arange(len(middle)) * (commits / PARTS / 1e4), middle, 1)[0]
    part = commits // PARTS
    medians = [float(np.median(seconds[i : i + part])) for i in range(0, commits, part)]
    return {
        "slope": float(slope),
        "checkpoint": len(os.listdir(path / "checkpoint")),
        "chunks": len(os.listdir(path / "posterior" / "a")),
        "root": (path / "zarr.json").stat().st_size,
        "ratio": min(medians[-2:]) / min(medians[1:3]),
    }


if __name__ == "__main__":
    os.fsync = lambda descriptor: None  # of the disk, not of streammc
    print(json.dumps(commit(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
