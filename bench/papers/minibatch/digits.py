"""Section 6.2 of Seita et al. 2017: table 2, figures 3 to 6."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers import minibatch_figures as figures
from bench.papers import mnist
from bench.papers.measures import Array
from bench.papers.minibatch.mixture import BOUND_OFF, BOUND_ON, BOUNDED, PLAIN
from bench.papers.minibatch.published import AUSTERE_C, AUSTERE_NC, METHODS, MINIBATCH, SUBLHD
from bench.papers.minibatch_runs import Effort, Trials, trials
from streammc import samplers

TEMPERATURE, SUBSAMPLE = 100.0, 100
DROP, AFTER_DROP = 400, 2600
STEPS = (0.005, 0.01, 0.05)


@dataclass
class Setting:
    """A column of table 5."""

    title: str
    draws: int
    trials: int
    step: float
    austere_c: tuple[int, float]
    """Rows of a look and per-test threshold, from the paper's grid search."""
    austere_nc: float
    """Bound on the error of a decision."""


SMALL = Setting("MNIST-13k", 5000, 10, 0.05, (450, 0.01), 0.05)
LARGE = Setting("MNIST-100k", 3000, 5, 0.01, (300, 0.01), 0.1)


def methods(setting: Setting, step: float) -> dict[str, Any]:
    """Return the samplers of table 2."""
    common = {**PLAIN, "step_size": step}
    first = {"subsample_size": SUBSAMPLE}
    rows, epsilon = setting.austere_c
    return {
        MINIBATCH: samplers.mh_minibatch(**common, **first, **BOUND_OFF),
        AUSTERE_NC: samplers.mh_austere(
            **common, conservative=False, max_error=setting.austere_nc, given_uniform=True
        ),
        AUSTERE_C: samplers.mh_austere(**common, subsample_size=rows, epsilon=epsilon),
        SUBLHD: samplers.mh_sublhd(**common, **first, gamma=2.0, p=2.0, delta=0.01),
        BOUND_ON: samplers.mh_minibatch(**common, **first, **BOUNDED),
    }


def measure(
    work: Path, pictures: Path, setting: Setting, found: mnist.Digits, effort: Effort
) -> dict[str, Any]:
    """Run the trials of a data set and return what the tables show."""
    case = Case(work, setting, found, effort.threads)
    lines: dict[str, Any] = {}
    runs: dict[str, Trials] = {}
    for name, sampler in methods(setting, setting.step).items():
        runs[name] = case.run(name, sampler, **effort.of(name, setting.trials, setting.draws))
        lines[name] = runs[name].summary()
        lines[name]["accuracy"] = float(runs[name].values["accuracy"][:, -1000:].mean())
        lines[name]["rows_to_95"] = rows_to(runs[name], 0.95, "test_rows")
        lines[name]["evaluated_to_95"] = rows_to(runs[name], 0.95, "n_rows")
    title = setting.title.lower()
    histograms = {name: runs[name].sizes[0] for name in METHODS}
    figures.sizes(histograms, pictures / f"{title}-sizes.png", len(found.y))
    curves = {
        name: (runs[name].sizes.cumsum(axis=1), runs[name].values["accuracy"]) for name in METHODS
    }
    np.savez(
        work / f"{title}-curves.npz",
        **{f"{k}|{i}": v[i] for k, v in curves.items() for i in (0, 1)},
    )
    return {"rows": len(found.y), "step": setting.step, "methods": lines}


@dataclass
class Case:
    """A data set and where its runs are kept."""

    work: Path
    setting: Setting
    found: mnist.Digits
    threads: int

    def run(self, name: str, sampler: Any, **changes: Any) -> Trials:
        """Run the trials of one sampler."""
        path = self.work / f"{self.setting.title.lower()}-{name}.npz"
        given: dict[str, Any] = {"temperature": TEMPERATURE, **changes}
        store = given.pop("store", None) or streammc.from_arrays(self.found.X, self.found.y)
        return trials(
            path, store, streammc.models.logistic(prior=streammc.priors.flat()), sampler,
            threads=self.threads, reduce=self.reduce, **given,
        )  # fmt: skip

    def reduce(self, draws: Array) -> dict[str, Array]:
        """Return the accuracy of every draw, and the last draw of every trial."""
        return {
            "accuracy": np.stack([mnist.accuracy(self.found, one) for one in draws]),
            "last": draws[:, -1],
        }


