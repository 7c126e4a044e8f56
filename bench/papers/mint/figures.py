"""Figures of Li and Wong 2017 as small PNG pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.measures import Array
from bench.papers.minibatch_figures import LEVELS, ORANGE, against_rows
from bench.papers.mixture_posterior import Grid

COLOURS = (GREEN, BLUE, RED, ORANGE)


def mixture(grid: Grid, theta: Array, at: Array, ratio: Array, longest: int, path: Path) -> None:
    """Draw density and contours, and the ratio of the modes (radius, run, k) by iteration."""
    figure, axes = new_figure(1, 3, 9.6, 3.1)
    left, middle, right = axes[0]
    counts, _ = grid.counts(theta)
    lines = {"levels": LEVELS, "linewidths": 0.8, "linestyles": "-"}
    left.contour(grid.centres_1, grid.centres_2, grid.log_density.T, colors=GREY, **lines)
    left.set_title("tempered posterior", fontsize=9)
    middle.pcolormesh(grid.edges_1, grid.edges_2, counts.T, cmap="Greens", rasterized=True)
    middle.contour(grid.centres_1, grid.centres_2, grid.log_density.T, colors=GREY, **lines)
    middle.set_title(f"mint, one run of {len(theta):,}", fontsize=9)
    for panel in (left, middle):
        panel.set_xlabel("$\\theta_1$", fontsize=8)
        panel.set_xlim(-2.0, 3.0)
        panel.set_ylim(-3.8, 3.8)
    left.set_ylabel("$\\theta_2$", fontsize=8)
    for colour, label, values in zip((GREEN, BLUE), ("0.01", "0.1"), ratio, strict=True):
        count = np.maximum(np.isfinite(values).sum(axis=0), 2)
        mean = np.nanmean(values, axis=0)
        error = np.nanstd(values, axis=0) / np.sqrt(count - 1)
        right.errorbar(at, mean, error, color=colour, lw=1, capsize=2, label=f"radius {label}")
    right.axhline(1.0, color="black", ls="--", lw=1)
    right.set_xscale("log")
    right.set_ylim(0.0, 3.0)
    right.set_title("ratio of the modes", fontsize=9)
    right.set_xlabel("iterations", fontsize=8)
    right.legend(fontsize=7, frameon=False)
    save(figure, path)


def digits(t: Array, curves: dict[str, tuple[Array, Array, Array]], rows: int, path: Path) -> None:
    """Draw the histogram of t, and accuracy against passes and seconds (figures 2 and 4).

    ``curves``: rows, seconds and accuracy, each (trial, k), by method.
    """
    figure, axes = new_figure(1, 3, 9.6, 3.0)
    left: Any = axes[0, 0]
    left.hist(t, bins=60, density=True, color=GREEN, alpha=0.6, lw=0)
    grid = np.linspace(t.min(), t.max(), 200)
    left.plot(grid, norm.pdf(grid, t.mean(), t.std()), color=RED, lw=1.2)
    left.set_title("$t = \\sqrt{m}\\,(\\hat\\mu - \\mu)$, and a normal", fontsize=9)
    for colour, (name, (used, seconds, right)) in zip(COLOURS, curves.items(), strict=False):
        against_rows(axes[0, 1], used / rows, right, colour, name)
        against_rows(axes[0, 2], seconds, right, colour, name)
    for panel, title in zip(axes[0, 1:], ("passes over the rows", "seconds"), strict=True):
        panel.set_xscale("log")
        panel.set_xlabel(title, fontsize=8)
        panel.set_ylim(0.45, 1.0)
    axes[0, 1].set_ylabel("accuracy on the test set", fontsize=8)
    axes[0, 1].legend(fontsize=7, frameon=False, loc="lower right")
    save(figure, path)
