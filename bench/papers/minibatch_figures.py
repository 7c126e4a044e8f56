"""Figures of the two minibatch papers as small PNG pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.measures import Array
from bench.papers.mixture_posterior import Grid

ORANGE = "#c77c11"
COLOURS = (GREEN, BLUE, ORANGE, RED)
LEVELS = (-8.0, -6.0, -4.0, -3.0, -2.0, -1.0, -0.5, -0.1)


def clouds(grid: Grid, draws: dict[str, Array], path: Path) -> None:
    """Draw the contours of the log posterior and the draws (k, 2) of each method."""
    figure, axes = new_figure(
        1, len(draws) + 1, 2.3 * (len(draws) + 1), 3.2, sharex=True, sharey=True
    )
    for column, panel in enumerate(axes[0]):
        panel.contour(
            grid.centres_1, grid.centres_2, grid.log_density.T, LEVELS,
            colors=GREY if column else GREEN, linewidths=0.5 if column else 0.9, linestyles="-",
        )  # fmt: skip
        panel.set_xlabel("$\\theta_1$", fontsize=8)
    axes[0, 0].set_title("log posterior", fontsize=9)
    axes[0, 0].set_ylabel("$\\theta_2$", fontsize=8)
    for panel, (name, points) in zip(axes[0, 1:], draws.items(), strict=True):
        panel.plot(
            points[:, 0],
            points[:, 1],
            "o",
            color=GREEN,
            ms=2.2,
            mew=0,
            alpha=min(0.35, 600.0 / len(points)),
        )
        panel.set_title(name, fontsize=9)
    axes[0, 0].set_xlim(grid.edges_1[0], grid.edges_1[-1])
    axes[0, 0].set_ylim(grid.edges_2[0], grid.edges_2[-1])
    save(figure, path)


def sizes(found: dict[str, Array], path: Path, rows: int) -> None:
    """Draw histograms of the minibatch sizes, both axes logarithmic and shared."""
    smallest = min(values.min() for values in found.values())
    edges = np.geomspace(smallest * 0.9, rows * 1.15, 36)
    figure, axes = new_figure(1, len(found), 2.5 * len(found), 2.5, sharex=True, sharey=True)
    for panel, (name, values) in zip(axes[0], found.items(), strict=True):
        panel.hist(values.ravel(), bins=edges, color=GREEN, lw=0)
        panel.axvline(values.mean(), color=RED, lw=1)
        panel.set_title(f"{name}\nmean {values.mean():,.1f}", fontsize=8)
        panel.set_xlabel("rows of a decision", fontsize=8)
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(0.7, None)
    axes[0, 0].set_ylabel("decisions", fontsize=8)
    save(figure, path)


def against_rows(panel: Any, rows: Array, values: Array, colour: str, label: str) -> None:
    """Draw mean and standard deviation over trials of values (trial, k) at rows (trial, k)."""
    low, high = rows[:, 0].max(), rows[:, -1].min()
    at = np.geomspace(low, high, 160)
    curves = np.stack([np.interp(at, r, v) for r, v in zip(rows, values, strict=True)])
    middle, spread = curves.mean(axis=0), curves.std(axis=0)
    panel.fill_between(at, middle - spread, middle + spread, color=colour, alpha=0.2, lw=0)
    panel.plot(at, middle, color=colour, lw=1.2, label=label)


def accuracy(panels: dict[str, dict[str, tuple[Array, Array]]], dropped: Any, path: Path) -> None:
    """Draw accuracy against rows consumed, and what dropping the temperature does (figure 3).

    ``panels``: by data set and method, rows and accuracy, each (trial, draw); ``dropped``: by
    data set, accuracy (trial, draw), and the iteration of the drop.
    """
    figure, axes = new_figure(1, len(panels) + bool(dropped), 3.3 * (len(panels) + 1), 3.0)
    for panel, (title, methods) in zip(axes[0], panels.items(), strict=False):
        for colour, (name, (rows, values)) in zip(COLOURS, methods.items(), strict=False):
            against_rows(panel, rows, values, colour, name)
        panel.set_xscale("log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("rows consumed", fontsize=8)
        panel.set_ylim(0.45, 1.0)
    axes[0, 0].set_ylabel("accuracy on the test set", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False, loc="lower right")
    if dropped:
        panel, (curves, iteration) = axes[0, -1], dropped
        for colour, (name, values) in zip(COLOURS, curves.items(), strict=False):
            at = np.arange(1, values.shape[1] + 1)
            middle, spread = values.mean(axis=0), values.std(axis=0)
            panel.fill_between(at, middle - spread, middle + spread, color=colour, alpha=0.2, lw=0)
            panel.plot(at, middle, color=colour, lw=1.0, label=name)
        panel.axvline(iteration, color=GREY, ls="--", lw=1)
        panel.set_title("mh-minibatch, T = 100, then 1", fontsize=9)
        panel.set_xlabel("samples", fontsize=8)
        panel.set_ylim(0.45, 1.0)
        panel.legend(fontsize=7, frameon=False, loc="lower right")
    save(figure, path)


def violations(
    adaptive: Array, spread: Array, counts: dict[str, Array], sizes_: Array, path: Path
) -> None:
    """Draw minibatch sizes, estimated standard deviations, and violations by size."""
    figure, axes = new_figure(1, 3, 9.0, 2.7)
    left, middle, right = axes[0]
    edges = np.arange(100, 701, 200)
    left.hist(np.minimum(adaptive.ravel(), 600), bins=edges, color=GREEN, lw=0, rwidth=0.9)
    left.set_xticks([200, 400, 600], ["200", "400", "600\nand more"])
    left.set_title("mh-austere: rows of a decision", fontsize=9)
    middle.hist(spread[np.isfinite(spread)], bins=60, color=GREEN, lw=0)
    middle.axvline(1.2, color=RED, lw=1)
    middle.set_title("mh-fixed, m = 200: std(Δ')", fontsize=9)
    for colour, (name, values) in zip(COLOURS, counts.items(), strict=False):
        right.errorbar(
            sizes_, values.mean(axis=0), values.std(axis=0), color=colour, marker="o", ms=4,
            lw=1, label=name,
        )  # fmt: skip
    right.set_yscale("symlog", linthresh=10)
    right.set_ylim(0, None)
    right.set_title("decisions with std(Δ') ≥ 1.2", fontsize=9)
    right.set_xlabel("m", fontsize=8)
    right.legend(fontsize=7, frameon=False)
    save(figure, path)


def logistic(
    curves: dict[str, tuple[Array, Array, Array]], by_size: dict[int, tuple[Array, Array]],
    path: Path,
) -> None:  # fmt: skip
    """Draw accuracy and log-likelihood against rows, and accuracy against the minibatch size.

    ``curves``: rows, accuracy and log-likelihood, each (trial, draw); ``by_size``: by iteration,
    the sizes and the accuracies (trial, size).
    """
    figure, axes = new_figure(1, 3, 9.6, 2.9)
    for colour, (name, (rows, right, likelihood)) in zip(COLOURS, curves.items(), strict=False):
        against_rows(axes[0, 0], rows, right, colour, name)
        against_rows(axes[0, 1], rows, likelihood, colour, name)
    for panel, title in zip(axes[0], ("accuracy", "log-likelihood of a test row"), strict=False):
        panel.set_xscale("log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("rows consumed", fontsize=8)
    axes[0, 1].legend(fontsize=7, frameon=False, loc="upper left")
    panel = axes[0, 2]
    for colour, (iteration, (at, values)) in zip(COLOURS, by_size.items(), strict=False):
        panel.errorbar(
            at, values.mean(axis=0), values.std(axis=0), color=colour, marker="o", ms=3.5, lw=1,
            label=f"after {iteration:,}",
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set_title("accuracy by m", fontsize=9)
    panel.set_xlabel("m", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower right")
    save(figure, path)
