"""Figures of draws in a report: intervals of coefficients, and ranks by chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, rankdata

from streammc.plots.axes import ACCENT, CHAINS, GRID, INK, MUTED, plain

_BINS: Final = 20
_LONGEST: Final = 28
"""Characters of a label in a figure; longer ones are cut in the middle."""


def draw_intervals(
    ax: Any, statistics: Mapping[str, Mapping[str, float | None]], labels: Sequence[str]
) -> Any:
    """Draw median and 5 % to 95 % interval of parameters, from the top down."""
    plain(ax)
    ax.grid(False, axis="y")
    for place, label in enumerate(labels):
        entry = statistics[label]
        low, median, high = (entry[name] for name in ("q5", "median", "q95"))
        if low is None or median is None or high is None:
            continue
        ax.plot([low, high], [place, place], color=ACCENT, linewidth=2.0, solid_capstyle="butt")
        ax.plot([median], [place], color=ACCENT, marker="o", markersize=4)
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    ax.set_yticks(range(len(labels)), [shortened(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    return ax


def draw_ranks(ax: Any, draws: NDArray[np.float64], title: str) -> Any:
    """Draw how the draws (chain, draw) of each chain rank among all.

    Chains that agree have flat lines: ranks of independent draws lie in the grey band in 99 % of
    the bins (Vehtari et al. 2021, section 4.2). A single chain is cut into halves, as for R-hat.
    """
    plain(ax)
    ax.grid(False)
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.stack([draws[0, :half], draws[0, -half:]])
    chains, n = draws.shape
    bins = min(_BINS, max(n // 5, 2))
    ranks = (rankdata(draws).reshape(chains, n) - 0.5) / draws.size
    low, high = (binom.ppf(share, n, 1.0 / bins) for share in (0.005, 0.995))
    ax.fill_between([0.0, 1.0], low, high, color=GRID, linewidth=0)
    for chain, row in enumerate(ranks):
        counts, edges = np.histogram(row, bins=bins, range=(0.0, 1.0))
        ax.stairs(counts, edges, color=CHAINS[chain % len(CHAINS)], linewidth=1.0)
    ax.set_ylim(0.0, None)
    ax.set_yticks([])
    ax.set_title(shortened(title), fontsize="small", color=INK)
    return ax


def shortened(label: str) -> str:
    """Return a label of at most 28 characters, cut in the middle."""
    half = (_LONGEST - 3) // 2
    return label if len(label) <= _LONGEST else f"{label[:half]}...{label[-half:]}"
