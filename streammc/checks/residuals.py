"""Randomised quantile residuals: where each response lies among those that the model replicates."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from streammc.checks.posterior_predictive import SampledRun, replicated, sampled_run
from streammc.docstrings import documented
from streammc.errors import DataError
from streammc.prediction.mean_responses import responses
from streammc.prediction.predict import predict
from streammc.protocols import Dataset, Model
from streammc.rng import Role, stream

if TYPE_CHECKING:
    import xarray

ROWS: Final = 10_000
_PART_TIES: Final = 5
"""Part of the random stream of a check that places responses among equal ones."""


def require_response(sample: SampledRun, what: str) -> None:
    """Raise DataError unless the table has responses of two rows of weight above 0."""
    if sample.table.response is None or len(sample.at) < 2:
        found = "no response" if sample.table.response is None else f"{len(sample.at)} such rows"
        raise DataError(
            f"expected responses of two rows or more of weight above 0 in {sample.table.address!r} "
            f"for {what}, found {found}: give a table that has them"
        )


@documented(predict)
def residuals(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    *,
    rows: int = ROWS,
    draws: int | None = None,
    seed: int = 0,
    model: Model | None = None,
) -> xarray.Dataset:
    """Compute randomised quantile residuals of some rows, standard normal under the true model.

    Response y of a row has B smaller and E equal ones among S replicated responses, one for each
    draw. Then ``u = (B + v (E + 1)) / (S + 1)``, v uniform on (0, 1), is uniform if y is drawn as
    they are, and the residual is ``Phi^-1(u)`` (Dunn and Smyth 1996, with replicated responses in
    place of the distribution function). So they are alike for amounts, counts, shares and 0 and 1.

    Parameters
    ----------
    store : data set, path, table, or None
        As of ``streammc.posterior_predictive``: the rows of the run, or others with its columns.
    rows
        Number of rows, drawn by their number without replacement; a smaller table is taken
        whole. Rows of weight 0 are left out. Memory grows with them and not with the table.
    draws
        Number of draws, thinned from all chains together; at least 2. ``None``: 1,000, or 200 of
        a mixed model.
    seed
        Seed of the rows, the responses and the places among equal ones.

    Returns
    -------
    xarray.Dataset
        By ``row``, its number in the store: ``residual``, ``pit`` (u) and ``mean``, the mean
        response over the draws. Its attributes say how far all are from uniform and normal:
        ``ks`` and ``ks_p_value`` of a Kolmogorov-Smirnov test of ``pit``, and ``residual_mean``
        and ``residual_sd``, 0 and 1 under the true model; above 1 responses vary more than it says.

    Raises
    ------
    ConfigError, IdentityError, DataError, ModelError, RefusedError
        As ``streammc.posterior_predictive``; DataError also if the table has no response.
    """
    from scipy import special, stats

    from streammc.trace.datatree import check_of_rows

    sample = sampled_run(run, store, rows=rows, draws=draws, seed=seed, model=model)
    require_response(sample, "residuals")
    m = len(sample.at)
    pit, mean = np.empty(m), np.empty(m)
    rng, places = sample.response_stream(), stream(seed, 0, Role.CHECK, _PART_TIES).random(m)
    for here, tile, eta in sample.tiles():
        mean[here] = responses(sample.model, eta).mean(axis=1)
        drawn = replicated(sample.model, eta, tile.weight, rng)
        below, equal = (drawn < tile.y).sum(axis=0), (drawn == tile.y).sum(axis=0)
        pit[here] = (below + places[here] * (equal + 1.0)) / (len(drawn) + 1.0)
    residual = special.ndtri(pit)
    test = stats.kstest(pit, "uniform")
    return check_of_rows(
        sample.run,
        sample.at,
        {"residual": ("row", residual), "pit": ("row", pit), "mean": ("row", mean)},
        {
            "store": sample.table.address,
            "model": sample.model.name,
            "response": sample.table.response,
            "draws": sample.coefficients.draws,
            "seed": seed,
            "ks": float(test.statistic),
            "ks_p_value": float(test.pvalue),
            "residual_mean": float(residual.mean()),
            "residual_sd": float(residual.std(ddof=1)),
        },
    )
