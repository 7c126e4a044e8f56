"""Plots of a ladder: its temperature levels, and how often neighbours exchange states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.plots.axes import ACCENT, CHAINS, axes_of, logarithmic, plain
from streammc.trace import facts

if TYPE_CHECKING:
    import xarray as xr

_RATES: Final = ("swap_rate", "exchange_probability", "jump_rate", "acceptance_rate")
"""Rates of a level to show, the first that a summary has."""


@documented()
def plot_ladder(run: xr.DataTree, *, axes: Sequence[Any] | None = None) -> Any:
    """Plot the levels of a tempered run: inverse temperature, and rate of exchanges.

    Parameters
    ----------
    run
        A finished run of a sampler with temperature levels.
    axes
        Two axes of matplotlib, for the temperatures and for the rates. ``None``: new ones.

    Returns
    -------
    array of matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If the run has no levels, or matplotlib is missing.
    """
    tempering = (facts(run).get("summary") or {}).get("tempering")
    if not tempering:
        raise ConfigError(
            "expected a finished run of a sampler with temperature levels, found another: choose "
            "a run of pt, spt, tt, stt or mintee"
        )
    return draw_ladder(axes_of(axes, rows=2), tempering["levels"])


def draw_ladder(axes: Sequence[Any], levels: Mapping[str, Sequence[float | None]]) -> Any:
    """Draw the levels of ``summary["tempering"]["levels"]``; see :func:`plot_ladder`."""
    upper, lower = (plain(ax) for ax in axes)
    temperature = levels.get("temperature")
    given = levels["beta"] if temperature is None else [1.0 / t for t in temperature if t]
    beta = np.array([np.nan if value is None else value for value in given])
    positive = beta > 0.0
    at = np.arange(len(beta))
    upper.plot(at[positive], beta[positive], color=ACCENT, marker="o", markersize=4)
    logarithmic(upper)
    if not positive.all():
        upper.set_xlabel("the last level is the prior: beta = 0", fontsize="small")
    upper.set_ylabel("beta = 1 / T")
    name = next((name for name in _RATES if name in levels), None)
    if name is not None:
        rates = np.array([np.nan if value is None else value for value in levels[name]])
        # A rate of a pair stands between its levels.
        middle = 0.5 if len(rates) == len(beta) - 1 else 0.0
        lower.bar(np.arange(len(rates)) + middle, rates, width=0.7, color=CHAINS[2])
        lower.set_ylim(0.0, 1.0)
        lower.set_ylabel(name.replace("_", " "))
    lower.set_xlabel("level")
    lower.xaxis.get_major_locator().set_params(integer=True)
    return axes
