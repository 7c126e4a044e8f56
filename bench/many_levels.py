"""What a factor of many levels costs before the first draw, and what the forecast says.

    python bench/many_levels.py [--rows 30000] [--levels 300 1000 3000] [--folder DIR]

A table with a number, a factor of that many levels (one row of each, the rest unevenly) and a
logistic response is ingested with ``late ~ distance + C(tail)``, and control variates are
computed: that is what ``streammc sample`` does before its first draw. Every size is a process of
its own, for its peak memory. Seconds are of CPU, all threads together.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

import streammc
from streammc.likelihood.pass_cost import forecast


def table(rows: int, levels: int) -> pa.Table:
    """Return the table, from a fixed seed."""
    rng = np.random.default_rng(1)
    distance = rng.gamma(2.0, 400.0, rows)
    shares = rng.gamma(0.8, 1.0, levels)
    drawn = rng.choice(levels, rows - levels, p=shares / shares.sum())
    tail = np.concatenate([np.arange(levels), drawn])
    rng.shuffle(tail)
    eta = -1.0 + 0.0005 * distance + rng.normal(0.0, 0.5, levels)[tail]
    late = (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64)
    names = [f"N{level:05d}" for level in tail]
    return pa.table({"late": late, "distance": distance, "tail": names})


def measure(folder: Path, rows: int, levels: int) -> dict[str, float]:
    """Return seconds, passes and memory of one size."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = streammc.ingest(
            table(rows, levels), folder / f"store-{levels}", formula="late ~ distance + C(tail)"
        )
    found = {"ingest": time.process_time() - began, "columns": len(report["features"])}
    store, model = streammc.open_store(folder / f"store-{levels}"), streammc.models.logistic()
    cost = forecast(store, model)
    began = time.process_time()
    certificate = streammc.control_variates(store, model).certificate
    return {
        **found,
        "seconds": time.process_time() - began,
        "passes": certificate["passes"],
        "expected_passes": cost.passes,
        "expected": cost.passes * cost.core_seconds + cost.evaluations * cost.evaluation_seconds,
        "gigabytes": 1e-6 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "expected_gigabytes": 1e-9 * cost.memory_bytes,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--levels", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", action="store_true", help="one size, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.folder, options.rows, options.levels[0])))
        return
    print(f"{options.rows:,} rows, logistic; {platform.processor()} {platform.machine()}")
    print(f"{datetime.datetime.now():%Y-%m-%d}\n")
    print("| columns | ingest, s | passes | expected | CPU s | expected | peak GB | expected |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for levels in options.levels:
            words = ["--one", "--folder", folder, "--rows", options.rows, "--levels", levels]
            command = [sys.executable, __file__, *map(str, words)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            one = json.loads(done.stdout)
            print(
                f"| {one['columns']:,} | {one['ingest']:.1f} | {one['passes']} | "
                f"{one['expected_passes']} | {one['seconds']:.0f} | {one['expected']:.0f} | "
                f"{one['gigabytes']:.1f} | {one['expected_gigabytes']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
