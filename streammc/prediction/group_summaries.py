"""Effects of the groups of a mixed model, from the draws of a run in one pass over the groups.

For each of S draws of theta, mean and variance of a group's effects are exact, by the quadrature of
its likelihood. Over draws the effects are a mixture: its mean is the mean of the means, and its
variance the mean of the variances plus the variance of the means.

The pass writes the moments of the effects in constant memory. Groups begin anywhere in a block of
rows, so that no task of the pass has a whole chunk of the result. Every call writes a part, named
by its first group, and the parts become chunks at the end.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.bound import PASS_OPTIONS, check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError, RefusedError, StorageIOError
from streammc.likelihood.data_views import by_group
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.mixed.group_constants import PANEL_CELLS
from streammc.models.mixed.group_effects import BETWEEN, MEAN, QUANTILES, VARIANCE, table_effects
from streammc.models.mixed.mixed_model import MixedModel, TableModel
from streammc.prediction import predictors
from streammc.prediction.crossed_effects import write_level_effects
from streammc.prediction.predict import opened_run, predict, result_path, write_ids
from streammc.prediction.prediction_request import PredictionRequest
from streammc.prediction.predictors import (
    DRAWS_PER_DIMENSION,
    Draws,
    load_draws,
    matched,
    rows_of_run,
)
from streammc.prediction.row_effects import require_temperature_one
from streammc.protocols import Dataset, Index, Matrix, Model, PassTask, RowBlock, Vector
from streammc.runs.record import registered_model
from streammc.settings import INTERVAL
from streammc.trace.disk import reporting
from streammc.trace.row_arrays import GROUPS, Column, RowArrays
from streammc.trace.row_tables import require_zarr
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray


_PARTS: Final = "parts"
"""Folder of the parts, in that of the unfinished result."""


class Totals(NamedTuple):
    """Result of the pass over some groups."""

    groups: int
    mean_error: Vector
    """(effects,) largest variance of a mean over draws of theta, in variances of its effect."""


@dataclass(frozen=True, eq=False)
class EffectsTask(PassTask[Totals]):
    """Task of a pass over the groups of a table, which writes the moments of their effects."""

    model: TableModel
    theta: Matrix
    """(S, d) draws."""
    shift: float
    scale: float
    """Standardisation of the slope's column: mean over scale, and scale."""
    folder: str
    ends: tuple[float, ...]
    """Probabilities of the quantiles."""

    def moments(self, places: Matrix) -> NDArray[np.float64]:
        """Return moments and quantiles (m, effects, 3 + P) of the effects of m groups.

        ``places`` (2, m) has the first row and the number of rows of each.
        """
        model = self.model
        # Quantiles of a single effect come from panels: pieces of its range with their masses.
        # Those of two come from the nodes of the quadrature.
        quantile_nodes = PANEL_CELLS if model.slope is None else model.nodes
        levels = np.array([self.ends, [NormalDist().inv_cdf(p) for p in self.ends]])
        out = np.empty((places.shape[1], len(model.effects), QUANTILES + len(self.ends)))
        table_effects(
            self.theta,
            places,
            model.constants,
            replace(model, nodes=quantile_nodes).constants,
            self.shift,
            self.scale,
            levels,
            out,
        )
        return out

    def map(self, block: RowBlock) -> Totals:
        """Write the moments of the groups of a block to a part."""
        places = np.ascontiguousarray(block.X.T, dtype=np.float64)
        moments = self.moments(places)
        wrong = np.flatnonzero(~np.isfinite(moments).all(axis=(1, 2)))
        if len(wrong):
            raise DataError(
                f"expected a finite likelihood of every group at the draws of the run, found none "
                f"of group {block.start + int(wrong[0]) + 1} of {self.model.column!r}, in the "
                "order of the store: check its columns"
            )
        where = Path(self.folder) / str(block.start)
        with reporting("write", where):
            where.write_bytes(moments.tobytes())
        share = moments[..., BETWEEN] / np.maximum(moments[..., VARIANCE], 1e-300)
        return Totals(len(block.X), share.max(axis=0) / len(self.theta))

    def combine(self, left: Totals, right: Totals) -> Totals:
        """Return the totals of two neighbouring blocks."""
        error = np.maximum(left.mean_error, right.mean_error)
        return Totals(left.groups + right.groups, error)


