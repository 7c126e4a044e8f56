"""Effects of the groups of a mixed model, from the draws of a run in one pass over the groups.

For each of S draws of theta, mean and variance of a group's effects are exact, by the quadrature of
its likelihood. Over draws the effects are a mixture: its mean is the mean of the means, and its
variance the mean of the variances plus the variance of the means.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streammc.control_variates.kinds import PASS_OPTIONS, check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import ConfigError, RefusedError
from streammc.likelihood.grouped import by_group
from streammc.models.mixed.group_effects import BETWEEN, VARIANCE
from streammc.models.mixed.mixed_model import MixedModel, TableModel
from streammc.prediction import designs
from streammc.prediction.effects_pass import EffectsTask, Totals, parts_folder, write_chunks
from streammc.prediction.group_draws import require_store_of_run, require_temperature_one
from streammc.prediction.predict import opened_run, write_ids
from streammc.prediction.prediction_request import INTERVAL, PredictionRequest
from streammc.prediction.thinned import DRAWS_PER_DIMENSION, Draws, load_draws, matched
from streammc.protocols import Dataset, Matrix, Model
from streammc.runs.identity import registered_model
from streammc.trace.local_path import given_path
from streammc.trace.row_arrays import Column, RowArrays
from streammc.trace.row_reading import GROUPS
from streammc.trace.row_tables import require_zarr
from streammc.trace.run_directory import RunDirectory
from streammc.trace.temporary import temporary_folder

if TYPE_CHECKING:
    import xarray

EFFECT_DRAWS: Final = 100
"""Most draws that are used unless more are asked for."""
LARGEST_ERROR: Final = 0.02
"""Error of a mean from the number of draws, in sds of its effect, that sets the default number."""
_PILOT_AMONG: Final = 2**14
_PILOT_GROUPS: Final = 32
_PILOT_STEP: Final = 5
SCALE: Final = "linear predictor; a slope per unit of its column in the table"
_CHUNK_GROUPS: Final = 2**16


def write_effects(
    run: RunDirectory,
    model: Model,
    table: Any,
    path: str | os.PathLike[str],
    request: PredictionRequest,
    *,
    fewer: bool,
) -> dict[str, Any]:
    """Write the effects of all groups of the store of a run; see :func:`effects`.

    Parameters
    ----------
    run, model
        The run and its model.
    table, path
        The store of the run, and the zarr group to make.
    request
        Settings.
    fewer
        Use fewer draws than those of the request where the effects hardly depend on them.

    Returns
    -------
    dict
        JSON: ``groups``, ``group``, ``effects``, ``draws``, ``interval``, ``quantiles``,
        ``mean_error``, ``run``, ``store``, ``store_fingerprint`` and ``seconds``.
    """
    began = time.perf_counter()
    require_store_with_effects(run, model, table)
    grouped, bound = by_group(table, model)
    kept = load_draws(run, model, request.draws, table)
    require_equal_draws(kept)
    everything = model.unconstrain(run.draws_matrix())
    everything = everything.reshape(-1, everything.shape[-1])
    shift, scale = slope_scale(bound, kept.design)
    if fewer:
        share = _largest_share(bound, grouped, kept.theta[::_PILOT_STEP], shift, scale)
        wanted = max(DRAWS_PER_DIMENSION * everything.shape[1], ceil(share / LARGEST_ERROR**2))
        if wanted < request.draws:
            kept = load_draws(run, model, wanted, table)
    theta = matched(kept.theta, everything)
    names = ("mean", "sd", *request.names)
    by_effect = Column(dims=("effect",), sizes=(len(bound.effects),))
    columns = dict.fromkeys(names, by_effect) | {"rows": Column("int64")}
    kind = "string" if grouped.row_ids(0, 1).dtype.kind == "S" else "int64"
    with RowArrays(
        path, columns, grouped.n_rows, _CHUNK_GROUPS, kind, request.overwrite, GROUPS
    ) as writer:
        write_ids(writer, grouped)
        task = EffectsTask(
            bound, theta, shift, scale, str(parts_folder(writer)), tuple(request.ends)
        )
        totals: Totals = grouped.reduce(
            task, scheduler=request.scheduler, progress=request.progress
        )
        write_chunks(writer, grouped.table.offset, len(bound.effects), request.names)
        facts: dict[str, Any] = {
            "groups": grouped.n_rows,
            "group": bound.column,
            "effects": list(bound.effects),
            "scale": SCALE,
            "draws": len(theta),
            "interval": request.interval,
            "quantiles": list(request.names),
            "mean_error": float(np.sqrt(totals.mean_error.max())),
            "run": run.place,
            "store": table.address,
            "store_fingerprint": table.fingerprint,
            "seconds": time.perf_counter() - began,
        }
        return facts | writer.commit(facts, {"effect": (("effect",), np.array(bound.effects))})


def _largest_share(
    model: TableModel, grouped: Any, theta: Matrix, shift: float, scale: float
) -> float:
    """Return the largest part of the variance of an effect that is one of means between draws.

    Of the largest of the first groups: theirs vary least at a draw.
    """
    offset = np.asarray(grouped.table.offset[: _PILOT_AMONG + 1])
    rows = np.diff(offset)
    chosen = np.sort(np.argsort(rows)[-_PILOT_GROUPS:])
    places = np.stack([offset[chosen], rows[chosen]]).astype(np.float64)
    moments = EffectsTask(model, np.ascontiguousarray(theta), shift, scale, "", ()).moments(places)
    share = moments[..., BETWEEN] / np.maximum(moments[..., VARIANCE], 1e-300)
    return float(np.nan_to_num(share, nan=1.0).max())


def require_store_with_effects(run: RunDirectory, model: Model, table: Any) -> None:
    """Refuse a run that has no effects, and a table that is not that of the run."""
    if not isinstance(model, MixedModel):
        raise ConfigError(
            f"expected a run of a mixed model, found one of {model.name!r} without groups: ingest "
            "the table with --group, or a formula with (1 | column), and sample that store"
        )
    require_store_of_run(run, table)
    require_temperature_one(run)


def require_equal_draws(kept: Draws) -> None:
    """Refuse draws with signs."""
    if kept.weights is not None:
        raise RefusedError(
            "expected draws that count the same, found a run with signs: effects have no signed "
            "quantiles; sample with hmc-ecs or hmc"
        )


def slope_scale(model: MixedModel, design: dict[str, Any]) -> tuple[float, float]:
    """Return mean over scale, and scale, of the slope's column in a design; 0 and 1 without."""
    if model.slope is None:
        return 0.0, 1.0
    column = model.features.index(model.slope)
    mean, scales = designs.standardization(design, len(model.features))
    return float(mean[column] / scales[column]), float(scales[column])


