"""Rows from S3 on loopback: streammc, obstore reading alone, and zarr with s3fs.

    python bench/object_store.py [--rows N] [--columns Q] [--rounds R] [--write]

Simulates a logistic table, in shards and in raw chunks, and serves it with ``s3_files.py``. Sides
take turns; medians of the rounds. A full reading is every byte of X and y: obstore alone gets the
objects in 16 threads and drops them; streammc reads, checks and hands the rows to a task that does
nothing, and in another turn to the pass of a logistic regression; zarr reads slices of a block
of rows. Random rows are 1,000 single rows a call: obstore alone gets the bytes of the rows by
``get_ranges``, which merges what is near; streammc has a cache of half of the store, empty at
first; zarr takes sorted rows by ``oindex``. s3fs is in ``requirements.txt`` of this folder only.

On loopback the server is as fast as memory and takes its share of the cores, so that every
arithmetic of the reader shows. The same is measured over a link of 5 Gbit/s whose answers begin
after 15 ms, as a machine in the region of its bucket has one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import zarr
from obstore.store import S3Store
from page import machine, publish, short

from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.likelihood.blocks import allocate_rows
from streammc.models import logistic
from streammc.protocols import PassTask
from streammc.stores import open_store
from streammc.stores.cloud.requests import connect
from streammc.stores.rows.piece_cache import CachedRows, StorePieces
from streammc.stores.store import Store

RESULTS = Path(__file__).resolve().parent / "results" / "object_store.json"
CALL_ROWS, CALLS, THREADS = 1000, 40, 16
LINK = ("5", "15")
"""Gigabits a second, and milliseconds before an answer."""
LAYOUTS = ("shards", "raw")
GOAL = 0.7
"""Share of the speed of obstore alone."""
SIDES = ("obstore alone", "streammc", "streammc, pass", "zarr with s3fs")


@dataclass(frozen=True)
class Nothing(PassTask[int]):
    """A task that looks at no row."""

    def map(self, block: Any) -> int:
        """Return the number of rows."""
        return len(block.y)

    def combine(self, left: int, right: int) -> int:
        """Add."""
        return left + right


def make_stores(folder: Path, rows: int, columns: int) -> None:
    """Write the same table in shards and in raw chunks."""
    from streammc.stores.format.writer import StoreWriter

    rng = np.random.default_rng(1)
    names = [f"x{column}" for column in range(columns)]
    step = 1 << 18
    for name, cloud in (("shards.zarr", "raw"), ("raw.zarr", None)):
        rng = np.random.default_rng(1)
        with StoreWriter(folder / name, features=names, y_dtype="uint8", cloud=cloud) as writer:
            for start in range(0, rows, step):
                m = min(step, rows - start)
                X = rng.standard_normal((m, columns), dtype=np.float32)
                writer.append(X, rng.random(m) < 1 / (1 + np.exp(-X[:, 0])))
            writer.commit({"response": "y"})


def alone(store: Store, plain: Any) -> int:
    """Get every object of X and y with obstore, and return the bytes."""
    keys = [key for key in store.manifest.entries if key.startswith(("X/c", "y/c"))]
    where = store.address.removeprefix("s3://bucket/")
    with ThreadPoolExecutor(THREADS) as pool:
        sizes = pool.map(lambda key: len(obstore.get(plain, f"{where}/{key}").bytes()), keys)
        return sum(sizes)


def with_s3fs(store: Store) -> Any:
    """Return X and y as zarr arrays read with s3fs."""
    import s3fs
    from zarr.storage import FsspecStore

    url = os.environ["AWS_ENDPOINT_URL"]
    files = s3fs.S3FileSystem(endpoint_url=url, key="k", secret="s", asynchronous=True)
    opened = FsspecStore(files, path=store.address.removeprefix("s3://"), read_only=True)
    group = zarr.open_group(opened, mode="r")
    return group["X"], group["y"]


def seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call, by the clock and of this process's processor time."""
    began, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - used


def full_readings(address: str, plain: Any, rounds: int) -> dict[str, list[float]]:
    """Return GB/s and processor seconds per GB of a full reading by side: medians."""
    store = open_store(address)
    total = alone(store, plain)
    task = ExpansionPass(
        logistic(), np.zeros(store.n_features), np.empty((0, store.n_features)), 2, 0, False
    )
    X, y = with_s3fs(store)

    def by_slices() -> None:
        step = store.block_rows()
        for start in range(0, store.n_rows, step):
            _ = X[start : start + step], y[start : start + step]

    calls: tuple[Callable[[], Any], ...] = (
        lambda: alone(store, plain),
        lambda: store.reduce(Nothing()),
        lambda: store.reduce(task),
        by_slices,
    )
    store.reduce(task)  # compiles
    gigabytes = 1e-9 * total
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, call in zip(SIDES, calls, strict=True):
            clock, used = seconds(call)
            found[side].append((gigabytes / clock, used / gigabytes))
    return {side: medians(each) for side, each in found.items()}


def medians(pairs: list[tuple[float, float]]) -> list[float]:
    """Return the medians of both."""
    return [statistics.median(each) for each in zip(*pairs, strict=True)]


