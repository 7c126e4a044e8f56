"""The HIGGS experiment (section 6.5): the methods of tables 1 and 2 and figures 1 to 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streammc
from bench.papers.hmc_ecs import higgs_store
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
from streammc.control_variates import ControlVariates

ROWS = higgs_store.ROWS
SUBSAMPLE = 1300
PRODUCTS, MINIBATCH = 100, 30
"""lambda, and m of the block-Poisson estimator."""
FIRST_ITERATIONS = 200
"""The paper moves theta_star every 200 iterations of its burn-in."""
SGHMC_STEP, SGHMC_STEPS = 0.06, 20
SGLD_STEP = 1e-6
"""Beyond what is stable where columns are standardised: half of that is used there."""
BARE = ", no control variates"
RIVALS = ("SG-HMC", "SGLD", f"SG-HMC{BARE}", f"SGLD{BARE}")


def case(work: Path, rows: int, file: Path | None) -> tuple[Case, Any]:
    """Return the training rows as a case, and the test store."""
    stores = work / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    test_rows = max(higgs_store.TEST_ROWS * rows // higgs_store.ROWS, 5000)
    if file is not None:
        train, test = higgs_store.real(stores, file, min(higgs_store.TEST_ROWS, test_rows))
    else:
        train, test = higgs_store.simulated(stores, rows, test_rows)
    folder = work / f"higgs-{'file' if file else rows}"
    quick = QUICK if rows < ROWS and file is None else {}
    this = Case(streammc.open_store(train), higgs_store.model(), folder, **quick)
    return this, streammc.open_store(test)


def runs(this: Case, full_draws: tuple[int, int, int]) -> dict[str, Run]:
    """Run every method; ``full_draws`` are the draws, warm-up and chains of full-data HMC."""
    cv, earlier, passes, first = staged(this, SUBSAMPLE, FIRST_ITERATIONS)
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
    found |= rivals(this, cv)
    found["HMC"] = full(this, full_draws)
    return found


def full(this: Case, full_draws: tuple[int, int, int]) -> Run:
    """Run full-data HMC from the certified mode: draws, warm-up, chains."""
    cv = control_variates(this, "certified")
    shape = dict(zip(("draws", "warmup", "chains"), full_draws, strict=True))
    rows = float(cv.certificate["rows_read"])
    name = "hmc-full" if full_draws[1] else "hmc"
    return run(this, name, samplers.hmc(**LEAPFROG), cv, pass_rows=rows, seed=2, **shape)


def langevin_step(this: Case) -> dict[str, float]:
    """Return the published step size of SGLD, the largest stable one, and the one used."""
    largest = largest_step(control_variates(this, "certified"))
    return {"published": SGLD_STEP, "largest": largest, "used": min(SGLD_STEP, 0.5 * largest)}


def rivals(this: Case, cv: ControlVariates) -> dict[str, Run]:
    """Run the stochastic-gradient methods, with control variates and without."""
    found = {}
    step = langevin_step(this)["used"]
    for label, order in (("", 2), (BARE, "none")):
        shared = {**UNIFORM, "subsample_size": SUBSAMPLE, "control_variate": order}
        hamiltonian = samplers.sghmc(
            step_size=SGHMC_STEP, n_steps=SGHMC_STEPS, friction=0.0, **shared
        )
        found[f"SG-HMC{label}"] = run(this, f"sghmc-{order}", hamiltonian, cv)
        langevin = samplers.sgld(step_size=step, preconditioner="none", **shared)
        found[f"SGLD{label}"] = run(this, f"sgld-{order}", langevin, cv, draws=6 * this.draws)
    return found