def rows_to(run: Trials, level: float, counted: str) -> float | None:
    """Return the median over trials of the rows until the accuracy first reaches a level."""
    consumed = run.stats[counted].cumsum(axis=1)
    reached = run.values["accuracy"] >= level
    if not reached.any(axis=1).all():
        return None
    first = reached.argmax(axis=1)
    return float(np.median(np.take_along_axis(consumed, first[:, None], axis=1)))


def dropped(
    work: Path, setting: Setting, found: mnist.Digits, effort: Effort
) -> tuple[dict[str, Any], Array]:
    """Return what a drop of the temperature to 1 after 400 samples does (figure 3, right).

    The steps shrink with the temperature, a hundredfold: the variance of a minibatch's log
    ratio is that of ``step / T``. A second run starts where the first ended: with the margins
    there as offset and from zero.
    """
    case = Case(work, setting, found, effort.threads)
    step = setting.step
    common = {**PLAIN, "subsample_size": SUBSAMPLE, **BOUND_OFF}
    shape = effort.of(MINIBATCH, setting.trials, DROP)
    before = case.run("before-drop", samplers.mh_minibatch(**common, step_size=step), **shape)
    sampler = samplers.mh_minibatch(**common, step_size=step / TEMPERATURE)
    curves, sizes = [], []
    for trial, theta in enumerate(before.values["last"]):
        margin = (found.X @ theta.astype(np.float32)).astype(np.float64)
        moved = Moved(work, setting, found, effort.threads, theta)
        after = moved.run(
            f"after-drop-{trial}", sampler, chains=1, draws=AFTER_DROP, temperature=1.0,
            store=streammc.from_arrays(found.X, found.y, offset=margin), seed=trial,
        )  # fmt: skip
        joined = [before.values["accuracy"][trial], after.values["accuracy"][0]]
        curves.append(np.concatenate(joined))
        sizes.append(after.sizes.mean())
    accuracy = np.stack(curves)
    lines = {
        "trials": shape["chains"],
        "before": before.summary()["size"],
        "after": float(np.mean(sizes)),
        "accuracy_at_drop": float(accuracy[:, DROP - 1].mean()),
        "accuracy_at_end": float(accuracy[:, -1].mean()),
    }
    if setting is SMALL:
        kept = case.run(
            "kept-step", samplers.mh_minibatch(**common, step_size=step), chains=1,
            draws=DROP + 100, temperature=f"{TEMPERATURE:g}:{DROP}",
        )  # fmt: skip
        lines["kept_step_rows"] = float(kept.sizes[:, DROP:].mean())
        lines["kept_step_acceptance"] = float(kept.stats["acceptance_rate"][:, DROP:].mean())
    return lines, accuracy


@dataclass
class Moved(Case):
    """A data set whose coefficients are counted from ``origin`` (784,)."""

    origin: Array

    def reduce(self, draws: Array) -> dict[str, Array]:
        """Return what the coefficients themselves give."""
        return super().reduce(draws + self.origin)


def step_sizes(work: Path, pictures: Path, found: mnist.Digits, effort: Effort) -> dict[str, Any]:
    """Return the mean sizes by step size on MNIST-100k (figure 6)."""
    case = Case(work, LARGE, found, effort.threads)
    lines, histograms = {}, {}
    for step in STEPS:
        run = case.run(f"step-{step}", methods(LARGE, step)[MINIBATCH], chains=1, draws=LARGE.draws)
        lines[str(step)] = run.summary()
        histograms[f"step {step}"] = run.sizes[0]
    figures.sizes(histograms, pictures / "step-sizes.png", len(found.y))
    return lines
