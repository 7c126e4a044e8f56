"""Plots of predictions: calibration by a covariate, and the ROC curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streammc.diagnostics.text import interval_heading
from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.plots.axes import ACCENT, CHAINS, MUTED, axes_of, legend, plain
from streammc.trace import facts

if TYPE_CHECKING:
    import xarray as xr


@documented()
def plot_by_covariate(predictions: xr.Dataset, *, ax: Any = None) -> Any:
    """Plot the mean response by groups of a covariate, predicted with its band and realised.

    Parameters
    ----------
    predictions
        From ``predict`` with ``by``.
    ax
        Axes of matplotlib. ``None``: new ones.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If the predictions have no groups, or matplotlib is missing.
    """
    if "group_mean" not in getattr(predictions, "data_vars", ()):
        raise ConfigError(
            "expected predictions by groups of a column, found none: give the result of "
            "predict with by=COLUMN"
        )
    ax = plain(axes_of(ax))
    record = facts(predictions)
    low, high = (predictions[f"group_mean_{end}"].to_numpy() for end in record["quantiles"])
    x, mean = (predictions[name].to_numpy() for name in ("group_covariate", "group_mean"))
    band = interval_heading(record["interval"])
    ax.fill_between(x, low, high, color=ACCENT, alpha=0.25, linewidth=0, label=band)
    ax.plot(x, mean, color=ACCENT, marker=".", label="predicted")
    if "group_realised" in predictions:
        realised = predictions["group_realised"].to_numpy()
        ax.plot(x, realised, color=CHAINS[1], marker="x", linestyle="none", label="realised")
    ax.set_xlabel(str(record["by"]["column"]))
    ax.set_ylabel("mean response")
    legend(ax)
    return ax


@documented()
def plot_roc(predictions: xr.Dataset, *, ax: Any = None) -> Any:
    """Plot the ROC curve of predictions of a binary response, with its band.

    Parameters
    ----------
    predictions
        From ``predict`` on a table that has a response of 0 and 1.
    ax
        Axes of matplotlib. ``None``: new ones.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If the predictions have no ROC curve, or matplotlib is missing.
    """
    if "roc" not in getattr(predictions, "data_vars", ()):
        raise ConfigError(
            "expected predictions with a ROC curve, found none: give those of a table that has "
            "a response of 0 and 1"
        )
    ax = plain(axes_of(ax))
    low, high = (predictions[f"roc_{end}"].to_numpy() for end in facts(predictions)["quantiles"])
    grid, curve = (predictions[name].to_numpy() for name in ("fpr_grid", "roc"))
    at = np.unique(np.linspace(0, len(grid) - 1, 201).round().astype(int))
    ax.fill_between(grid[at], low[at], high[at], color=ACCENT, alpha=0.25, linewidth=0)
    ax.plot(grid[at], curve[at], color=ACCENT)
    ax.plot([0, 1], [0, 1], color=MUTED, linestyle=":")
    ax.set_xlabel("false positive rate")
    ax.set_ylabel("true positive rate")
    ax.set_aspect("equal")
    return ax


def draw_bands(ax: Any, predictions: xr.Dataset, rows: int = 150) -> Any:
    """Draw what is predicted of evenly spaced rows with its band, in the order of the mean."""
    plain(ax)
    record = facts(predictions)
    n = predictions.sizes["row"]
    at = np.unique(np.linspace(0, n - 1, min(n, rows)).round().astype(int))
    some = predictions.isel(row=at)
    if "category" in some.dims:
        some = some.isel(category=-1)
    mean = some["mean"].to_numpy()
    order = np.argsort(mean, kind="stable")
    low, high = (some[end].to_numpy()[order] for end in record["quantiles"])
    x = np.arange(len(order))
    ax.vlines(x, low, high, color=ACCENT, alpha=0.5, linewidth=1.0)
    ax.plot(x, mean[order], color=ACCENT, marker=".", markersize=3, linestyle="none")
    ax.set_xlabel(f"{len(order)} of {n:,} rows, by their mean")
    ax.set_ylabel(what_is_predicted(predictions))
    return ax


def what_is_predicted(predictions: xr.Dataset) -> str:
    """Return what the bands of rows are of: the mean response, or the chance of one category."""
    if "category" not in predictions.dims:
        return "mean response"
    return f"chance of the category {predictions['category'].to_numpy()[-1]}"
