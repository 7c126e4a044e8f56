"""Calibration of predicted chances: observed rates by bins and by isotonic regression."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from streammc.checks.posterior_predictive import replicated, sampled_run
from streammc.checks.residuals import require_response
from streammc.docstrings import documented
from streammc.errors import ConfigError, ModelError
from streammc.prediction.mean_responses import responses
from streammc.prediction.predict import predict
from streammc.prediction.roc import is_binary
from streammc.protocols import Dataset, Index, Model, Vector
from streammc.settings import INTERVAL

if TYPE_CHECKING:
    import xarray

ROWS: Final = 20_000
BINS: Final = 10
_MOST_BINS: Final = 1000


@documented(predict)
def calibration(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    *,
    bins: int = BINS,
    rows: int = ROWS,
    draws: int | None = None,
    interval: float = INTERVAL,
    seed: int = 0,
    model: Model | None = None,
) -> xarray.Dataset:
    """Compare the chances that a model predicts with the rates that are observed.

    Rows are binned by their mean chance of a 1 over the draws, each bin with about as many rows.
    The interval of a bin is of the rates of replicated responses: the observed rate is inside where
    the model is right (Bröcker and Smith 2007). Beside it stands the rate by isotonic regression of
    the responses on the chances, which needs no bins (CORP, Dimitriadis, Gneiting and Jordan 2021),
    and the Brier score that it divides.

    Parameters
    ----------
    store : data set, path, table, or None
        As of ``streammc.posterior_predictive``: the rows of the run, or others with its columns.
    bins
        Number of bins, at most 1,000; fewer where many rows have one chance.
    rows
        Number of rows, drawn by their number without replacement; a smaller table is taken
        whole. Rows of weight 0 are left out.
    draws
        Number of draws, thinned from all chains together; at least 2. ``None``: 1,000, or 200 of
        a mixed model.
    interval
        Probability of the intervals.
    seed
        Seed of the rows and of the responses.

    Returns
    -------
    xarray.Dataset
        By ``bin``: ``predicted``, the mean chance; ``observed``, the rate; ``low`` and ``high``,
        the interval of the rate; ``rows`` and ``weight``. By ``row``, its number in the store:
        ``mean``, the chance, and ``recalibrated``, that by isotonic regression. In the attributes
        ``p_value``, of the squared distances of all bins against those of replicated responses;
        ``brier``, the mean squared error, which is ``miscalibration - discrimination +
        uncertainty``.

    Raises
    ------
    ConfigError, IdentityError, DataError, ModelError, RefusedError
        As ``streammc.posterior_predictive``; DataError also if the table has no response, and
        ModelError if responses are neither 0 or 1 nor shares of trials.
    """
    from scipy.optimize import isotonic_regression

    from streammc.trace.datatree import check_of_rows

    if type(bins) is not int or not 1 <= bins <= _MOST_BINS:
        raise ConfigError(
            f"expected bins between 1 and {_MOST_BINS}, found {bins!r}: give one in this range"
        )
    if not (isinstance(interval, float) and 0.0 < interval < 1.0):
        raise ConfigError(
            f"expected an interval between 0 and 1, found {interval!r}: give one such as {INTERVAL}"
        )
    sample = sampled_run(run, store, rows=rows, draws=draws, seed=seed, model=model)
    if not (is_binary(sample.model) or sample.model.sees_trials):
        raise ModelError(
            "expected responses of 0 and 1 or shares of trials, whose chance is predicted, found "
            f"the model {sample.model.name!r}: "
            + (
                "compare log scores, streammc.score"
                if sample.model.takes_levels
                else "its responses have residuals, streammc.residuals"
            )
        )
    require_response(sample, "calibration")
    y, weight, m = sample.rows.y, sample.rows.weight, len(sample.at)
    chance = np.empty(m)
    for here, _, eta in sample.tiles():
        chance[here] = responses(sample.model, eta).mean(axis=1)
    edges = np.unique(np.quantile(chance, np.arange(1, bins) / bins))
    of_bin = np.searchsorted(edges, chance, side="right")
    kept, of_bin = np.unique(of_bin, return_inverse=True)
    totals = _by_bin(of_bin, len(kept), weight)
    drawn = np.zeros((sample.coefficients.draws, len(kept)))
    rng = sample.response_stream()
    for here, tile, eta in sample.tiles():
        own = replicated(sample.model, eta, tile.weight, rng) * tile.weight
        drawn += own @ (of_bin[here, None] == np.arange(len(kept)))
    drawn /= totals
    predicted, observed = (_by_bin(of_bin, len(kept), weight * x) / totals for x in (chance, y))
    low, high = np.quantile(drawn, [0.5 - interval / 2.0, 0.5 + interval / 2.0], axis=0)
    spread = np.maximum(drawn.var(axis=0), 1e-300)
    away = (np.square(drawn - predicted) / spread).sum(axis=1)
    found = float((np.square(observed - predicted) / spread).sum())
    _, place = np.unique(chance, return_inverse=True)
    of_chance = np.bincount(place, weights=weight)
    rates = np.bincount(place, weights=weight * y) / of_chance
    recalibrated = isotonic_regression(rates, weights=of_chance).x[place]

    def brier(of: Vector | float) -> float:
        return float(weight @ np.square(y - of) / weight.sum())

    scores = brier(chance), brier(recalibrated), brier(float(weight @ y / weight.sum()))
    return check_of_rows(
        sample.run,
        sample.at,
        {
            "predicted": ("bin", predicted),
            "observed": ("bin", observed),
            "low": ("bin", low),
            "high": ("bin", high),
            "rows": ("bin", np.bincount(of_bin)),
            "weight": ("bin", totals),
            "mean": ("row", chance),
            "recalibrated": ("row", recalibrated),
        },
        {
            "store": sample.table.address,
            "model": sample.model.name,
            "response": sample.table.response,
            "draws": sample.coefficients.draws,
            "interval": interval,
            "seed": seed,
            "p_value": float(((away >= found).sum() + 1) / (len(away) + 1)),
            "brier": scores[0],
            "miscalibration": scores[0] - scores[1],
            "discrimination": scores[2] - scores[1],
            "uncertainty": scores[2],
        },
    )


def _by_bin(of_bin: Index, bins: int, values: Vector) -> Vector:
    """Return the sums (bins,) of values (m,)."""
    return np.asarray(np.bincount(of_bin, weights=values, minlength=bins), dtype=np.float64)
