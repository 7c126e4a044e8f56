"""Plots of a run: statistics of its draws, weights of its audit, levels of its ladder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.plots.axes import ACCENT, CHAINS, INK, LIMIT, axes_of, legend, logarithmic, plain
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


_POINTS: Final = 100
"""Points of a line: draws are averaged in as many groups."""
_DECADES: Final = 30.0
"""Ratio of the largest to the smallest value above which the axis is logarithmic."""


@documented()
def plot_statistic(
    run: xr.DataTree,
    statistic: str = "log_lik_variance",
    *,
    limit: float | None = None,
    ax: Any = None,
) -> Any:
    """Plot a statistic of the draws over the iterations, a line for each chain.

    The default is the variance of the log-likelihood estimate: the sampled density of ``hmc-ecs``
    is close to the posterior where it is far below 1.

    Parameters
    ----------
    run
        A run, from ``sample`` or ``open_run``.
    statistic
        A variable of its group ``sample_stats``; every point of a line is the mean of a hundredth
        of the draws.
    limit
        Value of a dashed line.
    ax
        Axes of matplotlib. ``None``: new ones.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If the run has no such statistic, or matplotlib is missing.
    """
    if "sample_stats" not in getattr(run, "children", ()):
        raise ConfigError(
            f"expected a run with the group 'sample_stats', found {type(run).__name__}: "
            "pass what streammc.open_run(path) returned"
        )
    stats = run["sample_stats"].data_vars
    if statistic not in stats:
        raise ConfigError(
            f"expected a statistic of the draws, found {statistic!r}: choose from "
            f"{', '.join(sorted(map(str, stats)))}"
        )
    values = run["sample_stats"][statistic].transpose("chain", "draw").to_numpy()
    return draw_statistic(axes_of(ax), np.asarray(values, dtype=float), statistic, limit)


def draw_statistic(ax: Any, values: NDArray[np.float64], name: str, limit: float | None) -> Any:
    """Draw a statistic (chain, draw) over the draws; see :func:`plot_statistic`."""
    plain(ax)
    draws = values.shape[1]
    edges = np.unique(np.linspace(0, draws, min(draws, _POINTS) + 1).round().astype(int))
    middles = 0.5 * (edges[:-1] + edges[1:] - 1)
    shown = []
    for chain, row in enumerate(values):
        with np.errstate(invalid="ignore"):
            means = np.add.reduceat(row, edges[:-1]) / np.diff(edges)
        color = CHAINS[chain % len(CHAINS)]
        ax.plot(middles, means, color=color, linewidth=1.0, label=f"chain {chain}")
        shown.append(means[np.isfinite(means)])
    every = np.concatenate([*shown, [] if limit is None else [limit]])
    if every.size and every.min() > 0.0 and every.max() > _DECADES * every.min():
        logarithmic(ax)
    if limit is not None:
        ax.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.0, label="limit")
    ax.set_xlabel("draw")
    ax.set_ylabel(name.replace("_", " "))
    if len(values) <= len(CHAINS):
        legend(ax, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
    return ax


@documented()
def plot_audit_weights(run: xr.DataTree, *, ax: Any = None) -> Any:
    """Plot the importance weights of the audit of a run, relative to their mean.

    A draw with weight 1 counts as it is. Weights near 1 say that the sampled density is the
    posterior; a few large ones that it misses a part.

    Parameters
    ----------
    run
        An audited run, from ``sample`` or ``open_run``.
    ax
        Axes of matplotlib. ``None``: new ones.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If the run has no audit, or matplotlib is missing.
    """
    if "audit" not in getattr(run, "children", ()):
        raise ConfigError(
            "expected an audited run, found one without an audit: run 'streammc audit' on it"
        )
    return draw_weights(axes_of(ax), run["audit"]["log_weight"].to_numpy())


def draw_weights(ax: Any, log_weight: NDArray[np.float64]) -> Any:
    """Draw a histogram of the weights of ``log_weight`` (chain, draw), relative to their mean."""
    plain(ax)
    weight = np.exp(log_weight - log_weight.max()).ravel()
    ax.hist(weight / weight.mean(), bins=30, color=ACCENT)
    ax.axvline(1.0, color=INK, linewidth=1.0)
    ax.set_xlabel("weight of a draw / mean weight")
    ax.set_ylabel("draws")
    return ax
