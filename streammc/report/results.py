"""Second part of a report: what came out, on the scale of the table first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streammc.report.draw_figures import draw_intervals
from streammc.report.parameter_tables import Table, ratios_table, statistics_table, units_of
from streammc.report.report_request import ReportRequest
from streammc.report.svg_figure import SvgFigure, svg_figure

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
    """Return the figures of intervals: on the table's scale, and per sd where that differs."""
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
