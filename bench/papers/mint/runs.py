"""Chains of ``mint`` and of ``mh`` that keep nothing but their positions, held in a folder.

A run directory keeps fourteen statistics of every draw, which is more than a million positions
in two dimensions need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.papers.measures import Array
from bench.papers.records import log
from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.likelihood.data_views import tempered
from streammc.likelihood.temperature import Schedule
from streammc.samplers.metropolis.options import metropolis

PIECE = 50_000
KEPT = ("log_lik_variance", "acceptance_rate", "decision_error", "test_rows", "n_rows")
Reduce = Callable[[Array], Mapping[str, Array]]


@dataclass
class Case:
    """Rows, model and temperature: what the chains of one method share."""

    store: Any
    model: Any
    sampler: Any
    temperature: float = 1.0
    """Beside what the sampler itself implies."""

    def kernel(self, seed: int, chain: int) -> Any:
        """Return a chain at its start."""
        n = self.store.n_rows
        hot = tempered(self.store, self.temperature * self.sampler.implied_temperature(n))
        start = without_pass(bind(hot, self.model), self.sampler.start)
        schedule = Schedule(self.temperature)
        problem = metropolis(hot, self.model, start, None, self.sampler, schedule)
        kernel = problem.kernel(seed, chain)
        kernel.initialise()
        return kernel


@dataclass
class Chains:
    """What the chains of one method gave."""

    values: Mapping[str, Array]
    """(chain, ...), of what ``reduce`` made of the positions."""
    means: Mapping[str, float]
    """Of the statistics."""
    seconds: Array
    """(chain,) that its thread was busy."""


def positions(theta: Array) -> Mapping[str, Array]:
    """Keep the positions themselves."""
    return {"theta": theta.astype(np.float32)}


def chains(
    path: Path,
    case: Case,
    *,
    draws: int,
    count: int,
    threads: int,
    seed: int = 1,
    reduce: Reduce = positions,
) -> Chains:
    """Run ``count`` chains, or read those that were kept at ``path``, one file each."""
    wanted = json.dumps(
        [case.sampler.describe(), case.temperature, draws, seed], sort_keys=True, default=str
    )

    def one(chain: int) -> Path:
        kept = path.with_name(f"{path.name}-{draws}-{chain}.npz")
        if kept.exists():
            return kept
        kernel, pieces = case.kernel(seed, chain), []
        sums = dict.fromkeys(KEPT, 0.0)
        begun, done = perf_counter(), 0
        while done < draws:
            n = min(PIECE, draws - done)
            found = kernel.advance(n, False)
            pieces.append(reduce(found["theta"]))
            for name in KEPT:
                sums[name] += float(np.nansum(found[name]))
            done += n
        seconds = perf_counter() - begun
        values = {f"value_{key}": np.concatenate([p[key] for p in pieces]) for key in pieces[0]}
        means = {f"mean_{name}": value / draws for name, value in sums.items()}
        partial = kept.with_suffix(".partial.npz")
        np.savez(partial, wanted=wanted, seconds=seconds, **values, **means)
        partial.replace(kept)
        log(f"{kept.stem}: {seconds:.0f} s")
        return kept

    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        files = list(pool.map(one, range(count)))
    return _read(files, wanted)


def _read(files: list[Path], wanted: str) -> Chains:
    values: dict[str, list[Array]] = {}
    means: dict[str, list[float]] = {}
    seconds = []
    for path in files:
        with np.load(path) as found:
            if str(found["wanted"]) != wanted:
                raise SystemExit(f"{path} is of other settings: remove it to run again")
            seconds.append(float(found["seconds"]))
            for key in found:
                kind, _, name = key.partition("_")
                if kind == "value":
                    values.setdefault(name, []).append(found[key])
                elif kind == "mean":
                    means.setdefault(name, []).append(float(found[key]))
    return Chains(
        {key: np.stack(value) for key, value in values.items()},
        {key: float(np.mean(value)) for key, value in means.items()},
        np.array(seconds),
    )


def tuned_step(
    case_of: Callable[[float], Case],
    first: float,
    target: float,
    draws: int,
    rounds: int = 6,
    spread: float = 8.0,
) -> float:
    """Return a step size with about that acceptance, over chains of ``draws``, by bisection in log.

    Of a random walk, whose acceptance falls with its step, between ``first / spread`` and
    ``first * spread``; half as many positions before the ``draws`` are not counted.
    """
    low, high = first / spread, first * spread
    for _ in range(rounds):
        step = float(np.sqrt(low * high))
        kernel = case_of(step).kernel(9, 0)
        kernel.advance(draws // 2, False)
        accepted = float(kernel.advance(draws, False)["acceptance_rate"].mean())
        low, high = (step, high) if accepted > target else (low, step)
    return float(f"{np.sqrt(low * high):.2g}")
