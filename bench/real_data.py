"""HMC-ECS with automatic settings against full-data HMC, on real data.

Run as ``python bench/real_data.py WORK [name ...]``; WORK keeps the runs, so that the
command continues where it was ended. Data: ``STREAMMC_TEST_DATA``, else ``../shared/data``
beside the repository. Nothing is set per data set: draws are added until the Monte Carlo
error of the comparison is below its bound. Prints one line of JSON a data set, and writes
``bench/results/real_data.json`` and ``docs/measurements/real-data.md`` after each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agreement import Bounds, compare, difference_mcse, own_mcse
from real_data_report import MEASURED, NO_CERTAINTY, PAGE, RESULTS, markdown
from real_data_sets import REAL_DATA, Design

import streammc
from streammc.errors import RefusedError
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest, Sampler

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", ROOT / ".." / "shared" / "data")).resolve()
WIDE = Bounds(mcse=0.06, r_hat=1.05)
BOUNDS = {"covtype93k": WIDE, "covtype93k, standardised": WIDE}
SHARE = {"hmc-ecs": 0.5, "hmc": 0.8}  # of the bound on the MCSE; squares sum below one
START = {"hmc-ecs": (2000, 1000), "hmc": (400, 300)}
MOST_DRAWS = 40_000
CACHED = "result.json"


def problem(design: Design) -> tuple[Dataset, Model]:
    """Return the rows in memory and the model with its normal prior of sd 10."""
    store = streammc.from_arrays(design.X, design.y, offset=design.offset)
    build = getattr(streammc.models, design.model)
    model = build(prior=streammc.priors.normal(scale=10.0), **design.options)
    return store, model


def until_precise(
    folder: Path, store: Dataset, model: Model, sampler: Sampler, bound: float, seed: int
) -> dict[str, Any]:
    """Extend a run until its own share of the bound on the MCSE is met."""
    draws, warmup = START[sampler.name]
    wanted = SHARE[sampler.name] * bound
    while True:
        report = run_job(
            RunRequest(
                store,
                model,
                sampler,
                draws=draws,
                warmup=warmup,
                seed=seed,
                path=folder,
                audit=sampler.name == "hmc-ecs",
            )
        )
        draws = int(report.summary["sampling"]["draws"])
        found = own_mcse(report.summary["parameters"])
        log(f"{folder.parent.name} {sampler.name}: {draws} draws, MCSE {found:.4f} of {wanted:.4f}")
        if found <= wanted or draws >= MOST_DRAWS:
            return report.summary
        more = min(int(draws * 1.15 * (found / wanted) ** 2) + 1, MOST_DRAWS)
        draws = -(-more // 100) * 100


def measure(name: str, work: Path) -> dict[str, Any]:
    """Compare both samplers on one data set."""
    store, model = problem(REAL_DATA[name](DATA))
    bounds = BOUNDS.get(name, Bounds())
    started = time.monotonic()
    ours = until_precise(work / "hmc-ecs", store, model, hmc_ecs(), bounds.mcse, seed=1)
    reference = until_precise(work / "hmc", store, model, hmc(), bounds.mcse, seed=2)
    log(f"{name}: MCSE {difference_mcse(ours['parameters'], reference['parameters']):.4f}")
    return {
        "name": name,
        "rows": store.n_rows,
        "coefficients": len(ours["parameters"]),
        "comparison": compare(ours, reference, bounds),
        "hmc-ecs": cost(ours),
        "hmc": cost(reference),
        "wall_seconds": time.monotonic() - started,
        "warnings": ours["warnings"],
    }


def cost(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling facts of a summary and its smallest effective sample size."""
    ess = min(p["ess_bulk"] for p in summary["parameters"].values())
    return {**summary["sampling"], "ess_bulk": ess}


def refused(store: Dataset, model: Model, sampler: Sampler, work: Path) -> str:
    """Return the refusal, or the empty string if the run was made."""
    try:
        run_job(RunRequest(store, model, sampler, draws=400, warmup=600, seed=3, path=work))
    except RefusedError as error:
        return str(error)
    return ""


def without_certainty(work: Path) -> dict[str, Any]:
    """Measure covtype93k without certainty rows: the refusal, and what it prevents."""
    store, model = problem(REAL_DATA["covtype93k"](DATA))
    message = refused(store, model, hmc_ecs(certainty=False), work / "plain")
    anyway = hmc_ecs(certainty=False, subsample_size=4000, allow_high_variance=True)
    forced = run_job(
        RunRequest(
            store, model, anyway, draws=500, warmup=600, seed=3, path=work / "forced", audit=True
        )
    ).summary
    reference = run_job(RunRequest(
        store, model, hmc(), draws=START["hmc"][0], warmup=START["hmc"][1], seed=2,
        path=work.parent / "covtype93k" / "hmc", audit=False,
    )).summary  # fmt: skip
    return {
        "name": NO_CERTAINTY,
        "refused": message,
        "forced": compare(forced, reference, WIDE),
        "forced_variance": forced["sampling"]["log_lik_variance_mean"],
        "forced_subsample_acceptance": forced["sampling"]["subsample_acceptance_rate"],
        "forced_divergences": forced["sampling"]["divergences"],
    }


def too_many_pixels(work: Path) -> dict[str, Any]:
    """Measure mnist_1v7: hmc-ecs refuses, auto chooses hmc, and hmc samples."""
    store, model = problem(REAL_DATA["mnist_1v7"](DATA))
    message = refused(store, model, hmc_ecs(), work / "hmc-ecs")
    log(f"mnist_1v7: {message}")
    auto = run_job(
        RunRequest(store, model, None, draws=60, warmup=60, seed=4, path=work / "auto")
    ).summary
    return {
        "name": "mnist_1v7",
        "rows": store.n_rows,
        "refused": message,
        "chosen": auto["sampling"]["sampler"],
        "reason": auto["sampling"]["reason"],
        "hmc": cost(auto),
        "r_hat": max(p["r_hat"] or 1.0 for p in auto["parameters"].values()),
    }


def log(line: str) -> None:
    """Say on stderr where we are."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


def machine() -> str:
    """Return cores and processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {models[0] if models else 'unknown processor'}"


def main() -> None:
    """Measure what is missing, in order of cost, and write the page after each."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python bench/real_data.py WORK [name ...]")
    work = Path(sys.argv[1])
    for name in sys.argv[2:] or MEASURED:
        folder = work / name.replace(", ", "-").replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / CACHED).exists():
            log(name)
            if name == "mnist_1v7":
                result = too_many_pixels(folder)
            elif name == NO_CERTAINTY:
                result = without_certainty(folder)
            else:
                result = measure(name, folder)
            result |= {"machine": machine(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            (folder / CACHED).write_text(json.dumps(result))
        print((folder / CACHED).read_text(), flush=True)
        results = [json.loads(path.read_text()) for path in work.glob(f"*/{CACHED}")]
        results.sort(key=lambda result: MEASURED.index(result["name"]))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("".join(json.dumps(result) + "\n" for result in results))
        PAGE.write_text(markdown(results))


if __name__ == "__main__":
    main()
