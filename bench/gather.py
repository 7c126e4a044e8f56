"""Random rows per second: streammc's row source against zarr's own indexing and Dask's.

    python bench/gather.py STORE [--layouts] [--cold] [--write]

STORE is a data set of streammc (``streammc simulate --rows 100000000 ...``). A call asks for 1,000
random rows; zarr and Dask get them sorted, their best case, and only ``X``; streammc copies the
response too and converts to float64. Sides take turns; medians of five. ``--cold`` drops the
store's files from the page cache before every turn. ``--layouts`` gives zarr and Dask other
layouts of the first 10 million rows, so that nobody's layout is chosen against them. Prints a
table and one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from page import machine, publish, short

from streammc.likelihood.blocks import allocate_rows
from streammc.stores import open_store

ROWS, ROUNDS, LAYOUT_ROWS = 1000, 5, 10_000_000
COLD_CALLS = 20  # few, so that no side lives on pages that its own calls have read
RESULTS = Path(__file__).resolve().parent / "results" / "gather.json"
Call = Callable[[np.ndarray], Any]
Open = Callable[[], Call]


def drop(folder: str) -> None:
    """Drop the pages of every file in the folder from the page cache."""
    os.sync()
    for path in Path(folder).rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def warm(folder: str) -> None:
    """Read every file in the folder, so that what fits is in the page cache."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def streammc_call(path: str, hint: bool) -> Call:
    """Return a call of the row source, with or without saying what comes first."""
    source = open_store(path).rows()
    out = allocate_rows(ROWS, source.n_features)

    def call(rows: np.ndarray) -> Any:
        if hint:
            source.will_need(rows, 1)
        source.gather(rows, 1, out)
        return out.X

    return call


def zarr_call(path: str) -> Call:
    """Return a call of zarr's orthogonal indexing."""
    array = zarr.open_array(path, mode="r")
    return lambda rows: array.oindex[rows]


def dask_call(path: str) -> Call:
    """Return a call of Dask's indexing."""
    array = da.from_zarr(path)
    return lambda rows: array[rows].compute()


def rate(call: Call, n: int, rng: np.random.Generator, seconds: float, calls: int) -> float:
    """Return rows per second over so many seconds, or calls if they come first."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds and done < calls:
        call(np.sort(rng.integers(0, n, ROWS)))
        done += 1
    return done * ROWS / (time.perf_counter() - began)


def compare(
    sides: dict[str, Open], n: int, prepare: Callable[[], Any], seconds: float, calls: int
) -> dict[str, dict[str, float]]:
    """Let the sides take turns; ``prepare`` fills or empties the cache before each.

    Every turn opens its side again, outside the time: pages that a process has mapped cannot be
    dropped.
    """
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name in sides}
    rows = np.sort(rng.integers(0, n, ROWS))
    expected = next(iter(sides.values()))()(rows).copy()
    for name, open_side in sides.items():  # compile, and agree
        if not np.array_equal(open_side()(rows), expected):
            raise SystemExit(f"{name} returned other rows")
    for _ in range(ROUNDS):
        for name, open_side in sides.items():
            gc.collect()
            prepare()
            found[name].append(rate(open_side(), n, rng, seconds, calls))
            print(name, f"{found[name][-1]:,.0f} rows/s", file=sys.stderr, flush=True)
    best = found[next(iter(sides))]
    return {
        name: {
            "rows_per_second": statistics.median(rates),
            "ratio": statistics.median(a / b for a, b in zip(best, rates, strict=True)),
        }
        for name, rates in found.items()
    }


def layouts(path: str, folder: str, n: int) -> dict[str, str]:
    """Copy the first rows of X into other layouts; return their paths."""
    source = zarr.open_array(f"{path}/X", mode="r")
    columns = source.shape[1]
    made = {}
    for rows in (256, 4096, 16384):
        for packed in (True, False):
            name = f"chunks of {rows} rows in shards, {'zstd' if packed else 'uncompressed'}"
            made[name] = f"{folder}/{rows}-{packed}.zarr"
            array = zarr.create_array(
                made[name],
                shape=(n, columns),
                dtype=source.dtype,
                chunks=(rows, columns),
                shards=(1 << 20, columns),
                compressors="auto" if packed else None,
            )
            for start in range(0, n, 1 << 20):
                stop = min(n, start + (1 << 20))
                array[start:stop] = source[start:stop]
    return made


def table(found: dict[str, dict[str, float]]) -> Iterable[str]:
    """Yield one comparison in Markdown."""
    yield "| | rows a second | streammc reads, times as many |"
    yield "|---|---|---|"
    for name, side in found.items():
        yield f"| {name} | {short(side['rows_per_second'])} | {short(side['ratio'])} |"


def main() -> None:
    """Compare on STORE; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--layouts", action="store_true")
    parser.add_argument("--write", action="store_true", help="renew the page and the JSON")
    options = parser.parse_args()
    n = open_store(options.store).n_rows
    peers: dict[str, Open] = {
        "zarr oindex": partial(zarr_call, f"{options.store}/X"),
        "dask": partial(dask_call, f"{options.store}/X"),
    }
    plain = partial(streammc_call, options.store, False)
    hinted = partial(streammc_call, options.store, True)
    document: dict[str, Any] = {"rows": n, "per_call": ROWS, "machine": machine()}
    sides = {"streammc": plain, "streammc, hinted": hinted, **peers}
    document["warm"] = compare(sides, n, lambda: warm(options.store), 1.5, 1 << 30)
    if options.cold:
        sides = {"streammc, hinted": hinted, "streammc, not hinted": plain, **peers}
        document["cold"] = compare(sides, n, lambda: drop(options.store), 10, COLD_CALLS)
    if options.layouts:
        n = min(n, LAYOUT_ROWS)
        with tempfile.TemporaryDirectory(dir=Path(options.store).resolve().parent) as folder:
            sides = {"streammc": plain}  # from all rows of the store
            for name, path in layouts(options.store, folder, n).items():
                sides |= {f"zarr: {name}": partial(zarr_call, path)}
                sides |= {f"dask: {name}": partial(dask_call, path)}
            both = (options.store, folder)
            document["layouts"] = compare(sides, n, lambda: [*map(warm, both)], 1, 1 << 30)
    for name in ("warm", "cold", "layouts"):
        if name in document:
            print("\n".join([f"\n{name}\n", *table(document[name])]))
            if options.write:
                about = f"{document['machine']}; medians of {ROUNDS}."
                publish("random-rows.md", f"gather-{name}", [*table(document[name]), "", about])
    print(json.dumps({"gather": document}))
    if options.write:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
