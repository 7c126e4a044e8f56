"""Speed of ``streammc simulate`` against its two limits: the disk, and the random numbers.

Run as ``python bench/simulate.py [ROWS [FOLDER]]``, by default 100,000,000 rows of 8
columns in a temporary folder, which needs 3.3 GB of disk. Each round measures, one
after the other,

raw
    the same bytes by ``os.write`` in pieces of 8 MB to one file, then ``fsync``;
generation
    the random numbers alone, by as many threads as there are cores, into one buffer each;
simulate
    the command, from start to end, with every file synced.

Once more, not timed, it is watched for its anonymous memory. Everything is deleted again.
Prints JSON and the table of the documentation, medians of the rounds.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import numpy as np
from memory import COMMAND, measure

DIM = 8
ROUNDS = 5
PIECE = 8 << 20
STREAM = 65_536


def write_raw(path: Path, total: int) -> float:
    """Return the seconds to write and sync ``total`` bytes."""
    piece = np.random.default_rng(1).integers(0, 255, PIECE, dtype=np.uint8)
    began = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        done = 0
        while done < total:
            done += os.write(descriptor, piece[: min(PIECE, total - done)].data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds


def generate(rows: int) -> float:
    """Return the seconds to draw the normals of all rows, and keep none."""
    threads = os.cpu_count() or 1

    def draw(thread: int) -> None:
        buffer = np.empty((STREAM, DIM), np.float32)
        for block in range(thread, -(-rows // STREAM), threads):
            rng = np.random.default_rng(block)
            rng.standard_normal(out=buffer, dtype=np.float32)
            rng.random(STREAM)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(draw, range(threads)))
    return time.perf_counter() - began


def run_command(*arguments: str) -> float:
    """Return the wall time of ``streammc`` with ``arguments``."""
    began = time.perf_counter()
    subprocess.run([COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000_000
    base = sys.argv[2] if len(sys.argv) > 2 else None
    total = rows * (4 * DIM + 1)
    free = shutil.disk_usage(base or tempfile.gettempdir()).free
    if free < 1.2 * total:
        raise SystemExit(f"expected {1.2 * total / 1e9:.1f} GB free, found {free / 1e9:.1f} GB")
    found: dict[str, list[float]] = {"raw": [], "generation": [], "simulate": []}
    used: dict[str, list[float]] = {kind: [] for kind in found}
    with tempfile.TemporaryDirectory(prefix="streammc-simulate-", dir=base) as name:
        store = Path(name) / "store.zarr"
        shape = ["--rows", str(rows), "--dim", str(DIM), "--seed", "1", "--quiet"]
        command = ["simulate", "logistic", str(store), *shape]
        works: dict[str, Callable[[], float]] = {
            "raw": lambda: write_raw(Path(name) / "raw", total),
            "generation": lambda: generate(rows),
            "simulate": lambda: run_command(*command),
        }
        for _ in range(ROUNDS):
            for kind, work in works.items():
                before = processor_seconds()
                found[kind].append(work())
                used[kind].append(processor_seconds() - before)
            print({kind: round(each[-1], 2) for kind, each in found.items()}, file=sys.stderr)
            shutil.rmtree(store)
            Path(f"{store}.config.json").unlink()
        # Watching takes a good part of a core, so that this one is not timed.
        anonymous = measure(*command).anonymous
    seconds = {kind: statistics.median(each) for kind, each in found.items()}
    limit = max(seconds["raw"], seconds["generation"])
    share = statistics.median(
        max(raw, bare) / whole
        for raw, bare, whole in zip(*(found[kind] for kind in found), strict=True)
    )
    result = {
        "rows": rows,
        "dim": DIM,
        "bytes": total,
        "seconds": found,
        "processor_seconds": used,
        "limit_seconds": limit,
        "share_of_limit": share,
        "anonymous_bytes": anonymous,
    }
    print(json.dumps(result))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    print(
        f"\n{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores, {date.today()};"
    )
    print(f"{rows:,} rows x {DIM} columns, {total / 1e9:.1f} GB, {ROUNDS} rounds\n")
    print("| what | seconds | GB/s | million rows/s | processor seconds |")
    print("|---|---|---|---|---|")
    for kind, label in (
        ("raw", "the same bytes by `os.write`, synced"),
        ("generation", "random numbers alone, all cores"),
        ("simulate", "`streammc simulate`, synced"),
    ):
        at, busy = seconds[kind], statistics.median(used[kind])
        speed = f"{total / at / 1e9:.2f} | {rows / at / 1e6:.1f}"
        print(f"| {label} | {at:.2f} | {speed} | {busy:.1f} |")
    print(f"\nShare of the slower limit: {share:.2f}; anonymous memory {anonymous / 1e6:.0f} MB.")


if __name__ == "__main__":
    main()
