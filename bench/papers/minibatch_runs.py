"""Trials of a sampler, kept in a folder: what is there is not run again.

The independent trials of a paper are the chains of one run, from their first iteration on: there
is no warm-up, since step sizes are given and the papers keep every sample.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers.measures import Array
from bench.papers.records import log
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest

KEPT = ("accepted", "acceptance_rate", "test_rows", "n_rows", "forced", "decision_error")
KEPT += ("log_lik_variance",)
QUICK = ("mh-minibatch", "mh-fixed")
COSTLY = ("mh-sublhd", "mh-austere (NC)", "mh-minibatch, δ = 0.1")
COSTLY += ("mh-austere (C), error 0.005 at worst",)
"""Methods whose decisions pass over all rows, or take tens of thousands."""
Reduce = Callable[[Array], dict[str, Array]]


@dataclass
class Effort:
    """How much of the papers' trials is run."""

    trials: int | None = None
    """At most so many of any method."""
    slow: int | None = None
    """At most so many of the methods that take thousands of rows a decision."""
    slow_draws: int | None = None
    """At most so many draws of these."""
    costly_draws: int | None = None
    """At most so many draws, of one trial, of the methods in ``COSTLY``."""
    threads: int = 2

    def of(self, name: str, trials: int, draws: int) -> dict[str, int]:
        """Return ``chains`` and ``draws`` of a method for which a paper has these."""
        if name in COSTLY and self.costly_draws:
            return {"chains": 1, "draws": min(draws, self.costly_draws)}
        slow = name not in QUICK
        most = [value for value in (trials, self.trials, self.slow if slow else None) if value]
        length = min(draws, self.slow_draws or draws) if slow else draws
        return {"chains": min(most), "draws": length}


@dataclass
class Trials:
    """What the trials of one method gave."""

    values: Mapping[str, Array]
    """What ``reduce`` made of the draws: (trial, ...)."""
    stats: Mapping[str, Array]
    """(trial, draw)."""
    seconds: float

    @property
    def sizes(self) -> Array:
        """Rows that each decision rests on (trial, draw): the minibatch of the papers."""
        return self.stats["test_rows"]

    @property
    def spread(self) -> Array:
        """Estimated standard deviation of the estimate of Delta (trial, draw)."""
        return np.sqrt(self.stats["log_lik_variance"])

    def summary(self) -> dict[str, Any]:
        """Return means over the trials, and their standard deviations."""
        means = self.sizes.mean(axis=1)
        count, length = self.sizes.shape
        return {
            "trials": count,
            "draws": length,
            "size": float(means.mean()),
            "size_sd": float(means.std(ddof=1)) if count > 1 else None,
            "median": float(np.median(self.sizes)),
            "largest": float(self.sizes.max()),
            "rows": float(self.stats["n_rows"].mean()),
            "acceptance": float(self.stats["acceptance_rate"].mean()),
            "forced": float((self.stats["forced"] > 0).mean()),
            "error": float(np.nanmean(self.stats["decision_error"]))
            if np.isfinite(self.stats["decision_error"]).any()
            else None,
        }


def keep(draws: Array) -> dict[str, Array]:
    """Keep the draws themselves."""
    return {"draws": draws}


def trials(
    path: Path,
    store: Any,
    model: Any,
    sampler: Any,
    *,
    draws: int,
    chains: int,
    temperature: float | str,
    reduce: Reduce = keep,
    seed: int = 1,
    threads: int = 2,
) -> Trials:
    """Run the trials, or read those that were kept at ``path``, with their number in its name."""
    wanted = json.dumps(
        [sampler.describe(), draws, chains, str(temperature), seed], sort_keys=True, default=str
    )
    path = path.with_name(f"{path.stem}-{chains}x{draws}.npz".replace(" ", "-"))
    if not path.exists():
        _run(path, store, model, sampler, wanted, draws, chains, temperature, reduce, seed, threads)
    with np.load(path) as found:
        if str(found["wanted"]) != wanted:
            raise SystemExit(f"{path} is of other settings: remove it to run again")
        stats = {key[5:]: found[key] for key in found if key.startswith("stat_")}
        values = {key[6:]: found[key] for key in found if key.startswith("value_")}
        return Trials(values, stats, float(found["seconds"]))


def _run(
    path: Path,
    store: Any,
    model: Any,
    sampler: Any,
    wanted: str,
    draws: int,
    chains: int,
    temperature: float | str,
    reduce: Reduce,
    seed: int,
    threads: int,
) -> None:
    from time import perf_counter

    log(f"{path.stem}: {chains} trials of {draws}")
    folder = path.with_suffix(".run")
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = perf_counter()
    shape: dict[str, Any] = {"draws": draws, "warmup": 0, "chains": chains}
    with suppress(_DrawnError):
        run_job(RunRequest(
            store, model, sampler, **shape, temperature=temperature, seed=seed, path=folder,
            audit=False, threads=threads, progress=_until_drawn,
        ))  # fmt: skip
    seconds = perf_counter() - begun
    recorded = streammc.open_run(folder)["sample_stats"]
    stats = {f"stat_{key}": np.asarray(recorded[key]) for key in KEPT if key in recorded}
    values = {f"value_{key}": value for key, value in reduce(_theta(folder)).items()}
    np.savez(path, wanted=wanted, seconds=seconds, **stats, **values)
    shutil.rmtree(folder)
    log(f"{path.stem}: {seconds:.0f} s, {stats['stat_test_rows'].mean():.1f} rows a decision")


class _DrawnError(Exception):
    """All draws are committed: the summary of 784 coefficients would take longer than they did."""


def _until_drawn(phase: str, done: int, wanted: int, facts: Mapping[str, Any]) -> None:
    if phase == "draws" and done == wanted:
        raise _DrawnError


def _theta(folder: Path) -> Array:
    from streammc.trace.run_directory import RunDirectory

    return RunDirectory.open(folder).draws_matrix()
