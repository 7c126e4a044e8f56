"""Section 4.2 of Li and Wong 2017: figures 2 and 4, table 1, the accepted steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mint_figures as figures
import mnist
import numpy as np
from measures import Array
from mint_runs import Case, Chains, chains, tuned_step

import streammc
from streammc import samplers
from streammc.acceptance.carried import NORMALITY
from streammc.priors import flat

SIZE, ACCEPTANCE = 100, 0.30
ALPHA, COLDER, COLDER_STEP = 0.5, 0.9, 0.04
"""The first gives mint accepted steps like those of the paper; the second is colder."""
EVERY = 5
"""Positions between two that are tested."""
LEVELS = (0.90, 0.93, 0.95, 0.97, 0.99)
TEMPERED, PLAIN, MINT = "tempered MCMC", "MCMC", "mint"
COLD = f"mint, α = {COLDER:g}"
BATCHES, DIMENSION = 5000, 784
WINDOW = 0.5
"""Share of the positions, the last, of which the mean is taken."""


def measure(
    work: Path, pictures: Path, lengths: Mapping[str, int], runs: int, threads: int
) -> dict[str, Any]:
    """Run the chains and return what the page shows."""
    found = mnist.digits()
    store = streammc.from_arrays(found.X, found.y)
    model = streammc.models.logistic(prior=flat())
    n = len(found.y)
    temperature = samplers.mint(subsample_size=SIZE, alpha=ALPHA).implied_temperature(n)
    common: dict[str, Any] = {"control_variate": "none", "start": 0.0}
    cases: dict[str, Callable[[float], Case]] = {
        MINT: lambda step: Case(
            store, model,
            samplers.mint(subsample_size=SIZE, alpha=ALPHA, step_size=step, start=0.0),
        ),
        TEMPERED: lambda step: Case(
            store, model, samplers.mh(step_size=step, **common), temperature
        ),
        PLAIN: lambda step: Case(store, model, samplers.mh(step_size=step, **common)),
    }  # fmt: skip
    first = {MINT: 0.05, TEMPERED: 0.05, PLAIN: 0.0015}
    cases[COLD] = lambda step: Case(
        store, model, samplers.mint(subsample_size=SIZE, alpha=COLDER, step_size=step, start=0.0)
    )
    lengths = {**lengths, COLD: lengths[MINT]}
    lines, curves = {}, {}
    for name, case_of in cases.items():
        slug = slug_of(name)
        kept = work / f"{slug}-step.txt"
        if name == COLD:
            kept.write_text(str(COLDER_STEP))
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            tried = 600 if name == MINT else 60
            kept.write_text(str(tuned_step(case_of, first[name], ACCEPTANCE, tried, rounds=5)))
        case = case_of(float(kept.read_text()))
        used = chains(
            work / slug, case, draws=lengths[name],
            count=runs if name in (MINT, COLD) else max(1, min(runs, 3)), threads=threads,
            reduce=lambda theta: reduce(found, theta),
        )  # fmt: skip
        lines[name], curves[name] = line_of(used, lengths[name], case.sampler.step_size, found)
    t, normal = normality(found, lengths, work)
    figures.digits(t, curves, n, pictures / "digits.png")
    return {
        "rows": n, "m": SIZE, "alpha": ALPHA, "temperature": temperature, "methods": lines,
        "colder_temperature": cases[COLD](1.0).sampler.implied_temperature(n),
        "normality": normal,
    }  # fmt: skip


def slug_of(name: str) -> str:
    """Return the name of a method as that of a file."""
    return "digits-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def reduce(found: mnist.Digits, theta: Array) -> Mapping[str, Array]:
    """Return the accuracy of some positions, sums of positions, and the lengths of moves."""
    moves = np.linalg.norm(np.diff(theta, axis=0), axis=1)
    blocks = np.stack([part.mean(axis=0) for part in np.array_split(theta, 20)])
    return {
        "accuracy": mnist.accuracy(found, theta[::EVERY]),
        "moves": np.array([[moves.sum(), (moves > 0.0).sum()]]),
        "blocks": blocks.astype(np.float32),
    }


def line_of(
    used: Chains, draws: int, step: float, found: mnist.Digits
) -> tuple[dict[str, Any], tuple[Array, Array, Array]]:
    """Return a line of the table, and rows, seconds and accuracy by position tested."""
    right = used.values["accuracy"]
    at = np.arange(1, right.shape[1] * EVERY + 1, EVERY, dtype=float)
    rows = np.broadcast_to(at * used.means["n_rows"], right.shape)
    seconds = at / draws * used.seconds[:, None]
    blocks = used.values["blocks"]
    last = blocks[:, int(WINDOW * blocks.shape[1]) :].mean(axis=1)
    reached = {}
    for level in LEVELS:
        hit = right >= level
        reached[str(level)] = None
        if hit.any(axis=1).all():
            place = hit.argmax(axis=1)[:, None]
            reached[str(level)] = [
                float(np.median(np.take_along_axis(values, place, axis=1)))
                for values in (rows, seconds)
            ]
    line = {
        "runs": len(right), "draws": draws, "step": step,
        "acceptance": used.means["acceptance_rate"],
        "move": float(np.divide(*used.values["moves"].sum(axis=(0, 1)))),
        "rows": used.means["n_rows"],
        "milliseconds": float(1e3 * used.seconds.mean() / draws),
        "variance": used.means["log_lik_variance"], "off_normal": used.means["decision_error"],
        "accuracy": float(right[:, -right.shape[1] // 5 :].mean()),
        "best": float(right.max(axis=1).mean()),
        "of_mean": float(mnist.accuracy(found, last).mean()),
        "of_all": float(mnist.accuracy(found, last.mean(axis=0, keepdims=True))[0]),
        "reached": reached,
    }  # fmt: skip
    return line, (rows, seconds, right)


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
