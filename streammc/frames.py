"""Answers for tables of any kind: frames in, frames of the same kind out.

``predict``, ``score``, ``posterior_predictive``, ``residuals`` and ``calibration`` of the packages
below take data sets; here they take tables, too, with the columns of the run.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeVar, cast

import pyarrow as pa
from numpy.typing import NDArray

from streammc.checks import posterior_predictive as replicating
from streammc.checks import reliability, scoring
from streammc.checks import residuals as quantile_residuals
from streammc.errors import DataError
from streammc.prediction import predict as predicting
from streammc.prediction.predict import opened_run
from streammc.protocols import Dataset
from streammc.runs.record import DESIGN_KEYS
from streammc.stores.data_set import RowTable
from streammc.stores.format.layout import ROW_GROUP
from streammc.stores.ingest.ingest_options import IngestOptions, as_in, ways_of
from streammc.stores.ingest.ingestion import rows_of
from streammc.stores.sources.frame_kinds import frame_of_kind, is_frame
from streammc.stores.sources.input_files import is_pattern
from streammc.stores.store import open_store
from streammc.trace import kinds
from streammc.trace.row_tables import long_columns
from streammc.trace.run_directory import RunDirectory

F = TypeVar("F", bound=Callable[..., Any])

_ROWS: Final = 1 << 20
"""Rows of predictions that are in memory at once."""


def data_set(
    run: RunDirectory,
    table: Any,
    *,
    fitted: bool = False,
    groups: bool = True,
    weight: str | Literal[False] | None = None,
    sampled: bool = True,
) -> Dataset:
    """Return a table as a data set in the columns of a run, on its scale, rows in their order.

    Parameters
    ----------
    run
        The run.
    table
        A data set, a store by its path, or a table as of ``streammc.from_table``. ``None``: the
        store of the run.
    fitted
        Whether a table is that which was given to ``streammc.fit``, and is made as it was then.
    groups
        Whether rows of a mixed model have the groups of the run, where the table has their column.
    weight
        Column of weights, in place of trials; ``None``: that of the run; ``False``: none.
    sampled
        Whether a table that is only read in order keeps a sample of its rows.

    Raises
    ------
    DataError
        If the run does not say which columns it has, or was fitted to rows in memory and no table
        is given.
    """
    if isinstance(table, RowTable):
        return cast(Dataset, table)
    address = run.attributes.get("store")
    if table is None:
        if not isinstance(address, str) or address == "memory":
            raise DataError(
                f"expected the table of the run {str(run.path)!r}, which was fitted to rows in "
                "memory, found none: give it, as it was given to streammc.fit"
            )
        return _store(run, address, fitted)
    design = run.attributes.get("design") or {}
    formula: str | None = (design.get("formula") or {}).get("text")
    known = bool(design) and not (fitted and formula is None)
    if isinstance(table, str | os.PathLike) and not (known and _is_table(os.fspath(table))):
        return _store(run, table, fitted)
    if not known:
        raise DataError(
            f"expected a data set for the run {str(run.path)!r}, which no formula describes, found "
            f"{type(table).__name__}: give what streammc.from_table or open_store returned"
        )
    if fitted and formula is not None:
        options = as_in(_options_of(design, formula), None)
        return cast(Dataset, rows_of(table, options, None, overwrite=False, depth=6))
    group = run.identity["model"].get("group") if groups else None
    described = {**dict.fromkeys(DESIGN_KEYS), **design, ROW_GROUP: group}
    plain = IngestOptions(dtype=design.get("dtype") or "float32")
    options = as_in(plain, SimpleNamespace(attributes=described))
    if weight is False:
        options = replace(options, weight=None)
    elif weight is not None:
        options = replace(options, weight=weight, trials=None)
    with warnings.catch_warnings():  # no response is needed
        warnings.filterwarnings("ignore", ".*its rows can be predicted, not scored")
        made = rows_of(
            table, options, None, overwrite=False, depth=6, in_order=True, sampled=sampled
        )
    return cast(Dataset, made)


def _store(run: RunDirectory, address: str | os.PathLike[str], fitted: bool) -> Dataset:
    """Return a store; if it is to be that of a run, as it was before rows were appended."""
    store = open_store(address)
    fingerprint = run.identity["store"]
    before = store.earlier(fingerprint) if fitted and store.fingerprint != fingerprint else None
    return cast(Dataset, store if before is None else before)


def _options_of(design: Mapping[str, Any], formula: str) -> IngestOptions:
    """Return the options with which ``streammc.fit`` made the rows of a run."""
    cells = design.get("cells")
    seed = design.get("shuffle_seed", 0)
    designs = design.get("designs") or ()
    return IngestOptions(
        formula=designs[0]["formula"] if designs else formula,
        formula_for=tuple(each["formula"] for each in designs[1:]),
        offset=None if "offset(" in formula else design.get("offset"),
        trials=design.get("trials"),
        censored=design.get("censored"),
        weight=design.get("weight"),
        row_id=design.get("row_id"),
        dtype=design.get("dtype") or "float32",
        missing=design.get("missing"),
        missing_as=ways_of(design["formula"]),
        drop_missing=bool(design.get("n_dropped")),
        standardize=design.get("standardization") is not None,
        shuffle=seed is not False,
        seed=int(seed),
        group_as={each["column"]: "crossed" for each in design.get("crossed") or ()} or None,
        cells="no" if cells is None and "cells" in design else None,
        sufficient=(cells or {}).get("statistics"),
    )


def _is_table(path: str) -> bool:
    """Return whether a path leads to files of a table, not to a store or another zarr group."""
    found = kinds.found_at(path)
    if found is not None:
        return found.kind in (kinds.FILE, kinds.FOLDER)
    named = re.search(r"\.(csv|tsv|txt|parquet|pq|feather|arrow)(\.(gz|bz2|zst|xz))?$", path)
    return is_pattern(path) or named is not None


def _with_help_of(other: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator: a function has name, signature and help of another one."""

    def decorate(function: F) -> F:
        named: Any = wraps(other)(function)
        named.__signature__ = signature(other)
        return cast(F, named)

    return decorate


