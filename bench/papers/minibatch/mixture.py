"""Section 6.1 of Seita et al. 2017: tables 1 and 4, figures 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers import minibatch_figures as figures
from bench.papers.measures import Array, inefficiency
from bench.papers.minibatch.mixture_mixing import largest_amplification
from bench.papers.minibatch.published import AUSTERE_C, MINIBATCH, SUBLHD, TABLE_1
from bench.papers.minibatch_runs import Effort, Trials, trials
from bench.papers.mixture_posterior import (
    Grid,
    binned,
    chi_squared,
    poisson_log_likelihood,
    posterior,
    rows,
    total_variation,
)
from streammc import samplers

ROWS, TEMPERATURE = 1_000_000, 10_000.0
DRAWS, TRIALS = 3000, 10
BOX = ((-1.6, 2.6), (-3.2, 3.2))
BINS = 40
LEAST_EXPECTED = 5.0
GROUPS = 15
"""Times as many exact trials as of a method: how far chance carries."""
LONG_TRIALS, LONG = 40, 10_000
STEP, WIDE = 0.15, math.sqrt(0.15)
"""The step as a standard deviation, and as a variance."""
PLAIN: dict[str, Any] = {"control_variate": "none", "covariance": "identity", "start": 0.0}
BOUND_OFF: dict[str, Any] = {"delta": None, "correction": "paper"}
BOUNDED: dict[str, Any] = {"delta": 0.1, "bound": "clt", "correction": "paper"}
BOUND_ON = "mh-minibatch, δ = 0.1"
AUSTERE_WORST = "mh-austere (C), error 0.005 at worst"
BARKER, METROPOLIS = "all rows, Barker", "all rows, Metropolis"
EXACT = {MINIBATCH: BARKER, BOUND_ON: BARKER}
"""The exact chain of the same acceptance function, where it is not Metropolis's."""


def methods(step: float) -> dict[str, Any]:
    """Return the samplers of table 1 with that step size."""
    common = {**PLAIN, "step_size": step}
    first = {"subsample_size": 50}
    return {
        MINIBATCH: samplers.mh_minibatch(**common, **first, **BOUND_OFF),
        BOUND_ON: samplers.mh_minibatch(**common, **first, **BOUNDED),
        AUSTERE_C: samplers.mh_austere(**common, subsample_size=500, epsilon=0.005),
        AUSTERE_WORST: samplers.mh_austere(**common, max_error=0.005),
        SUBLHD: samplers.mh_sublhd(**common, **first, gamma=1.5, p=2.0, delta=0.01),
    }


def exact(step: float) -> dict[str, Any]:
    """Return the samplers on all rows."""
    common = {**PLAIN, "step_size": step}
    return {
        BARKER: samplers.mh(**common, acceptance="barker"),
        METROPOLIS: samplers.mh(**common, acceptance="metropolis"),
    }


def measure(work: Path, pictures: Path, effort: Effort) -> dict[str, Any]:
    """Run the trials and return what the tables show."""
    x = rows(ROWS)
    model = streammc.models.gaussian_mixture_tied()
    store = streammc.from_arrays(x[:, None])
    middle, weight = binned(x)
    bins = streammc.from_arrays(middle[:, None], weight=weight)
    grid = posterior(x, TEMPERATURE, BOX, bins=BINS)
    found: dict[str, Any] = {"modes": modes(grid), "readings": {}}

    def run(data: Any, name: str, sampler: Any, step: float = STEP, **shape: int) -> Trials:
        return trials(
            work / f"mixture-{step:.3g}-{name}.npz", data, model, sampler,
            temperature=TEMPERATURE, threads=effort.threads,
            **(shape or effort.of(name, TRIALS, DRAWS)),
        )  # fmt: skip

    runs = {name: run(store, name, one) for name, one in methods(STEP).items()}
    truth = {
        name: run(bins, name, one, chains=GROUPS * TRIALS, draws=DRAWS)
        for name, one in exact(STEP).items()
    }
    found["readings"]["standard deviation 0.15"] = section(runs, truth, grid, x)
    shown = {name: runs[name] for name in TABLE_1}
    clouds = {name: one.values["draws"][0] for name, one in shown.items()}
    figures.clouds(grid, clouds, pictures / "mixture-clouds.png")
    histograms = {name: one.sizes[0] for name, one in shown.items()}
    figures.sizes(histograms, pictures / "mixture-sizes.png", ROWS)
    other = methods(WIDE)
    found["readings"]["covariance 0.15"] = {
        name: run(store, name, other[name], WIDE).summary() for name in TABLE_1
    }
    one = run(store, f"long-{MINIBATCH}", methods(STEP)[MINIBATCH], chains=LONG_TRIALS, draws=LONG)
    found["long"] = {
        name: {"draws": draws.shape[0] * draws.shape[1], "variation": variation(draws, grid)}
        for name, draws in (
            (MINIBATCH, one.values["draws"]), (BARKER, truth[BARKER].values["draws"])
        )
    }  # fmt: skip
    return found


