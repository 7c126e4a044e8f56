"""Acceptance tests with and without control variates, at temperature 1 with the optimal walk.

Run as ``python bench/decisions.py WORK [--data a b] [--samplers x y] [--threads N] [--write]``;
WORK keeps the runs. Data as for ``real_data.py``. Control variates of order 0 leave the
log-likelihood ratio as it is, so that they stand for none at the same steps. Per run the
rows of a decision, certainty rows included, and the largest z of any mean and any mean
square against full-data HMC; ``--write`` renews ``docs/measurements/acceptance-tests.md`` and
``bench/results/decisions.json``.
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
from signed import moments

from streammc.registry import sampler as builder
from streammc.runs.job import run_job
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest

RESULTS = Path(__file__).resolve().parent / "results" / "decisions.json"
SETS = ("flights200k", "fretpl_claimnumber")
SAMPLERS = ("mh-minibatch", "mh-fixed", "mh-austere", "mh-sublhd")
TOO_LONG = {("fretpl_claimnumber", "mh-sublhd")}
"""A Poisson model bounds no derivative: every decision would look at all rows."""
DRAWS = {0: (60, 40), 2: (40_000, 3000)}
"""Draws and warm-up per chain by the order of the control variates."""


def measure(data: str, name: str, order: int, work: Path, threads: int) -> dict[str, Any]:
    """Run one sampler, and full-data HMC if that has not been run, and compare them."""
    store, model = problem(REAL_DATA[data](DATA))
    folder = work / data
    run_job(
        RunRequest(
            store,
            model,
            hmc(),
            draws=3000,
            warmup=300,
            seed=2,
            path=folder / "hmc",
            threads=threads,
        )
    )
    draws, warmup = DRAWS[order]
    ours = folder / f"{name}-{order}"
    report = run_job(
        RunRequest(
            store,
            model,
            builder(name)(control_variate=order, certainty=order == 2),
            draws=draws,
            warmup=warmup,
            seed=1,
            path=ours,
            threads=threads,
        )
    )
    reference, reference_error, center = moments(folder / "hmc", None)
    found, error, _ = moments(ours, center)
    z = (found - reference) / np.hypot(error, reference_error)
    sampling = report.summary["sampling"]
    rows = sampling["test_rows_mean"] + sampling["certainty_rows"]
    return {
        "data": data,
        "sampler": name,
        "order": order,
        "rows": store.n_rows,
        "rows_per_decision": rows,
        "share": store.n_rows / rows,
        "certainty_rows": sampling["certainty_rows"],
        "forced": sampling["forced"],
        "error": sampling["decision_error_mean"],
        "acceptance_rate": sampling["acceptance_rate"],
        "variance": sampling["log_lik_variance_mean"],
        "z_mean": float(np.abs(z[0]).max()),
        "z_square": float(np.abs(z[1]).max()),
        "mcse_sd": float((error[0] / np.sqrt(reference[1])).max()),
        "r_hat": max(p["r_hat"] for p in report.summary["parameters"].values()),
    }


def lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table."""
    head = [
        "data", "rows n", "test", "control variates", "rows a decision", "n over that",
        "forced", "its own error", "accepted", "largest \\|z\\|, means", "largest \\|z\\|, squares",
        "MCSE / sd", "R-hat",
    ]  # fmt: skip
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for r in found.values():
        moved = r["order"] == 2  # a few draws without them say nothing about the posterior
        cells = (
            r["data"], f"{r['rows']:,}", f"`{r['sampler']}`", "order 2" if moved else "none",
            f"{r['rows_per_decision']:,.0f}", short(r["share"]), f"{short(100 * r['forced'])} %",
            "-" if r["error"] is None else short(r["error"]), f"{r['acceptance_rate']:.2f}",
            f"{r['z_mean']:.1f}" if moved else "-", f"{r['z_square']:.1f}" if moved else "-",
            f"{r['mcse_sd']:.3f}" if moved else "-", f"{r['r_hat']:.3f}" if moved else "-",
        )  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return [*rows, "", f"{machine()}."]


def main() -> None:
    """Measure what is named, and print or publish the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", nargs="*", default=SETS)
    parser.add_argument("--samplers", nargs="*", default=SAMPLERS)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for data in arguments.data:
        for name in arguments.samplers:
            for order in (2, 0) if (data, name) not in TOO_LONG else ():
                key = f"{data}, {name}, {order}"
                found[key] = measure(data, name, order, arguments.work, arguments.threads)
                print(json.dumps(found[key]), flush=True)
    print("\n".join(lines(found)))
    if arguments.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        publish("acceptance-tests.md", "control variates", lines(found))


if __name__ == "__main__":
    main()
