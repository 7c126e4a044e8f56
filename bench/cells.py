"""From a Parquet file of equal rows to draws by way of cells, beside the rows.

Run as ``python bench/cells.py FOLDER [--rows N]``: regressions on four factors of 28, 24, 7 and 10
levels, 47,040 different designs: logistic of 0 and 1, and Gaussian of a continuous response, of
which a cell keeps the sums. By default 1e8 rows, 630 MB of Parquet, which is deleted afterwards.
``fit`` is a process of its own, with its imports; beside it the time in which pyarrow alone reads
the columns. On 1e6 rows cells are compared with the rows: mode, Hessian, and draws. Writes the
tables ``cells`` and ``cells-and-rows`` into ``docs/measurements/cells.md``.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory import measure
from page import machine, publish, short

import streammc
from streammc.priors import normal
from streammc.stores.ingest.cells import CellTable

PAGE = "cells.md"
LEVELS = {"carrier": 28, "hour": 24, "weekday": 7, "month": 10}
FACTORS = " + ".join(f"C({name})" for name in LEVELS)
FORMULA = f"late ~ {FACTORS}"
WAYS = (("logistic", "late", "auto"), ("logistic", "late", "smh"), ("gaussian", "delay", "auto"))
PIECE = 10**6
COMPARED = 10**6
PRIOR_SD = 2.0
SIZES = {"draws": 3000, "warmup": 500, "chains": 4, "seed": 1}
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


def write_table(path: Path, n_rows: int) -> None:
    """Write independent factors of unequal shares, a response of a quarter of ones, and another."""
    rng = np.random.default_rng(1)
    effects = [rng.normal(0.0, 0.3, size) for size in LEVELS.values()]
    shares = [rng.dirichlet(np.full(size, 5.0)) for size in LEVELS.values()]
    names = (*LEVELS, "late")
    schema = pa.schema([*((name, pa.int8()) for name in names), ("delay", pa.float32())])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, n_rows, PIECE):
            m = min(PIECE, n_rows - first)
            factors = [rng.choice(len(share), m, p=share) for share in shares]
            eta = sum(effect[factor] for effect, factor in zip(effects, factors, strict=True))
            late = rng.logistic(size=m) < eta - 1.0
            delay = (eta + rng.normal(size=m)).astype(np.float32)
            arrays = [
                *(pa.array(each.astype(np.int8)) for each in (*factors, late)),
                pa.array(delay),
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def seconds_of_reading(path: Path, response: str) -> tuple[float, float]:
    """Return the wall and processor time in which pyarrow reads the columns, batch by batch."""
    began, worked = time.perf_counter(), time.process_time()
    columns = [*LEVELS, response]
    for _ in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns=columns):
        pass
    return time.perf_counter() - began, time.process_time() - worked


def children_seconds() -> float:
    """Return the processor time of processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fitted(path: Path, folder: Path, n_rows: int) -> Iterator[str]:
    """Yield the rows of the table of ``fit`` on cells."""
    for model, response, sampler in WAYS:
        run = folder / "cells-run"
        shutil.rmtree(run, ignore_errors=True)
        words = ["fit", str(path), "-o", str(run), "--formula", f"{response} ~ {FACTORS}"]
        words += ["--model", model]
        before, spent = seconds_of_reading(path, response), children_seconds()
        usage = measure(*words, "--sampler", sampler, *FLAGS, "--quiet", "--json")
        spent = children_seconds() - spent
        reading, worked = (
            min(*pair) for pair in zip(before, seconds_of_reading(path, response), strict=True)
        )
        summary = json.loads(usage.output)
        least = min(each["ess_bulk"] for each in summary["parameters"].values())
        cells = summary["notes"][-1].split(" are ")[1].split()[0]
        yield (
            f"| {model} | {n_rows:,} | {cells} | {summary['sampler']} "
            f"| {short(least)} | {short(reading)} | {short(usage.seconds)} | {short(worked)} "
            f"| {short(spent)} | {usage.anonymous / 1e6:,.0f} |"
        )


def settled(data: Any, model: Any, cv: Any) -> Any:
    """Return control variates at the mode, from two more steps of Newton's method.

    A certified theta_star is within 0.1 posterior standard deviations of it.
    """
    precision = PRIOR_SD**-2
    for _ in range(2):
        gradient = cv.gradient - precision * cv.theta_star
        curvature = cv.hessian - precision * np.eye(len(gradient))
        theta = cv.theta_star - np.linalg.solve(curvature, gradient)
        cv = streammc.control_variates(data, model, theta_star=theta, passes=1)
    return cv


def compared(path: Path) -> Iterator[str]:
    """Yield the rows of the table of cells beside rows, and of cells without their counts."""
    model = streammc.models.logistic(prior=normal(scale=PRIOR_SD))
    found = {}
    counted = CellTable.counted
    for name, choice in (("rows", "no"), ("cells", "yes"), ("cells, counts left out", "yes")):
        if "left out" in name:
            CellTable.counted = lambda table, start, stop: np.ones(  # type: ignore[method-assign]
                min(stop, table.n_rows or 0) - start, np.int64
            )
        began = time.perf_counter()
        data = streammc.from_table(path, formula=FORMULA, cells=choice, dtype="float64")
        cv = streammc.control_variates(data, model)
        run = streammc.sample(data, model, control_variates=cv, **SIZES)
        seconds = time.perf_counter() - began
        at_mode = settled(data, model, cv)
        CellTable.counted = counted  # type: ignore[method-assign]
        summary = json.loads(run.attrs["summary"])["parameters"]
        moments = np.array([(p["mean"], p["mcse_mean"]) for p in summary.values()])
        found[name] = at_mode, moments
        first, (mean, error) = found["rows"][0], found["rows"][1].T
        away = np.abs(at_mode.theta_star - first.theta_star).max()
        curved = np.abs(at_mode.hessian - first.hessian).max() / np.abs(first.hessian).max()
        z = np.abs(moments[:, 0] - mean) / np.hypot(moments[:, 1], error)
        beside = (
            ["", "", ""] if name == "rows" else [f"{away:.2g}", f"{curved:.2g}", short(z.max())]
        )
        yield f"| {name} | {data.n_rows:,} | {short(seconds)} | {' | '.join(beside)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=1e8)
    options = parser.parse_args()
    n = int(options.rows)
    large, small = (options.folder / f"cells-{rows}.parquet" for rows in (n, COMPARED))
    for table, rows in ((large, n), (small, COMPARED)):
        if not table.exists():
            write_table(table, rows)
    lines = list(fitted(large, options.folder, n))
    print(*lines, sep="\n", file=sys.stderr)
    beside_rows = list(compared(small))
    print(*beside_rows, sep="\n", file=sys.stderr)
    large.unlink()
    publish(
        PAGE,
        "cells",
        [
            f"{machine()}, shared with other work; 4 chains of 3,000 draws; the seconds include "
            "imports, reading, passes, draws and, of `hmc-ecs`, the audit.",
            "",
            "| model | rows | cells | sampler | least effective draws | s, pyarrow alone | s "
            "| processor s, pyarrow alone | processor s | anonymous memory, MB |",
            "|" + "---|" * 10,
            *lines,
        ],
    )
    publish(
        PAGE,
        "cells-and-rows",
        [
            f"{machine()}; {COMPARED:,} rows, prior normal(0, 2), design in float64, `auto`.",
            "",
            "| data set | its rows | s | mode, largest difference | Hessian, relative "
            "| means of draws, largest z |",
            "|" + "---|" * 6,
            *beside_rows,
        ],
    )
