"""Draws of the effects of named groups of a mixed model: one for each draw of the parameters.

Posterior density of the effects of one group at a draw of the parameters, and exact draws.

With ``u = A v``, ``v ~ Normal(0, I)``, the log density is ``log f(y | theta, A v) - v . v / 2``.
Draws invert its distribution function on a grid in standard deviations: of an intercept and a
slope that of the slope's coordinate, the other one integrated out by the trapezoidal rule, which
is exact to rounding on such a grid, and then that of the other one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.bound import check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.data_views import by_group
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.mixed.group_effects import table_nodes
from streammc.models.mixed.mixed_model import MixedModel, TableModel
from streammc.prediction.crossed_effects import write_level_draws
from streammc.prediction.group_summaries import (
    SCALE,
    require_equal_draws,
    rows_with_effects,
    slope_scale,
)
from streammc.prediction.predict import opened_run, predict, result_path
from streammc.prediction.prediction_request import PredictionRequest
from streammc.prediction.predictive import densities_at
from streammc.prediction.predictors import load_draws
from streammc.prediction.row_effects import named_groups, node_room, require_checked
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector
from streammc.rng import Role, stream
from streammc.runs.record import registered_model
from streammc.trace.row_arrays import GROUPS, Column, RowArrays
from streammc.trace.row_tables import require_zarr
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray


_SPACING: Final = 0.25
"""Distance of the points of the grid, in standard deviations."""
_INNER_SPACING: Final = 0.5
_REACH: Final = 8.0
"""Half the length of the grid, at first."""
_DROP: Final = 28.0
"""Least fall of the log density from its maximum to the ends of the grid: 1e-12 of it."""
_LONGER: Final = 1.5
_MOST_REACH: Final = 200.0
_FINER: Final = 16
"""Parts of a step in which the interpolated density is integrated."""
_ENTRIES: Final = 2**20
"""Rows times points that are evaluated at once."""


class GroupDensity:
    """Log density of the effects of a group, with these rows, at a draw of theta (d,)."""

    def __init__(self, model: MixedModel, theta: Vector, rows: Rows) -> None:
        self._inner, q = model.inner, model.n_features
        count = model.n_covariance
        used = rows.weight != 0.0
        X = np.ascontiguousarray(rows.X[used], dtype=np.float64)
        self._y = np.ascontiguousarray(rows.y[used])
        self._weight = rows.weight[used]
        self._predictor = X @ theta[:q] + rows.offset[used]
        self._scalars = theta[q : len(theta) - count]
        self._carrier = np.zeros(len(X))
        group = theta[len(theta) - count :]
        self.tau1, self.tau2 = math.exp(group[0]), 0.0
        self.rho, self.kappa = 0.0, 1.0
        if model.slope is not None:
            self._carrier = X[:, model.features.index(model.slope)]
            self.tau2 = math.exp(group[1])
        if model.correlated:
            self.rho, self.kappa = math.tanh(group[2]), 1.0 / math.cosh(group[2])

    def effects(self, v1: Vector, v2: Vector) -> tuple[Vector, Vector]:
        """Return intercepts and slopes u of standardised effects v."""
        return self.tau1 * v1, self.tau2 * (self.rho * v1 + self.kappa * v2)

    def log(self, v1: Vector, v2: Vector) -> Vector:
        """Return the log density at points (m,), up to a constant."""
        u1, u2 = self.effects(v1, v2)
        log_density = -0.5 * (v1 * v1 + v2 * v2)
        step = max(_ENTRIES // max(len(self._y), 1), 1)
        for low in range(0, len(v1) if len(self._y) else 0, step):
            here = slice(low, low + step)
            log_density[here] += self._weight @ self._terms(u1[here], u2[here])
        return log_density

    def _terms(self, u1: Vector, u2: Vector) -> Matrix:
        """Return the log-likelihood (n, m) of each row at each point."""
        n, m = len(self._y), len(u1)
        eta = np.empty((1 + len(self._scalars), n, m))
        eta[0] = self._predictor[:, None] + u1 + self._carrier[:, None] * u2
        eta[1:] = self._scalars[:, None, None]
        return densities_at(self._inner, eta, np.empty((n, 0)), self._y).T


def draw_effects(
    density: GroupDensity, mean: Vector, covariance: Matrix, uniform: Vector
) -> Vector:
    """Return a draw (effects,) of a group's effects from uniform numbers (effects,).

    ``mean`` and ``covariance`` of the standardised effects say where the grid is placed, and how
    wide it is. DataError if the density is nowhere finite.
    """
    if len(mean) == 1:
        sd = math.sqrt(covariance[0, 0])
        v1 = _inverse(lambda v: density.log(v, np.zeros(len(v))), mean[0], sd, uniform[0])
        return np.array([density.effects(np.array([v1]), np.zeros(1))[0][0]])
    sd = math.sqrt(covariance[1, 1])
    slope = covariance[0, 1] / covariance[1, 1]
    rest = math.sqrt(max(covariance[0, 0] - slope * covariance[0, 1], 1e-12 * covariance[0, 0]))
    t = np.arange(-_REACH - 2.0, _REACH + 2.5, _INNER_SPACING)

    def marginal(v2: Vector) -> Vector:
        center = mean[0] + slope * (v2 - mean[1])
        v1 = center[:, None] + rest * t
        log = density.log(v1.ravel(), np.repeat(v2, len(t))).reshape(v1.shape)
        top = np.max(np.where(np.isfinite(log), log, -math.inf), axis=1, initial=-math.inf)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            total: Vector = np.log(np.nansum(np.exp(log - safe[:, None]), axis=1)) + safe
        return total

    v2 = _inverse(marginal, mean[1], sd, uniform[1])
    center = mean[0] + slope * (v2 - mean[1])
    v1 = _inverse(lambda v: density.log(v, np.full(len(v), v2)), center, rest, uniform[0])
    return np.array([each[0] for each in density.effects(np.array([v1]), np.array([v2]))])


def _inverse(log_density: Any, center: float, scale: float, uniform: float) -> float:
    """Return the quantile of a density on the line at the probability ``uniform``."""
    low = high = _REACH
    while True:
        steps = np.arange(-math.ceil(low / _SPACING), math.ceil(high / _SPACING) + 1)
        t = np.asarray(steps * _SPACING, dtype=np.float64)
        log: Vector = log_density(center + scale * t)
        finite = np.isfinite(log)
        top = log[finite].max(initial=-math.inf)
        if not math.isfinite(top):
            raise DataError(
                "expected a finite density of the effects of a group, found none near their mean: "
                "check the columns of the group"
            )
        log = np.maximum(np.where(finite, log - top, -700.0), -700.0)  # no part of the mass
        short_low, short_high = log[0] > -_DROP, log[-1] > -_DROP
        if not (short_low or short_high) or max(low, high) > _MOST_REACH:
            break
        low, high = low * (_LONGER if short_low else 1.0), high * (_LONGER if short_high else 1.0)
    return center + scale * _grid_quantile(t, log, uniform)


def _grid_quantile(t: Vector, log: Vector, uniform: float) -> float:
    """Return the quantile of the density that interpolates its log on a grid by a spline."""
    from scipy.interpolate import CubicSpline

    fine = np.linspace(t[0], t[-1], 2 * _FINER * (len(t) - 1) + 1)
    density: NDArray[np.float64] = np.exp(CubicSpline(t, log)(fine))
    ends, middle = density[::2], density[1::2]
    step = fine[2] - fine[0]
    mass = step / 6.0 * (ends[:-1] + 4.0 * middle + ends[1:])  # Simpson
    below = np.concatenate([[0.0], np.cumsum(mass)])
    wanted = uniform * below[-1]
    cell = min(max(int(np.searchsorted(below, wanted, side="right")) - 1, 0), len(mass) - 1)
    share = min(max((wanted - below[cell]) / mass[cell], 0.0), 1.0) if mass[cell] > 0.0 else 0.5
    # Within the cell the density is a straight line.
    left, right = ends[cell], ends[cell + 1]
    part = share * 0.5 * (left + right)
    root = left + math.sqrt(max(left * left + 2.0 * (right - left) * part, 0.0))
    inside = 2.0 * part / root if root > 0.0 else share
    return float(fine[2 * cell] + step * min(inside, 1.0))


EFFECT_SAMPLES: Final = 1000
_NODE_DRAWS: Final = 256
"""Draws whose nodes are computed at once."""


def write_effect_draws(
    run: RunDirectory,
    model: Model,
    table: Any,
    path: str | os.PathLike[str],
    labels: Sequence[str],
    request: PredictionRequest,
) -> dict[str, Any]:
    """Write draws of the effects of some groups; return :func:`effect_draws` as facts (JSON)."""
    if isinstance(model, CrossedModel):
        return write_level_draws(run, model, table, path, labels, request)
    began = time.perf_counter()
    table = rows_with_effects(run, model, table, request)
    numbers = named_groups(table.groups, labels)
    require_checked(table, request.scheduler)
    bound = by_group(table, model)[1]
    posterior = load_draws(run, model, request.draws, table)
    require_equal_draws(posterior)
    shape = (run.chains, len(posterior.numbers))
    moved = slope_scale(bound, posterior.design)
    columns = {
        "u": Column("float64", ("chain", "draw", "effect"), (*shape, len(bound.effects))),
        "rows": Column("int64"),
    }
    kind = "string" if table.groups.labels(0, 1).dtype.kind == "S" else "int64"
    with RowArrays(path, columns, len(numbers), 1, kind, request.overwrite, GROUPS) as writer:
        for place, number in enumerate(numbers.tolist()):
            writer.write_ids(place, table.groups.labels(number, number + 1))
            drawn = np.stack(
                list(draws_of_group(bound, number, posterior.theta, moved, request.seed))
            )
            sizes = np.diff(table.groups.offset[number : number + 2])
            whole = drawn.reshape(1, *shape, len(bound.effects))
            writer.target.write(place, {"u": whole, "rows": sizes})
            if request.progress is not None:
                request.progress(place + 1, len(numbers))
        facts: dict[str, Any] = {
            "groups": len(numbers),
            "group": bound.column,
            "effects": list(bound.effects),
            "scale": SCALE,
            "chains": shape[0],
            "draws": shape[1],
            "seed": request.seed,
            "run": run.place,
            "store": table.address,
            "store_fingerprint": table.fingerprint,
            "seconds": time.perf_counter() - began,
        }
        arrays = {
            "effect": (("effect",), np.array(bound.effects)),
            "chain": (("chain",), np.arange(run.chains)),
            "draw": (("draw",), posterior.numbers),
        }
        return facts | writer.commit(facts, arrays)


def draws_of_group(
    bound: TableModel, number: int, theta: Matrix, moved: tuple[float, float], seed: int
) -> Iterator[Vector]:
    """Yield a draw (effects,) of the effects of a group at every draw of theta."""
    offset = bound.table.groups.offset
    first, last = int(offset[number]), int(offset[number + 1])
    rows = allocate_rows(last - first, bound.n_features)
    bound.table.rows().gather(np.arange(first, last), 1, rows)
    effects = len(bound.effects)
    uniform = stream(seed, 0, Role.SIMULATE, number).random((len(theta), effects))
    places = np.array([[float(first)], [float(last - first)]])
    shift, scale = moved
    for low in range(0, len(theta), _NODE_DRAWS):
        some = theta[low : low + _NODE_DRAWS]
        nodes = np.empty((1, len(some), effects + 1, node_room(bound)))
        table_nodes(some, places, bound.constants, nodes)
        for s, each in enumerate(some):
            density = GroupDensity(bound, each, rows)
            mean, covariance = _standard_moments(density, nodes[0, s])
            if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
                raise DataError(
                    "expected a finite likelihood of every group at the draws of the run, found "
                    f"none of group {number + 1} of {bound.column!r}, in the order of the store: "
                    "check its columns"
                )
            drawn = draw_effects(density, mean, covariance, uniform[low + s])
            if effects == 2:
                drawn = np.array([drawn[0] - shift * drawn[1], drawn[1] / scale])
            yield drawn


def _standard_moments(density: GroupDensity, nodes: Matrix) -> tuple[Vector, Matrix]:
    """Return mean and covariance of the standardised effects v from the nodes (effects + 1, Q)."""
    *u, share = nodes
    v = [u[0] / density.tau1]
    if len(u) == 2:
        v.append((u[1] / density.tau2 - density.rho * v[0]) / density.kappa)
    points: NDArray[np.float64] = np.stack(v)
    mean = points @ share
    away = points - mean[:, None]
    return mean, (share * away) @ away.T


@documented(predict)
def effect_draws(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    groups: Sequence[str],
    path: str | os.PathLike[str] | None = None,
    *,
    draws: int = EFFECT_SAMPLES,
    seed: int = 0,
    factor: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Draw the effects of some groups of a mixed model from their exact posterior.

    For each of some draws of theta one draw of the effects of each group given theta and the
    rows of the group, by inversion of its distribution function.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run on a store with groups, or the run opened from it.
    store
        The store of the run.
    groups
        Labels of groups.
    draws
        Number of draws of theta, thinned from all chains together; at least 2.
    seed
        Seed of the draws of the effects; those of a group do not depend on the others.
    factor
        Of several factors that cross, the one whose levels are named. Their draws are those that
        the run has kept, at most as many as asked for.
    progress
        Called as ``progress(done, total)`` after every group.

    Returns
    -------
    xarray.Dataset
        ``u`` (group, chain, draw, effect) on the scale of the linear predictor, a slope per unit
        of its column in the table; ``rows`` (group). ``draw`` is the number of the draw in the
        run, so that effects and parameters can be joined.

    Raises
    ------
    ConfigError
        If the run has no groups, or none of a label.
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
        draws=draws, seed=seed, factor=factor, overwrite=overwrite, progress=progress
    )
    target = result_path(path, "streammc-effects-", "effects.zarr")
    model = registered_model(opened.identity["model"])
    write_effect_draws(opened, model, store, target, groups, request)
    return open_rows(target, GROUPS)
