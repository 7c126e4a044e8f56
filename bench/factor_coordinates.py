"""Coordinates of the effects of a factor: what draws are worth, and their error.

Run from the repository: ``.venv/bin/python -m bench.factor_coordinates``. One chain of 20,000 draws
of hmc-ecs, of a logistic regression with a factor of twelve levels, in centred and non-centred
coordinates and between. Prints effective draws of ``log tau`` (bulk, tail), the longest run of
rejections, and the error of the mean of ``log tau`` in Monte Carlo standard errors, against
quadrature over intercept and tau.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import streammc
from streammc import models, priors, samplers
from streammc.control_variates import effect_coordinates as exponents
from streammc.control_variates.plan import tails
from streammc.diagnostics.summary import summarize_draws
from streammc.samplers.hamiltonian import problem

LEVELS, DRAWS = 12, 20_000
TABLES = ((0.02, 20_000), (0.02, 4_000), (0.6, 4_000), (0.6, 100_000))
"""Standard deviation that the effects are drawn with, and rows."""
WAYS = ("centred", "a, tau", "a, tau_low", "non-centred")


def table(tau: float, n: int) -> dict[str, NDArray[Any]]:
    """Return a binary response with effects of levels of unequal size."""
    rng = np.random.default_rng(11)
    share = 1.0 / np.arange(1, LEVELS + 1)
    level = rng.choice(LEVELS, n, p=share / share.sum())
    eta = -0.7 + tau * rng.normal(size=LEVELS)[level]
    return {"y": (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int), "g": level}


def reference(given: dict[str, NDArray[Any]]) -> float:
    """Return the posterior mean of log tau by quadrature over intercept, tau and each effect."""
    n, s = np.bincount(given["g"]), np.bincount(given["g"], weights=given["y"])
    v, fine = np.linspace(-7.5, 7.5, 241), np.linspace(-5.0, 5.0, 101)
    weight = np.exp(-0.5 * v**2) / np.exp(-0.5 * v**2).sum()
    b, t = -0.7 + 0.02 * np.sinh(fine), np.linspace(-10.0, 2.0, 145)
    log = np.log(np.cosh(fine))[:, None] - 0.5 * (b[:, None] / 2.0) ** 2
    log = log - 2.0 * np.log1p(np.exp(2 * t) / 3.0) + t
    for i in range(len(b)):
        eta = b[i] + np.exp(t)[:, None] * v
        terms = s[:, None, None] * eta - n[:, None, None] * np.logaddexp(0.0, eta)
        top = terms.max(axis=2, keepdims=True)
        log[i] += (np.log((np.exp(terms - top) * weight).sum(axis=2)) + top[:, :, 0]).sum(axis=0)
    mass = np.exp(log - log.max())
    return float((mass * t).sum() / mass.sum())


def draws(given: dict[str, NDArray[Any]], way: str) -> NDArray[Any]:
    """Return draws of log tau in the coordinates ``way``."""
    original = exponents.level_coordinates

    def chosen(prior: Any, cv: Any) -> Any:
        found = original(prior, cv)
        if way in ("centred", "non-centred"):
            found[:, 2] = way == "non-centred"
        return found

    data = streammc.from_table(
        given, formula="y ~ 1 + (1 | g)", group_as={"g": "columns"}, standardize=False
    )
    prior = {"Intercept": priors.normal(2.0), "tau[g]": priors.half_student_t(3.0, 1.0)}
    with (
        patch.object(problem, "level_coordinates", chosen),
        patch.object(tails, "level_coordinates", chosen),
        patch.object(exponents, "_BELOW", 0.0 if way == "a, tau" else exponents._BELOW),
    ):
        run: Any = streammc.sample(
            data, models.logistic(prior=prior), sampler=samplers.hmc_ecs(), draws=DRAWS,
            warmup=1500, chains=1, seed=2, audit=False,
        )  # fmt: skip
    return np.log(np.asarray(run["posterior"]["tau"])[0, :, 0])


def longest(chain: NDArray[Any]) -> int:
    """Return the longest run of equal draws."""
    moved = np.flatnonzero(np.diff(chain) != 0.0)
    return int(np.diff(np.concatenate([[-1], moved, [len(chain) - 1]])).max())


def main() -> None:
    """Print a line for each table and way."""
    print("| tau | rows | coordinates | ess | ess of the tail | longest stay | z |")
    for tau, n in TABLES:
        given = table(tau, n)
        truth = reference(given)
        for way in WAYS:
            chain = draws(given, way)
            found = summarize_draws(chain[None, :, None], ["log tau"])["log tau"]
            z = (found["mean"] - truth) / found["mcse_mean"]
            worth = f"{found['ess_bulk']:.0f} | {found['ess_tail']:.0f}"
            print(f"| {tau} | {n:,} | {way} | {worth} | {longest(chain)} | {z:.1f} |", flush=True)


if __name__ == "__main__":
    main()
