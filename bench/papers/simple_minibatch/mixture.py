"""Section 5.1 of Chen et al. 2016: figures 2 and 3 of the mixture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers import minibatch_figures as figures
from bench.papers.measures import Array
from bench.papers.minibatch import mixture as seita_mixture
from bench.papers.minibatch.mixture import BARKER, GROUPS, METROPOLIS, PLAIN, exact
from bench.papers.minibatch_runs import Effort, Trials, trials
from bench.papers.mixture_posterior import binned, posterior, rows
from bench.papers.simple_minibatch.published import LIMIT, VIOLATION_SIZES
from streammc import samplers

ROWS, TEMPERATURE, DRAWS, TRIALS = 10_000, 110.0, 10_000, 5
STEP, SUBSAMPLE, BATCHES = math.sqrt(0.03), 200, 10
BIN_WIDTH = 0.01
"""Of the rows that the exact chains take: off by 2e-4 in all; see ``mixture_posterior``."""
FIXED, ADAPTIVE = "mh-fixed", "mh-austere, ε = 0.1"
PAPER_DRAWS = 10_000
AVERAGE = 0.8
"""Weight of the past in the moving average of std(Delta'); the paper prints none."""


def fixed(rows_: int) -> Any:
    """Return the sampler of the paper with that minibatch."""
    return samplers.mh_fixed(
        **PLAIN, step_size=STEP, subsample_size=rows_, batches=BATCHES, smoothing=AVERAGE
    )


def measure(work: Path, pictures: Path, effort: Effort) -> dict[str, Any]:
    """Run the trials and return what the tables show."""
    x = rows(ROWS)
    store = streammc.from_arrays(x[:, None])
    middle, weight = binned(x, BIN_WIDTH)
    bins = streammc.from_arrays(middle[:, None], weight=weight)
    model = streammc.models.gaussian_mixture_tied()
    grid = posterior(x, TEMPERATURE, seita_mixture.BOX, bins=seita_mixture.BINS)

    def run(name: str, sampler: Any, data: Any = store, chains: int | None = None) -> Trials:
        shape = effort.of(FIXED, chains or TRIALS, DRAWS) | ({"chains": chains} if chains else {})
        return trials(
            work / f"small-mixture-{name}.npz", data, model, sampler, temperature=TEMPERATURE,
            threads=effort.threads, **shape,
        )  # fmt: skip

    common = {**PLAIN, "step_size": STEP}
    runs = {
        FIXED: run(FIXED, fixed(SUBSAMPLE)),
        ADAPTIVE: run(
            ADAPTIVE, samplers.mh_austere(**common, subsample_size=SUBSAMPLE, epsilon=0.1)
        ),
    }
    truth = {
        name: run(name, sampler, bins, GROUPS * TRIALS) for name, sampler in exact(STEP).items()
    }
    found: dict[str, Any] = {"methods": {}}
    partners = {FIXED: BARKER, ADAPTIVE: METROPOLIS}
    for name, one in {**runs, **truth}.items():
        line = one.summary() | seita_mixture.quality(one.values["draws"], grid)
        if name in partners:
            line |= seita_mixture.level(truth[partners[name]], grid, one)
        found["methods"][name] = line
    full = runs[ADAPTIVE].sizes >= ROWS
    found["full_sets"] = float(full.sum(axis=1).mean())
    found["violations"] = violations(run)
    figures.clouds(grid, clouds(runs, truth), pictures / "mixture-clouds.png")
    spread = runs[FIXED].spread[0]
    counts = {key: np.array(value) for key, value in found["violations"].items()}
    sizes = np.array(VIOLATION_SIZES)
    figures.violations(
        runs[ADAPTIVE].sizes[0], spread, counts, sizes, pictures / "mixture-violations.png"
    )
    return found


def clouds(runs: dict[str, Trials], truth: dict[str, Trials]) -> dict[str, Array]:
    """Return the draws of the three panels of figure 2."""
    shown = {METROPOLIS: truth[METROPOLIS], **runs}
    return {name: one.values["draws"][0] for name, one in shown.items()}


def violations(run: Any) -> dict[str, list[list[float]]]:
    """Return how many estimates reach 1.2, alone and as moving averages: (trial, size)."""
    alone, averaged = [], []
    for rows_ in VIOLATION_SIZES:
        one = run(FIXED if rows_ == SUBSAMPLE else f"{FIXED} {rows_}", fixed(rows_))
        scale = PAPER_DRAWS / one.sizes.shape[1]
        alone.append(scale * (one.spread >= LIMIT).sum(axis=1))
        averaged.append(scale * (one.stats["forced"] > 0).sum(axis=1))
    found = {"each by itself": alone, f"moving average, {AVERAGE:g}": averaged}
    return {key: np.stack(value, axis=1).tolist() for key, value in found.items()}
