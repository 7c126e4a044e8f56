"""The bankruptcy experiment (section 6.6): the methods of tables 3 and 4, figures 4 to 6."""

from __future__ import annotations

from pathlib import Path

import streammc
from bench.papers.hmc_ecs import bankruptcy_store
from bench.papers.hmc_ecs.langevin import largest_step
from bench.papers.hmc_ecs.methods import (
    LEAPFROG,
    PAPER,
    QUICK,
    UNIFORM,
    Case,
    control_variates,
    run,
    staged,
)
from bench.papers.measures import Run
from streammc import samplers

ROWS = bankruptcy_store.ROWS
FIRST, FIRST_ITERATIONS, SUBSAMPLE = 62_000, 100, 1000
"""m at the mode of 1 % of the rows, iterations there, and m at their mean."""
PRODUCTS, MINIBATCH = 200, 30
"""lambda, and m of the block-Poisson estimator."""
SGHMC_STEP, SGHMC_STEPS = 0.02, (60, 7)
SGLD_STEP = 2e-5
"""Beyond what is stable where columns are standardised: half of that is used there."""


def case(work: Path, rows: int) -> tuple[Case, Path]:
    """Return the firm-years as a case, and their table."""
    stores = work / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    table, store = bankruptcy_store.simulated(stores, rows)
    folder = work / f"bankruptcy-{rows}"
    quick = QUICK if rows < ROWS else {}
    return Case(streammc.open_store(store), bankruptcy_store.model(), folder, **quick), table


def first_size(n: int) -> int:
    """Return m of the first stage."""
    return min(FIRST, n // 10)


def langevin_step(this: Case) -> dict[str, float]:
    """Return the published step size of SGLD, the largest stable one, and the one used."""
    largest = largest_step(control_variates(this, "certified"))
    return {"published": SGLD_STEP, "largest": largest, "used": min(SGLD_STEP, 0.5 * largest)}


def runs(this: Case, full_draws: tuple[int, int, int]) -> dict[str, Run]:
    """Run every method; ``full_draws`` are the draws, warm-up and chains of full-data HMC."""
    cv, earlier, passes, first = staged(this, first_size(this.store.n_rows), FIRST_ITERATIONS)
    cost = {"earlier_rows": earlier, "pass_rows": passes}
    perturbed = samplers.hmc_ecs(subsample_size=SUBSAMPLE, **PAPER)
    signed = samplers.hmc_ecs_signed(
        subsample_size=PRODUCTS * MINIBATCH, minibatch=MINIBATCH, **PAPER
    )
    found = {
        "first stage": first,
        "HMC-ECS, perturbed": run(this, "perturbed", perturbed, cv, **cost),
        "HMC-ECS, signed": run(this, "signed", signed, cv, seed=3, **cost),
    }
    certified = control_variates(this, "certified")
    rows = float(certified.certificate["rows_read"])
    auto = samplers.hmc_ecs()
    found["HMC-ECS, automatic"] = run(this, "automatic", auto, certified, pass_rows=rows)
    again = samplers.hmc_ecs(recalibrate=FIRST_ITERATIONS)
    found["HMC-ECS, recalibrated"] = run(this, "recalibrated", again, None)
    shared = {**UNIFORM, "subsample_size": SUBSAMPLE, "control_variate": 2}
    for steps in SGHMC_STEPS:
        sampler = samplers.sghmc(step_size=SGHMC_STEP, n_steps=steps, friction=0.0, **shared)
        found[f"SG-HMC, L = {steps}"] = run(this, f"sghmc-{steps}", sampler, cv, chains=2)
    step = langevin_step(this)["used"]
    langevin = samplers.sgld(step_size=step, preconditioner="none", **shared)
    found["SGLD"] = run(this, "sgld", langevin, cv, draws=6 * this.draws)
    shape = dict(zip(("draws", "warmup", "chains"), full_draws, strict=True))
    full = samplers.hmc(**LEAPFROG)
    name = "hmc-full" if full_draws[1] else "hmc"
    found["HMC"] = run(this, name, full, certified, pass_rows=rows, seed=2, **shape)
    return found
