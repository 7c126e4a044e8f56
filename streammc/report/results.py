"""Second part of a report: what came out, on the scale of the table first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from streammc.diagnostics.text import AGAINST, factor_text, reference_texts, statistic_text
from streammc.report.asked import ReportRequest
from streammc.report.figures import SvgFigure, draw_intervals, svg_figure

COLUMNS: Final = {
    "mean": "mean",
    "sd": "sd",
    "q5": "5 %",
    "median": "median",
    "q95": "95 %",
    "r_hat": "R-hat",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "mcse_mean": "MCSE",
}
"""Statistic -> heading."""
RATIO_COLUMNS: Final = {"median": "median", "q5": "5 %", "q95": "95 %"}
MOST_ROWS: Final = 200
COEFFICIENT: Final = "coefficient"


class Table(NamedTuple):
    """A table of the page: headings, and rows whose first cell is their name."""

    caption: str
    headings: tuple[str, ...]
    rows: list[list[str]]
    left_out: int = 0
    """Rows beyond the largest number."""
    words: int = 1
    """Number of columns of words, before those of numbers."""


def statistics_table(
    caption: str,
    statistics: Mapping[str, Mapping[str, float | None]],
    units: Mapping[str, str] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Return the table of statistics by parameter, with columns of words for what is known.

    These are the unit, with ``units``, and the reference levels of coefficients.
    """
    words = {} if units is None else {"unit": units}
    if against := reference_texts(references, statistics):
        words = {AGAINST: against, **words}
    rows = []
    for label, entry in list(statistics.items())[:MOST_ROWS]:
        cells = [statistic_text(name, entry.get(name), entry.get("mcse_mean")) for name in COLUMNS]
        rows.append([label, *(texts.get(label, "") for texts in words.values()), *cells])
    headings = ("parameter", *words, *COLUMNS.values())
    left_out = max(len(statistics) - MOST_ROWS, 0)
    return Table(caption, headings, rows, left_out, 1 + len(words))


def ratios_table(ratios: Mapping[str, Any]) -> Table | None:
    """Return the table of ratios per unit of a column; ``None`` if no column changes alone."""
    together = set(ratios.get("only_together", ()))
    shown = {k: v for k, v in ratios["parameters"].items() if k not in together}
    if not shown:
        return None
    kind = str(ratios["kind"])
    against = reference_texts(ratios.get("references"), shown)
    rows = [
        [
            label,
            *([against.get(label, "")] if against else []),
            *(factor_text(entry.get(name)) for name in RATIO_COLUMNS),
        ]
        for label, entry in list(shown.items())[:MOST_ROWS]
    ]
    caption = f"{kind.capitalize()} of one more unit of a column, the others as they are"
    if together:
        caption += (
            f"; {len(together)} columns of bases, interactions and terms that share a column "
            "never change alone"
        )
    headings = ("column", *([AGAINST] if against else []), *RATIO_COLUMNS.values())
    left_out = max(len(shown) - MOST_ROWS, 0)
    return Table(caption, headings, rows, left_out, 2 if against else 1)


def units_of(blocks: Sequence[Mapping[str, Any]], features: Sequence[str]) -> dict[str, str]:
    """Return the units of coefficients by label, from the blocks ``table_scale`` of a run.

    A coefficient is ``log odds ratio per unit of distance`` where its exponential has a name, and
    ``per unit of distance`` elsewhere; an intercept is at 0 of every column.
    """
    units = {}
    for block in blocks:
        if block["rule"] != COEFFICIENT or len(block["labels"]) != len(features):
            continue
        kind = f"log {block['exponential']} " if block["exponential"] else ""
        for label, feature in zip(block["labels"], features, strict=True):
            intercept = feature == "Intercept"
            units[label] = "level, columns at 0" if intercept else f"{kind}per unit of {feature}"
    return units


_MOST_INTERVALS: Final = 30


def tables(request: ReportRequest) -> tuple[list[Table], Table | None]:
    """Return the tables of a run, that of the table's scale first, and the store's scale apart.

    The second is ``None`` where both scales are the same.
    """
    document, attributes = request.document, request.run.attributes
    own, original = document["parameters"], document.get("parameters_original")
    blocks = attributes.get("table_scale") or ()
    units = units_of(blocks, request.run.feature_names)
    references = document.get("references")
    if original is None:
        note = (
            "On the store's scale: the store, which knows the table's, is not at its place, or has "
            "grown since"
        )
        return [statistics_table(note, own, None, references), *_more(document)], None
    first = statistics_table("On the scale of the table's columns", original, units, references)
    apart = None
    if original != own:
        caption = "On the store's scale: columns of mean 0 and sd 1"
        apart = statistics_table(caption, own, None, references)
    return [first, *_more(document)], apart


def _more(document: Mapping[str, Any]) -> list[Table]:
    found = []
    if document.get("ratios"):
        table = ratios_table(document["ratios"])
        found += [] if table is None else [table]
    if document.get("derived"):
        found.append(statistics_table("Computed from the parameters", document["derived"]))
    return found


def figures(request: ReportRequest) -> list[SvgFigure]:
    """Return the figures of intervals: in units of the columns, and of their sd if standardized."""
    own = request.document["parameters"]
    original = request.document.get("parameters_original")
    if original is None or original == own:
        return [_intervals("intervals", own, "on the scale of the table's columns")]
    return [
        _intervals("intervals", original, "on the scale of the table's columns"),
        _intervals("intervals-sd", own, "on the store's scale, so that columns can be compared"),
    ]


def _intervals(
    name: str, statistics: Mapping[str, Mapping[str, float | None]], scale: str
) -> SvgFigure:
    """Return the figure of the intervals of the coefficients; an intercept would dwarf them."""
    slopes = [label for label in statistics if "Intercept" not in label] or list(statistics)
    shown = slopes[:_MOST_INTERVALS]
    left_out = len(statistics) - len(shown)
    more = f"; {left_out} more in the table" if left_out else ""
    widest = max((abs(statistics[label]["mean"] or 0.0) for label in shown), default=0.0)
    return svg_figure(
        name,
        lambda figure: draw_intervals(figure.subplots(), statistics, shown),
        height=0.9 + 0.24 * len(shown),
        text=f"Medians and 5 % to 95 % intervals of {len(shown)} parameters {scale}; the largest "
        f"mean is {widest:.3g} in size. The table has the numbers.",
        caption=f"Medians and 5 % to 95 % intervals {scale}{more}.",
    )
