"""A run as an ``xarray.DataTree``, read lazily."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.trace.addresses import named
from streammc.trace.row_arrays import ROWS, RowKind, check_chunks, read_meta
from streammc.trace.run_directory import MemoryRun, RunDirectory
from streammc.trace.run_state import (
    GROUPS,
    SAMPLE_DIMS,
    SAMPLED,
    Dimensioned,
    own_entries,
    table_scale,
)
from streammc.verdict import verdict

_JSON_WORDS: Final = ("null", "true", "false")
"""JSON texts other than numbers, strings, arrays and objects."""


@documented()
def open_run(path: str | os.PathLike[str], *, verify: bool = True) -> xr.DataTree:
    """Open the committed draws of a run, finished or still growing.

    Groups ``posterior``, on the scale of the table; ``sample_stats``; ``constant_data``; and,
    after a warm-up, ``warmup_posterior`` and ``warmup_sample_stats``. Where columns are
    standardised, ``sampled_posterior`` and ``warmup_sampled_posterior`` are the draws on the scale
    of the store, on which priors act, and there is no ``warmup_posterior``. Dimensions are
    ``chain``, ``draw`` and those of the parameters. The tree has the draws that were committed when
    it was opened; it does not grow.

    Parameters
    ----------
    path
        Directory of the run, or its address (``s3://bucket/run``), which is fetched into a
        temporary folder of this process.
    verify
        Check every committed byte first. Otherwise damage raises a ``ValueError`` of zarr
        when the values are read, and a missing file reads as NaN or zeros.

    Returns
    -------
    xarray.DataTree
        Values are read when they are used. Attributes that are neither text nor numbers are
        JSON text, as netCDF needs them; :func:`facts` decodes them. The attribute ``verdict`` of a
        finished run says in one sentence whether its draws can be trusted.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If it is not a run, or damaged.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"expected the path of a run, found {type(path).__name__}: give text or a pathlib.Path"
        )
    run = RunDirectory.open(path, verify=verify)
    # Given a path, xarray would take "~" for the home folder and "s3::x" for an address.
    store: Any = LocalStore(run.path, read_only=True)
    tree: xr.DataTree = xr.open_datatree(store, engine="zarr", consolidated=True, chunks=None)
    return _described(_on_table(tree, run), run)


def _on_table(tree: xr.DataTree, run: RunDirectory) -> xr.DataTree:
    """Return the tree of a run with ``posterior`` on the scale of the table.

    A run of an earlier version has what the sampler drew there, and as ``posterior_original``, if
    it is finished, the draws on the scale of the table.
    """
    if run.state.layout.table is not None:
        return tree
    scale = table_scale(run.attributes, run.labels)
    if scale is None and "posterior_original" not in tree.children:
        return tree
    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    for phase in run.state.phases():
        groups[SAMPLED[phase]] = groups.pop(GROUPS[phase][0])
    if scale is None:
        moved = groups["posterior_original"]
    else:
        layout = replace(run.state.layout, table=scale)
        arrays = layout.interval_arrays("draws", 0, run.draws_matrix(), {}, {"posterior"})
        drawn = groups[SAMPLED["draws"]]
        coordinates: dict[str, Any] = {dim: drawn[dim].values for dim in SAMPLE_DIMS}
        coordinates |= {each.dim: [*each.coordinate] for each in scale.variables if each.dim}
        data = {}
        for each in scale.variables:
            dims = (*SAMPLE_DIMS, each.dim) if each.dim else SAMPLE_DIMS
            data[each.name] = dims, arrays[f"posterior/{each.name}"]
        moved = xr.Dataset(data, coordinates)
    made: xr.DataTree = xr.DataTree.from_dict({"posterior": moved, **groups})
    made.attrs = tree.attrs
    return made


def tree_in_memory(run: MemoryRun) -> xr.DataTree:
    """Return a run in memory as the tree that :func:`open_run` would return, with copied values."""
    groups = {}
    for group in run.groups():
        arrays = {
            name: xr.Variable(dims, _as_read(values), fastpath=True)
            for name, (dims, values) in sorted(run.dimensioned(group).items())
        }
        indexes = {name: array for name, array in arrays.items() if array.dims == (name,)}
        data = {name: array for name, array in arrays.items() if name not in indexes}
        groups[f"/{group}"] = xr.Dataset(data, indexes)
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    tree.attrs = {"streammc": own_entries(run.state), **run.attributes}
    return _described(tree, run)


