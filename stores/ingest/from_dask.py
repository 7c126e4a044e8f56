"""Ingestion of Dask arrays into a store, block by block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.stores.format.layout import ROW_ID
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.ingestion import IngestCall, make_data_set
from streammc.stores.number_checks import given_names, unmasked
from streammc.stores.sources.array_source import (
    ArraySource,
    refuse_groups,
    require_path,
    vector_numbers,
)
from streammc.stores.store import Store


@documented(IngestCall)
def from_dask(
    X: Any,
    y: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    offset: Any = None,
    weight: Any = None,
    trials: Any = None,
    row_id: Any = None,
    groups: Any = None,
    feature_names: Sequence[str] | None = None,
    response: str = "y",
    shuffle: bool = False,
    seed: int = 0,
    dtype: str | None = None,
    standardize: bool = False,
    intercept: bool = False,
    drop_missing: bool = False,
    chunk_rows: int | None = None,
    overwrite: bool = False,
) -> Store:
    """Make a store at ``path`` from Dask arrays, and open it.

    Each block of rows is computed once, in order, with Dask's current scheduler (threads, or
    the current client); one block is in memory at a time. As in ``from_arrays``, by default
    the design gets neither standardisation nor an intercept.

    Parameters
    ----------
    X : dask array
        (n, q) numbers; the chunks of its rows are the blocks.
    y, offset, weight, trials, row_id : array or None
        (n,) Dask arrays in the same chunks, or arrays in memory, with the same meaning as in
        ``from_arrays``.
    path
        Path of the new store; required.
    groups
        Refused: the rows of a group of a mixed model are put together by ``ingest`` of a table,
        or by ``from_arrays``.
    feature_names
        Names of the columns. ``None``: ``x0, x1, ...``.
    response
        Name of ``y``.
    shuffle
        Put the rows into a uniformly random order.
    dtype : {'float32', 'float64', None}
        Dtype of the stored ``X``. ``None``: the dtype of ``X``, or float64 if that is another.

    Raises
    ------
    ConfigError
        If ``X`` is not a Dask array, ``path`` is missing, or there are groups.
    DataError
        If chunks are unknown or do not fit together, dtypes are not numbers, a block
        cannot be computed, or values cannot be used: see ``ingest``.
    """
    refuse_groups(groups, "Dask arrays")
    require_path(path, "dask arrays", "use streammc.from_arrays(X.compute(), y.compute())")
    _require_array(X, "X", 2)
    if 0 in X.shape:
        raise DataError(
            f"expected at least one row and column in X, found shape {X.shape}: check the array"
        )
    lengths = X.chunks[0]
    names = given_names(feature_names, X.shape[1])
    arrays = {response: y, "offset": offset, "weight": weight, "trials": trials, ROW_ID: row_id}
    vectors = {name: value for name, value in arrays.items() if value is not None}
    if len(vectors) != sum(value is not None for value in (y, offset, weight, trials, row_id)):
        raise ConfigError(f"expected another name of the response than {response!r}: rename it")
    for name, value in vectors.items():
        if hasattr(value, "chunks") and hasattr(value, "dask"):
            _require_array(value, name, 1)
        else:
            vectors[name] = value = vector_numbers(name, value)
        if value.shape[0] != X.shape[0]:
            raise DataError(
                f"expected {X.shape[0]} values of {name}, as X has rows, found {value.shape[0]}"
                ": pass one value per row"
            )
        if hasattr(value, "chunks"):
            _require_aligned(name, value.chunks[0], lengths)

    def read(start: int, stop: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        parts = dask.compute(X[start:stop], *(value[start:stop] for value in vectors.values()))
        design, *rest = map(unmasked, parts, ("X", *vectors))
        return design, rest

    source = ArraySource(
        "the dask arrays",
        [str(name) for name in names],
        list(vectors),
        [X.dtype, *(value.dtype for value in vectors.values())],
        [0, *accumulate(int(length) for length in lengths if length)],
        read,
        spool=True,  # a second computation of the graph may differ, and may be slow
        row_id=None if row_id is None else ROW_ID,
    )
    if dtype is None:
        dtype = X.dtype.name if X.dtype.name in ("float32", "float64") else "float64"
    options = IngestOptions(
        response=None if y is None else response,
        features=source.names[: len(names)],
        offset=None if offset is None else "offset",
        weight=None if weight is None else "weight",
        trials=None if trials is None else "trials",
        row_id=None if row_id is None else ROW_ID,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        standardize=standardize,
        intercept=intercept,
        drop_missing=drop_missing,
        chunk_rows=chunk_rows,
    )
    store = make_data_set(source, options, path, overwrite=overwrite)
    assert isinstance(store, Store)
    return store


def _require_array(value: Any, name: str, ndim: int) -> None:
    """Refuse a value that is not a Dask array of known chunk sizes."""
    if hasattr(value, "to_dask_array"):
        raise ConfigError(
            f"expected a dask array as {name}, found a dask {type(value).__name__}: "
            "use .to_dask_array(lengths=True)"
        )
    if not (hasattr(value, "chunks") and hasattr(value, "dask")):
        raise ConfigError(
            f"expected a dask array as {name}, found {type(value).__name__}: "
            "use streammc.from_arrays for arrays in memory"
        )
    if value.ndim != ndim:
        raise DataError(
            f"expected {name} with {ndim} dimensions, found shape {value.shape}: reshape it"
        )
    if np.isnan([length for axis in value.chunks for length in axis]).any():
        raise DataError(
            f"expected known chunk sizes in {name}, found unknown ones: "
            f"call {name}.compute_chunk_sizes() before"
        )


def _require_aligned(name: str, chunks: Sequence[int], wanted: Sequence[int]) -> None:
    pairs = zip_longest(filter(None, chunks), filter(None, wanted), fillvalue=0)
    for position, (one, other) in enumerate(pairs):
        if one != other:
            raise DataError(
                f"expected {name} in the row chunks of X, found chunk {position} of {one} rows "
                f"for {other}: use {name}.rechunk((X.chunks[0],))"
            )
