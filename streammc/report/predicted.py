"""Fourth part of a report: what the run predicts, from predictions that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streammc.diagnostics.text import number
from streammc.plots.prediction_plots import draw_bands, plot_by_covariate, plot_roc
from streammc.report.figures import SvgFigure, svg_figure
from streammc.shown import value_text
from streammc.trace import facts

if TYPE_CHECKING:
    import xarray as xr


class Predicted(NamedTuple):
    """One group of predictions: where it is, its facts and figures."""

    path: str
    facts: dict[str, str]
    figures: list[SvgFigure]


def predicted(place: int, path: str, predictions: xr.Dataset) -> Predicted:
    """Return facts and figures of the predictions at ``path``, number ``place`` of the page."""
    record = facts(predictions)
    area = record.get("auc")
    shown: dict[str, Any] = {
        "rows": record["rows"],
        "of the store": record["store"],
        "draws": record["draws"],
        "interval": f"{record['interval']:.0%}",
        "log score of a row": record.get("log_score"),
        "area under the ROC curve": area and _area(area, record["quantiles"]),
        "rows of new groups": record.get("new_group_rows"),
    }
    return Predicted(
        path,
        {name: value_text(value) for name, value in shown.items() if value is not None},
        _figures(f"predicted{place}", predictions, record),
    )


def _area(area: Mapping[str, float], ends: list[str]) -> str:
    low, high = ends
    return f"{number(area['mean'])} ({number(area[low])} to {number(area[high])})"


def _figures(name: str, predictions: xr.Dataset, record: Mapping[str, Any]) -> list[SvgFigure]:
    interval = f"{record['interval']:.0%} interval"
    found = []
    if "roc" in predictions:
        area = _area(record["auc"], record["quantiles"])
        found.append(
            svg_figure(
                f"{name}-roc",
                lambda figure: plot_roc(predictions, ax=figure.subplots()),
                height=4.0,
                text=f"ROC curve; the area under it is {area}.",
                caption=f"ROC curve with its {interval} over the draws; dotted: chance.",
            )
        )
    if "group_mean" in predictions:
        column = record["by"]["column"]
        found.append(
            svg_figure(
                f"{name}-groups",
                lambda figure: plot_by_covariate(predictions, ax=figure.subplots()),
                height=3.0,
                text=f"Mean response by {record['by']['groups']} groups of {column}: predicted, "
                "with its interval, and realised.",
                caption=f"Calibration by {column}: mean response of groups of rows, predicted "
                f"with its {interval}, and realised.",
            )
        )
    found.append(
        svg_figure(
            f"{name}-rows",
            lambda figure: draw_bands(figure.subplots(), predictions),
            height=2.8,
            text=f"Mean response of some rows with its {interval}, in the order of the mean.",
            caption=f"Mean response of evenly spaced rows with its {interval}: how sure the "
            "run is of the mean, not of a single response.",
        )
    )
    return found