@_with_help_of(scoring.score)
def score(run: Any, store: Any = None, **options: Any) -> dict[str, Any]:
    """Score a model on the rows it was fitted to, given as a data set or as the table."""
    if not isinstance(store, RowTable):
        store = data_set(opened_run(run), store, fitted=True)
    return scoring.score(run, cast(Dataset, store), **options)


@_with_help_of(replicating.posterior_predictive)
def posterior_predictive(run: Any, store: Any = None, **options: Any) -> Any:
    """Replicate rows of a data set, of the table that was fitted, or of another table."""
    rows, positions = _rows_to_check(run, store)
    tree = replicating.posterior_predictive(run, rows, **options)
    if positions is None:
        return tree
    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    for name, group in groups.items():
        if "row" in group.dims:  # a table is known by its own order
            groups[name] = group.assign_coords(row=positions[group["row"].values]).sortby("row")
    return type(tree).from_dict(groups)


def _rows_to_check(run: Any, store: Any) -> tuple[Dataset, NDArray[Any] | None]:
    """Return rows of a data set, or of a table with their positions in it."""
    if isinstance(store, RowTable):
        return cast(Dataset, store), None
    opened, rows = opened_run(run), None
    path = isinstance(store, str | os.PathLike)
    raw = is_frame(store) or (path and _is_table(os.fspath(store)))
    with suppress(DataError) if raw else nullcontext():
        rows = data_set(opened, store, fitted=True)
    if rows is None or (raw and rows.fingerprint != opened.identity["store"]):
        rows = data_set(opened, store)  # other rows, on the scale of the run
    return rows, positions_of(rows) if raw else None


@_with_help_of(quantile_residuals.residuals)
def residuals(run: Any, store: Any = None, **options: Any) -> Any:
    """Compute residuals of a data set, of the table that was fitted, or of another table."""
    return _checked(quantile_residuals.residuals, run, store, options)


@_with_help_of(reliability.calibration)
def calibration(run: Any, store: Any = None, **options: Any) -> Any:
    """Compare chances and rates of a data set, of the table that was fitted, or of another one."""
    return _checked(reliability.calibration, run, store, options)


def _checked(check: Callable[..., Any], run: Any, store: Any, options: dict[str, Any]) -> Any:
    """Return what a check says of rows; a table is known by its own order."""
    rows, positions = _rows_to_check(run, store)
    found = check(run, rows, **options)
    if positions is None:
        return found
    return found.assign_coords(row=positions[found["row"].values]).sortby("row")


def positions_of(rows: Any) -> NDArray[Any] | None:
    """Return the positions (n,) in the table of the rows of a data set; ``None`` if not known."""
    if rows.attributes.get("row_id") or rows.attributes.get("cells"):
        return None
    ids: NDArray[Any] | None = rows.row_ids()
    return ids if ids is not None and ids.dtype.kind in "iu" else None


@_with_help_of(predicting.predict)
def predict(run: Any, store: Any, path: Any = None, **options: Any) -> Any:
    """Predict the rows of a table; for a frame without ``path`` and ``by``, return a frame."""
    trained_on = options.get("trained_on")
    if trained_on is not None and not isinstance(trained_on, RowTable):
        options["trained_on"] = data_set(opened_run(run), trained_on, fitted=True)
    if store is None or isinstance(store, RowTable):
        return predicting.predict(run, cast(Dataset, store), path, **options)
    opened = opened_run(run)
    rows = data_set(opened, store)
    if ROW_GROUP in getattr(rows, "attributes", {}) or opened.identity["model"].get("crossed"):
        options["trained_on"] = _rows_of_groups(opened, options.get("trained_on"))
    found = predicting.predict(run, rows, path, **options)
    if path is not None or options.get("by") is not None or not is_frame(store):
        return found
    return frame_of_kind(store, *_batches(found))


def _rows_of_groups(run: RunDirectory, trained_on: Any) -> Dataset:
    """Return the data set of the run of a mixed model, whose groups have effects."""
    try:
        return data_set(run, trained_on, fitted=True)
    except DataError:
        if trained_on is not None:
            raise
        raise DataError(
            f"expected the rows of the run {str(run.path)!r}, whose groups have effects, found "
            "none: give the table that was fitted as trained_on="
        ) from None


def _batches(found: Any) -> tuple[Any, Iterator[Any]]:
    """Return the schema of predictions as a table, and their record batches.

    The ends of the interval are named as in ArviZ: ``eti90_lb`` and ``eti90_ub``.
    """
    percent = int(float(found.attrs["interval"]) * 100)
    low, high = (name for name in found.data_vars if str(name).startswith("q"))
    names = {"row_id": "row_id", "mean": "mean", low: f"eti{percent}_lb", high: f"eti{percent}_ub"}
    kept = {name: new for name, new in names.items() if name in found.variables}
    n, dims = found.sizes["row"], [name for name in found["mean"].dims if name != "row"]
    along = {name: found[name].to_numpy() for name in dims}

    def batch(start: int, stop: int) -> Any:
        part = found.isel(row=slice(start, stop))
        columns = {new: part[name].to_numpy() for name, new in kept.items()}
        if dims:
            columns = long_columns(columns, "row_id", dims, along)
        return pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()})

    batches = (batch(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))
    return batch(0, 0).schema, batches