def write_chunks(
    writer: RowArrays,
    offset: Index,
    effects: int,
    names: Sequence[str],
) -> None:
    """Write the arrays of the result from the parts, chunk by chunk, and delete the parts.

    ``offset`` (K + 1,) has the first row of each group, ``effects`` is the number of effects of a
    group, ``names`` those of the quantiles. StorageIOError if parts are missing: written by a
    process that does not share this file system.
    """
    folder = writer.folder / _PARTS
    start = 0
    shape = (effects, QUANTILES + len(names))
    for moments in _chunks(folder, len(offset) - 1, shape, writer.chunk_rows):
        stop = start + len(moments)
        columns: dict[str, NDArray[Any]] = {
            "mean": moments[..., MEAN],
            "sd": np.sqrt(moments[..., VARIANCE]),
            "rows": np.diff(offset[start : stop + 1]),
        }
        for k, name in enumerate(names):
            columns[name] = moments[..., QUANTILES + k]
        writer.target.write(start, columns)
        start = stop
    with reporting("delete", folder):
        shutil.rmtree(folder)


def _chunks(
    folder: Path, groups: int, shape: tuple[int, int], chunk: int
) -> Iterator[NDArray[np.float64]]:
    """Yield the moments (m, *shape) of all groups; m is ``chunk``, but for the last."""
    buffer = np.empty((chunk, *shape))
    filled = done = 0
    for start in sorted(int(path.name) for path in folder.iterdir()):
        if start != done:
            break
        with reporting("read", folder / str(start)):
            part = np.frombuffer((folder / str(start)).read_bytes()).reshape(-1, *shape)
        done += len(part)
        while len(part):
            step = min(chunk - filled, len(part))
            buffer[filled : filled + step] = part[:step]
            part, filled = part[step:], filled + step
            if filled == chunk:
                yield buffer
                filled = 0
    if done != groups:
        raise StorageIOError(
            f"expected the effects of {groups} groups in {folder}, found those of {done}: choose "
            "a folder that every worker shares"
        )
    if filled:
        yield buffer[:filled]


