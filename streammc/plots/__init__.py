"""Plots of what only streammc records: estimates from subsamples, audits, ladders, predictions.

Forest, trace, rank and pair plots are those of ``arviz_plots``, on the run as it is. Each function
here draws into given axes of matplotlib or new ones, and returns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammc.registry import on_first_use

if TYPE_CHECKING:
    from streammc.plots.prediction_plots import plot_by_covariate, plot_roc
    from streammc.plots.run_plots import plot_audit_weights, plot_ladder, plot_statistic

__all__ = [
    "plot_audit_weights",
    "plot_by_covariate",
    "plot_ladder",
    "plot_roc",
    "plot_statistic",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "plot_audit_weights": "run_plots",
        "plot_by_covariate": "prediction_plots",
        "plot_ladder": "run_plots",
        "plot_roc": "prediction_plots",
        "plot_statistic": "run_plots",
    },
)
