"""Time the commit of one interval, and whether it grows with the run.

Four chains, 29 coefficients, 26 statistics, 100 draws an interval. Each commit is made
twice: with its fsyncs in threads, as ``streammc.trace.disk`` does, and one after the
other. Run ``python bench/commit.py [FOLDER]``; it prints a table and one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from streammc.trace import disk
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

CHAINS, INTERVAL, DIM, STATISTICS, COMMITS = 4, 100, 29, 26, 60


def commits(folder: Path, threads: int) -> list[float]:
    """Return the milliseconds of each commit."""
    disk._THREADS = threads
    names = [f"x{i}" for i in range(DIM)]
    dtypes = dict.fromkeys((f"s{i}" for i in range(STATISTICS)), "float64")
    run = RunDirectory.create(
        folder / f"run-{threads}",
        identity={},
        layout=make_layout([f"beta[{name}]" for name in names], names, CHAINS, INTERVAL, dtypes),
        draws=COMMITS * INTERVAL,
        warmup=0,
    )
    theta = np.random.default_rng(0).normal(size=(CHAINS, INTERVAL, DIM))
    stats = {f"s{i}": theta[:, :, i] for i in range(STATISTICS)}
    times = []
    with run.lock():
        while not run.finished():
            begun = time.perf_counter()
            run.append("draws", theta, stats, ({"x": np.arange(1000.0)}, {}))
            times.append(1e3 * (time.perf_counter() - begun))
    return times


def main() -> None:
    """Print the medians."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    found = {}
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        for threads in (1, disk._THREADS):
            times = commits(Path(folder), threads)
            found[str(threads)] = {
                "median_ms": round(statistics.median(times), 1),
                "first_ten_ms": round(statistics.median(times[:10]), 1),
                "last_ten_ms": round(statistics.median(times[-10:]), 1),
            }
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("threads  median  first ten  last ten  (ms)")
    for threads, row in found.items():
        print(f"{threads:>7}", *(f"{value:9.1f}" for value in row.values()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
