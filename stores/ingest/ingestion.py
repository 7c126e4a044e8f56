"""Ingestion of a table into a store: one pass checks the values, a second writes them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.stores.cloud.address import Root, store_root
from streammc.stores.format.codes import read_columns, with_codes
from streammc.stores.format.layout import CODES, FORMAT, GROUP, ROW_GROUP, ROW_ID
from streammc.stores.format.objects import local_path
from streammc.stores.format.partial import refuse_output, scratch_for
from streammc.stores.format.writer import StoreWriter
from streammc.stores.ingest.coded_factors import Expansion
from streammc.stores.ingest.ingest_options import IngestOptions, as_in, missing_spellings
from streammc.stores.ingest.prepare import Prepared, Progress
from streammc.stores.ingest.row_labels import table_of
from streammc.stores.memory import MemoryStore
from streammc.stores.sources.input_files import complete_records, input_records
from streammc.stores.sources.tables import open_table, table_parts
from streammc.stores.store import Store, open_store
from streammc.trace.addresses import is_address
from streammc.unfinished import marked_folder

Announce = Callable[[int, int, Sequence[str]], None]
"""``announce(rows, bytes of a row, warnings)``, before the rows are written."""


@documented()
def ingest(
    sources: Any,
    path: str | os.PathLike[str],
    *,
    formula: str | None = None,
    response: str | None = None,
    features: Sequence[str] | None = None,
    offset: str | None = None,
    weight: str | None = None,
    trials: str | None = None,
    row_id: str | None = None,
    group: str | None = None,
    group_as: Mapping[str, str] | Sequence[str] | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    dtype: str = "float32",
    standardize: bool = True,
    intercept: bool = True,
    drop_missing: bool = False,
    missing: Sequence[str] | None = None,
    chunk_rows: int | None = None,
    codes_above: int | None = None,
    layout: str = "local",
    compression: str | None = None,
    like: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Make a store from a table, in memory that does not grow with the table.

    Parameters
    ----------
    sources : path, table, or list of them
        Files (CSV, also compressed, Parquet, Feather or Arrow IPC), patterns and directories of
        them, also at ``s3://``, ``gs://`` or ``az://``, folders ``name=value`` being columns; or
        tables in memory (pandas or polars data frames, Arrow tables, mappings from names to
        arrays, objects with ``__arrow_c_stream__``).
    path
        Path of the new store, or its address: ``s3://``, ``gs://`` or ``az://``. Temporary files
        go beside it, those of an address into the system's folder for such: at most the size of
        the store, and for CSV a copy of the columns in use as float64.
    formula
        ``"late ~ distance + C(origin)"`` instead of ``response``, ``features`` and
        ``intercept``: see the how-to on formulas.
    response
        Column ``y``. Stored as integers if every value is a whole number (whatever the type of
        the column), else as floating point numbers; always exactly.
    features
        Columns of ``X``, in this order. By default all columns without another role, except an
        index.
    offset
        Column added to the linear predictor unchanged: for an exposure, its logarithm.
    weight
        Column of weights, 0 to 2**53, such as frequencies or survey weights: the power of the
        likelihood of each row. Means and standard deviations of the features are not weighted.
    trials
        Column of binomial trials N, whole numbers of at least 0; the response holds the
        successes C, whole numbers up to N. The store has the proportion C/N as ``y`` (0 if
        N = 0) and N times the weight as ``weight``.
    row_id
        Column of row ids, integers or text, which predictions carry. By default the position
        of the row in the table, from 0, over all sources; rows left out for missing values
        count.
    group
        Column of the groups of a mixed model: integers, text, categories or dates. Each group
        gets a random intercept, as by ``(1 | column)`` in a formula, which can also have a slope,
        ``(1 + x | column)``. The rows of a group are stored together, and the groups in random
        order. The column can have no other role.
    group_as : mapping from factors to 'columns' or 'integrated', or None
        How the effects of the factors of terms ``(1 | g)`` are handled: integrated out, of one of
        them, or as a column for each of at most 300 levels, with one sampled scale. ``None``: a
        single factor is integrated, of several the one of more than 300 levels, if any. Also a
        list of texts, ``["origin=columns"]``.
    shuffle
        Put the rows into a uniformly random order. ``None``: yes, except with ``like``, which
        keeps the order of the table.
    seed
        Seed of the shuffle, in ``[0, 2**64)``.
    dtype : {'float32', 'float64'}
        Dtype of the stored ``X``.
    standardize
        Store ``(x - mean) / sd`` (divisor n). A constant column, and a level of a factor
        in a formula, is only centred.
    intercept
        Put a column ``Intercept`` of ones first.
    drop_missing
        Leave out rows with a missing value in a column in use. By default they are refused.
    missing : list of texts or None
        Spellings of a missing value in CSV files, beside nothing at all, such as
        ``["NA", "-999"]``. ``None``: NA, N/A, NULL, nan and such. In a column of text they are
        text where they are quoted, as the NA of Namibia.
    chunk_rows
        Rows of a chunk, rounded up to a multiple of 4096. ``None``: chosen by the width of a
        row.
    codes_above
        Number of columns above which a factor of the formula is stored as one integer a row in
        place of its columns. Results are the same but for rounding. ``None``: 64; 4096 for none.
    layout : {'local', 'cloud'}
        ``local``: uncompressed chunks that are memory-mapped. ``cloud``: shards of about a
        million rows, for object stores; they are read through a cache.
    compression : {None, 'zstd'}
        Compression of the pieces of shards.
    like : store, path or None
        A store or its path: its columns, its formula with the fitted knots and levels, and its
        standardisation are used again, for a table of rows to predict. Excludes the options
        that the store decides. The column of its row ids is used again if the table has it.
        ``None``: the options and the table decide.
    overwrite
        Replace a store at ``path``, once the new one is complete. Without it ``path`` must not
        exist. Data sets that are open continue to read the old store.
    progress : Callable[[int, int | None, str], None] | None
        Called as ``progress(rows done, rows in all or None, phase)``; the phases are
        ``formula`` (each pass of its fit), ``scan`` (unless the fit has seen enough),
        ``shuffle`` (only if rows are shuffled on disk) and ``write``.
    announce : Callable[[int, int, Sequence[str]], None] | None
        Called once as ``announce(rows, bytes of a row, warnings)`` before rows are written, so
        that what an exception of it ends has written nothing.

    Returns
    -------
    dict
        JSON: ``path``, the store's attributes (``n_rows``, ``features``, ``response``,
        ``standardization``, ``n_dropped``, ...), ``references`` (column of a level -> reference
        levels), ``y_dtype``, ``chunk_rows``,
        ``row_bytes``, ``bytes``, ``fingerprint``, ``warnings`` and ``seconds``.

    Raises
    ------
    ConfigError
        If an option is wrong, or the output is an input or inside one.
    IdentityError
        If ``path`` exists; with ``overwrite``, if it is not a store.
    MissingError, AccessError
        If a source does not exist or may not be read.
    DataError
        If a column does not exist or is of the wrong type, or a value is missing, infinite,
        text or not exact in float64, or a weight or a count of trials is invalid: the message
        names the column, the first row (from 1, without the header) and the number of rows. If
        float32 would round a column by more than 1e-6 of its standard deviation (root mean
        square).
    StorageIOError
        If the disk is full or refuses.

    Notes
    -----
    After any error, and after Ctrl-C, nothing is left on disk.
    """
    if layout not in ("local", "cloud"):
        raise ConfigError(f"expected the layout 'local' or 'cloud', found {layout!r}: leave it out")
    if compression not in (None, "zstd") or (compression and layout == "local"):
        raise ConfigError(
            f"expected the compression zstd with the layout 'cloud', found {compression!r} with "
            f"{layout!r}: mapped chunks are not compressed, leave it out"
        )
    for name, function in (("progress", progress), ("announce", announce)):
        if function is not None and not callable(function):
            raise ConfigError(
                f"expected {name} to be a function, found {function!r}: leave it out, or give one, "
                "such as print"
            )
    options = IngestOptions(
        formula=formula,
        response=response,
        features=features,
        offset=offset,
        weight=weight,
        trials=trials,
        row_id=row_id,
        group=group,
        group_as=group_as,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        standardize=standardize,
        intercept=intercept,
        drop_missing=drop_missing,
        missing=missing,
        cloud=None if layout == "local" else compression or "raw",
        chunk_rows=chunk_rows,
        codes_above=codes_above,
    )
    return make_store(
        sources,
        path,
        as_in(options, like),
        overwrite=overwrite,
        progress=progress,
        announce=announce,
    )


