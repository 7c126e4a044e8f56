"""Trials of a sampler, kept in a folder: what is there is not run again.

The independent trials of a paper are the chains of one run, from their first iteration on: there
is no warm-up, since step sizes are given and the papers keep every sample.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measures import Array
from methods import log

import streammc
from streammc.sampling.job import run_job

KEPT = ("acceptance_rate", "test_rows", "n_rows", "forced", "decision_error", "temperature")
Reduce = Callable[[Array], dict[str, Array]]


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
    """Run the trials, or read those that were kept at ``path``."""
    wanted = json.dumps(
        [sampler.describe(), draws, chains, str(temperature), seed], sort_keys=True, default=str
    )
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
    run_job(
        store, model, sampler, **shape, temperature=temperature, seed=seed, path=folder,
        audit=False, threads=threads,
    )  # fmt: skip
    seconds = perf_counter() - begun
    recorded = streammc.open_run(folder)["sample_stats"]
    stats = {f"stat_{key}": np.asarray(recorded[key]) for key in KEPT if key in recorded}
    values = {f"value_{key}": value for key, value in reduce(_theta(folder)).items()}
    np.savez(path, wanted=wanted, seconds=seconds, **stats, **values)
    shutil.rmtree(folder)
    log(f"{path.stem}: {seconds:.0f} s, {stats['stat_test_rows'].mean():.1f} rows a decision")


def _theta(folder: Path) -> Array:
    from streammc.trace.run_directory import RunDirectory

    return RunDirectory.open(folder).draws_matrix()
