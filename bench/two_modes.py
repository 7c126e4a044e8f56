"""A posterior with two modes, 20 standard deviations apart, with 0.7 and 0.3 of its mass.

Two Gaussians with free means, known variance 1 and known weights 0.552 and 0.448, and 400 rows:
the second mode has the means exchanged and is lower because the weights are not equal. The truth
is an integral over a grid. Every chain starts in the larger mode. Run as
``python bench/two_modes.py [--draws N] [--write]``; ``--write`` renews the table and the picture
in ``docs/measurements/tempering.md``.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import streammc
from streammc import samplers
from streammc.errors import SamplingWarning
from streammc.models import gaussian_mixture
from streammc.priors import normal
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory

N, FIRST, WEIGHT, PRIOR = 400, 216, 0.552, 3.0
"""Rows, those of the first component, its weight in the model, prior scale of the means."""
CHAINS = 8
WALK: dict[str, Any] = {"n_levels": 8, "beta_min": 0.04, "explorer": "random-walk"}
SAMPLERS: dict[str, tuple[Any, float]] = {
    "hmc": (samplers.hmc(), 0.5),
    "pt": (samplers.pt(**WALK), 1.0),
    "spt": (samplers.spt(**WALK), 1.0),
    "tt": (samplers.tt(**WALK, inner_steps=2), 1.0),
    "stt": (samplers.stt(**WALK, inner_steps=4), 1.0),
    "mintee": (samplers.mintee(explorer="random-walk", growth=1.8, inner_steps=4), 2.0),
}
"""Each with its draws, relative to what is asked for."""


class Truth(NamedTuple):
    """What the posterior is, by summing over a grid."""

    weight: float
    """Of the mode whose first mean is the smaller one."""
    apart: float
    """Distance of the modes along a coordinate, in its standard deviation there."""
    means: np.ndarray
    """(g,) both axes of the grid."""
    density: np.ndarray
    """(g, g) unnormalised, at most 1."""


def observations() -> np.ndarray:
    """Return the (400,) rows."""
    rng = np.random.default_rng(1)
    return np.r_[rng.normal(-1.0, 1.0, FIRST), rng.normal(1.0, 1.0, N - FIRST)]


def problem() -> tuple[Dataset, Model]:
    """Return rows and model."""
    data = streammc.from_arrays(observations()[:, None], np.zeros(N), feature_names=["x"])
    model = gaussian_mixture(weights=[WEIGHT, 1.0 - WEIGHT], prior=normal(PRIOR))
    return data, model


def truth(points: int = 401, limit: float = 2.0) -> Truth:
    """Sum the posterior over a grid, by NumPy alone."""
    means = np.linspace(-limit, limit, points)
    first, second = np.meshgrid(means, means, indexing="ij")
    log_density = -0.5 * (first**2 + second**2) / PRIOR**2
    for x in observations():
        log_density += np.logaddexp(
            math.log(WEIGHT) - 0.5 * (x - first) ** 2,
            math.log(1.0 - WEIGHT) - 0.5 * (x - second) ** 2,
        )
    density = np.exp(log_density - log_density.max())
    here = density * (first < second)
    there = density - here
    mean = (here * first).sum() / here.sum()
    sd = math.sqrt((here * first**2).sum() / here.sum() - mean**2)
    apart = ((there * first).sum() / there.sum() - mean) / sd
    return Truth(float(here.sum() / density.sum()), float(apart), means, density)


class Found(NamedTuple):
    """What a sampler says about the weight of the larger mode."""

    weight: float
    error: float
    """Monte Carlo standard error, the larger of that by autocorrelation and that by the spread
    of the chains; 0 where no chain ever left its mode."""
    crossings: int
    rows: float
    """Log-likelihoods of rows per draw, over those of a density."""
    seconds: float
    draws: np.ndarray
    """(chains, draws, 2)."""


def run(
    sampler: Any, draws: int, *, chains: int = CHAINS, seed: int = 3, warmup: int = 1000
) -> Found:
    """Draw, and look at which of the two means is the smaller one."""
    from arviz_stats import ess

    data, model = problem()
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        report = run_job(
            RunRequest(data, model, sampler, draws=draws, warmup=warmup, chains=chains, seed=seed)
        )
    seconds = time.perf_counter() - begun
    means = RunDirectory.open(report.path).draws_matrix()
    first = (means[..., 0] < means[..., 1]).astype(float)
    error = 0.0
    if 0.0 < first.mean() < 1.0:
        error = float(first.std() / math.sqrt(ess(first, method="mean")))
        error = max(error, float(first.mean(axis=1).std(ddof=1) / math.sqrt(chains)))
    evaluated = open_run(report.path)["sample_stats"]["n_rows"].values.mean() / N
    crossings = int((np.diff(first, axis=1) != 0.0).sum())
    return Found(float(first.mean()), error, crossings, float(evaluated), seconds, means)


def picture(found: dict[str, Found], right: Truth, path: Path) -> None:
    """Draw one panel per sampler: draws over contours of the posterior."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    levels = np.exp(-0.5 * np.array([4.0, 2.0]) ** 2)
    for panel, (name, one) in zip(panels.flat, found.items(), strict=False):
        some = one.draws.reshape(-1, 2)
        some = some[:: max(len(some) // 3000, 1)]
        panel.plot(*some.T, ".", ms=1.5, color="#2a7f3e", alpha=0.4, rasterized=True)
        panel.contour(right.means, right.means, right.density.T, levels, colors="#c0392b",
                      linewidths=0.8)  # fmt: skip
        panel.set_title(name, fontsize=10)
        panel.text(
            0.96, 0.95,
            f"larger mode {one.weight:.3f} ± {one.error:.3f}\nby quadrature {right.weight:.3f}",
            transform=panel.transAxes, ha="right", va="top", fontsize=8,
        )  # fmt: skip
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in list(panels.flat)[len(found) :]:
        panel.set_axis_off()
    figure.supxlabel("mean of the first component", fontsize=9)
    figure.supylabel("mean of the second component", fontsize=9)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Print one line per sampler."""
    # Not at the top: a script's own folder is on the path, that of a test is not.
    from page import MEASUREMENTS, machine, publish

    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--samplers", nargs="*", default=list(SAMPLERS))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    right = truth()
    lines = [
        "| sampler | draws | larger mode | error | z | crossings | N rows per draw | seconds |",
        "|---|---|---|---|---|---|---|---|",
        f"| by quadrature | | {right.weight:.4f} | | | | | |",
    ]
    print(f"modes {right.apart:.1f} sd apart", *lines, sep="\n", flush=True)
    found = {}
    for name in arguments.samplers:
        sampler, share = SAMPLERS[name]
        draws = round(arguments.draws * share)
        one = found[name] = run(sampler, draws)
        z = f"{(one.weight - right.weight) / one.error:.1f}" if one.error else "-"
        lines.append(
            f"| `{name}` | {CHAINS} × {draws:,} | {one.weight:.4f} | {one.error:.4f} | {z} "
            f"| {one.crossings:,} | {one.rows:.1f} | {one.seconds:.0f} |"
        )
        print(lines[-1], flush=True)
    if arguments.plot or arguments.write:
        picture(found, right, arguments.plot or MEASUREMENTS / "two-modes.png")
    if arguments.write:
        lines += ["", f"{machine()}; `python bench/two_modes.py --write`."]
        publish("tempering.md", "two modes", lines)


if __name__ == "__main__":
    main()