EFFECT_DRAWS: Final = 100
"""Most draws that are used unless more are asked for."""
LARGEST_ERROR: Final = 0.02
"""Error of a mean from the number of draws, in sds of its effect, that sets the default number."""
_PILOT_AMONG: Final = 2**14
_PILOT_GROUPS: Final = 32
"""Groups of the pilot, the largest of the first ``_PILOT_AMONG``."""
_PILOT_STEP: Final = 5
"""The pilot takes every fifth draw."""
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
    """Write the effects of all groups, see :func:`effects`; return facts as JSON.

    ``fewer``: use fewer draws than those of the request where the effects hardly depend on them.
    """
    if isinstance(model, CrossedModel):
        return write_level_effects(run, model, table, path, request, fewer=fewer)
    began = time.perf_counter()
    table = rows_with_effects(run, model, table, request)
    grouped, bound = by_group(table, model)
    posterior = load_draws(run, model, request.draws, table)
    require_equal_draws(posterior)
    everything = model.unconstrain(run.draws_matrix())
    everything = everything.reshape(-1, everything.shape[-1])
    shift, scale = slope_scale(bound, posterior.design)
    if fewer:
        share = _largest_share(bound, grouped, posterior.theta[::_PILOT_STEP], shift, scale)
        wanted = max(DRAWS_PER_DIMENSION * everything.shape[1], ceil(share / LARGEST_ERROR**2))
        if wanted < request.draws:
            posterior = load_draws(run, model, wanted, table)
    theta = matched(posterior.theta, everything)  # with mean and covariance of all draws
    names = ("mean", "sd", *request.names)
    by_effect = Column(dims=("effect",), sizes=(len(bound.effects),))
    columns = dict.fromkeys(names, by_effect) | {"rows": Column("int64")}
    kind = "string" if table.groups.labels(0, 1).dtype.kind == "S" else "int64"
    with RowArrays(
        path, columns, grouped.n_rows, _CHUNK_GROUPS, kind, request.overwrite, GROUPS
    ) as writer:
        write_ids(writer, grouped)
        folder = writer.folder / _PARTS
        with reporting("create", folder):
            folder.mkdir()
        task = EffectsTask(bound, theta, shift, scale, str(folder), request.ends)
        totals: Totals = grouped.reduce(
            task, scheduler=request.scheduler, progress=request.progress
        )
        write_chunks(writer, table.groups.offset, len(bound.effects), request.names)
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
    """Return the largest share that the variance between draws has in the variance of an effect.

    The pilot takes the largest of the first groups: their effects vary least at one draw, so that
    this share is largest there.
    """
    offset = np.asarray(grouped.unit_offset[: _PILOT_AMONG + 1])
    rows = np.diff(offset)
    chosen = np.sort(np.argsort(rows)[-_PILOT_GROUPS:])
    places = np.stack([offset[chosen], rows[chosen]]).astype(np.float64)
    moments = EffectsTask(model, np.ascontiguousarray(theta), shift, scale, "", ()).moments(places)
    share = moments[..., BETWEEN] / np.maximum(moments[..., VARIANCE], 1e-300)
    return float(np.nan_to_num(share, nan=1.0).max())


def rows_with_effects(
    run: RunDirectory, model: Model, table: Any, request: PredictionRequest
) -> Any:
    """Return the rows of a run; refuse one without effects, another table and another factor."""
    if not isinstance(model, MixedModel):
        raise ConfigError(
            f"expected a run of a mixed model, found one of {model.name!r} without groups: ingest "
            "the table with --group, or a formula with (1 | column), and sample that store"
        )
    if request.factor not in (None, model.column):
        raise ConfigError(
            f"expected the factor {model.column!r}, of which alone the run has effects, found "
            f"{request.factor!r}: leave factor out"
        )
    require_temperature_one(run)
    return rows_of_run(run, table)


def require_equal_draws(posterior: Draws) -> None:
    """Refuse draws with signs."""
    if posterior.weights is not None:
        raise RefusedError(
            "expected draws of equal weight, found a run whose draws have signs: effects have no "
            "signed quantiles; sample with hmc-ecs or hmc"
        )


def slope_scale(model: MixedModel, design: dict[str, Any]) -> tuple[float, float]:
    """Return mean over scale, and scale, of the slope's column in a design; 0 and 1 without."""
    if model.slope is None:
        return 0.0, 1.0
    column = model.features.index(model.slope)
    mean, scales = predictors.standardization(design, len(model.features))
    return float(mean[column] / scales[column]), float(scales[column])


@documented(PASS_OPTIONS, predict)
def effects(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    path: str | os.PathLike[str] | None = None,
    *,
    draws: int | None = None,
    interval: float = INTERVAL,
    factor: str | None = None,
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
    draws
        Number of draws to use, thinned from all chains together and moved to the mean and
        covariance of all draws; at least 2. ``None``: as many as keep ``mean_error`` below 0.02
        in the largest of the first 16,384 groups, but five a parameter, and at most 100. Where
        factors cross, all draws of the run: leave it out.
    factor
        Of several factors that cross, the one whose effects are computed, without a pass.

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
        factor=factor,
        overwrite=overwrite,
        scheduler=scheduler,
        progress=progress,
    )
    target = result_path(path, "streammc-effects-", "effects.zarr")
    model = registered_model(opened.identity["model"])
    write_effects(opened, model, store, target, request, fewer=draws is None)
    return open_rows(target, GROUPS)
