"""Figures of matplotlib as inline SVG: colours of the page, a text alternative, unique ids."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from streammc.plots.axes import CHAINS, GRID, INK, LIMIT, MUTED

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

    Parameters
    ----------
    name
        Prefix of the ids in the figure, unique in the page.
    draw
        Draws into a ``matplotlib.figure.Figure``.
    height, width
        Inches; at 5.2 by 72 points an inch a figure fits a telephone at half its size.
    text
        Text alternative, for readers who do not see the figure.
    caption
        Caption in the page.
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
