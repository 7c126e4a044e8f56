"""Control variates of order 0, 1 and 2 (section 6.8, figures 8 and 9), on the HIGGS rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.papers.hmc_ecs.accounting import against_full, efficiencies
from bench.papers.hmc_ecs.higgs import FIRST_ITERATIONS, SUBSAMPLE
from bench.papers.hmc_ecs.methods import PAPER, Case, run, staged
from bench.papers.markdown import number, table
from bench.papers.measures import Array, Run
from streammc import samplers

ORDERS = (0, 1, 2)


def runs(this: Case) -> dict[int, dict[str, Any]]:
    """Return per order the run and the variance of the estimate along all iterations."""
    found = {}
    for order in ORDERS:
        cv, earlier, passes, first = staged(this, SUBSAMPLE, FIRST_ITERATIONS, order)
        sampler = samplers.hmc_ecs(
            subsample_size=SUBSAMPLE, order=order, allow_high_variance=True, **PAPER
        )
        done = run(
            this, f"order-{order}", sampler, cv, chains=1, earlier_rows=earlier, pass_rows=passes
        )
        found[order] = {"run": done, "variance": _variance(first, done)}
    return found


def _variance(first: Run, done: Run) -> Array:
    """Return the variance of the estimate along the first stage, the burn-in and the draws."""
    return np.concatenate(
        [
            part.stats[key][0]
            for part in (first, done)
            for key in ("warmup_variance", "log_lik_variance")
        ]
    )


def results(found: dict[int, dict[str, Any]], full: Run, n: int) -> dict[str, Any]:
    """Return what each order's run is worth, against full-data HMC."""
    result = {}
    for order, entry in found.items():
        done = entry["run"]
        result[str(order)] = {
            "training": float(np.median(entry["variance"][:FIRST_ITERATIONS])),
            "draws": float(np.median(done.stats["log_lik_variance"])),
            **{k: efficiencies(done, n)[k] for k in ("alpha_theta", "alpha_u", "IF")},
            **against_full(done, full),
        }
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """Return the results as a table."""
    head = (
        "order", "V[l^], first stage", "V[l^], draws", "α_θ", "α_u", "IF",
        "largest mean difference, sd", "variance over that of HMC",
    )  # fmt: skip
    rows = []
    for order, r in result.items():
        digits = {"training": 2, "draws": 2, "alpha_theta": 3, "alpha_u": 3, "IF": 3, "shift": 2}
        cells = [number(r[key], count) for key, count in digits.items()]
        rows.append([order, *cells, f"{number(r['lowest'], 2)} to {number(r['highest'], 2)}"])
    return table(head, rows)