def row_ranges(store: Store, rows: Any) -> list[tuple[str, list[int], list[int]]]:
    """Return the byte ranges of rows in the raw chunks of X and y: key, starts and ends."""
    found = []
    for member in store.layout.data_members:
        for chunk in np.unique(rows // store.layout.chunk_rows):
            own = rows[rows // store.layout.chunk_rows == chunk] % store.layout.chunk_rows
            starts = own * member.row_bytes
            ends = (starts + member.row_bytes).tolist()
            found.append((member.key(int(chunk)), starts.tolist(), ends))
    return found


def random_rows(folder: str, plain: Any, rounds: int) -> dict[str, list[float]]:
    """Return random rows per second, and processor microseconds a row, by side: medians."""
    raw = open_store(f"s3://{folder}/raw.zarr")
    stores = {"streammc, shards": open_store(f"s3://{folder}/shards.zarr"), "streammc": raw}
    out = allocate_rows(CALL_ROWS, raw.n_features)
    half = raw.n_rows * raw.layout.row_bytes // 2
    X, y = with_s3fs(raw)

    def by_obstore(rows: Any) -> None:
        def get(part: tuple[str, list[int], list[int]]) -> None:
            obstore.get_ranges(plain, f"raw.zarr/{part[0]}", starts=part[1], ends=part[2])

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(get, row_ranges(raw, rows)))

    def by_zarr(rows: Any) -> None:
        _ = X.oindex[rows], y.oindex[rows]

    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(rounds):
        sides: dict[str, tuple[Callable[[Any], None], int]] = {
            "obstore alone": (by_obstore, CALLS),
            "zarr with s3fs": (by_zarr, 2),
        }
        for side, store in stores.items():
            reader = StorePieces(store._root, store.layout, store.manifest, {})
            cache = CachedRows(reader, half)
            sides[side] = (lambda rows, cache=cache: cache.gather(rows, 1, out), CALLS)  # type: ignore[misc]
        for side, (call, count) in sides.items():
            rng = np.random.default_rng(turn)
            drawn = [np.sort(rng.integers(0, raw.n_rows, CALL_ROWS)) for _ in range(count)]
            clock, used = seconds(lambda call=call, drawn=drawn: [call(rows) for rows in drawn])  # type: ignore[misc]
            n = count * CALL_ROWS
            found.setdefault(side, []).append((n / clock, 1e6 * used / n))
    return {side: medians(each) for side, each in found.items()}


def lines(results: dict[str, Any]) -> list[str]:
    """Return the section of the page."""
    found = [
        "## Measured",
        "",
        f"{results['n_rows']:,} rows of {results['columns']} columns, `bench/object_store.py` "
        f"({results['machine']}), medians of {results['rounds']} in turn. The S3 server has the "
        "same cores. GB/s, processor seconds of the client per GB, and random rows per second, "
        f"{CALL_ROWS:,} a call and {CALLS} calls (2 of zarr), with a cache of half of the store "
        "that is empty at first:",
    ]
    heads = {
        "loopback": "On loopback, where the server is as fast as memory:",
        "link": f"Over a link of {LINK[0]} Gbit/s whose answers begin after {LINK[1]} ms:",
    }
    for kind, head in heads.items():
        found += ["", head, "", *table(results[kind]), "", shares(results[kind])]
    return found


def shares(results: dict[str, Any]) -> str:
    """Return in words how much of obstore's own speed is reached, and whether that is the goal."""
    rates = {
        words: [results[kind][side][0] / results[kind]["obstore alone"][0] for kind in LAYOUTS]
        for words, side in (("reading", "streammc"), ("the pass", "streammc, pass"))
    }
    rows = results["rows"]
    rates["random rows"] = [
        rows[side][0] / rows["obstore alone"][0] for side in ("streammc, shards", "streammc")
    ]
    told = [
        f"{words} {first:.2f} and {second:.2f}, {'met' if min(first, second) >= GOAL else 'missed'}"
        for words, (first, second) in rates.items()
    ]
    return f"Of obstore alone, from shards and raw chunks (goal {GOAL}): {'; '.join(told)}."


def table(results: dict[str, Any]) -> list[str]:
    """Return the table of one server."""
    shards, raw, rows = results["shards"], results["raw"], results["rows"]
    names = {
        "streammc": "streammc: read, checked, decoded",
        "streammc, pass": "streammc: the pass of a logistic regression",
    }
    return [
        "| | shards, GB/s | s per GB | raw chunks, GB/s | s per GB |",
        "|---|---|---|---|---|",
        *(
            f"| {names.get(side, side)} | {' | '.join(map(short, [*shards[side], *raw[side]]))} |"
            for side in SIDES
        ),
        "",
        "| | random rows/s | processor µs a row |",
        "|---|---|---|",
        *(f"| {side} | {' | '.join(map(short, each))} |" for side, each in sorted(rows.items())),
    ]


@contextmanager
def server(folder: str, link: tuple[str, ...]) -> Iterator[Any]:
    """Serve the folder, set the environment for it, and yield obstore's connection to it."""
    words = [sys.executable, str(Path(__file__).with_name("s3_files.py")), folder, *link]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        os.environ.update(
            AWS_ENDPOINT_URL=url,
            AWS_ACCESS_KEY_ID="k",
            AWS_SECRET_ACCESS_KEY="s",
            AWS_REGION="us-east-1",
        )
        connect.cache_clear()
        yield S3Store("bucket", endpoint=url, client_options={"allow_http": True})
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure, print, and with ``--write`` renew the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=48_000_000)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "bucket"
        folder.mkdir()
        make_stores(folder, asked.rows, asked.columns)
        results: dict[str, Any] = {
            "machine": machine(),
            "n_rows": asked.rows,
            "columns": asked.columns,
            "rounds": asked.rounds,
        }
        for kind, link in (("loopback", ()), ("link", LINK)):
            with server(name, link) as plain:
                results[kind] = {
                    "shards": full_readings("s3://bucket/shards.zarr", plain, asked.rounds),
                    "raw": full_readings("s3://bucket/raw.zarr", plain, asked.rounds),
                    "rows": random_rows("bucket", plain, asked.rounds),
                }
    print("\n".join(lines(results)))
    print(json.dumps(results))
    if asked.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        publish("object-stores.md", "object_store", lines(results))


if __name__ == "__main__":
    main()
