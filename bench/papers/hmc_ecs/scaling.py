"""Step size and acceptance against dimension (section 6.7, figure 7).

Gaussian regression with known noise, n = 10,000, prior N(0, 5^2), leapfrog. The remainder of
order 1 at theta_star has ``V[l^] = d^2 / (2 m)`` where the posterior is: ``m = d^2 / 2``, at most
n, keeps it at 1. The paper's mass matrix is the curvature of the subsample, ours that of all
rows: where ``m < 16 d`` the two differ, and m = 16 d is used.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import streammc
from bench.papers.hmc_ecs.methods import Case, run
from bench.papers.markdown import number, table
from bench.papers.measures import inefficiency
from streammc import samplers

ROWS = 10_000
DIMENSIONS = tuple(2**h for h in range(1, 9))
LENGTH = 1.5 * math.pi
"""Of a trajectory: many steps, so that their whole number hardly rounds the step size."""
TARGET = 0.8


@njit
def link(eta, X, y, constants, order, out):
    """Write the normal log density with sd 1 and its derivatives."""
    for i in range(eta.shape[1]):
        rest = y[i] - eta[0, i]
        out[0, i] = -0.5 * rest * rest - 0.9189385332046727
        if order >= 1:
            out[1, i] = rest
        if order == 2:
            out[2, i] = -1.0


def subsample(d: int, order: int) -> int:
    """Return m."""
    return 500 if order == 2 else min(max(d * d // 2, 16 * d), ROWS)


def measure(work: Path, d: int, order: int, draws: int) -> dict[str, Any]:
    """Return step size, acceptance and IF at one dimension."""
    rng = np.random.default_rng([7, d])
    X = rng.standard_normal((ROWS, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(ROWS)
    model = streammc.models.user("known-noise", link=link, prior=streammc.priors.normal(scale=5.0))
    case = Case(streammc.from_arrays(X, y), model, work / "scaling", chains=2, draws=draws)
    case.folder.mkdir(parents=True, exist_ok=True)
    m = subsample(d, order)
    sampler = samplers.hmc_ecs(
        subsample_size=m, n_blocks=min(m, 100), order=order, certainty=False, unit_rows=1,
        integrator="leapfrog", trajectory_length=LENGTH, target_acceptance=TARGET,
        allow_high_variance=True,
    )  # fmt: skip
    cv = streammc.control_variates(case.store, model, order=order)
    found = run(case, f"order-{order}-d-{d}", sampler, cv)
    return {
        "d": d,
        "order": order,
        "m": m,
        "step": LENGTH / float(found.stats["n_steps"].mean()),
        "acceptance": float(found.stats["acceptance_rate"].mean()),
        "variance": float(found.stats["log_lik_variance"].mean()),
        "alpha_u": float(found.stats["subsample_accepted"].mean()),
        "if": float(inefficiency(found.draws).mean()),
    }


def results(work: Path, dimensions: tuple[int, ...], draws: int) -> list[dict[str, Any]]:
    """Measure every dimension and both orders."""
    return [measure(work, d, order, draws) for order in (1, 2) for d in dimensions]


def lines(found: list[dict[str, Any]]) -> list[str]:
    """Return the results as a table."""
    head = ("d", "order", "m", "V[l^]", "step size", "acceptance", "subsamples accepted", "IF")
    keys = {"d": 3, "order": 1, "m": 5, "variance": 2, "step": 2, "acceptance": 2, "alpha_u": 2}
    return table(
        head, [[*(number(r[k], n) for k, n in keys.items()), number(r["if"])] for r in found]
    )
