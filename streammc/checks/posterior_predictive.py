"""Replicated responses of a thinned set of rows, as ArviZ expects them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.checks.run_draws import RowDensities, run_draws, tile_rows
from streammc.control_variates.bound import check_kinds, resolved
from streammc.diagnostics.derived import as_variables
from streammc.docstrings import documented
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.data_views import by_group, require_trials
from streammc.models.base import ColumnsModel
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.mixed.mixed_model import MixedModel, TableModel
from streammc.models.responses import counts_of_trials
from streammc.models.table_scale import transform
from streammc.numerics.prior import draw_prior, improper
from streammc.prediction import predictors
from streammc.prediction.crossed_effects import CrossedEffects, crossed_effects
from streammc.prediction.effect_draws import draws_of_group
from streammc.prediction.predict import model_of, opened_run, predict
from streammc.prediction.prediction_request import PredictionRequest
from streammc.prediction.predictors import Coefficients, Draws, require_rows, rows_of_run
from streammc.prediction.row_effects import require_checked
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector
from streammc.rng import Role, stream
from streammc.runs import record
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray


_AS_STORED = (0.0, 1.0)


def parts_of_groups(
    bound: TableModel, table: Any, at: Index, rows: Rows, theta: Matrix, seed: int
) -> Matrix:
    """Return (m, S) the part ``z . u`` of the predictor of rows from the effects of their groups.

    The effects are drawn from their exact posterior given theta (S, d) and the rows of the group,
    so that (theta, u) is a draw of the joint posterior; rows of one group share them. ``at`` (m,)
    are the numbers of the ``rows`` in the ``table`` of the model.
    """
    require_checked(table, None)
    groups = np.searchsorted(table.groups.offset, at, side="right") - 1
    part = np.empty((len(at), len(theta)))
    for group in np.unique(groups).tolist():
        u = np.stack(list(draws_of_group(bound, group, theta, _AS_STORED, seed)))
        own = np.flatnonzero(groups == group)
        part[own] = u[:, 0]
        if bound.slope is not None:
            z = rows.X[own, bound.features.index(bound.slope)]
            part[own] += z[:, None] * u[:, 1]
    return part


ROWS: Final = 1000
DRAWS: Final = 1000
GROUP_DRAWS: Final = 200
"""Default number of draws of a mixed model, each with effects of every group."""
_PART_ROWS: Final = 0
_PART_RESPONSES: Final = 1
_PARTS_PRIOR: Final = (2, 3, 4)
"""Parts of the random stream of a check."""


def sampled_rows(n_rows: int, wanted: int, seed: int) -> Index:
    """Return the sorted numbers of ``wanted`` rows, drawn without replacement; or of all."""
    if wanted >= n_rows:
        return np.arange(n_rows)
    rng = stream(seed, 0, Role.CHECK, _PART_ROWS)
    return np.sort(rng.choice(n_rows, wanted, replace=False)).astype(np.int64)


def replicated(model: Model, eta: NDArray[np.float64], weight: Vector, rng: Any) -> Matrix:
    """Return one response (S, m) for each draw and row at predictors ``eta`` (p, m, S)."""
    p, m, draws = eta.shape
    flat = np.ascontiguousarray(eta).reshape(p, m * draws)
    y = model.simulate_trials(flat, weight.repeat(draws), rng)
    return np.ascontiguousarray(np.asarray(y, dtype=np.float64).reshape(m, draws).T)


def _gathered(table: Dataset, wanted: int, seed: int) -> tuple[Index, Rows]:
    """Return rows of weight above 0 by their numbers, of ``wanted`` that are drawn."""
    at = sampled_rows(table.n_rows, wanted, seed)
    rows = allocate_rows(len(at), table.n_features)
    table.rows().gather(at, 1, rows)
    used = np.flatnonzero(rows.weight > 0.0)
    return at[used], Rows(*(part[used] for part in rows))


@documented(predict)
def posterior_predictive(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    *,
    rows: int = ROWS,
    draws: int | None = None,
    seed: int = 0,
    model: Model | None = None,
) -> xarray.DataTree:
    """Draw responses of some rows from the posterior predictive distribution, for ArviZ.

    For row i and draw s, ``y_rep ~ p(y | x_i, theta_s)``. The groups have the names that
    ``arviz_plots.plot_ppc_dist``, ``arviz_stats.loo`` and ``arviz_stats.loo_pit`` expect. Of a
    mixed model the responses are conditional: ``y_rep ~ p(y | x_i, theta_s, u_s)`` with effects
    ``u_s`` of the groups drawn from their exact posterior given ``theta_s``. Where factors cross
    the run keeps the effects of some draws, and these draws are taken.

    Parameters
    ----------
    store : data set, path, table, or None
        The rows of the run, as of ``streammc.score``; or another table with its columns, made with
        ``like`` the store of the run, except for a mixed model.
    rows
        Number of rows, drawn by their number without replacement; a smaller table is taken
        whole. Rows of weight 0 are left out.
    draws
        Number of draws, thinned from all chains together; at least 2. ``None``: 1,000, or 200 of
        a mixed model.
    seed
        Seed of the rows and of the responses.

    Returns
    -------
    xarray.DataTree
        In memory: ``posterior`` (chain, draw, ...), the thinned draws; ``posterior_predictive``
        (chain, draw, row), or ``predictions`` of another table than that of the run, as ArviZ
        names the two; ``observed_data`` (row), where the table has a response; and
        ``log_likelihood`` (chain, draw, row), the logarithm of the density of each response
        times the weight of its row, where ``store`` is that of the run: ``arviz_stats.loo`` leaves
        a row out with all its weight, ``streammc.score`` one of the observations it counts. The
        variable has the name of the response, and ``row`` is the number of the row in the store,
        from 0; of a table, a frame or a file, its position there.

    Raises
    ------
    ConfigError
        If an option is out of range, or ``model`` is not that of the run.
    IdentityError
        If features, offset or the formula of the response differ from those of the run, or the
        table of a mixed model is not that of the run.
    DataError
        If the run is unfinished, or a log-likelihood is not finite.
    ModelError
        If the model has no response that can be simulated, the table has trials and weights, or
        times that are censored.
    RefusedError
        If the run has signs, or a temperature other than 1.
    """
    from streammc.trace.datatree import predictive_tree

    sample = sampled_run(run, store, rows=rows, draws=draws, seed=seed, model=model)
    table, own = sample.table, sample.own
    arrays = _arrays(sample)
    if table.response is None:
        del arrays["observed_data"]
    if table.response is None or not own:
        del arrays["log_likelihood"]
    if not own:
        arrays["predictions"] = arrays.pop("posterior_predictive")
    kept = sample.posterior.numbers
    return predictive_tree(sample.run, kept, _variable(table), sample.at, arrays)


@dataclass(frozen=True, eq=False)
class SampledRun:
    """Some rows of a table, and draws of a run at which their responses are predicted."""

    run: RunDirectory
    model: Model
    """The regression of a row."""
    mixed: MixedModel | CrossedModel | None
    """The model of the run, if it has groups."""
    table: Dataset
    own: bool
    """Whether the table is that of the run."""
    at: Index
    """(m,) numbers of the rows in the table."""
    rows: Rows
    """These rows, of weight above 0."""
    posterior: Draws
    seed: int
    crossed: CrossedEffects | None = None
    """The effects of factors that cross, at the draws of ``posterior``."""

    @cached_property
    def coefficients(self) -> Coefficients:
        """The draws as coefficients of the columns of the table."""
        described = record.describe_design(self.table.attributes)
        for line in predictors.check(self.posterior.design, described):
            warnings.warn(line, stacklevel=5)
        theta = self.posterior.theta
        if self.mixed is not None:
            theta = theta[:, : -self.mixed.n_covariance]
        return predictors.on_table(self.model, theta, None, self.posterior.design, described)

    @cached_property
    def _part(self) -> Matrix | None:
        """(m, S) parts of the predictors from the effects of groups."""
        if self.mixed is None:
            return None
        if self.crossed is not None:
            (part,) = self.crossed.of_rows(self.crossed.groups_at(self.at), self.rows.X)
            return part.mean
        _, bound = by_group(self.table, self.mixed)
        return parts_of_groups(
            bound, self.table, self.at, self.rows, self.posterior.theta, self.seed
        )

    def tiles(self) -> Iterator[tuple[slice, Rows, NDArray[np.float64]]]:
        """Yield the places of some rows, the rows, and their predictors (p, t, S), tile by tile."""
        coefficients, part = self.coefficients, self._part
        step = tile_rows(self.model.n_linear + self.model.n_scalar, coefficients.draws)
        for low in range(0, len(self.at), step):
            here = slice(low, low + step)
            tile = Rows(*(each[here] for each in self.rows))
            eta = coefficients.predictors(tile.X, tile.offset)
            if part is not None:
                eta[0] += part[here]
            yield here, tile, eta

    def response_stream(self) -> np.random.Generator:
        """Return the random numbers of replicated responses."""
        return stream(self.seed, 0, Role.CHECK, _PART_RESPONSES)


def sampled_run(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    *,
    rows: int,
    draws: int | None,
    seed: int,
    model: Model | None,
) -> SampledRun:
    """Return rows of a table and draws of a run; see :func:`posterior_predictive`."""
    check_kinds(store, *(() if model is None else (model,)))
    _require_rows_wanted(rows)
    opened = opened_run(run)
    built = model_of(opened, model)
    mixed = built if isinstance(built, MixedModel | CrossedModel) else None
    if draws is None:
        draws = DRAWS if mixed is None else GROUP_DRAWS
    request = PredictionRequest(draws=draws, seed=seed)
    posterior = run_draws(opened, built, draws)
    if isinstance(built, ColumnsModel):
        raise ModelError(
            f"expected a model of a response, found {built.name!r}, whose observations are the "
            "columns: nothing is predicted; check its draws with arviz_stats"
        )
    table, own = store, store.fingerprint == opened.identity["store"]
    if mixed is not None:
        table, own = rows_of_run(opened, store), True
    _refuse_unknown_responses(built, table)
    require_rows(table, "replicate")
    at, some = _gathered(table, rows, seed)
    regression = built if mixed is None else mixed.inner
    effects: CrossedEffects | None = None
    if isinstance(mixed, CrossedModel):
        described = record.describe_design(table.attributes)
        effects = crossed_effects(opened, mixed, table, request, posterior.design, described)
        posterior = posterior._replace(theta=effects.theta, numbers=effects.numbers)
    return SampledRun(opened, regression, mixed, table, own, at, some, posterior, seed, effects)


def _variable(table: Dataset) -> str:
    """Return the name of the variable of the responses of a table."""
    name = table.response or "y"
    return f"{name}_response" if name in ("chain", "draw", "row") else name


@documented(posterior_predictive)
def prior_predictive(
    model: Model,
    store: Dataset,
    *,
    rows: int = ROWS,
    draws: int = DRAWS,
    seed: int = 0,
) -> xarray.DataTree:
    """Draw responses of some rows from the prior predictive distribution, for ArviZ.

    For row i and draw s, ``theta_s ~ p(theta)`` and ``y_rep ~ p(y | x_i, theta_s)``: what the
    priors say of the response before it is seen. Default priors scale with the data of ``store``.

    Parameters
    ----------
    model
        One of ``streammc.models``, or of your own with ``simulate``; none of groups.
    store
        The rows: what ``streammc.open_store`` or ``from_table`` returned.
    draws
        Number of independent draws, of one chain.

    Returns
    -------
    xarray.DataTree
        In memory: ``prior`` (chain, draw, ...), on the scale of the table; ``prior_predictive``
        (chain, draw, row), for ``arviz_plots.plot_ppc_dist(tree, group="prior_predictive")``; and
        ``observed_data`` (row), where the table has a response.

    Raises
    ------
    ConfigError
        If an option is out of range, or a prior is flat.
    ModelError
        If the model has groups, or no response that can be simulated; or times are censored.
    """
    from streammc.trace.datatree import prior_tree

    check_kinds(store, model)
    _require_rows_wanted(rows)
    PredictionRequest(draws=draws, seed=seed)
    groups = store.groups is not None or bool(store.crossed)
    if isinstance(model, MixedModel | ColumnsModel) or groups:
        raise ModelError(
            f"expected a model of a response without groups, found {model.name!r} for "
            f"{store.address!r}: draw from the prior of a model without them"
        )
    _refuse_unknown_responses(model, store)
    require_rows(store, "replicate")
    bound = resolved(model, store)
    labels = tuple(bound.labels(store.feature_names))
    prior = bound.prior_table(labels)
    flat = [label for label, one in zip(labels, improper(prior), strict=True) if one]
    if flat:
        raise ConfigError(
            f"expected a prior that can be drawn from, found a flat one of {flat[0]!r}: give it a "
            "scale, such as streammc.priors.normal(scale=10.0)"
        )
    streams = [stream(seed, 0, Role.CHECK, part) for part in _PARTS_PRIOR]
    theta = draw_prior(prior, draws, streams)
    design = record.describe_design(store.attributes)
    coefficients = predictors.on_table(bound, theta, None, design, design)
    at, some = _gathered(store, rows, seed)
    responses = np.empty((draws, len(at)))
    rng = stream(seed, 0, Role.CHECK, _PART_RESPONSES)
    step = tile_rows(bound.n_linear + bound.n_scalar, draws)
    for low in range(0, len(at), step):
        here = slice(low, low + step)
        eta = coefficients.predictors(some.X[here], some.offset[here])
        responses[:, here] = replicated(bound, eta, some.weight[here], rng)
    blocks = bound.table_scale(store.feature_names)
    moved, names = transform(bound.constrain(theta)[None], labels, store.attributes, blocks)
    arrays = {"prior_predictive": responses}
    if store.response is not None:
        arrays["observed_data"] = some.y
    variables = as_variables(moved, names, store.feature_names)
    return prior_tree(variables, _variable(store), at, arrays)


def _require_rows_wanted(rows: object) -> None:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ConfigError(f"expected at least 1 row, found rows={rows!r}: give a whole number")


def _refuse_unknown_responses(model: Model, table: Dataset) -> None:
    """Raise ModelError where a store has products of trials and weights, or no times of events."""
    censored = table.attributes.get("censored")
    if censored:
        raise ModelError(
            f"expected times of events, found some that are censored by {censored!r}: replicated "
            "times are those of events, and not comparable; give rows --like the store without "
            "their response to draw such times, and compare log scores"
        )
    trials, weight = (table.attributes.get(name) for name in ("trials", "weight"))
    if model.sees_trials:
        require_trials(model, table)
    if trials and weight and model.of_a_row.takes_trials:
        raise ModelError(
            f"expected trials or weights, found both, {trials!r} and {weight!r}, of which a store "
            f"has the product: ingest the rows without weights, --like {table.address!r}, and "
            "replicate these"
        )


def _arrays(sample: SampledRun) -> dict[str, NDArray[np.float64]]:
    """Return responses (S, m), observed (m,) and log-likelihoods (S, m) of some rows."""
    table, model, coefficients = sample.table, sample.model, sample.coefficients
    where = f"store {table.address!r} (rows counted from 1)"
    densities = RowDensities(model, coefficients, where)
    shape = (coefficients.draws, len(sample.at))
    arrays = {"posterior_predictive": np.empty(shape), "log_likelihood": np.empty(shape)}
    rng = sample.response_stream()
    for here, tile, eta in sample.tiles():
        arrays["posterior_predictive"][:, here] = replicated(model, eta, tile.weight, rng)
        if table.response is not None:
            if model.sees_trials:
                y, weight = counts_of_trials(tile.y, tile.weight)
                tile = tile._replace(y=y, weight=weight)
            log_lik = densities.of_predictors(eta, tile, sample.at[here])
            arrays["log_likelihood"][:, here] = log_lik
    return {**arrays, "observed_data": sample.rows.y}
