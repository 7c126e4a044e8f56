"""Predictions for a table from the draws of a run, in one pass over its rows."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.bound import PASS_OPTIONS, as_recorded, check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.likelihood.data_views import require_trials
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction import predictors
from streammc.prediction.crossed_effects import crossed_effects
from streammc.prediction.mean_responses import NormalRules
from streammc.prediction.prediction_request import BINS, INTEGRATE, PredictionRequest
from streammc.prediction.predictive import GroupedPredictTask, PredictTask, Totals
from streammc.prediction.predictors import load_draws
from streammc.prediction.roc import calibration, curves, groups, is_binary, thresholds
from streammc.prediction.row_effects import (
    UNKNOWN,
    RowEffects,
    default_draws,
    label_text,
    row_effects,
)
from streammc.protocols import Dataset, Matrix, Model
from streammc.runs import record
from streammc.runs.record import registered_model
from streammc.settings import INTERVAL
from streammc.trace.addresses import given_path
from streammc.trace.row_arrays import Column, RowArrays
from streammc.trace.row_tables import ZARR, output_format, require_zarr
from streammc.trace.run_directory import RunDirectory
from streammc.unfinished import Prefix, temporary_folder

if TYPE_CHECKING:
    import xarray


_SEARCHED: Final = 1 << 16
"""Rows in which an example of a new label is looked for."""


def require_predictable(model: Model, request: PredictionRequest) -> None:
    """Refuse a model that predicts no response from columns, and options that it does not have."""
    if isinstance(model, MixedModel | CrossedModel):
        return
    if request.new_groups != INTEGRATE:
        raise ConfigError(
            f"expected new_groups with a run of a mixed model, found one of {model.name!r} without "
            "groups: leave new_groups out"
        )
    if not model.n_linear:
        raise ConfigError(
            f"expected a model with a linear predictor, found {model.name!r}: it predicts no "
            "response from columns; use a run of another model"
        )


def categories_of(model: Model, request: PredictionRequest) -> int:
    """Return the number of categories whose probabilities are predicted; 0: the mean response.

    ConfigError where there are no categories, or with groups of a column.
    """
    regression: Model = model.of_a_row
    if not regression.takes_levels and request.probabilities:
        raise ConfigError(
            "expected probabilities of a model of categories, such as ordinal, found one of "
            f"{regression.name!r}, whose mean response is predicted: leave probabilities out"
        )
    if not (request.probabilities or regression.nominal):
        return 0
    if request.by is not None:
        raise ConfigError(
            f"expected no groups of {request.by!r} with probabilities of categories, found both: "
            "groups compare mean responses; leave by out"
        )
    assert regression.levels is not None
    return regression.levels


def mostly_new_groups(effects: Any, new_rows: int) -> list[str]:
    """Return a warning where more than half of the rows with labels are of new groups."""
    if effects is None or effects.index is None or 2 * new_rows <= effects.table.n_rows:
        return []
    table, known = effects.table, effects.index
    labels = table.row_groups(0, min(table.n_rows, _SEARCHED))
    new = np.flatnonzero(known.find(labels) == UNKNOWN)
    such = f", such as {label_text(labels[new[0]])!r}" if len(new) else ""
    return [
        f"{new_rows:,} of {table.n_rows:,} rows of {table.address!r} belong to groups that the "
        f"run has not seen{such}; one of the run is {known.example()!r}: if the groups are the "
        "same, write their labels alike"
    ]


GROUP: Final = "group"
"""Column of a table with the label of the group of each row."""
CATEGORY: Final = "category"
"""Dimension of the probabilities of categories."""


def write_predictions(
    run: RunDirectory,
    model: Model,
    table: Dataset,
    path: str | os.PathLike[str],
    request: PredictionRequest,
) -> dict[str, Any]:
    """Write the predictions of a run for a table, see :func:`predict`; return facts as JSON.

    They are ``rows``, ``draws``, ``interval``, ``mean_sign``, ``auc``, ``log_score``, ``weight``,
    ``by``, ``row_id``, ``seconds`` and, if there are any, ``warnings``; of a table its
    ``fingerprint``.
    """
    began = time.perf_counter()
    if output_format(path) != ZARR and request.by is not None:
        raise ConfigError(
            f"expected a path that ends in .zarr with --by {request.by!r}, found "
            f"{os.fspath(path)!r}: a table has rows alone, and no groups of a column; leave out "
            "--by, or write zarr"
        )
    require_predictable(model, request)
    categories = categories_of(model, request)
    predictors.require_rows(table, "predict")
    if model.sees_trials and table.response is not None:
        require_trials(model, table)
    posterior = load_draws(run, model, request.draws, request.trained_on, request.weights)
    described = record.describe_design(table.attributes)
    notes = predictors.check(posterior.design, described)
    regression, theta = model, posterior.theta
    effects: Any = None
    if isinstance(model, MixedModel):
        theta, effects = row_effects(run, model, table, posterior, request, described)
        regression, theta = model.inner, theta[:, : -model.n_covariance]
    elif isinstance(model, CrossedModel):
        effects = crossed_effects(run, model, table, request, posterior.design, described)
        regression, theta = model.inner, effects.theta[:, : -model.n_covariance]
    coefficients = predictors.on_table(
        regression, theta, posterior.weights, posterior.design, described
    )
    scored = table.response is not None
    covariate, sampled = None, False
    seed, pass_options = request.seed, (request.scheduler, request.progress)
    if request.by is not None:
        covariate, sampled = groups(table, request.by, request.bins, seed, *pass_options)
    cuts = None
    if scored and not categories and is_binary(regression):
        spread, new = 0.0, None
        if effects is not None:
            spread = effects.spread if effects.known is not None else 0.0
            new = None if effects.same else _means_of_new(regression, effects)
        cuts = thresholds(regression, coefficients, table, seed, spread, new)
    first = table.row_ids(0, 1)
    kind = None if first is None else "string" if first.dtype.kind == "S" else "int64"
    if kind is None:
        notes.append(
            f"the rows of {table.address} were moved when it was made, and no row ids kept: "
            "predictions cannot be joined with its table; ingest it again"
        )
    names = ("mean", *request.names)
    labels = None if output_format(path) == ZARR else table.row_groups(0, 1)
    of_each = Column("float64", (CATEGORY,), (categories,)) if categories else Column()
    columns = dict.fromkeys(names, of_each)
    if labels is not None:
        columns = {GROUP: Column("string" if labels.dtype.kind == "S" else "int64"), **columns}
    with RowArrays(
        path, columns, table.n_rows, table.piece_rows(), kind, overwrite=request.overwrite
    ) as writer:
        if kind is not None:
            write_ids(writer, table)
        for start in range(0, 0 if labels is None else table.n_rows, writer.chunk_rows):
            part = table.row_groups(start, start + writer.chunk_rows)
            assert part is not None
            writer.write_ids(start, part, GROUP)
        where = f"store {table.address!r} (rows counted from 1 in its own order)"
        settings = (
            *(regression, coefficients, request.ends, names, writer.target, where),
            *(scored, cuts, covariate, categories),
        )
        task = PredictTask(*settings)
        if effects is not None:
            task = GroupedPredictTask(*settings, effects=effects)
        totals: Totals = table.reduce(task, scheduler=request.scheduler, progress=request.progress)
        scores, arrays = _scores(task, totals, request)
        if categories:
            arrays[CATEGORY] = (CATEGORY,), np.arange(categories)
        notes += mostly_new_groups(effects, int(totals.new_rows[0]))
        if request.by is not None and scores["by"] is not None:
            scores["by"] = {
                "column": request.by,
                "groups": scores["by"],
                "quantiles_sampled": sampled,
            }
        facts: dict[str, Any] = {
            "rows": table.n_rows,
            "draws": coefficients.draws,
            "interval": request.interval,
            "quantiles": list(request.names),
            "mean_sign": posterior.mean_sign,
            **scores,
            "run": run.place,
            "store": table.address,
            "store_fingerprint": table.fingerprint,
            "row_id": None if kind is None else table.attributes.get("row_id", "position"),
            **({"categories": categories} if categories else {}),
            **({} if effects is None else {"new_group_rows": int(totals.new_rows[0])}),
            **({"warnings": notes} if notes else {}),
        }
        facts["seconds"] = time.perf_counter() - began
        return facts | writer.commit(facts, arrays)


def _means_of_new(model: Model, effects: RowEffects) -> Callable[[Any, Any], Matrix]:
    """Return the mean responses of rows of new groups as a function of predictors and design."""
    rules = NormalRules(model)

    def means(eta: NDArray[np.float64], X: Matrix) -> Matrix:
        step = -(-len(effects.theta) // eta.shape[2])
        return rules.means(eta, effects.spread_of_new(X)[:, ::step])

    return means


def _scores(
    task: PredictTask, totals: Totals, request: PredictionRequest
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the scores and the arrays of ROC curve and calibration from the totals of a pass."""
    facts: dict[str, Any] = {"auc": None, "log_score": None, "weight": None, "by": None}
    arrays: dict[str, Any] = {}
    band = (request.ends, request.names, task.coefficients.weights)
    if task.scored:
        score, weight, lost = totals.scores
        known = lost == 0.0 and weight > 0.0
        facts["log_score"] = float(score / weight) if known else None
        facts["weight"] = float(weight)
    if task.thresholds is not None and (totals.histogram[0].sum(axis=0) > 0.0).all():
        own, facts["auc"] = curves(totals.histogram, task.thresholds.edges, *band)
        arrays |= own
    if task.covariate is not None:
        observed = task.scored and not task.model.censored  # a censored time is no observation
        own = calibration(totals.groups.T, task.covariate.edges, *band, observed)
        arrays |= own
        facts["by"] = len(own["group_mean"][1])
    return facts, arrays


