"""Rows per second of ``streammc predict``, against reading and arithmetic alone.

Run as ``python bench/predict.py [--rows 10000000] [--repeats 3] [--folder DIR] [--write]``; it
needs 2.5 GB of disk. A simulated logistic regression with 20 columns is sampled, and its rows are
predicted from 200 draws by the command: mean and interval of a table without a response, the same
with the scores and the ROC curves of a table that has one, and with groups of a column besides. The
cases take turns. Processor seconds are those of all threads of the whole command; two cores with
nothing else to do need half of them. Memory is that of one more run each, not timed.

The limits, on one core:

read
    the files of the store once, from the page cache;
multiply-adds
    rows x draws x columns, at the rate of a large product of matrices;
arithmetic
    product, mean response, mean and sort of every row, on a tile of rows in memory;
arithmetic, partition
    the same with ``numpy.partition`` at the four draws around the quantiles, not a sort.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from memory import COMMAND, measure
from page import machine, publish, short

import streammc
from streammc.models import logistic
from streammc.numerics.process_limits import single_threaded

DIM, DRAWS, CORES = 20, 200, 2
GOAL_RATE, GOAL_MEMORY = 1e6, 1e9
PIECE = 1 << 20
CASES = {
    "mean and interval": ("unscored", []),
    "and scores, ROC curves": ("scored", []),
    "and 100 groups of a column": ("scored", ["--by", "x1"]),
}


def call(*words: object) -> tuple[float, float]:
    """Run a command of streammc; return its wall and processor seconds."""
    began = time.perf_counter()
    process = subprocess.Popen([COMMAND, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"streammc {' '.join(map(str, words))} exits with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def make_tables(folder: Path, rows: int) -> None:
    """Write a run, its store, and the same rows in a store without a response."""
    scored = folder / "scored"
    call("simulate", "logistic", scored, "--rows", rows, "--dim", DIM, "--seed", 1, "--quiet")
    counts = ["--draws", 200, "--warmup", 200, "--chains", 2, "--seed", 1, "--no-audit", "--quiet"]
    call("sample", scored, "-o", folder / "run", "--model", "logistic", *counts)
    names, writer = streammc.open_store(scored).feature_names[1:], None
    design = zarr.open_group(scored, mode="r")["X"]
    for first in range(0, rows, PIECE):
        X = design[first : first + PIECE]
        part = pa.table({name: X[:, j + 1] for j, name in enumerate(names)})
        writer = writer or pq.ParquetWriter(folder / "new.parquet", part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
    like = ["--like", scored, "--quiet"]
    call("ingest", folder / "new.parquet", folder / "unscored", *like)


def processor_seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Return the processor seconds of one call of ``work``, after a first that is not counted."""
    work()
    began = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - began) / repeats


def read_all(folder: Path) -> int:
    """Read every file of a store into one buffer; return the bytes."""
    buffer, total = bytearray(1 << 24), 0
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    total += count
    return total


def limits(folder: Path, rows: int) -> tuple[dict[str, float], int]:
    """Return the processor seconds of each limit for all rows, and the bytes of the store."""
    rng, model = np.random.default_rng(1), logistic()
    with single_threaded():
        a, b = rng.standard_normal((2, 1500, 1500))
        product = processor_seconds(lambda: a @ b, 5) / 1500**3
        tile = 320
        X, theta = rng.standard_normal((tile, DIM)), rng.standard_normal((DRAWS, DIM))
        eta = np.empty((tile, DRAWS))

        low = int(0.05 * (DRAWS - 1))
        around = [low, low + 1, DRAWS - 2 - low, DRAWS - 1 - low]

        def arithmetic(select: bool) -> None:
            np.matmul(X, theta.T, out=eta)
            means = model.mean(eta.reshape(1, -1)).reshape(tile, DRAWS)
            means.mean(axis=1)
            if select:
                means.partition(around, axis=1)
            else:
                means.sort(axis=1)

        alone = processor_seconds(lambda: arithmetic(False), 500) / tile
        selected = processor_seconds(lambda: arithmetic(True), 200) / tile
    reading = processor_seconds(lambda: read_all(folder))
    seconds = {
        "read": reading,
        "multiply-adds": product * rows * DRAWS * DIM,
        "arithmetic": alone * rows,
        "arithmetic, partition": selected * rows,
    }
    return seconds, read_all(folder)


def table(found: dict[str, Any], rows: int) -> list[str]:
    """Return the lines of the table."""
    lines = [
        "| what | wall, s | processor, s | million rows a processor second | on two idle cores "
        "| anonymous MB | with files, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seconds in found["limits"].items():
        rate = rows / seconds / 1e6
        lines.append(f"| alone: {name} | | {short(seconds)} | {short(rate)} | | | |")
    for name, each in found["cases"].items():
        rate = rows / each["processor"] / 1e6
        lines.append(
            f"| {name} | {short(each['wall'])} | {short(each['processor'])} | {short(rate)} "
            f"| {short(CORES * rate)} | {each['anonymous'] / 1e6:.0f} "
            f"| {each['resident'] / 1e6:.0f} |"
        )
    return lines


def main() -> None:
    """Measure, print the table, and write it into its page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streammc-predict-", dir=asked.folder) as temporary:
        folder = Path(temporary)
        make_tables(folder, asked.rows)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
        for _ in range(asked.repeats):
            for name, (store, options) in CASES.items():
                words = ["predict", folder / "run", folder / store, "-o", folder / "p", *options]
                seconds[name].append(call(*words, "--quiet"))
                shutil.rmtree(folder / "p")
        found: dict[str, Any] = {"cases": {}}
        for name, (store, options) in CASES.items():
            words = ["predict", folder / "run", folder / store, "-o", folder / "p", *options]
            usage = measure(*map(str, words), "--quiet")
            shutil.rmtree(folder / "p")
            wall, processor = map(statistics.median, zip(*seconds[name], strict=True))
            found["cases"][name] = {
                "wall": wall,
                "processor": processor,
                "anonymous": usage.anonymous,
                "resident": usage.resident,
            }
        found["limits"], size = limits(folder / "scored", asked.rows)
    first = found["cases"]["mean and interval"]
    rate = CORES * asked.rows / first["processor"]
    met = rate >= GOAL_RATE and first["resident"] < GOAL_MEMORY
    lines = [
        *table(found, asked.rows),
        "",
        f"{asked.rows:,} rows of {DIM} columns, {size / 1e6:,.0f} MB; {DRAWS} draws, medians of "
        f"{asked.repeats}; {asked.rows * DRAWS * DIM / 1e9:,.0f} thousand million multiply-adds. "
        f"Goal of the first case, {GOAL_RATE:,.0f} rows a second and {GOAL_MEMORY / 1e9:g} GB: "
        f"{'met' if met else 'missed'}. The arithmetic is "
        f"{found['limits']['arithmetic'] / first['processor']:.0%} of its processor time. "
        f"{machine()}.",
    ]
    print("\n".join(lines))
    print(json.dumps(found))
    if asked.write:
        publish("cost.md", "predictions", lines)


if __name__ == "__main__":
    main()