def _as_read(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the dtype with which zarr reads them: text of variable length."""
    return values.astype(np.dtypes.StringDType()) if values.dtype.kind == "U" else values


def _described(tree: xr.DataTree, run: RunDirectory) -> xr.DataTree:
    """Return the tree of a run with portable attributes, its verdict and its path."""
    summary = run.attributes.get("summary")
    counted = (summary or {}).get("sampling", {}).get("draws")
    if summary and counted == run.committed_draws:
        tree.attrs["verdict"] = verdict(summary).sentence
    for node in tree.subtree:
        node.attrs = _portable(node.attrs)
    tree.encoding["source"] = named(str(run.path))
    return tree


def open_rows(
    path: str | os.PathLike[str], of: RowKind = ROWS, *, verify: bool = False
) -> xr.Dataset:
    """Open a group of arrays by row, such as predictions.

    With ``verify`` every chunk is checked first. Otherwise damage raises a ``ValueError`` of zarr
    when values are read, and a missing file reads as NaN: for what this process has just written.
    """
    meta, _ = read_meta(path, of)
    if verify:
        for _ in check_chunks(path, of):
            pass
    store: Any = LocalStore(Path(path), read_only=True)
    found: xr.Dataset = xr.open_dataset(store, engine="zarr", consolidated=True, chunks=None)
    found.attrs = _portable(meta)
    return found


@documented()
def facts(found: xr.DataTree | xr.Dataset) -> dict[str, Any]:
    """Return the attributes of a run, of predictions or of effects as Python objects.

    Parameters
    ----------
    found
        The result of :func:`open_run`, ``sample``, ``predict`` or ``effects``, or the same tree
        read from a netCDF file.

    Returns
    -------
    dict
        For a run ``summary`` (``parameters``, ``sampling``, ``audit``, ``warnings``),
        ``plan`` and others; for predictions ``auc``, ``log_score`` and others.

    Examples
    --------
    >>> import xarray
    >>> from streammc import facts
    >>> facts(xarray.Dataset(attrs={"auc": '{"mean": 0.75}', "rows": 10, "by": "null"}))
    {'auc': {'mean': 0.75}, 'rows': 10, 'by': None}
    """
    if not hasattr(found, "attrs"):
        raise ConfigError(
            f"expected a run or predictions, found {type(found).__name__}: "
            "pass what streammc.open_run(path) returned"
        )
    return {str(name): _decoded(value) for name, value in found.attrs.items()}


def _portable(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes as text and numbers, which netCDF can hold; the others as JSON text."""
    return {
        str(name): value if type(value) in (str, int, float) else json.dumps(value)
        for name, value in attributes.items()
    }


def _decoded(value: Any) -> Any:
    """Return a JSON text as its object; other text and numbers unchanged."""
    if not isinstance(value, str) or not (value in _JSON_WORDS or value[:1] in "[{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def predictive_tree(
    run: RunDirectory,
    kept: NDArray[np.int64],
    name: str,
    rows: NDArray[np.int64],
    arrays: Mapping[str, NDArray[np.float64]],
) -> xr.DataTree:
    """Return a tree of thinned draws and arrays by row, in memory.

    The draws ``kept`` (D,) of each chain of ``run`` become the group ``posterior``. The arrays are
    by group: (m,) for ``observed_data``, else (chains D, m), chain after chain.
    """
    posterior = open_run(run.path, verify=False)["posterior"].to_dataset()
    return _by_row({"posterior": posterior.isel(draw=kept).load()}, name, rows, arrays)


def prior_tree(
    prior: Mapping[str, Dimensioned],
    name: str,
    rows: NDArray[np.int64],
    arrays: Mapping[str, NDArray[np.float64]],
) -> xr.DataTree:
    """Return a tree of draws of a prior, variables and coordinates by name, and arrays by row.

    The arrays are as of :func:`predictive_tree`.
    """
    coordinates = {key: values for key, (dims, values) in prior.items() if tuple(dims) == (key,)}
    data = {key: (list(dims), v) for key, (dims, v) in prior.items() if key not in coordinates}
    return _by_row({"prior": xr.Dataset(data, coordinates)}, name, rows, arrays)


def check_of_rows(
    run: RunDirectory,
    rows: NDArray[np.int64],
    variables: Mapping[str, tuple[str, NDArray[Any]]],
    facts: Mapping[str, Any],
) -> xr.Dataset:
    """Return a check of some rows as a data set in memory: variables with their dimension by name.

    ``rows`` (m,) are the numbers of the rows, the coordinate ``row``; ``facts`` its attributes.
    """
    return xr.Dataset(dict(variables), {"row": rows}, {"run": run.place, **facts})


def _by_row(
    groups: dict[str, xr.Dataset],
    name: str,
    rows: NDArray[np.int64],
    arrays: Mapping[str, NDArray[np.float64]],
) -> xr.DataTree:
    """Return a tree of one group of draws, and of arrays by row that belong to these draws."""
    (draws,) = groups.values()
    by_draw = {dim: draws[dim].values for dim in SAMPLE_DIMS}
    shape = tuple(map(len, by_draw.values()))
    by_row = {"row": rows}
    for group, values in arrays.items():
        if values.ndim == 1:
            groups[group] = xr.Dataset({name: ("row", values)}, coords=by_row)
        else:
            shaped = values.reshape(*shape, values.shape[-1])
            groups[group] = xr.Dataset(
                {name: ((*SAMPLE_DIMS, "row"), shaped)}, coords={**by_draw, **by_row}
            )
    return xr.DataTree.from_dict(groups)
