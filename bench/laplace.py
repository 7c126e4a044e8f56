"""``laplace`` against full-data HMC on real data, and its cost at 1e8 rows beside ``hmc-ecs``.

Run as ``python bench/laplace.py`` for the comparison, and as ``python bench/laplace.py --large
FOLDER [--rows N]`` for the cost: a logistic regression of 10 columns, 4 GB of disk in FOLDER at
1e8 rows. Data: ``STREAMMC_TEST_DATA``, else ``../shared/data`` beside the repository. Both write
their table into ``docs/explanation/laplace.md``; the exit code is 1 where a mean or an sd is off
by 0.1 posterior sd.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from memory import measure
from page import machine, publish, short
from real_data_sets import REAL_DATA, Design, with_intercept

import streammc
from streammc.errors import RefusedError
from streammc.runs.job import run_job
from streammc.samplers import hmc, laplace
from streammc.samplers.common.sampler import RunRequest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", ROOT / ".." / "shared" / "data")).resolve()
PAGE = "laplace.md"
BOUND = 0.1
LARGE = ("--draws", "1000", "--seed", "1", "--no-audit")


def higgs(folder: Path) -> Design:
    """Signal or background, by 28 features of a collision."""
    with np.load(folder / "higgs11k" / "data.npz") as file:
        return Design("logistic", with_intercept(file["X"]), file["y"].astype(float))


CASES = {
    "bike_hour": REAL_DATA["bike_hour"],
    "higgs11k": higgs,
    "flights200k": REAL_DATA["flights200k"],
    "covtype93k": REAL_DATA["covtype93k"],
}


def sampled(design: Design, name: str, **options: Any) -> tuple[dict[str, Any], float]:
    """Return the summary of a run in a temporary folder, and its seconds."""
    store = streammc.from_arrays(design.X, design.y, offset=design.offset)
    prior = streammc.priors.normal(scale=10.0)
    model = getattr(streammc.models, design.model)(prior=prior, **design.options)
    sampler = {"laplace": laplace(), "hmc": hmc()}[name]
    began = time.perf_counter()
    report = run_job(RunRequest(store, model, sampler, seed=1, **options))
    return report.summary, time.perf_counter() - began


def compared() -> Iterator[tuple[str, bool]]:
    """Yield a row of the table, and whether the bound holds, for each data set."""
    for name, load in CASES.items():
        design = load(DATA)
        size = f"| {name} | {len(design.y):,} | {design.X.shape[1]} "
        try:
            found, seconds = sampled(design, "laplace", draws=2500)
        except RefusedError as error:
            print(f"{name}: {error}", file=sys.stderr)
            yield f"{size}| refused | | | | | | |", True
            continue
        exact, of_hmc = sampled(design, "hmc", draws=1500, warmup=300)
        means, widths, errors = [], [], []
        for label, row in exact["parameters"].items():
            other = found["parameters"][label]
            means.append(abs(other["mean"] - row["mean"]) / row["sd"])
            widths.append(abs(other["sd"] / row["sd"] - 1.0))
            errors.append(np.hypot(other["mcse_mean"], row["mcse_mean"]) / row["sd"])
        s = found["sampling"]
        yield (
            f"{size}| {s['pareto_k']:.2f} | {s['weights_ess']:,.0f} of {s['proposals']:,} "
            f"| {max(means):.3f} | {max(errors):.3f} | {max(widths):.3f} "
            f"| {short(seconds)} | {short(of_hmc)} |",
            max(*means, *widths) < BOUND,
        )


def real_data() -> int:
    """Write the comparison with HMC."""
    rows, held = zip(*compared(), strict=True)
    publish(
        PAGE,
        "real-data",
        [
            f"{machine()}, shared with other work.",
            "",
            "| data | rows | columns | Pareto k | effective draws | mean, sd | its error, sd "
            "| sd, relative | seconds | seconds of `hmc` |",
            "|" + "---|" * 10,
            *rows,
        ],
    )
    return int(not all(held))


def processor_seconds() -> float:
    """Return the time of all commands so far, user and system."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def large(folder: Path, n_rows: int) -> int:
    """Write what a run takes on a store of many rows, control variates given."""
    store, cv = str(folder / "large.zarr"), str(folder / "large-cv.zarr")
    model, quiet = ("--model", "logistic", "--prior-scale", "10"), ("--quiet", "--json")
    if not Path(store).exists():
        size = ("--rows", str(n_rows), "--dim", "10", "--seed", "1")
        measure("simulate", "logistic", store, *size, *quiet)
    made = measure("summarize", store, *model, "-o", cv, *quiet)
    lines = [
        f"{machine()}, shared with other work; {n_rows:,} rows of 10 columns, 4 chains of 1,000 "
        f"draws. The control variates took {short(made.seconds)} s.",
        "",
        "| sampler | seconds | of the processor | rows evaluated | smallest ess | Pareto k "
        "| largest distance of a mean from `hmc-ecs`, sd |",
        "|" + "---|" * 7,
    ]
    reference: dict[str, Any] = {}
    for name in ("hmc-ecs", "laplace"):
        run = str(folder / f"large-{name}")
        given = ("--control-variates", cv, "--sampler", name)
        before = processor_seconds()
        usage = measure("sample", store, *model, "-o", run, *given, *LARGE, *quiet)
        found = json.loads(usage.output)
        parameters = found["parameters"]
        reference = reference or parameters
        gap = max(abs(p["mean"] - reference[k]["mean"]) / p["sd"] for k, p in parameters.items())
        ess = min(min(p["ess_bulk"], p["ess_tail"]) for p in parameters.values())
        k = found["sampling"].get("pareto_k")
        lines.append(
            f"| `{name}` | {short(usage.seconds)} | {short(processor_seconds() - before)} "
            f"| {found['sampling']['evaluations']['draws']:.2g} | {ess:,.0f} "
            f"| {'' if k is None else f'{k:.2f}'} | {gap:.3f} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    publish(PAGE, "large", lines)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", type=Path)
    parser.add_argument("--rows", type=int, default=100_000_000)
    arguments = parser.parse_args()
    if arguments.large is not None:
        return large(arguments.large, arguments.rows)
    return real_data()


if __name__ == "__main__":
    sys.exit(main())
