"""Section 4.2 of Li and Wong 2017: figures 2 and 4, table 1, the accepted steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import streammc
from bench.papers import mnist
from bench.papers.measures import Array
from bench.papers.mint import figures
from bench.papers.mint.runs import Case, Chains, chains, tuned_step
from streammc import samplers
from streammc.priors import flat
from streammc.samplers.metropolis.mint import NORMALITY

SIZE, ACCEPTANCE, ALPHA = 100, 0.30, 0.5
EVERY = 5
"""Positions between two that are tested."""
LEVELS = (0.90, 0.93, 0.95, 0.97, 0.98, 0.99)
TEMPERED, PLAIN, MINT = "tempered MCMC", "MCMC", "mint"
BATCHES, DIMENSION = 5000, 784
WINDOW = 0.5
"""Share of the positions, the last, of which the mean is taken."""
BRACKET = {MINT: (0.06, 2.5), TEMPERED: (1.2, 4.0), PLAIN: (0.04, 5.0)}
"""Middle and half width, a factor, of the steps between which one is looked for."""
ROUNDS = 5


def temperature(n: int, alpha: float = ALPHA) -> float:
    """Return that of ``mint`` with n rows."""
    return float(samplers.mint(subsample_size=SIZE, alpha=alpha).implied_temperature(n))


def case_of(store: Any, name: str, step: float, alpha: float = ALPHA) -> Case:
    """Return what the chains of a method share, from theta = 0."""
    model = streammc.models.logistic(prior=flat())
    if name == MINT:
        sampler = samplers.mint(subsample_size=SIZE, alpha=alpha, step_size=step, start=0.0)
        return Case(store, model, sampler)
    full = samplers.mh(step_size=step, control_variate="none", start=0.0)
    return Case(store, model, full, 1.0 if name == PLAIN else temperature(store.n_rows, alpha))


def tune_and_run(
    path: Path, found: mnist.Digits, name: str, draws: int, count: int, threads: int,
    alpha: float = ALPHA, *, step: float | None = None, scale: float = 1.0,
) -> tuple[dict[str, Any], Chains]:  # fmt: skip
    """Run chains; without a step it is tuned over chains as long as they, ``scale`` x BRACKET."""
    store = streammc.from_arrays(found.X, found.y)
    if step is None:
        kept = path.with_name(f"{path.name}-{draws}-step.txt")
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            middle, spread = BRACKET[name]
            tuned = tuned_step(
                lambda tried: case_of(store, name, tried, alpha), scale * middle, ACCEPTANCE,
                2 * draws // 3, ROUNDS, spread,
            )  # fmt: skip
            kept.write_text(str(tuned))
        step = float(kept.read_text())
    used = chains(
        path, case_of(store, name, step, alpha), draws=draws, count=count, threads=threads,
        reduce=lambda theta: reduce(found, theta),
    )  # fmt: skip
    return line_of(used, draws, step, found), used


def measure(
    work: Path, pictures: Path, lengths: Mapping[str, int], runs: int, threads: int
) -> dict[str, Any]:
    """Run the chains and return what the page shows."""
    found = mnist.digits()
    n = len(found.y)
    lines, curves = {}, {}
    for name in (MINT, TEMPERED, PLAIN):
        count = runs if name == MINT else max(1, min(runs, 3))
        path = work / slug_of(name)
        lines[name], used = tune_and_run(path, found, name, lengths[name], count, threads)
        curves[name] = (*cost_of(used, lengths[name]), used.values["accuracy"])
    t, normal = normality(found, lengths, work)
    figures.digits(t, curves, n, pictures / "digits.png")
    return {
        "rows": n, "m": SIZE, "alpha": ALPHA, "temperature": temperature(n), "methods": lines,
        "normality": normal,
        "square": float((found.X.astype(np.float64) ** 2).sum(axis=1).mean()),
    }  # fmt: skip


def slug_of(name: str) -> str:
    """Return the name of a method as that of a file."""
    return "digits-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def reduce(found: mnist.Digits, theta: Array) -> Mapping[str, Array]:
    """Return the accuracy of some positions and of predictions averaged up to them, and sums."""
    moves = np.linalg.norm(np.diff(theta, axis=0), axis=1)
    blocks = np.stack([part.mean(axis=0) for part in np.array_split(theta, 20)])
    tested = theta[::EVERY].astype(np.float32)
    seven = np.exp(-np.logaddexp(np.float32(0.0), -(found.X_test @ tested.T)))
    running = np.cumsum(seven, axis=1) / np.arange(1, len(tested) + 1)
    last = int(WINDOW * len(tested))
    late = moves[int(WINDOW * len(moves)) :]
    return {
        "accuracy": mnist.accuracy(found, theta[::EVERY]),
        "running": ((running > 0.5) == (found.y_test[:, None] == 1.0)).mean(axis=0),
        "seven": seven[:, last:].mean(axis=1),
        "moves": np.array([[late.sum(), (late > 0.0).sum(), len(late)]]),
        "blocks": blocks.astype(np.float32),
    }


def cost_of(used: Chains, draws: int) -> tuple[Array, Array]:
    """Return rows and seconds (run, k) by position tested."""
    shape = used.values["accuracy"].shape
    at = np.arange(1, shape[1] * EVERY + 1, EVERY, dtype=float)
    return np.broadcast_to(at * used.means["n_rows"], shape), at / draws * used.seconds[:, None]


def reached(right: Array, rows: Array, seconds: Array) -> dict[str, list[float] | None]:
    """Return median rows and seconds until an accuracy (run, k) is first that of each level."""
    found: dict[str, list[float] | None] = {}
    for level in LEVELS:
        hit = right >= level
        found[str(level)] = None
        if hit.any(axis=1).all():
            place = hit.argmax(axis=1)[:, None]
            found[str(level)] = [
                float(np.median(np.take_along_axis(values, place, axis=1)))
                for values in (rows, seconds)
            ]
    return found


def line_of(used: Chains, draws: int, step: float, found: mnist.Digits) -> dict[str, Any]:
    """Return a line of the tables."""
    right, running = used.values["accuracy"], used.values["running"]
    rows, seconds = cost_of(used, draws)
    blocks, seven = used.values["blocks"], used.values["seven"]
    last = blocks[:, int(WINDOW * blocks.shape[1]) :].mean(axis=1)
    truth = found.y_test == 1.0
    length, moved, late = used.values["moves"].sum(axis=(0, 1))
    return {
        "runs": len(right), "draws": draws, "step": step,
        "acceptance": used.means["acceptance_rate"], "late_acceptance": float(moved / late),
        "move": float(length / max(moved, 1.0)), "rows": used.means["n_rows"],
        "milliseconds": float(1e3 * used.seconds.mean() / draws),
        "variance": used.means["log_lik_variance"], "off_normal": used.means["decision_error"],
        "accuracy": float(right[:, -right.shape[1] // 5 :].mean()),
        "best": float(right.max(axis=1).mean()),
        "of_mean": float(mnist.accuracy(found, last).mean()),
        "of_mean_all": float(mnist.accuracy(found, last.mean(axis=0, keepdims=True))[0]),
        "predicted": float(((seven > 0.5) == truth).mean()),
        "predicted_all": float(((seven.mean(axis=0) > 0.5) == truth).mean()),
        "reached": reached(right, rows, seconds),
        "running_reached": reached(running, rows, seconds),
    }  # fmt: skip


def normality(
    found: mnist.Digits, lengths: Mapping[str, int], work: Path
) -> tuple[Array, dict[str, float]]:
    """Return t of random minibatches at the mean of a run, and how normal it is."""
    from scipy.stats import kstest, skew

    with np.load(work / f"{slug_of(MINT)}-{lengths[MINT]}-0.npz") as held:
        theta = held["value_blocks"][-1].astype(np.float64)
    margin = np.where(found.y == 1.0, 1.0, -1.0) * (found.X @ theta)
    terms = -np.logaddexp(0.0, -margin)
    rng = np.random.default_rng(17)
    chosen = rng.integers(0, len(terms), size=(BATCHES, SIZE))
    t = np.sqrt(SIZE) * (terms[chosen].mean(axis=1) - terms.mean())
    return t, {
        "sd": float(t.std()), "sd_rows": float(terms.std()), "skew_rows": float(skew(terms)),
        "skew": float(skew(t)), "distance": float(kstest(t / t.std(), "norm").statistic),
        "predicted": float(NORMALITY * abs(skew(terms)) / np.sqrt(SIZE)),
    }  # fmt: skip