def modes(grid: Grid) -> list[list[float]]:
    """Return the two largest values on either side of ``theta_2 = 0``."""
    found = []
    for side in (grid.centres_2 > 0.0, grid.centres_2 < 0.0):
        value = np.where(side[None, :], grid.log_density, -np.inf)
        at = np.unravel_index(int(value.argmax()), value.shape)
        found.append([float(grid.centres_1[at[0]]), float(grid.centres_2[at[1]]), value.max()])
    return found


def section(
    runs: dict[str, Trials], truth: dict[str, Trials], grid: Grid, x: Array
) -> dict[str, Any]:
    """Return sizes, distances from the posterior and what the errors of decisions allow."""
    allowed = {name: largest_amplification(x, TEMPERATURE, STEP, name == BARKER) for name in truth}
    found = {}
    for name, one in runs.items():
        partner = EXACT.get(name, METROPOLIS)
        line = one.summary() | quality(one.values["draws"], grid)
        line |= level(truth[partner], grid, one)
        found[name] = line | {"amplification": allowed[partner]}
    for name, one in truth.items():
        found[name] = one.summary() | quality(one.values["draws"], grid)
    independent = np.random.default_rng(4)
    flat = grid.mass.ravel()
    sets = independent.multinomial(DRAWS, flat, size=200).reshape(-1, *grid.mass.shape)
    found["independent draws"] = spread_of([likelihoods(one, grid.mass) for one in sets])
    return found


def quality(draws: Array, grid: Grid) -> dict[str, Any]:
    """Return eq. (40) and chi-squared by trial, and the total variation of all trials."""
    found = spread_of([likelihoods(grid.counts(one)[0], grid.mass) for one in draws])
    found["effective"] = draws.shape[0] * draws.shape[1] / float(inefficiency(draws).max())
    found["variation"] = variation(draws, grid)
    return found


def variation(draws: Array, grid: Grid) -> float:
    """Return the total variation between the draws of all trials and the posterior."""
    counts, outside = grid.counts(draws.reshape(-1, 2))
    return total_variation(counts, grid.mass, outside)


def level(exact_: Trials, grid: Grid, one: Trials) -> dict[str, Any]:
    """Return the total variation of as many exact draws, mean and standard deviation."""
    count, length = one.sizes.shape
    draws = exact_.values["draws"][:, :length]
    whole = len(draws) - len(draws) % count
    groups = [variation(draws[i : i + count], grid) for i in range(0, whole, count)]
    return {"level": float(np.mean(groups)), "level_sd": float(np.std(groups, ddof=1))}


def likelihoods(counts: Array, mass: Array) -> dict[str, float]:
    """Return eq. (40) and both chi-squared statistics."""
    pooled, bins = chi_squared(counts, mass, LEAST_EXPECTED)
    return {
        "eq_40": poisson_log_likelihood(counts, mass),
        "chi_squared": chi_squared(counts, mass)[0],
        "chi_squared_pooled": pooled,
        "bins": float(bins),
    }


def spread_of(lines: list[dict[str, float]]) -> dict[str, Any]:
    """Return means and standard deviations of what the trials have."""
    single: Callable[[Array], float | None] = lambda v: float(v.std(ddof=1)) if len(v) > 1 else None  # noqa: E731
    found: dict[str, Any] = {}
    for key in lines[0]:
        values = np.array([line[key] for line in lines])
        found[key], found[f"{key}_sd"] = float(values.mean()), single(values)
    return found
