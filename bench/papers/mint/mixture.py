"""Section 4.1 of Li and Wong 2017: figure 1, the mixture with tied means."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers.measures import Array, inefficiency
from bench.papers.mint import figures
from bench.papers.mint.runs import Case, chains, tuned_step
from bench.papers.mixture_posterior import (
    OTHER_MODE,
    TRUTH,
    Grid,
    binned,
    posterior,
    rows,
    total_variation,
)
from streammc import samplers
from streammc.control_variates import compute
from streammc.priors import flat
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory

ROWS, SIZE, ALPHA, ACCEPTANCE = 1_000_000, 1000, 0.5, 0.30
RUNS, ITERATIONS = 20, 1_000_000
RADII = (0.01, 0.1)
BOX, BINS = ((-2.6, 3.6), (-4.6, 4.6)), 46
GRADIENT_RUNS = 20
GRADIENTS: dict[str, Any] = {
    "sgld": (samplers.sgld, 5000, {"step_size": 0.01}),
    "sghmc": (samplers.sghmc, 500, {"step_size": 0.01, "trajectory_length": 0.1}),
}
"""Builder, iterations and steps, in posterior standard deviations."""
POINTS = 25


def measure(work: Path, pictures: Path, iterations: int, runs: int, threads: int) -> dict[str, Any]:
    """Run the chains and return what the page shows."""
    x = rows(ROWS)
    store = streammc.from_arrays(x[:, None])
    model = streammc.models.gaussian_mixture_tied(prior=flat())
    common: dict[str, Any] = {"subsample_size": SIZE, "alpha": ALPHA, "start": 0.0}
    sampler = partial(samplers.mint, **common)

    def case_of(step: float) -> Case:
        return Case(store, model, sampler(step_size=step))

    kept = work / "mixture-step.txt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(tuned_step(case_of, 0.6, ACCEPTANCE, 4000)))
    step = float(kept.read_text())
    case = case_of(step)
    found = chains(work / "mixture", case, draws=iterations, count=runs, threads=threads)
    theta = found.values["theta"]
    temperature = case.sampler.implied_temperature(ROWS)
    grid = posterior(x, temperature, BOX, bins=BINS, flat=True)
    middle, count = binned(x)
    marginal = power_mean(grid, middle, count / ROWS, temperature)
    at, ratio, pooled = ratio_curves(theta)
    figures.mixture(grid, theta[0], at, ratio, ITERATIONS, pictures / "mixture.png")
    return {
        "rows": ROWS, "m": SIZE, "alpha": ALPHA, "temperature": temperature, "step": step,
        "runs": len(theta), "iterations": theta.shape[1],
        "acceptance": found.means["acceptance_rate"], "variance": found.means["log_lik_variance"],
        "off_normal": found.means["decision_error"], "seconds": float(found.seconds.mean()),
        "ratio": {str(r): final(ratio[i], pooled[i]) for i, r in enumerate(RADII)},
        "curve": {
            "at": at.tolist(), "mean": np.nanmean(ratio[0], axis=0).tolist(),
            "error": error_of(ratio[0]).tolist(),
        },
        "halves": halves(theta),
        "effective": float(theta.shape[0] * theta.shape[1] / inefficiency(theta).max()),
        "variation": variations(theta, grid, marginal),
        "gradients": stuck(work, store, model, threads),
    }  # fmt: skip


def power_mean(grid: Grid, x: Array, share: Array, temperature: float) -> Array:
    """Return the probabilities of the bins under what the chain leaves invariant.

    ``(mean_i p(x_i | theta)^(s))^m``, ``s = n / (m T)``, of binned rows.
    """
    s = ROWS / SIZE / temperature
    log = np.empty((len(grid.centres_1), len(grid.centres_2)))
    for i, first in enumerate(grid.centres_1):
        a = (x - first) ** 2 / 4.0
        for j, apart in enumerate(grid.centres_2):
            term = np.logaddexp(-a, -((x - first - apart) ** 2) / 4.0)
            log[i, j] = SIZE * np.log(share @ np.exp(s * term))
    bins, fine = len(grid.mass), len(grid.centres_1) // len(grid.mass)
    mass = np.exp(log - log.max()).reshape(bins, fine, bins, fine).sum(axis=(1, 3))
    found: Array = mass / mass.sum()
    return found


def ratio_curves(theta: Array) -> tuple[Array, Array, Array]:
    """Return iterations (k,), and by radius the ratio of each run (r, run, k) and of all (r, k).

    The number of positions near (1, -1) over those near (0, 1); NaN where one is 0.
    """
    length = theta.shape[1]
    at = np.unique(np.geomspace(1000, length, POINTS).astype(int))
    one, pooled = [], []
    for radius in RADII:
        counts = []
        for mode in (TRUTH, OTHER_MODE):
            near = np.square(theta - mode.astype(theta.dtype)).sum(axis=-1) < radius**2
            counts.append(near.cumsum(axis=1)[:, at - 1].astype(float))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = counts[1] / counts[0]
            pooled.append(counts[1].sum(axis=0) / counts[0].sum(axis=0))
        ratio[(counts[0] == 0) | (counts[1] == 0)] = np.nan
        one.append(ratio)
    return at, np.stack(one), np.stack(pooled)


def error_of(ratio: Array) -> Array:
    """Return the standard error of the mean over the runs that have a ratio (run, k)."""
    count = np.isfinite(ratio).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.nanstd(ratio, axis=0) * np.sqrt(1.0 / np.maximum(count - 1, 1))
    return found


def final(ratio: Array, pooled: Array) -> dict[str, float]:
    """Return the ratio after all iterations, with its error over the runs."""
    last = ratio[:, -1]
    return {
        "mean": float(np.nanmean(last)), "error": float(error_of(ratio)[-1]),
        "runs": int(np.isfinite(last).sum()), "pooled": float(pooled[-1]),
        "log": float(np.nanmean(np.log(last))), "log_error": float(error_of(np.log(ratio))[-1]),
    }  # fmt: skip


def halves(theta: Array) -> dict[str, float]:
    """Return the share of positions with theta_2 above 0, where one mode is, and its error."""
    share = (theta[..., 1] > 0.0).mean(axis=1)
    return {
        "mean": float(share.mean()), "error": float(share.std(ddof=1) / np.sqrt(len(share))),
        "crossings": float((np.diff(np.sign(theta[..., 1]), axis=1) != 0).mean()),
    }  # fmt: skip


def variations(theta: Array, grid: Grid, marginal: Array) -> dict[str, float]:
    """Return total variations: of the positions, and between what they should and do target."""
    counts, outside = grid.counts(theta.reshape(-1, 2))
    return {
        "to_tempered": total_variation(counts, grid.mass, outside),
        "to_marginal": total_variation(counts, marginal, outside),
        "between": float(0.5 * np.abs(grid.mass - marginal).sum()),
    }


def stuck(work: Path, store: Any, model: Any, threads: int) -> dict[str, Any]:
    """Return how many chains of ``sgld`` and ``sghmc`` with decreasing steps see both modes.

    At temperature 1, half of the chains from either mode.
    """
    found = {}
    starts = [compute(store, model, order=2, theta_star=mode) for mode in (TRUTH, OTHER_MODE)]
    for name, (build, draws, options) in GRADIENTS.items():
        given = {"control_variate": "none", "subsample_size": SIZE, "decay": 0.55, **options}
        both = stayed = 0
        steps, spread = [], []
        for k, start in enumerate(starts):
            path = work / f"mixture-{name}-{k}"
            run_job(RunRequest(
                store, model, build(**given), control_variates=start, draws=draws, warmup=0,
                chains=GRADIENT_RUNS // 2, seed=k, path=path, audit=False, threads=threads,
            ))  # fmt: skip
            run = RunDirectory.open(path)
            theta, stats = run.draws_matrix(), run.read_group("sample_stats")
            right = theta[..., 1] > 0.0
            both += int((right.any(axis=1) & ~right.all(axis=1)).sum())
            stayed += int((right.all(axis=1) if k == 0 else ~right.any(axis=1)).sum())
            steps.append([stats["step_size"][:, i].mean() for i in (0, -1)])
            spread.append(float(theta[:, draws // 2 :, 1].std()))
        found[name] = {
            "runs": GRADIENT_RUNS, "iterations": draws, "both": both, "stayed": stayed,
            "gradients": float(stats["n_steps"].mean()), "sd": float(np.mean(spread)),
            "first": float(np.mean(steps, axis=0)[0]), "last": float(np.mean(steps, axis=0)[1]),
        }  # fmt: skip
    return found
