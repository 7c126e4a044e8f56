"""Checks and draws for predictions of the rows of groups from the run of a mixed model."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammc.errors import ConfigError, IdentityError, RefusedError
from streammc.likelihood.grouped import by_group
from streammc.likelihood.temperature import temperature_of
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction import designs
from streammc.prediction.label_index import LabelIndex
from streammc.prediction.prediction_request import DRAWS, GROUP_DRAWS, INTEGRATE, PredictionRequest
from streammc.prediction.row_effects import RowEffects
from streammc.prediction.thinned import Draws, matched
from streammc.protocols import Dataset, Matrix, Model, PassTask, RowBlock
from streammc.trace.run_directory import RunDirectory


class _Checked(PassTask[int]):
    """``PassTask`` that returns the number of rows: a pass checks every chunk it reads."""

    def map(self, block: RowBlock) -> int:
        return len(block.y)

    def combine(self, left: int, right: int) -> int:
        return left + right


def default_draws(model: Model) -> int:
    """Return the number of draws with which a model predicts, unless another is given."""
    return GROUP_DRAWS if isinstance(model, MixedModel) else DRAWS


def needs_rows_of_run(model: Model, table: Any, fingerprint: str) -> bool:
    """Return whether predictions of a table need the data of the run, of this fingerprint."""
    labelled = isinstance(model, MixedModel) and label_column(table) is not None
    return labelled and table.fingerprint != fingerprint


def require_checked(table: Dataset, scheduler: Any) -> None:
    """Read all rows once, which checks every chunk of a store, before they are read by place."""
    table.reduce(_Checked(), scheduler=scheduler)


def require_temperature_one(run: RunDirectory) -> None:
    """Refuse a run at another temperature, of which effects have no distribution."""
    heat = temperature_of(run.identity, run.attributes)
    if heat != 1.0:
        raise RefusedError(
            f"expected a run at temperature 1, found {heat:g}: at others the effects of groups "
            "have no distribution; sample at temperature 1"
        )


def require_store_of_run(run: RunDirectory, table: Any) -> None:
    """Refuse a table that is not that of the run."""
    if table.fingerprint != run.identity["store"]:
        raise IdentityError(
            f"expected the store of the run (fingerprint {run.identity['store'][:12]}), found "
            f"{table.address!r} ({table.fingerprint[:12]}): give the store that was sampled"
        )


def row_effects(
    run: RunDirectory,
    model: MixedModel,
    table: Any,
    kept: Draws,
    request: PredictionRequest,
    table_design: dict[str, Any],
) -> tuple[Matrix, RowEffects]:
    """Return draws of theta (S, d) and the effects of the groups of a table.

    Draws without weights get mean and covariance of all draws of the run.

    Raises
    ------
    ConfigError
        If the table has labels of groups, and the data of the run are not given.
    IdentityError
        If these are others, or the groups of the table are of another column.
    RefusedError
        If the run has a temperature other than 1.
    """
    require_temperature_one(run)
    column = label_column(table)
    if column not in (None, model.column):
        raise IdentityError(
            f"expected groups of {model.column!r}, as the run has, found those of {column!r} in "
            f"{table.address!r}: ingest the table with --like the store of the run"
        )
    theta = kept.theta
    if kept.weights is None:
        everything = model.unconstrain(run.draws_matrix())
        theta = matched(theta, everything.reshape(-1, everything.shape[-1]))
    same = table.fingerprint == run.identity["store"]
    known = index = None
    if column is not None:
        trained_on: Any = table if same else request.trained_on
        if trained_on is None:
            raise ConfigError(
                "expected the data set of the run as trained_on, found none: the effects of "
                f"known groups of {model.column!r} are computed from their rows; give "
                f"trained_on=streammc.open_store({run.attributes.get('store')!r})"
            )
        require_store_of_run(run, trained_on)
        require_checked(trained_on, request.scheduler)
        known = by_group(trained_on, model)[1]
        index = None if same else LabelIndex(trained_on.groups)
    return theta, RowEffects(
        theta,
        table,
        _covariance(model, theta),
        _slope(model, kept.design, table_design),
        known,
        same,
        request.new_groups == INTEGRATE,
        index,
    )


def label_column(table: Dataset) -> str | None:
    """Return the column of the groups of a table; ``None`` without labels."""
    groups: Any = table.attributes.get("groups")
    column = table.attributes.get("row_group") if groups is None else groups["column"]
    return None if column is None else str(column)


def _covariance(model: MixedModel, theta: Matrix) -> Matrix:
    """Return (S, 3) the covariance of the effects: variance, covariance, variance."""
    count = len(model.group_parameters)
    group = theta[:, -count:]
    found = np.zeros((len(theta), 3))
    tau = np.exp(group[:, : len(model.effects)])
    found[:, 0] = tau[:, 0] ** 2
    if model.slope is not None:
        found[:, 2] = tau[:, 1] ** 2
        found[:, 1] = tau[:, 0] * tau[:, 1] * (np.tanh(group[:, 2]) if model.correlated else 0.0)
    return found


def _slope(
    model: MixedModel, run: dict[str, Any], table: dict[str, Any]
) -> tuple[int, float, float] | None:
    """Return column, scale and shift of the slope: ``z = scale z' + shift`` of the table's z'."""
    if model.slope is None:
        return None
    column, q = model.features.index(model.slope), len(model.features)
    mean, scale = designs.standardization(run, q)
    other_mean, other_scale = designs.standardization(table, q)
    shift = (other_mean[column] - mean[column]) / scale[column]
    return column, float(other_scale[column] / scale[column]), float(shift)