def write_ids(writer: RowArrays, table: Dataset) -> None:
    """Write the row ids of a table, one chunk at a time."""
    for start in range(0, table.n_rows, writer.chunk_rows):
        ids = table.row_ids(start, start + writer.chunk_rows)
        assert ids is not None
        writer.write_ids(start, ids)


def opened_run(run: str | os.PathLike[str] | xarray.DataTree) -> RunDirectory:
    """Return the run at a path, or that of a tree which was opened from it.

    ConfigError if the tree has no path.
    """
    known_path = isinstance(run, str | os.PathLike)
    folder = run if known_path else getattr(run, "encoding", {}).get("source")
    if folder is None:
        raise ConfigError(
            "expected the path of a run, or a run opened from one, found another tree: give a path"
        )
    return RunDirectory.open(folder)


def model_of(run: RunDirectory, given: Model | None) -> Model:
    """Return the model of a run, rebuilt from its record, or as given where it is that one.

    ConfigError if the given model is another; StoreError if none is given and the model is the
    user's own.
    """
    known = run.identity["model"]
    built = registered_model(known) if given is None else as_recorded(given, known)
    if built.describe() != known:
        raise ConfigError(
            f"expected the model of the run {str(run.path)!r}, found another: {built.name!r}; "
            "leave model out, or give that of the run"
        )
    return built


