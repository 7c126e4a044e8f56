"""Section 5.2 of Chen et al. 2016: logistic regression of ones and sevens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers import minibatch_figures as figures
from bench.papers import mnist
from bench.papers.measures import Array
from bench.papers.minibatch.mixture import PLAIN
from bench.papers.minibatch_runs import Effort, Trials, trials
from bench.papers.simple_minibatch.published import CHECKPOINTS
from streammc import samplers

TRAINING, TESTING = 12_007, 1000
TEMPERATURE, SUBSAMPLE, STEP, BATCHES = 3000.0, 50, 0.1, 10
DRAWS, TRIALS = 3000, 5
SIZES = (2, 5, 10, 20, 50, 100, 200)
FIXED, ADAPTIVE, ADAPTIVE_HOT = "mh-fixed", "mh-austere, T = 1", "mh-austere, T = 3000"


def images(seed: int = 0) -> mnist.Digits:
    """Return as many images as the paper has, at random from those of either set."""
    every, rng = mnist.digits(), np.random.default_rng([2016, seed])
    some = np.sort(rng.choice(len(every.y), TRAINING, replace=False))
    test = np.sort(rng.choice(len(every.y_test), TESTING, replace=False))
    return mnist.Digits(every.X[some], every.y[some], every.X_test[test], every.y_test[test])


def measure(work: Path, pictures: Path, effort: Effort) -> dict[str, Any]:
    """Run the trials and return what the tables show."""
    found = images()
    store = streammc.from_arrays(found.X, found.y)
    model = streammc.models.logistic(prior=streammc.priors.flat())

    def reduce(draws: Array) -> dict[str, Array]:
        return {
            "accuracy": np.stack([mnist.accuracy(found, one) for one in draws]),
            "likelihood": np.stack([mnist.test_log_likelihood(found, one) for one in draws]),
        }

    def run(name: str, sampler: Any, temperature: float, draws: int = DRAWS) -> Trials:
        return trials(
            work / f"digits-{name}.npz", store, model, sampler, temperature=temperature,
            threads=effort.threads, reduce=reduce,
            **effort.of(name.split(" ")[0].rstrip(","), TRIALS, draws),
        )  # fmt: skip

    common = {**PLAIN, "start": 1.0, "step_size": STEP}
    austere = samplers.mh_austere(**common, subsample_size=SUBSAMPLE, epsilon=0.02)

    def fixed(rows: int) -> Any:
        return samplers.mh_fixed(**common, subsample_size=rows, batches=BATCHES)

    runs = {
        FIXED: run(FIXED, fixed(SUBSAMPLE), TEMPERATURE),
        ADAPTIVE: run(ADAPTIVE, austere, 1.0),
        ADAPTIVE_HOT: run(ADAPTIVE_HOT, austere, TEMPERATURE),
    }
    lines = {}
    for name, one in runs.items():
        lines[name] = one.summary()
        for key in ("accuracy", "likelihood"):
            lines[name][key] = float(one.values[key][:, -500:].mean())
    by_rows = {rows: run(f"{FIXED} {rows}", fixed(rows), TEMPERATURE, 1500) for rows in SIZES}
    by_size = {}
    for iteration in CHECKPOINTS:
        at = [one.values["accuracy"][:, iteration - 1] for one in by_rows.values()]
        by_size[iteration] = (np.array(SIZES, dtype=float), np.stack(at, axis=1))
    curves = {
        name: (one.sizes.cumsum(axis=1), one.values["accuracy"], one.values["likelihood"])
        for name, one in runs.items()
    }
    rows, *values = curves[FIXED]
    curves[f"{FIXED}, its last m alone"] = (rows / (BATCHES + 1), *values)
    figures.logistic(curves, by_size, pictures / "digits.png")
    accuracies = {str(k): v.mean(axis=0).tolist() for k, (_, v) in by_size.items()}
    return {"methods": lines, "sizes": list(SIZES), "by_size": accuracies}
