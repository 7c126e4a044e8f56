"""Figures 1 to 3 of van de Meent et al. 2014 as small PNG pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.tempering.measures import CONVERGED

ORANGE, BLACK = "#c77c11", "#222222"
COLOURS = {"inner": BLACK, "stt": GREEN, "tt": BLUE, "spt": ORANGE, "pt": RED}
MODELS = {"gaussian": "Gaussian mean", "gp": "Gaussian process"}


def run_time(found: dict[str, Any], path: Path) -> None:
    """Draw seconds of a draw against N (figure 1)."""
    figure, axes = new_figure(1, len(found), 3.8 * len(found), 3.1)
    for panel, (model, part) in zip(axes[0], found.items(), strict=True):
        for method, colour in COLOURS.items():
            name = "HMC" if method == "inner" else method
            panel.loglog(
                part["sizes"], part["times"][method]["seconds"], "o-", color=colour, ms=3,
                lw=1.2, label=name,
            )  # fmt: skip
        panel.set_xticks(part["sizes"], [str(n) for n in part["sizes"]])
        panel.minorticks_off()
        panel.set_title(f"{MODELS[model]}, |θ| = {part['dim']}", fontsize=9)
        panel.set_xlabel("N", fontsize=8)
    axes[0, 0].set_ylabel("seconds of a draw", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False)
    save(figure, path)


def convergence(lines: dict[str, dict[str, Any]], title: str, path: Path) -> None:
    """Draw the median R-hat against draws and seconds (figure 2)."""
    figure, axes = new_figure(1, 2, 7.6, 3.1, sharey=True)
    for method, line in lines.items():
        draws = np.array(line["curve"]["draws"], dtype=float)
        rhat = np.array([np.nan if r is None else r for r in line["curve"]["rhat"]], dtype=float)
        name = "HMC" if method == "inner" else method
        for panel, scale in zip(axes[0], (1.0, line["seconds_per_draw"]), strict=True):
            panel.plot(draws * scale, rhat, color=COLOURS[method], lw=1.2, label=name)
    for panel, label in zip(axes[0], ("draws of a chain", "seconds of a chain"), strict=True):
        panel.axhline(CONVERGED, color=GREY, ls="--", lw=1)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(0.97, 8.0)
        panel.set_yticks([1, 1.1, 1.5, 2, 3, 5], ["1", "1.1", "1.5", "2", "3", "5"])
        panel.minorticks_off()
        panel.set_xlabel(label, fontsize=8)
    axes[0, 0].set_ylabel("median R-hat", fontsize=8)
    axes[0, 0].set_title(title, fontsize=9)
    axes[0, 1].legend(fontsize=7, frameon=False)
    save(figure, path)


def against_rows(panels: list[dict[str, Any]], path: Path) -> None:
    """Draw effective draws per second against N; hollow where R-hat is too large (figure 3)."""
    figure, axes = new_figure(1, len(panels), 3.1 * len(panels), 3.1)
    for panel, part in zip(axes[0], panels, strict=True):
        for method, colour in COLOURS.items():
            lines = part["lines"][method]
            rates = [line["rate"] or np.nan for line in lines]
            name = "inner kernel" if method == "inner" else method
            panel.loglog(part["sizes"], rates, "-", color=colour, lw=1.2, label=name)
            for n, rate, line in zip(part["sizes"], rates, lines, strict=True):
                good = line["rhat"] is not None and line["rhat"] < CONVERGED
                fill = colour if good else "white"
                panel.loglog([n], [rate], "o", color=colour, mfc=fill, ms=4)
        panel.set_xticks(part["sizes"], [str(n) for n in part["sizes"]])
        panel.minorticks_off()
        panel.set_title(
            f"{MODELS[part['model']]}, {part['inner']}, |θ| = {part['dim']}", fontsize=9
        )
        panel.set_xlabel("N", fontsize=8)
    axes[0, -1].legend(fontsize=7, frameon=False)
    axes[0, 0].set_ylabel("effective draws a second", fontsize=8)
    save(figure, path)
