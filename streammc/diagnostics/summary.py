"""Summary statistics per parameter: moments, quantiles, Monte Carlo errors and R-hat.

R-hat is the larger of the rank-normalised and the folded split R-hat; R-hat and effective
sample sizes are those of Vehtari et al. 2021 (Bayesian Analysis 16, 667-718), as in ArviZ with its
defaults: ``arviz_stats.summary`` of the same run shows the same numbers.
R-hat of a single chain, which ArviZ does not give, compares its halves. For a constant, which
ArviZ treats as a perfect sample, these statistics are ``None``; ``None`` never counts as
converged.

Summaries of draws with signs (Dang et al. 2019, eq. 17).

A signed run samples ``|L^| p(theta) p(u)``: ``L^`` is the likelihood estimated from the units
``u``, and ``s`` is its sign. The posterior mean of ``f`` is ``E[f s] / E[s]``. To first order
(delta method) the error of this ratio of means is the error of the mean of

    h = s (f - mean f) / mean s.

The Monte Carlo error of the mean of ``h`` is that over the chains; the effective sample
size is the posterior variance of ``f`` over the square of that error. It includes the cost of
the signs: a mean sign of 0.5 costs a factor of four or more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.convergence import (
    TAIL,
    ess,
    ess_below,
    ess_sd,
    larger,
    mcse_mean,
    r_hat,
    ratio,
    scores_in_order,
    split,
)
from streammc.diagnostics.quantiles import quantiles
from streammc.diagnostics.text import interval_ends, interval_names
from streammc.docstrings import documented
from streammc.errors import ConfigError, StreammcError
from streammc.settings import INTERVAL, check_interval

if TYPE_CHECKING:
    import xarray as xr


BAND = (0.05, 0.95)
_FEWEST_DRAWS = 4


def ratio_terms(
    values: NDArray[np.float64], sign: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the sign-weighted mean of ``values`` (chain, draw), and the terms h of its error."""
    mean_sign = float(sign.mean())
    mean = float((sign * values).mean()) / mean_sign
    return mean, sign * (values - mean) / mean_sign


def signed_statistics(
    draws: NDArray[np.float64], sign: NDArray[np.float64]
) -> dict[str, float | None]:
    """Return mean, sd, quantiles, MCSE, ESS and R-hat of one parameter (chain, draw), weighted.

    Empty if a draw is not finite or the signs do not sum to more than 0; without MCSE, ESS and
    R-hat for constant draws or under four per chain. ``sd`` is ``None`` if the estimated
    variance is negative, because of too few draws.
    """
    statistics: dict[str, Any] = {}
    if draws.size and np.isfinite(draws).all() and sign.sum() > 0.0:
        mean, terms = ratio_terms(draws, sign)
        square, square_terms = ratio_terms((draws - mean) ** 2, sign)
        weights = sign.ravel()
        q5, median, q95 = quantiles(draws.ravel(), (BAND[0], 0.5, BAND[1]), weights)
        statistics = {"mean": mean, "median": median, "q5": q5, "q95": q95}
        statistics["sd"] = np.sqrt(square) if square > 0.0 else None
        if draws.shape[1] >= _FEWEST_DRAWS and draws.min() < draws.max():
            with np.errstate(all="ignore"):
                error = float(mcse_mean(terms))
                statistics["mcse_mean"] = error
                statistics["ess_bulk"] = square / error**2 if square > 0.0 else None
                tails = []
                for p, edge in zip(BAND, (q5, q95), strict=True):
                    below = (draws <= edge).astype(np.float64)
                    _, below_terms = ratio_terms(below, sign)  # of variance p (1 - p)
                    tails.append(p * (1 - p) / float(mcse_mean(below_terms)) ** 2)
                statistics["ess_tail"] = min(tails)
                fourth, _ = ratio_terms((draws - mean) ** 4, sign)
                spread = fourth - square**2
                known = square > 0.0 and spread > 0.0
                statistics["ess_sd"] = (
                    spread / float(mcse_mean(square_terms)) ** 2 if known else None
                )
                # R-hat of the sampled draws, and of the terms of their signed mean.
                statistics["r_hat"] = max(float(r_hat(draws)), float(r_hat(terms)))
    return statistics


Statistics = dict[str, float | None]

_NAMES: Final = (
    "mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "ess_sd", "r_hat", "q5", "median", "q95",
)  # fmt: skip
_TOGETHER: Final = 2**17
"""Draws of parameters that are computed together: temporary arrays of some 20 MB."""
_ESS_IN_ALL = 400
_ESS_PER_CHAIN = 100


