"""``smh`` beside ``hmc-ecs`` and ``hmc``: rows an iteration, time of an effective draw, distance.

Run as ``python bench/sequential.py`` for real data, and as ``python bench/sequential.py --sizes
FOLDER`` for simulated stores of 1e5 to 1e8 rows of 8 columns (at 1e8, 3.6 GB of disk). Data:
``STREAMMC_TEST_DATA``, else ``../shared/data`` beside the repository. Both write their table into
``docs/explanation/exact-from-sequential-reads.md``; the exit code is 1 where a mean of ``smh`` is
over 4.5 Monte Carlo errors from ``hmc``, or an sd over a tenth.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from page import machine, publish, short
from real_data_sets import REAL_DATA, Design, with_intercept

import streammc
from streammc.errors import RefusedError
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs, smh
from streammc.samplers.common.sampler import RunRequest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", ROOT / ".." / "shared" / "data")).resolve()
PAGE = "exact-from-sequential-reads.md"
BOUND = 4.5
DRAWS = {"smh": 10_000, "hmc-ecs": 2_500, "hmc": 2_500}
SAMPLERS = {"smh": smh, "hmc-ecs": hmc_ecs, "hmc": hmc}


def higgs(folder: Path) -> Design:
    """Signal or background, by 28 features of a collision."""
    with np.load(folder / "higgs11k" / "data.npz") as file:
        return Design("logistic", with_intercept(file["X"]), file["y"].astype(float))


CASES = {
    "higgs11k": higgs,
    **{name: REAL_DATA[name] for name in ("flights200k", "bike_hour", "htru2", "norauto")},
    "covtype93k": REAL_DATA["covtype93k"],
}


def sampled(store: Any, model: Any, cv: Any, name: str) -> tuple[dict[str, Any], float]:
    """Return the summary of a run in a temporary folder, and its seconds."""
    began = time.perf_counter()
    request = RunRequest(
        store, model, SAMPLERS[name](), cv, seed=1, draws=DRAWS[name], warmup=500, audit=False
    )
    return run_job(request).summary, time.perf_counter() - began


def figures(summary: dict[str, Any], seconds: float) -> tuple[float, float]:
    """Return rows an iteration, and milliseconds of an effective draw of the slowest parameter."""
    sampling = summary["sampling"]
    least = min(row["ess_bulk"] for row in summary["parameters"].values())
    return sampling["rows_read"] / sampling["iterations"], 1e3 * seconds / least


def compared(name: str) -> tuple[str, bool]:
    """Return a row of the table, and whether ``smh`` agrees with ``hmc``."""
    design = CASES[name](DATA)
    store = streammc.from_arrays(design.X, design.y, offset=design.offset)
    model = getattr(streammc.models, design.model)(**design.options)
    cv = streammc.control_variates(store, model)
    line, runs = f"| {name} | {len(design.y):,} | {design.X.shape[1]} ", {}
    for sampler in SAMPLERS:
        try:
            runs[sampler] = sampled(store, model, cv, sampler)
            rows, ms = figures(*runs[sampler])
            rows = runs[sampler][0]["sampling"].get("rows_per_iteration", rows)
            line += f"| {short(rows)} | {short(ms)} "
        except RefusedError as error:
            print(f"{name}, {sampler}: {error}", file=sys.stderr)
            line += "| refused | "
    if "smh" not in runs or "hmc" not in runs:
        return line + "| | |", True
    z, widths = [], []
    for label, exact in runs["hmc"][0]["parameters"].items():
        row = runs["smh"][0]["parameters"][label]
        z.append(abs(row["mean"] - exact["mean"]) / np.hypot(row["mcse_mean"], exact["mcse_mean"]))
        widths.append(abs(row["sd"] / exact["sd"] - 1.0))
    print(name, max(z), max(widths), runs["smh"][0]["warnings"], file=sys.stderr)
    return line + f"| {max(z):.1f} | {max(widths):.3f} |", max(z) < BOUND and max(widths) < 0.1


def real_data(names: list[str]) -> int:
    """Write the comparison on real data."""
    rows, held = zip(*(compared(name) for name in names), strict=True)
    head = " | ".join(f"`{name}`: rows | ms" for name in SAMPLERS)
    publish(
        PAGE,
        "real-data",
        [
            f"{machine()}, shared with other work. Rows an iteration, and milliseconds of an "
            "effective draw of the slowest parameter, with warm-up and reads, without control "
            "variates.",
            "",
            f"| data | rows | columns | {head} | largest z of a mean from `hmc` | sd, relative |",
            "|" + "---|" * (5 + 2 * len(SAMPLERS)),
            *rows,
        ],
    )
    return int(not all(held))


def sizes(folder: Path, counts: list[int]) -> int:
    """Write rows an iteration and seconds on simulated stores."""
    rows = []
    for n in counts:
        path = folder / f"sequential-{n}.zarr"
        if not path.exists():
            streammc.simulate("logistic", path, rows=n, dim=8, seed=1)
        store, model = streammc.open_store(path), streammc.models.logistic()
        began = time.perf_counter()
        cv = streammc.control_variates(store, model)
        passes = time.perf_counter() - began
        line = f"| {n:,} | {short(passes)} "
        for name in ("smh", "hmc-ecs"):
            summary, seconds = sampled(store, model, cv, name)
            per_iteration, ms = figures(summary, seconds)
            per_iteration = summary["sampling"].get("rows_per_iteration", per_iteration)
            line += f"| {short(per_iteration)} | {short(seconds)} | {short(ms)} "
        print(line, file=sys.stderr)
        rows.append(line + "|")
    publish(
        PAGE,
        "sizes",
        [
            f"{machine()}, shared with other work; simulated logistic stores of 8 columns; 4 "
            f"chains of {DRAWS['smh']:,} draws of `smh`, {DRAWS['hmc-ecs']:,} of `hmc-ecs`.",
            "",
            "| rows | control variates, s | `smh`: rows an iteration | s | ms an effective draw "
            "| `hmc-ecs`: rows an iteration | s | ms an effective draw |",
            "|" + "---|" * 8,
            *rows,
        ],
    )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    if options.sizes:
        sys.exit(sizes(options.sizes, [int(n) for n in options.rows]))
    sys.exit(real_data(options.only))
