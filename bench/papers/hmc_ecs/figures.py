"""Figures 1, 2, 4, 5, 7, 8 and 9 of the paper as small PNG pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.hmc_ecs.accounting import FULL
from bench.papers.measures import Array, Run


def _short(name: str) -> str:
    return name.replace(", ", "\n", 1)


def densities(runs: dict[str, Run], methods: list[str], labels: list[str], path: Path) -> None:
    """Draw the marginal densities of four parameters, in sd of HMC (figures 1 and 4)."""
    full = runs[FULL]
    mean, variance = full.moments()
    chosen = np.sort(np.random.default_rng(4).choice(len(mean), 4, replace=False))
    figure, axes = new_figure(
        len(methods), 4, 9.0, 1.15 * len(methods) + 0.4, sharex="col", sharey=True
    )
    grid = np.linspace(-4.5, 4.5, 200)
    for row, name in enumerate(methods):
        run = runs[name]
        for column, j in enumerate(chosen):
            panel = axes[row, column]
            centre, scale = mean[j], np.sqrt(variance[j])
            panel.plot(grid, _kde((full.draws[..., j] - centre) / scale, grid), color=RED, lw=1.6)
            weight = None if run.sign is None else run.sign.ravel()
            mine = (run.draws[..., j] - centre) / scale
            panel.plot(grid, _kde(mine, grid, weight), color=GREEN, lw=1.2)
            panel.set_yticks([])
            panel.set_ylim(0, 0.7)
            if row == 0:
                panel.set_title(labels[j], fontsize=8)
        axes[row, 0].set_ylabel(_short(name), fontsize=7, rotation=0, ha="right", va="center")
    figure.supxlabel("posterior sd of full-data HMC; red HMC, green the method", fontsize=8)
    save(figure, path)


def _kde(values: Array, grid: Array, weight: Array | None = None) -> Array:
    flat = values.ravel()
    if flat.std() < 1e-6:
        return np.zeros_like(grid)
    step = max(len(flat) // 4000, 1)
    weights = None if weight is None or (weight > 0).all() else np.maximum(weight[::step], 0.0)
    found: Array = gaussian_kde(flat[::step], weights=weights)(grid)
    return found


def moments(runs: dict[str, Run], methods: list[str], path: Path) -> None:
    """Draw means and variances relative to those of HMC (figures 2, 5 and 9).

    What is outside of the panels is drawn as a triangle at their edge.
    """
    mean, variance = runs[FULL].moments()
    figure, axes = new_figure(2, len(methods), max(1.5 * len(methods), 5.0), 3.9, sharey="row")
    for column, name in enumerate(methods):
        found = runs[name].moments()
        upper, lower = axes[:, column]
        upper.set_title(_short(name), fontsize=8)
        place = np.argsort(np.argsort(mean)).astype(float)
        _points(upper, place, (found[0] - mean) / np.sqrt(variance), (-4.0, 4.0), 0.0)
        lower.set_xscale("log")
        lower.set_yscale("log")
        _points(lower, variance, np.maximum(found[1] / variance, 1e-300), (0.03, 30.0), 1.0)
        lower.set_yticks([0.1, 1.0, 10.0], ["0.1", "1", "10"])
        lower.minorticks_off()
        upper.set_xlabel("coefficient, by mean", fontsize=7)
        lower.set_xlabel("variance of HMC", fontsize=7)
    axes[0, 0].set_ylabel("difference of means,\nsd of HMC", fontsize=8)
    axes[1, 0].set_ylabel("variance over\nthat of HMC", fontsize=8)
    save(figure, path)


def _points(panel: Any, x: Array, y: Array, limits: tuple[float, float], level: float) -> None:
    panel.axhline(level, color=RED, lw=1)
    inside = (y > limits[0]) & (y < limits[1])
    panel.plot(x[inside], y[inside], "o", color=GREEN, ms=3, alpha=0.7, mew=0)
    margin = 1.25 if limits[0] > 0 else 1.0
    edges = np.where(y <= limits[0], limits[0] * margin, limits[1] / margin)
    for beyond, mark in ((y <= limits[0], "v"), (y >= limits[1], "^")):
        panel.plot(x[beyond], edges[beyond], mark, color=GREEN, ms=4, alpha=0.7, mew=0)
    panel.set_ylim(*limits)


def scaling(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw step size and acceptance against dimension (figure 7)."""
    figure, axes = new_figure(1, 2, 7.2, 2.9)
    d = np.array(sorted({r["d"] for r in lines}), dtype=float)
    left, right = axes[0]
    start = np.mean([r["step"] for r in lines if r["d"] == d[0]])
    left.plot(d, start * (d / d[0]) ** -0.25, color=GREY, lw=1.2, label="$d^{-1/4}$, HMC")
    left.plot(
        d, start * (d / d[0]) ** (-1 / 3), color=GREY, lw=1.2, ls=":", label="$d^{-1/3}$, Langevin"
    )
    for order, colour, mark in ((1, BLUE, "s"), (2, GREEN, "o")):
        mine = [r for r in lines if r["order"] == order]
        where = [r["d"] for r in mine]
        left.plot(
            where, [r["step"] for r in mine], mark, color=colour, ms=5, label=f"order {order}"
        )
        right.plot(where, [r["acceptance"] for r in mine], mark + "-", color=colour, ms=5, lw=1)
    right.axhline(0.8, color=GREY, lw=1.2)
    right.set_ylim(0.5, 1.0)
    left.set_yscale("log")
    ticks = [0.2, 0.4, 0.8, 1.6]
    left.set_yticks(ticks, [str(t) for t in ticks])
    left.set_ylim(0.15, 2.0)
    left.minorticks_off()
    for panel, title in ((left, "step size"), (right, "acceptance; target 0.8")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(d, [f"{int(v)}" for v in d])
        panel.set_xlabel("dimension", fontsize=8)
        panel.set_title(title, fontsize=9)
    left.legend(fontsize=7, frameon=False, loc="lower left")
    save(figure, path)


def variances(found: dict[int, dict[str, Any]], training: int, burn_in: int, path: Path) -> None:
    """Draw the variance of the estimate along the iterations (figure 8)."""
    figure, axes = new_figure(1, len(found), 9.0, 2.6)
    for panel, (order, entry) in zip(axes[0], sorted(found.items()), strict=True):
        variance = entry["variance"]
        panel.plot(variance, color=GREEN, lw=0.6)
        panel.axvline(training, color=GREY, ls="--", lw=1)
        panel.axvline(training + burn_in, color=GREY, lw=1)
        panel.set_yscale("log")
        panel.set_title(f"order {order}", fontsize=9)
        panel.set_xlabel("iteration", fontsize=8)
    axes[0, 0].set_ylabel("variance of the estimate", fontsize=8)
    save(figure, path)