def least_size(entry: Mapping[str, float | None]) -> float | None:
    """Return the least effective sample size of a parameter: bulk, tails, squared deviations.

    ``None`` where one is unknown. Runs of an earlier version have none of squared deviations.
    """
    sizes = [entry.get("ess_bulk"), entry.get("ess_tail"), entry.get("ess_sd", math.inf)]
    return None if None in sizes else min(size for size in sizes if size is not None)


def least_ess(chains: int) -> int:
    """Return the least effective sample size for reliable means and quantiles.

    100 per chain, and at least 400 in total (Vehtari et al. 2021).
    """
    return max(_ESS_IN_ALL, _ESS_PER_CHAIN * chains)


@documented()
def summarize(
    tree: xr.DataTree, *, plain: bool = False, interval: float = INTERVAL
) -> dict[str, Statistics]:
    """Return the statistics of every parameter of a run, by ArviZ label.

    Draws of a signed run are weighted by the signs of their likelihood estimates.

    Parameters
    ----------
    tree
        A tree with a group ``posterior`` of dimensions (chain, draw, ...).
    plain
        ``True`` ignores the signs; refused if a sign is negative.
    interval
        Probability of an interval whose ends are added, unless they are there: 0.95 adds ``q2.5``
        and ``q97.5``.

    Returns
    -------
    dict
        label -> ``mean, sd, mcse_mean, ess_bulk, ess_tail, ess_sd, r_hat, q5, median,
        q95``.
        ``None`` for an undefined statistic: errors, sample sizes and R-hat of a constant or
        of fewer than four draws per chain, and all statistics of values that are not finite.

    Raises
    ------
    StreammcError
        If ``plain`` is true and a sign is negative.
    ConfigError
        If ``interval`` is not a number between 0 and 1.
    """
    check_interval(interval)
    theta, labels = draws_and_labels(tree)
    sign = signs(tree)
    if plain and sign is not None:  # one is negative
        raise StreammcError(
            f"expected draws without a sign, found {np.mean(sign < 0.0):.2%} of them negative: a "
            "plain summary would be wrong; use the weighted one (streammc diagnose, or plain=False)"
        )
    found = summarize_draws(theta, labels, sign)
    if interval == INTERVAL:
        return found
    ends = interval_statistics(theta, labels, interval, sign)
    return {label: {**entry, **ends[label]} for label, entry in found.items()}


def signs(tree: xr.DataTree) -> NDArray[np.float64] | None:
    """Return the signs (chain, draw) of a run; ``None`` if it has none, or none is negative."""
    stats = tree["sample_stats"] if "sample_stats" in tree.children else None
    if stats is None or "sign" not in stats.data_vars:
        return None
    return negative_signs(stats["sign"].transpose("chain", "draw").to_numpy())


