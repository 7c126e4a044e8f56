"""One pass over a store, against reading alone and arithmetic alone; two threads, cold cache.

Run as ``python bench/full_pass.py [--rows N] [--columns 8 32] [--folder DIR] [STORE ...]``.
Without stores it simulates logistic tables of N rows (100,000,000: 3.3 GB with 8 columns
and 13 GB with 32) in the folder and deletes them afterwards. ``--workers`` adds a pass on
two processes of a ``LocalCluster`` that is already up, in turn with two threads.

Reading alone: the same files by ``readv`` into one buffer per thread, with their crc32c.
Arithmetic alone: the kernel of the pass on 16,384 rows that stay in the cache, again and
again, in two threads. The page cache of the store is dropped before each pass and each
reading. Everything runs in turn, and medians are printed; a JSON line ends the output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from streammc.control_variates.full_pass.block_pass import ExpansionPass, RowSums
from streammc.likelihood.data_views import draw_subset
from streammc.models import logistic
from streammc.stores import open_store
from streammc.stores.simulation import simulate

THREADS = 2
PIECE = 1 << 20
CACHED_ROWS = 16_384
DRAWS = {"scoring": 8, "sums": 0}
CHOSEN_DRAWS = 8


def chunk_files(root: Path) -> list[Path]:
    """Return the files of the row arrays in the order of the rows."""
    files = [path for path in root.glob("*/c.*") if path.parent.name != "feature"]
    return sorted(files, key=lambda path: (int(path.name.split(".")[1]), path.parent.name))


def drop(files: list[Path]) -> None:
    """Forget what the page cache holds of ``files``."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def in_threads(work: Callable[[int], None]) -> float:
    """Run ``work(thread)`` in every thread; return the seconds until the last has ended."""
    threads = [threading.Thread(target=work, args=(index,)) for index in range(THREADS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def reading(files: list[Path]) -> float:
    """Return the seconds to read and checksum ``files``, half of them in each thread."""

    def work(index: int) -> None:
        buffer = np.empty(PIECE, np.uint8)
        half = -(-len(files) // THREADS)
        for path in files[index * half : (index + 1) * half]:
            descriptor, crc = os.open(path, os.O_RDONLY), 0
            while count := os.readv(descriptor, [buffer.data]):
                crc = google_crc32c.extend(crc, buffer[:count])
            os.close(descriptor)

    return in_threads(work)


def arithmetic(store: Any, theta: Any, shifts: Any, seconds: float = 2.0) -> float:
    """Return the seconds the kernel would take for all rows, on rows that stay in cache."""
    (block, *_) = store.blocks()
    piece = next(block.pieces())
    part = [np.ascontiguousarray(array[:CACHED_ROWS]) for array in piece[2:]]
    done = [0] * THREADS
    end = time.perf_counter() + seconds

    def work(index: int) -> None:
        sums = RowSums(logistic(), theta, shifts, 2, store.n_features)
        squares = np.empty(len(part[1]))
        while time.perf_counter() < end:
            sums.add(*part, squares)
            done[index] += len(squares)

    return in_threads(work) * store.n_rows / sum(done)


def one_pass(store: Any, theta: Any, shifts: Any, scheduler: Any) -> float:
    """Return the seconds of a full pass."""
    task = ExpansionPass(logistic(), theta, shifts, 2, 20_000, False)
    began = time.perf_counter()
    store.reduce(task, scheduler=scheduler)
    return time.perf_counter() - began


def measure(root: Path, repeats: int, workers: bool) -> dict[str, Any]:
    """Return medians for one store."""
    store, files = open_store(root), chunk_files(root)
    rng = np.random.default_rng(0)
    rows = draw_subset(store, 2**27)
    theta = np.linalg.lstsq(rows.X, 4.0 * (rows.y - 0.5), rcond=None)[0]
    scale = 3.0 / np.sqrt(store.n_rows)
    shifts = {name: scale * rng.normal(size=(s, len(theta))) for name, s in DRAWS.items()}
    seconds: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    for name in DRAWS:  # compile, start threads
        arithmetic(store, theta, shifts[name], 0.1)
    for _ in range(repeats):
        drop(files)
        note("reading", reading(files))
        for name in DRAWS:
            drop(files)
            note(name, one_pass(store, theta, shifts[name], THREADS))
            note(f"arithmetic, {name}", arithmetic(store, theta, shifts[name]))
    if workers:
        compare_workers(store, files, theta, shifts["scoring"], repeats, note)
    size = sum(path.stat().st_size for path in files)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"rows": store.n_rows, "columns": store.n_features, "gb": size / 1e9, **medians}


def compare_workers(
    store: Any, files: list[Path], theta: Any, shifts: Any, repeats: int, note: Any
) -> None:
    """Time the scoring pass on two processes and on two threads, in turn, cached files warm."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        one_pass(store, theta, shifts, client)  # imports, caches
        for _ in range(repeats):
            drop(files)
            note("two workers", one_pass(store, theta, shifts, client))
            drop(files)
            note("two threads", one_pass(store, theta, shifts, THREADS))


def table(results: list[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| columns | pass | seconds | GB/s | ns a row | reading alone | arithmetic alone | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in results:
        for name, draws in DRAWS.items():
            took, compute = found[name], found[f"arithmetic, {name}"]
            share = max(found["reading"], compute) / took
            cells = [
                f"{found['columns']}",
                f"{draws} draws" if draws else "sums only",
                f"{took:.1f}",
                f"{found['gb'] / took:.2f}",
                f"{1e9 * took / found['rows']:.0f}",
                f"{found['reading']:.1f}",
                f"{compute:.1f}",
                f"{share:.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    for found in results:
        if "two workers" in found:
            ratio = found["two workers"] / found["two threads"]
            lines.append(
                f"\n{found['columns']} columns: two workers {found['two workers']:.1f} s, "
                f"two threads {found['two threads']:.1f} s, ratio {ratio:.2f}."
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and delete what was made."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", action="store_true")
    given = parser.parse_args()
    results = [measure(path, given.repeats, given.workers) for path in given.stores]
    if not given.stores:
        folder = Path(tempfile.mkdtemp(prefix="full-pass-", dir=given.folder))
        try:
            for columns in given.columns:
                root = folder / "table.zarr"
                simulate(root, kind="logistic", rows=given.rows, dim=columns, seed=1)
                results.append(measure(root, given.repeats, given.workers))
                shutil.rmtree(root)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{date.today()}, {os.cpu_count()} cores, {THREADS} threads, cold cache\n")
    print(table(results))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
