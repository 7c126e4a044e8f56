"""hmc-ecs-signed against full-data HMC: on real data, and where subsampling is hardest.

Run as ``python bench/signed.py WORK [name ...] [--threads N] [--write]``; WORK keeps the
runs, so that the command continues where it was ended. Data as for ``real_data.py``.
Per data set the largest z of any mean and of any mean square (about one common centre),
each with the Monte Carlo errors of both runs; ``--write`` renews
``docs/explanation/signed.md`` and ``bench/results/signed.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from page import machine, publish, short
from real_data import DATA, problem
from real_data_sets import REAL_DATA

import streammc
from streammc.diagnostics.summary import draws_and_labels, ratio_terms
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs_signed
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.datatree import open_run

RESULTS = Path(__file__).resolve().parent / "results" / "signed.json"
RARE = "rare claims, n = 2000"
CRUDE = "20 coefficients, n = 5000, order 1"
SETS = ("flights200k", "covtype93k", "fretpl_claimnumber", RARE, CRUDE)
OPTIONS: dict[str, dict[str, Any]] = {
    CRUDE: {"certainty": False, "subsample_size": 100, "order": 1}
}
DRAWS = {
    "covtype93k": (12_000, 1500),
    "fretpl_claimnumber": (4000, 1000),
    CRUDE: (40_000, 3000),
}
USUAL = (10_000, 3000)


def rare_claims(n: int = 2000, seed: int = 1) -> tuple[Dataset, Model]:
    """Return a Poisson regression with about 30 claims and a heavy-tailed covariate."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0.0, 1.0, size=n)
    x = (x - x.mean()) / x.std()
    y = rng.poisson(np.exp(-4.3 + 0.3 * x)).astype(float)
    prior = streammc.priors.normal(scale=10.0)
    store = streammc.from_arrays(np.c_[np.ones(n), x], y)
    return store, streammc.models.poisson(prior=prior)


def crude(n: int = 5000, d: int = 20, seed: int = 0) -> tuple[Dataset, Model]:
    """Return a logistic regression, for a subsample and control variates that are too poor."""
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ (0.3 * rng.normal(size=d))))).astype(float)
    prior = streammc.priors.normal(scale=10.0)
    return streammc.from_arrays(X, y), streammc.models.logistic(prior=prior)


SIMULATED = {RARE: rare_claims, CRUDE: crude}


def moments(path: Path, center: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means and mean squares (2, d), their errors, and the centre of the squares."""
    from arviz_stats.base import array_stats

    tree = open_run(path)
    draws, _ = draws_and_labels(tree)
    stats = tree["sample_stats"]
    sign = stats["sign"].to_numpy() if "sign" in stats else np.ones(draws.shape[:2])
    if center is None:
        center = draws.mean(axis=(0, 1))
    values, errors = np.empty((2, draws.shape[2])), np.empty((2, draws.shape[2]))
    for j in range(draws.shape[2]):
        for power in (1, 2):
            value, terms = ratio_terms((draws[:, :, j] - center[j]) ** power, sign)
            values[power - 1, j] = value
            errors[power - 1, j] = array_stats.mcse(terms, method="mean")
    return values, errors, center


def measure(name: str, work: Path, threads: int) -> dict[str, Any]:
    """Run both samplers and compare them."""
    made = SIMULATED.get(name)
    store, model = made() if made else problem(REAL_DATA[name](DATA))
    draws, reference_draws = DRAWS.get(name, USUAL)
    folder = work / name.replace(" ", "-").replace(",", "")
    ours = folder / "signed"
    run_job(RunRequest(
        store, model, hmc(), draws=reference_draws, warmup=300, seed=2, path=folder / "hmc",
        threads=threads,
    ))  # fmt: skip
    sampler = hmc_ecs_signed(**OPTIONS.get(name, {}))
    report = run_job(
        RunRequest(
            store, model, sampler, draws=draws, warmup=1000, seed=1, path=ours, threads=threads
        )
    )
    reference, reference_error, center = moments(folder / "hmc", None)
    found, error, _ = moments(ours, center)
    z = (found - reference) / np.hypot(error, reference_error)
    sampling = report.summary["sampling"]
    return {
        "name": name,
        "rows": store.n_rows,
        "certainty_rows": sampling["certainty_rows"],
        "subsample_size": sampling["subsample_size"],
        "log_lik_variance": sampling["log_lik_variance_mean"],
        "mean_sign": sampling["mean_sign"],
        "negative_signs": sampling["negative_signs"],
        "z_mean": float(np.abs(z[0]).max()),
        "z_square": float(np.abs(z[1]).max()),
        "mcse_sd": float((error[0] / np.sqrt(reference[1])).max()),
        "r_hat": max(p["r_hat"] for p in report.summary["parameters"].values()),
    }


def lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table."""
    head = [
        "data", "rows", "certainty rows", "subsample", "variance of log \\|L̂\\|", "negative signs",
        "largest \\|z\\|, means", "largest \\|z\\|, squares", "MCSE / sd", "R-hat",
    ]  # fmt: skip
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in SETS:
        if name in found:
            r = found[name]
            cells = (
                name, f"{r['rows']:,}", f"{r['certainty_rows']:,}", f"{r['subsample_size']:,}",
                short(r["log_lik_variance"]), f"{100 * r['negative_signs']:.2g} %",
                f"{r['z_mean']:.1f}", f"{r['z_square']:.1f}", f"{r['mcse_sd']:.3f}",
                f"{r['r_hat']:.4f}",
            )  # fmt: skip
            rows.append("| " + " | ".join(cells) + " |")
    return [*rows, "", f"{machine()}."]


def main() -> None:
    """Measure what is named, and print or publish the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in arguments.names or SETS:
        found[name] = measure(name, arguments.work, arguments.threads)
        print(json.dumps(found[name]), flush=True)
    print("\n".join(lines(found)))
    if arguments.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        publish("signed.md", "table", lines(found))


if __name__ == "__main__":
    main()
