"""Plots of what only streammc records: estimates from subsamples, audits, ladders, predictions.

Forest, trace, rank and pair plots are those of ``arviz_plots``, on the run as it is. Each function
here draws into given axes of matplotlib or new ones, and returns them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

_LAZY: Final[dict[str, str]] = {
    "plot_audit_weights": "streammc.plots.run_plots",
    "plot_by_covariate": "streammc.plots.prediction_plots",
    "plot_ladder": "streammc.plots.run_plots",
    "plot_roc": "streammc.plots.prediction_plots",
    "plot_statistic": "streammc.plots.run_plots",
}


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module 'streammc.plots' has no attribute {name!r}: it has {', '.join(_LAZY)}",
            name=name,
            obj=sys.modules[__name__],
        )
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