@documented(ingest)
def from_table(
    table: Any,
    *,
    formula: str | None = None,
    response: str | None = None,
    features: Sequence[str] | None = None,
    offset: str | None = None,
    weight: str | None = None,
    trials: str | None = None,
    row_id: str | None = None,
    group: str | None = None,
    group_as: Mapping[str, str] | Sequence[str] | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    dtype: str = "float32",
    standardize: bool = True,
    intercept: bool = True,
    drop_missing: bool = False,
    missing: Sequence[str] | None = None,
    chunk_rows: int | None = None,
    codes_above: int | None = None,
    like: Any = None,
    path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Store | MemoryStore:
    """Use a data frame, an Arrow table or files as a data set.

    The rows are the same as in a store of :func:`ingest`, bit for bit, but are kept in memory,
    or in a new store at ``path``. Errors are those of :func:`ingest`; its warnings are issued
    as ``UserWarning``.

    Parameters
    ----------
    table : path, table, or list of them
        Files (CSV, also compressed, Parquet, Feather or Arrow IPC), patterns and directories of
        them, also at ``s3://``, ``gs://`` or ``az://``, folders ``name=value`` being columns; or
        tables in memory (pandas or polars data frames, Arrow tables, mappings from names to
        arrays, objects with ``__arrow_c_stream__``).
    path
        Path of the new store. ``None``: the rows stay in memory.

    Returns
    -------
    Store or MemoryStore
        A data set, for ``streammc.sample``.
    """
    options = IngestOptions(
        formula=formula,
        response=response,
        features=features,
        offset=offset,
        weight=weight,
        trials=trials,
        row_id=row_id,
        group=group,
        group_as=group_as,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        standardize=standardize,
        intercept=intercept,
        drop_missing=drop_missing,
        missing=missing,
        chunk_rows=chunk_rows,
        codes_above=codes_above,
    )
    return make_data_set(table, as_in(options, like), path, overwrite=overwrite)


def make_store(
    sources: Any,
    path: str | os.PathLike[str],
    options: IngestOptions,
    *,
    overwrite: bool,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Make a store from a table; return the report of ``ingest``."""
    started = monotonic()
    target = store_root(path)
    check_output(target, sources)
    refuse_output(target, overwrite=overwrite)
    parts = table_parts(sources)
    inputs = input_records(parts)
    table = open_table(parts, missing_spellings(options))
    with scratch_for(target) as folder:
        prepared = Prepared(table, options, folder, progress)
        prepared.warnings += prepared.size_warnings()
        if announce is not None:
            announce(*prepared.size, prepared.warnings)
        with StoreWriter(
            str(target),
            features=prepared.feature_names,
            dtype=options.dtype,
            y_dtype=prepared.scan.y_dtype,
            offset=prepared.columns.offset is not None,
            weight=(prepared.columns.weight or prepared.columns.trials) is not None,
            row_id=prepared.encoding.id_dtype,
            **{prepared.encoding.group_field: prepared.encoding.group_dtype},
            chunk_rows=options.chunk_rows,
            n_rows=prepared.scan.n_rows,
            codes=prepared.codes_attribute(),
            overwrite=overwrite,
            cloud=options.cloud,
        ) as writer:
            for records in prepared.records():
                if writer.groups is not None:
                    writer.groups.add_rows(records[GROUP])
                writer.append_with(len(records), partial(_expand, prepared.expansion, records))
            writer.commit(prepared.attributes(), [complete_records(inputs, table.rows_read)])
    store = open_store(str(target))
    return store_report(store) | {
        "references": store.references(),
        "warnings": prepared.warnings,
        "seconds": monotonic() - started,
    }


def store_report(store: Store) -> dict[str, Any]:
    """Return what ``ingest`` and ``append`` report of the store that they made."""
    y = store.layout.member("y")
    return {
        "path": store.address,
        **store.attributes,
        "y_dtype": None if y is None else y.dtype,
        "chunk_rows": store.layout.chunk_rows,
        "row_bytes": store.layout.row_bytes,
        "bytes": store.manifest.total_bytes,
        "fingerprint": store.fingerprint,
    }


def check_output(target: Root, sources: Any) -> None:
    """Refuse an output that is an input or inside one."""
    for source in sources if isinstance(sources, (list, tuple)) else [sources]:
        if not isinstance(source, (str, os.PathLike)):
            continue
        if not isinstance(target, Path) or is_address(source):
            continue
        source_path = os.path.realpath(local_path(source))
        real = os.path.realpath(target)
        if real == source_path or real.startswith(source_path + os.sep):
            raise ConfigError(
                f"expected an output outside the input {str(source)!r}, found {str(target)!r}: "
                "choose another path"
            )


def _expand(
    expansion: Expansion, records: NDArray[Any], start: int, into: Mapping[str, NDArray[Any]]
) -> None:
    """Write as many records, from ``start`` on, as the arrays have rows."""
    expansion.write(records[start : start + len(into["X"])], into)


def make_data_set(
    table: Any, options: IngestOptions, path: str | os.PathLike[str] | None, *, overwrite: bool
) -> Store | MemoryStore:
    """Return the rows of a table in a new store, or in memory without ``path``.

    Warnings name the line that called the caller of this function.
    """
    if path is not None:
        report = make_store(table, path, options, overwrite=overwrite)
        _warn(report["warnings"])
        return open_store(path)
    with marked_folder("streammc-") as folder:
        prepared = Prepared(open_table(table, missing_spellings(options)), options, folder, None)
        _warn(prepared.size_warnings(in_memory=True))
        store = _in_memory(prepared, options.chunk_rows)
    _warn(prepared.warnings)
    return store


def _in_memory(prepared: Prepared, chunk_rows: int | None) -> MemoryStore:
    rows = prepared.scan.n_rows
    arrays = prepared.expansion.empty(rows)
    done = 0
    for records in prepared.records():
        end = done + records.size
        parts = {name: array[done:end] for name, array in arrays.items()}
        prepared.expansion.write(records, parts)
        done = end
    X = arrays.pop("X")
    empty = np.empty(0)
    stated = prepared.codes_attribute()
    attributes = {
        "format": FORMAT,
        "n_rows": rows,
        "features": prepared.feature_names,
        **prepared.attributes(),
        "dtype": X.dtype.name,
    } | ({CODES: stated} if stated else {})
    X = with_codes(X, arrays.get(CODES), read_columns(attributes))
    groups: Any = arrays.get(ROW_GROUP)
    if prepared.groups is not None:
        groups = table_of(prepared.groups, arrays.pop(GROUP))
        attributes["groups"] = groups.describe()
    return MemoryStore(
        X,
        arrays.get("y", empty),
        arrays.get("offset", empty),
        arrays.get("weight", empty),
        attributes,
        chunk_rows,
        arrays.get(ROW_ID),
        groups,
    )


def _warn(messages: list[str]) -> None:
    for message in messages:
        warnings.warn(message, stacklevel=4)
