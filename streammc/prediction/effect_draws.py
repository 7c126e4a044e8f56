"""Draws of the effects of named groups of a mixed model: one for each draw of the parameters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.kinds import check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.grouped import by_group
from streammc.models.mixed.group_effects import table_nodes
from streammc.models.mixed.mixed_model import TableModel
from streammc.prediction.group_density import GroupDensity, draw_effects
from streammc.prediction.group_draws import require_checked
from streammc.prediction.group_summaries import (
    SCALE,
    require_equal_draws,
    require_store_with_effects,
    slope_scale,
)
from streammc.prediction.label_index import UNKNOWN, LabelIndex, as_text
from streammc.prediction.predict import opened_run
from streammc.prediction.prediction_request import PredictionRequest
from streammc.prediction.row_effects import node_room
from streammc.prediction.thinned import load_draws
from streammc.protocols import Dataset, Index, Matrix, Model, Vector
from streammc.rng import Role, stream
from streammc.runs.audit import thin
from streammc.runs.identity import registered_model
from streammc.trace.local_path import given_path
from streammc.trace.row_arrays import Column, RowArrays
from streammc.trace.row_reading import GROUPS
from streammc.trace.row_tables import require_zarr
from streammc.trace.run_directory import RunDirectory
from streammc.trace.temporary import temporary_folder

if TYPE_CHECKING:
    import xarray

EFFECT_SAMPLES: Final = 1000
_PIECE: Final = 1 << 18
_CANDIDATES: Final = 5000
"""Labels among which those near an unknown one are searched."""
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
    """Write draws of the effects of some groups; see :func:`effect_draws`.

    Returns
    -------
    dict
        JSON: ``groups``, ``labels``, ``group``, ``effects``, ``draws``, ``chains``, ``run``,
        ``store``, ``store_fingerprint`` and ``seconds``.
    """
    began = time.perf_counter()
    require_store_with_effects(run, model, table)
    numbers = named_groups(table, labels, model)
    require_checked(table, request.scheduler)
    grouped, bound = by_group(table, model)
    kept = load_draws(run, model, request.draws, table)
    require_equal_draws(kept)
    at = thin(run.chains, run.committed_draws, request.draws)
    shape = (run.chains, len(at))
    moved = slope_scale(bound, kept.design)
    columns = {
        "u": Column("float64", ("chain", "draw", "effect"), (*shape, len(bound.effects))),
        "rows": Column("int64"),
    }
    ids = grouped.row_ids(0, 1)
    kind = "string" if ids.dtype.kind == "S" else "int64"
    with RowArrays(path, columns, len(numbers), 1, kind, request.overwrite, GROUPS) as writer:
        for place, number in enumerate(numbers.tolist()):
            writer.write_ids(place, grouped.row_ids(number, number + 1))
            drawn = np.stack(list(draws_of_group(bound, number, kept.theta, moved, request.seed)))
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
            "draw": (("draw",), at),
        }
        return facts | writer.commit(facts, arrays)


def named_groups(table: Any, labels: Sequence[str], model: Any) -> Index:
    """Return the numbers of groups by their labels, without repetitions.

    Raises
    ------
    ConfigError
        If there is no label, or no group of that label.
    """
    if isinstance(labels, str) or not len(labels):
        raise ConfigError(
            f"expected a list of labels of groups of {model.column!r}, found {labels!r}: name at "
            "least one"
        )
    wanted = np.array([str(each).encode() for each in dict.fromkeys(labels)])
    found = LabelIndex(table.groups).find(wanted)
    if (found == UNKNOWN).any():
        missing = wanted[found == UNKNOWN][0].decode()
        near = get_close_matches(missing, _near_labels(table.groups, missing), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "give one of its labels"
        raise ConfigError(
            f"expected a group of {model.column!r} of the run, found {missing[:60]!r}, which is "
            f"none: {hint}"
        )
    first = np.unique(found, return_index=True)[1]  # two spellings may be one label
    numbers: Index = found[np.sort(first)]
    return numbers


def _near_labels(groups: Any, label: str) -> list[str]:
    """Return labels of about the length of another, those with the same beginning first."""
    near: list[str] = []
    for start in range(0, groups.n_groups, _PIECE):
        piece = as_text(groups.labels(start, min(start + _PIECE, groups.n_groups)))
        close = np.abs(np.strings.str_len(piece) - len(label.encode())) <= 2
        same = np.strings.startswith(piece, label[:1].encode())
        near += [each.decode() for each in piece[close & same][:_CANDIDATES]]
        near += [each.decode() for each in piece[close & ~same][: _CANDIDATES // 10]]
        if len(near) >= _CANDIDATES:
            break
    return near[:_CANDIDATES]


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


@documented()
def effect_draws(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    groups: Sequence[str],
    path: str | os.PathLike[str] | None = None,
    *,
    draws: int = EFFECT_SAMPLES,
    seed: int = 0,
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
    path
        zarr group to make. ``None``: a temporary folder, removed when the process ends.
    draws
        Number of draws of theta, thinned from all chains together; at least 2.
    seed
        Seed of the draws of the effects; those of a group do not depend on the others.
    overwrite
        Replace effects at ``path``, once the new ones are complete.
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
    request = PredictionRequest(draws=draws, seed=seed, overwrite=overwrite, progress=progress)
    target = (
        given_path(path)
        if path is not None
        else temporary_folder("streammc-effects-") / "effects.zarr"
    )
    model = registered_model(opened.identity["model"])
    write_effect_draws(opened, model, store, target, groups, request)
    return open_rows(target, GROUPS)