@documented(PASS_OPTIONS)
def effects(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    path: str | os.PathLike[str] | None = None,
    *,
    draws: int | None = None,
    interval: float = INTERVAL,
    overwrite: bool = False,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Compute the effects of the groups of a mixed model from the draws of a run, in one pass.

    Effects are deviations of a group from the coefficients of the model, on the scale of the
    linear predictor; a slope is per unit of its column in the table, also if the store is
    standardised.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run on a store with groups, or the run opened from it.
    store
        The store of the run.
    path
        zarr group to make. ``None``: a temporary folder, removed when the process ends.
    draws
        Number of draws to use, thinned from all chains together and moved to the mean and
        covariance of all draws; at least 2. ``None``: as many as keep ``mean_error`` below 0.02
        in the largest of the first 16,384 groups, but five a parameter, and at most 100.
    interval
        Probability of the intervals, between 0 and 1: 0.9 gives ``q5`` and ``q95``.
    overwrite
        Replace effects at ``path``, once the new ones are complete. Without it ``path`` must
        not exist.

    Returns
    -------
    xarray.Dataset
        ``mean``, ``sd``, ``q5``, ``q95`` (group, effect) and ``rows`` (group), the number of
        rows; the coordinate ``group`` has the labels. Attributes: a record of the options, and
        ``mean_error``, the largest standard error of a mean from the number of draws, in
        standard deviations of the effect.

    Raises
    ------
    ConfigError
        If the run has no groups.
    IdentityError
        If the store is not that of the run, or ``path`` exists.
    DataError
        If the run is unfinished.
    RefusedError
        If the run has signs, or a temperature other than 1.
    """
    from streammc.trace.datatree import open_rows

    require_zarr(path)
    check_kinds(store)
    check_progress(progress)
    opened = opened_run(run)
    request = PredictionRequest(
        draws=EFFECT_DRAWS if draws is None else draws,
        interval=interval,
        overwrite=overwrite,
        scheduler=scheduler,
        progress=progress,
    )
    target = (
        given_path(path)
        if path is not None
        else temporary_folder("streammc-effects-") / "effects.zarr"
    )
    model = registered_model(opened.identity["model"])
    write_effects(opened, model, store, target, request, fewer=draws is None)
    return open_rows(target, GROUPS)
