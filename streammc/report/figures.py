"""Figures of a report: what they draw, and how they become inline SVG of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, rankdata

from streammc.plots.axes import ACCENT, CHAINS, GRID, INK, LIMIT, MUTED, plain

_VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    **{color: f"--chain-{place}" for place, color in enumerate(CHAINS)},
    LIMIT: "--bad",
    "#000000": "--ink",
}
"""Colours of the plots -> variables of the style sheet, which has them for light and dark."""
_FONTS: Final = "'DejaVu Sans', Verdana, sans-serif"
_STYLE: Final = {
    "svg.fonttype": "none",  # text stays text: sharp, and in the colours of the page
    "text.parse_math": False,  # a dollar in a column name is a dollar
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.facecolor": "none",
    "axes.unicode_minus": False,
}


@dataclass(frozen=True)
class SvgFigure:
    """A figure of the page: its SVG, and the caption below it."""

    svg: str
    caption: str


def svg_figure(
    name: str,
    draw: Callable[[Any], None],
    *,
    height: float,
    text: str,
    caption: str,
    width: float = 5.2,
) -> SvgFigure:
    """Return what ``draw(figure)`` draws as SVG.

    ``name`` is the prefix of the ids in the figure, unique in the page, ``text`` the alternative
    for readers who do not see the figure. Inches; at 5.2 by 72 points an inch a figure fits a
    telephone at half its size.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The browser has glyphs for names that the fonts here lack.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return SvgFigure(_inline(buffer.getvalue(), name, text), caption)


def _inline(document: str, name: str, text: str) -> str:
    """Return the ``svg`` element of a document for use inside a page."""
    body = document[document.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    head, _, rest = body.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    rest = re.sub(r"<style[^>]*>.*?</style>", "", rest, flags=re.S)
    # Inside tags only: the texts between them come from the data.
    rest = re.sub(r"<[^<>]+>", lambda tag: _own(tag[0], name), rest)
    return (
        f'<svg {box[0]} role="img" aria-labelledby="{name}-text" fill="var(--ink)" '
        f'stroke-linejoin="round" stroke-linecap="butt"><title id="{name}-text">'
        f"{escape(text)}</title>{rest.strip()}"
    )


def _own(tag: str, name: str) -> str:
    """Return a tag with the ids, colours and fonts of the page."""
    tag = re.sub(r'(\sid=")', rf"\g<1>{name}-", tag)
    tag = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", tag).replace("xlink:href", "href")
    tag = tag.replace("'DejaVu Sans'", _FONTS)
    for color, variable in _VARIABLES.items():
        tag = re.sub(re.escape(color), f"var({variable})", tag, flags=re.I)
    return tag


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
