"""Runs of the compared methods, kept in a folder: what is there is not run again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers.measures import Array, Run
from bench.papers.records import log
from streammc.control_variates import ControlVariates
from streammc.likelihood.blocks import allocate_rows
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest

LEAPFROG: dict[str, Any] = {"integrator": "leapfrog", "step_size": 0.2, "trajectory_length": 1.2}
UNIFORM: dict[str, Any] = {"certainty": False, "unit_rows": 1}
PAPER: dict[str, Any] = {**LEAPFROG, **UNIFORM, "n_blocks": 100}
"""Section 6.3: G = 100 for a correlation of 0.99, L = 6; no certainty rows."""
QUICK: dict[str, Any] = {"draws": 200, "warmup": 100, "chains": 2}
"""The length of runs where fewer rows were asked for."""
KEPT_STATS = ("acceptance_rate", "subsample_accepted", "log_lik_variance", "n_steps", "n_rows")


@dataclass
class Case:
    """A data set, its model and the folder of its runs."""

    store: Any
    model: Any
    folder: Path
    chains: int = 4
    draws: int = 2026
    """R with which IF 2.185 is ESS 927, as the paper prints them."""
    warmup: int = 1000
    threads: int | None = None


def control_variates(case: Case, name: str, **options: Any) -> ControlVariates:
    """Compute control variates, or read those that were kept."""
    path = case.folder / f"{name}.cv.zarr"
    if path.exists():
        return ControlVariates.open(path, case.store, case.model)
    cv = streammc.control_variates(case.store, case.model, **options)
    case.folder.mkdir(parents=True, exist_ok=True)
    cv.save(path)
    return cv


def subset_mode(case: Case, share: float, seed: int = 0) -> tuple[Array, float]:
    """Return the posterior mode of a random share of the rows, and the rows evaluated."""
    store, rng = case.store, np.random.default_rng(seed)
    count = min(store.n_rows, max(int(share * store.n_rows), 40 * store.n_features))
    chosen = np.sort(rng.choice(store.n_rows, count, replace=False))
    rows = allocate_rows(count, store.n_features)
    store.rows().gather(chosen, 1, rows)
    part = streammc.from_arrays(rows.X, rows.y, feature_names=list(store.feature_names))
    cv = streammc.control_variates(part, case.model)
    return cv.theta_star, float(cv.certificate["rows_read"])


def run(
    case: Case,
    name: str,
    sampler: Any,
    cv: ControlVariates | None,
    *,
    earlier_rows: float = 0.0,
    pass_rows: float = 0.0,
    seed: int = 1,
    **shape: Any,
) -> Run:
    """Run a sampler on a case, or read the run that was kept.

    ``shape`` may give other ``draws``, ``warmup`` or ``chains`` than the case.
    ``earlier_rows`` and ``pass_rows`` are what finding ``cv`` cost one chain; without ``cv``
    the run finds it, and what it reports is taken.
    """
    kept = case.folder / f"{name}.npz"
    sizes = {key: int(shape.get(key, getattr(case, key))) for key in ("draws", "warmup", "chains")}
    wanted = json.dumps([sampler.name, _chosen(sampler), sizes, seed], sort_keys=True)
    if kept.exists():
        with np.load(kept) as found:
            if str(found["wanted"]) == wanted:
                return _unpack(name, found)
        raise SystemExit(f"{kept} is of other settings: remove it to run again")
    log(f"{case.folder.name}: {name}")
    folder = case.folder / f"{name}.run"
    report = run_job(RunRequest(
        case.store, case.model, sampler, control_variates=cv, **sizes,
        seed=seed, path=folder, audit=False, threads=case.threads, progress=_progress(name),
    ))  # fmt: skip
    sampling = report.summary["sampling"]
    if cv is None:
        earlier = (sampling.get("recalibration") or {}).get("evaluations", 0)
        earlier_rows, pass_rows = earlier / sizes["chains"], sampling["evaluations"]["passes"]
    tree = streammc.open_run(folder)
    stats = {key: tree["sample_stats"][key].to_numpy() for key in tree["sample_stats"].data_vars}
    before = tree["warmup_sample_stats"] if sizes["warmup"] else {"n_rows": np.zeros((1, 1))}
    costs = {
        "rows_per_draw": float(stats["n_rows"].mean()),
        "warmup_rows": earlier_rows + float(np.asarray(before["n_rows"]).sum(axis=1).mean()),
        "pass_rows": pass_rows,
    }
    draws = case.model.unconstrain(_theta(folder))
    arrays = {f"stat_{key}": stats[key] for key in (*KEPT_STATS, "sign") if key in stats}
    if sizes["warmup"]:
        arrays["stat_warmup_variance"] = np.asarray(before["log_lik_variance"])
    facts = {"sampling": sampling, "warnings": report.summary["warnings"]}
    np.savez(kept, draws=draws, wanted=wanted, facts=json.dumps(facts), **costs, **arrays)
    with np.load(kept) as found:
        return _unpack(name, found)


def _chosen(sampler: Any) -> dict[str, Any]:
    """Return the options that are not the default."""
    usual = type(sampler)().describe()
    return {key: value for key, value in sampler.describe().items() if value != usual[key]}


def _theta(folder: Path) -> Array:
    from streammc.trace.run_directory import RunDirectory

    return RunDirectory.open(folder).draws_matrix()


def _unpack(name: str, found: Mapping[str, Any]) -> Run:
    stats = {key[5:]: found[key] for key in found if key.startswith("stat_")}
    return Run(
        name,
        found["draws"],
        float(found["rows_per_draw"]),
        float(found["warmup_rows"]),
        float(found["pass_rows"]),
        sign=stats.get("sign"),
        stats=stats,
        facts=json.loads(str(found["facts"])),
    )


def _progress(name: str) -> Any:
    def say(phase: str, done: int, total: int, facts: Mapping[str, Any]) -> None:
        if phase in ("draws", "warmup"):
            log(f"  {name}: {phase} {done} of {total}")

    return say


def staged(
    case: Case, first_size: int, iterations: int, order: int = 2
) -> tuple[ControlVariates, float, float, Run]:
    """Find theta_star as the paper does, in two stages; return the second control variates.

    The mode of 1 % of the rows, a pass there, ``iterations`` of hmc-ecs with ``first_size``
    rows and a step size under dual averaging in their first half, and passes from the mean of
    the second: one there, one where its expansion has its maximum (the paper moves theta_star
    five times). Returns control variates, the rows that the iterations evaluated, those of
    passes and subset, and the run of the first stage.
    """
    kept = case.folder / "subset-mode.npz"
    if not kept.exists():
        case.folder.mkdir(parents=True, exist_ok=True)
        theta, rows = subset_mode(case, 0.01)
        np.savez(kept, theta=theta, rows=rows)
    with np.load(kept) as found:
        theta, rows = found["theta"], float(found["rows"])
    suffix = "" if order == 2 else f"-order-{order}"
    first = control_variates(case, f"first{suffix}", theta_star=theta, passes=1, order=order)
    tuned: dict[str, Any] = {**PAPER, "step_size": None, "target_acceptance": 0.8}
    sampler = streammc.samplers.hmc_ecs(
        subsample_size=first_size, allow_high_variance=True, order=order, **tuned
    )
    half = iterations // 2
    shape = {"draws": iterations - half, "warmup": half, "chains": 1}
    stage = run(case, f"stage-1{suffix}", sampler, first, **shape)
    middle = stage.draws[0].mean(axis=0)
    second = control_variates(case, f"second{suffix}", theta_star=middle, passes=2, order=order)
    evaluated = stage.warmup_rows + stage.draws.shape[1] * stage.rows_per_draw
    for cv in (first, second):
        rows += float(cv.certificate["passes"]) * case.store.n_rows
    return second, evaluated, rows, stage