def negative_signs(sign: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Return the signs if one is negative, else ``None``."""
    return sign if sign is not None and (sign < 0.0).any() else None


def draws_and_labels(tree: xr.DataTree) -> tuple[NDArray[np.float64], list[str]]:
    """Return the posterior draws (chain, draw, d) and one label per column.

    The columns are in the order of the model's theta if the run recorded it, else as stored.
    """
    if "posterior" not in getattr(tree, "children", ()):
        raise ConfigError(
            f"expected a tree with a group 'posterior', found {type(tree).__name__}: "
            "pass what streammc.open_run(path) returned"
        )
    columns: dict[str, NDArray[np.float64]] = {}
    posterior = tree["posterior"]
    for name, variable in posterior.data_vars.items():
        inner = [dim for dim in variable.dims if dim not in ("chain", "draw")]
        values = variable.transpose("chain", "draw", *inner).to_numpy()
        coordinates = [
            variable.coords[dim].to_numpy() if dim in variable.coords else np.arange(n)
            for dim, n in zip(inner, values.shape[2:], strict=True)
        ]
        for place in np.ndindex(values.shape[2:]):
            entry = ", ".join(str(c[i]) for c, i in zip(coordinates, place, strict=True))
            columns[f"{name}[{entry}]" if inner else str(name)] = values[(..., *place)]
    recorded = written_by(tree).get("labels", ())
    labels = list(recorded) if {*recorded} == {*columns} else list(columns)
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    theta = np.empty((chains, draws, len(labels)))
    for column, label in enumerate(labels):
        theta[:, :, column] = columns[label]
    return theta, labels


def written_by(tree: xr.DataTree) -> Mapping[str, Any]:
    """Return what streammc wrote about the run of a tree; empty for another tree."""
    written = tree.attrs.get("streammc", {})
    document: Mapping[str, Any] = json.loads(written) if isinstance(written, str) else written
    return document


def summarize_draws(
    theta: NDArray[np.float64], labels: Sequence[str], sign: NDArray[np.float64] | None = None
) -> dict[str, Statistics]:
    """Return statistics of draws (chain, draw, d) by label, weighted by ``sign`` (chain, draw)."""
    by_label: dict[str, Statistics] = {}
    together = max(1, _TOGETHER // max(1, theta.shape[0] * theta.shape[1]))
    for first in range(0, len(labels), together):
        here = labels[first : first + together]
        draws = np.ascontiguousarray(np.moveaxis(theta[:, :, first : first + together], -1, 0))
        each: list[Mapping[str, Any]]
        if sign is not None:
            each = [signed_statistics(values, sign) for values in draws]
        else:
            arrays = {name: values.tolist() for name, values in _statistics(draws).items()}
            each = [{name: arrays[name][k] for name in arrays} for k in range(len(here))]
        for label, values in zip(here, each, strict=True):
            by_label[label] = {name: _number(values.get(name)) for name in _NAMES}
    return by_label


def interval_statistics(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    interval: float,
    sign: NDArray[np.float64] | None = None,
) -> dict[str, Statistics]:
    """Return the ends of the intervals of draws (chain, draw, d) by label, as ``q2.5``.

    ``sign`` (chain, draw) are weights. ``None`` for draws that are not finite.
    """
    weights = None if sign is None else sign.ravel()
    flat = np.moveaxis(theta, -1, 0).reshape(len(labels), theta[..., :1].size)
    names, levels = interval_names(interval), interval_ends(interval)
    found: dict[str, Statistics] = {}
    for label, draws in zip(labels, flat, strict=True):
        known = draws.size > 0 and np.isfinite(draws).all()
        ends = quantiles(draws, levels, weights) if known else (None, None)
        found[label] = {name: _number(end) for name, end in zip(names, ends, strict=True)}
    return found


def _statistics(draws: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the statistics (p,) of p parameters (p, chain, draw) by name; NaN if undefined."""
    p, chains, n = draws.shape
    statistics = {name: np.full(p, np.nan) for name in _NAMES}
    flat = draws.reshape(p, chains * n)
    known = np.isfinite(flat).all(axis=-1) if flat.size else np.zeros(p, bool)
    if not known.any():
        return statistics
    if not known.all():
        draws, flat = draws[known], flat[known]
    varies = np.ptp(flat, axis=-1) > 0.0 if n >= _FEWEST_DRAWS else np.zeros(len(flat), bool)
    statistics["mean"][known] = flat.mean(axis=-1)
    if chains * n > 1:
        statistics["sd"][known] = flat.std(axis=-1)  # divisor n, as ArviZ
    levels = (0.05, 0.5, 0.95, 1.0 - TAIL, TAIL)
    q5, median, q95, *edges = np.quantile(flat, levels, axis=-1)
    statistics["q5"][known], statistics["median"][known], statistics["q95"][known] = q5, median, q95
    if varies.any():
        if not varies.all():
            draws, edges = draws[varies], [edge[varies] for edge in edges]
        place = np.flatnonzero(known)[varies]
        with np.errstate(all="ignore"):
            statistics["mcse_mean"][place] = mcse_mean(draws)
            statistics["ess_tail"][place] = ess_below(draws, np.array(edges))
            statistics["ess_sd"][place] = ess_sd(draws)
            statistics["ess_bulk"][place], statistics["r_hat"][place] = _by_rank(draws)
    return statistics


def _by_rank(
    draws: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``ess_bulk`` and R-hat (p,) of (p, chain, draw), which share one sort."""
    halves = split(draws)
    flat = halves.reshape(len(halves), -1)
    order = np.argsort(flat, axis=-1)
    ordered = np.take_along_axis(flat, order, -1)
    bulk = scores_in_order(ordered, order).reshape(halves.shape)
    middle = flat.shape[1] // 2  # of an even number
    folded = np.abs(ordered - 0.5 * (ordered[:, middle - 1 : middle] + ordered[:, [middle]]))
    # Two runs, one falling and one rising: a stable sort merges them.
    again = np.argsort(folded, axis=-1, kind="stable")
    places = np.take_along_axis(order, again, -1)
    far = scores_in_order(np.take_along_axis(folded, again, -1), places).reshape(halves.shape)
    return ess(bulk), larger(ratio(bulk), ratio(far))


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