def result_path(path: str | os.PathLike[str] | None, prefix: Prefix, name: str) -> str | Path:
    """Return where a result is written: ``path``, or in a folder that the process removes."""
    return temporary_folder(prefix) / name if path is None else given_path(path)


@documented(PASS_OPTIONS)
def predict(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    path: str | os.PathLike[str] | None = None,
    *,
    model: Model | None = None,
    draws: int | None = None,
    interval: float = INTERVAL,
    by: str | None = None,
    bins: int = BINS,
    seed: int = 0,
    weights: NDArray[np.float64] | None = None,
    trained_on: Dataset | None = None,
    probabilities: bool = False,
    new_groups: str = INTEGRATE,
    overwrite: bool = False,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Predict the rows of a table from the draws of a run, in one pass and constant memory.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    store : data set, path, or table
        The table, with the columns of the run: a data set, made with ``like`` the store of the run
        if that is standardised or has a formula; a store by its path; or a table as of
        ``streammc.from_table``, such as a data frame. Scores need a response.
    path
        zarr group to make. ``None``: a temporary folder, removed when the process ends. Tables
        (.csv, .parquet) are written by the command line.
    model
        The model of the run; needed for a model of your own.
    draws
        Number of draws to use, thinned from all chains together; at least 2. ``None``: 200, or
        100 of a mixed model.
    interval
        Probability of the bands, between 0 and 1, with equal tails: 0.9 gives ``q5`` and
        ``q95``.
    by
        Column whose values form groups for calibration: a feature, or the argument of a
        ``bs()`` of the formula. ``None``: no groups.
    bins
        Number of groups of that column, of equal size.
    seed
        Seed of the sample of rows from which thresholds are computed, and groups of a table of
        more than 8 million rows.
    weights : array (chain, draw), or None
        Weights of the draws; ``None`` takes the signs of a signed run.
    trained_on
        The data set of the run; needed if an earlier version of streammc sampled it, and for
        the groups of a mixed model in another table.
    probabilities
        Predict the probabilities of the categories in place of their mean number; of
        ``multinomial``, which has no mean, always.
    new_groups : {'integrate', 'refuse'}
        What to do with rows of groups that the run of a mixed model has not seen: integrate over
        the distribution of effects, or refuse them.
    overwrite
        Replace an earlier result at ``path``, once the new one is complete. Without it ``path``
        must not exist.

    Returns
    -------
    xarray.Dataset
        ``mean``, ``q5``, ``q95`` (row), in the order of the store, and ``row_id``; for a binary
        response the ROC curve; with ``by`` the groups. Attributes: ``auc``, ``log_score`` and a
        record of the options. Probabilities have the dimension ``category``. For a data frame
        (pandas, polars, pyarrow, DuckDB, Dask, Ibis, or a
        mapping), without ``path`` and ``by``, a frame of its kind instead, with a row for each of
        its rows, and of each category: ``row_id``, ``mean``, and the ends of the interval named as
        in ArviZ, such as
        ``eti90_lb`` and ``eti90_ub``. Of a lazy frame it is lazy.

    Raises
    ------
    IdentityError
        If features, offset or the formula of the response differ from those of the run, or
        ``path`` exists.
    DataError
        If the run is unfinished, or a row cannot be predicted.
    ModelError
        If the model has no mean response, or the response is outside its support.
    RefusedError
        If the mean sign is below 0.2.
    """
    from streammc.trace.datatree import open_rows

    require_zarr(path)
    check_kinds(store, *(() if model is None else (model,)))
    check_progress(progress)
    if trained_on is not None:
        check_kinds(trained_on)
    opened = opened_run(run)
    built = model_of(opened, model)
    request = PredictionRequest(
        draws=default_draws(built) if draws is None else draws,
        interval=interval,
        by=by,
        bins=bins,
        seed=seed,
        weights=weights,
        trained_on=trained_on,
        probabilities=probabilities,
        new_groups=new_groups,
        overwrite=overwrite,
        scheduler=scheduler,
        progress=progress,
    )
    target = result_path(path, "streammc-predict-", "predictions.zarr")
    facts = write_predictions(opened, built, store, target, request)
    for line in facts.get("warnings", []):
        warnings.warn(line, stacklevel=2)
    return open_rows(target)
