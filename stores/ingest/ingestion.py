"""Ingestion of a table into a store: one pass checks the values, a second writes them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, RefusedError
from streammc.numerics.process_limits import available_memory
from streammc.settings import OverwriteOption, called_with, values_of
from streammc.stores.cloud.address import Root, store_root
from streammc.stores.format.codes import read_columns, with_codes
from streammc.stores.format.layout import CODES, FORMAT, GROUP, LEVEL, ROW_GROUP, ROW_ID
from streammc.stores.format.objects import local_path
from streammc.stores.format.partial import refuse_output, scratch_for
from streammc.stores.format.writer import StoreWriter, described_crossed
from streammc.stores.ingest.coded_factors import Expansion
from streammc.stores.ingest.ingest_options import IngestOptions, as_in, missing_spellings
from streammc.stores.ingest.prepare import Prepared, Progress, prepared_table
from streammc.stores.ingest.row_labels import table_of
from streammc.stores.ingest.table_blocks import ReadRecord
from streammc.stores.ingest.table_options import LayoutOptions, LikeOption, TableOptions
from streammc.stores.memory import MemoryStore
from streammc.stores.sources.input_files import complete_records, input_records
from streammc.stores.sources.tables import open_table, table_parts
from streammc.stores.store import Store, open_store
from streammc.trace.addresses import is_address
from streammc.unfinished import new_folder, remove

KEPT_BYTES: Final = 2**28
"""Most bytes of rows in memory for a sampler that needs them in order alone."""
WATCHED_ROWS: Final = 2**20
"""Fewest rows of a table whose first read keeps a sample, in case that it is read in order."""
if TYPE_CHECKING:
    from streammc.stores.ingest.streamed_table import StreamedTable

Announce = Callable[[int, int, Sequence[str]], None]
"""``announce(rows, bytes of a row, warnings)``, before the rows are written."""


@dataclass(frozen=True)
class IngestCall(TableOptions, LayoutOptions, LikeOption, OverwriteOption):
    """Arguments of :func:`ingest`.

    Parameters
    ----------
    sources : path, table, or list of them
        Files (CSV, also compressed, Parquet, Feather or Arrow IPC), patterns and directories of
        them, also at ``s3://``, ``gs://`` or ``az://``, folders ``name=value`` being columns; or
        tables in memory or lazy ones (frames of pandas, polars, DuckDB, Dask or Ibis, Arrow tables,
        mappings from names to arrays, objects with ``__arrow_c_stream__``). A lazy frame is
        computed once, into a temporary file of the columns in use.
    path
        Path of the new store, or its address: ``s3://``, ``gs://`` or ``az://``. Temporary files
        go beside it, those of an address into the system's folder for such: at most the size of
        the store, and for CSV a copy of the columns in use as float64.
    overwrite
        Replace a store at ``path``, once the new one is complete. Without it ``path`` must not
        exist. Data sets that are open continue to read the old store.
    progress : Callable[[int, int | None, str], None] | None
        Called as ``progress(rows done, rows in all or None, phase)``; the phases are ``cells`` (if
        they are looked for), ``formula`` (each pass of its fit), ``scan`` (unless the fit has seen
        enough), ``shuffle`` (only if rows are shuffled on disk) and ``write``.
    announce : Callable[[int, int, Sequence[str]], None] | None
        Called once as ``announce(rows, bytes of a row, warnings)`` before rows are written, so
        that what an exception of it ends has written nothing.
    """

    sources: Any
    path: str | os.PathLike[str]
    _: KW_ONLY
    progress: Progress | None = None
    announce: Announce | None = None


@called_with(IngestCall)
def ingest(call: IngestCall) -> dict[str, Any]:
    """Make a store from a table, in memory that does not grow with the table.

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
    layout, compression = call.layout, call.compression
    if layout not in ("local", "cloud"):
        raise ConfigError(f"expected the layout 'local' or 'cloud', found {layout!r}: leave it out")
    if compression not in (None, "zstd") or (compression and layout == "local"):
        raise ConfigError(
            f"expected the compression zstd with the layout 'cloud', found {compression!r} with "
            f"{layout!r}: mapped chunks are not compressed, leave it out"
        )
    for name, function in (("progress", call.progress), ("announce", call.announce)):
        if function is not None and not callable(function):
            raise ConfigError(
                f"expected {name} to be a function, found {function!r}: leave it out, or give one, "
                "such as print"
            )
    cloud = None if layout == "local" else compression or "raw"
    return make_store(
        call.sources,
        call.path,
        as_in(IngestOptions(**values_of(call, TableOptions), cloud=cloud), call.like),
        overwrite=call.overwrite,
        progress=call.progress,
        announce=call.announce,
    )


@dataclass(frozen=True)
class TableCall(TableOptions, LikeOption, OverwriteOption):
    """Arguments of :func:`from_table`.

    Parameters
    ----------
    table : path, table, or list of them
        Files (CSV, also compressed, Parquet, Feather or Arrow IPC), patterns and directories of
        them, also at ``s3://``, ``gs://`` or ``az://``, folders ``name=value`` being columns; or
        tables in memory or lazy ones (frames of pandas, polars, DuckDB, Dask or Ibis, Arrow tables,
        mappings from names to arrays, objects with ``__arrow_c_stream__``). A lazy frame is
        computed once, into a temporary file of the columns in use.
    path
        Path of the new store. ``None``: the rows stay in memory.
    overwrite
        Replace a store at ``path``, once the new one is complete. Without it ``path`` must not
        exist. Data sets that are open continue to read the old store.
    """

    table: Any
    _: KW_ONLY
    path: str | os.PathLike[str] | None = None


@called_with(TableCall)
def from_table(call: TableCall) -> Store | MemoryStore:
    """Use a data frame, an Arrow table or files as a data set.

    The rows are the same as in a store of :func:`ingest`, bit for bit, but are kept in memory,
    or in a new store at ``path``. Errors are those of :func:`ingest`; its warnings are issued
    as ``UserWarning``.

    Returns
    -------
    Store or MemoryStore
        A data set, for ``streammc.sample``.
    """
    options = as_in(IngestOptions(**values_of(call, TableOptions)), call.like)
    return make_data_set(call.table, options, call.path, overwrite=call.overwrite, depth=5)


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
        prepared = prepared_table(table, options, folder, progress)
        prepared.warnings += prepared.size_warnings()
        if announce is not None:
            announce(*prepared.size, prepared.warnings)
        with StoreWriter(
            str(target),
            features=prepared.feature_names,
            dtype=options.dtype,
            y_dtype=prepared.scan.y_dtype,
            offset=prepared.columns.offset is not None,
            weight=prepared.encoding.weighted,
            row_id=prepared.encoding.id_dtype,
            **{prepared.encoding.group_field: prepared.encoding.group_dtype},
            crossed=prepared.crossed,
            effects=prepared.effects,
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
    table: Any,
    options: IngestOptions,
    path: str | os.PathLike[str] | None,
    *,
    overwrite: bool,
    depth: int = 4,
) -> Store | MemoryStore:
    """Return the rows of a table in a new store, or in memory without ``path``.

    Warnings name the line ``depth`` calls above: that of the user.
    """
    made = rows_of(table, options, path, overwrite=overwrite, depth=depth + 1, keep=True)
    return cast("Store | MemoryStore", made)


def rows_of(
    table: Any,
    options: IngestOptions,
    path: str | os.PathLike[str] | None,
    *,
    overwrite: bool,
    depth: int = 4,
    keep: bool = False,
    in_order: bool = False,
    sampled: bool = True,
    no_cells: bool = False,
    refuse_in_order: Callable[[], None] = lambda: None,
) -> Store | MemoryStore | StreamedTable:
    """Return the rows of a table in a new store, or without ``path`` in memory if they fit.

    Rows that need more than half of the available memory are read from the table whenever they are
    needed, unless ``keep`` is true; those of over 256 MB too, where ``in_order`` says that no more
    is asked of them. Such tables keep a sample for a sampler, if ``sampled``. ``refuse_in_order``
    may raise before. Cells are made where neither the options nor ``no_cells`` say otherwise, and
    kept in memory, unless they do not fit. Warnings name the line ``depth`` calls above.
    """
    by_default = path is None and not keep and options.like is None and not no_cells
    if options.cells is None and by_default:
        options = replace(options, cells="auto")
    if path is not None:
        options = replace(options, sufficient=None)  # a store is for any family
        report = make_store(table, path, options, overwrite=overwrite)
        _warn(report["warnings"], depth)
        return open_store(path)
    folder = new_folder("streammc-")
    streamed = False
    try:
        opened = open_table(table, missing_spellings(options))
        first_read = None if keep else ReadRecord()
        if not keep and sampled and (opened.n_rows or 0) >= WATCHED_ROWS:
            from streammc.stores.ingest.streamed_table import samples  # loads the compiler

            first_read = ReadRecord(samples(opened.n_rows or 0, 1))
        prepared = prepared_table(opened, options, folder, None, first_read)
        most = available_memory() // 2
        if prepared.encoding.cells and not keep and prod(prepared.size) > most:
            by_rows = replace(options, cells="no")
            prepared = prepared_table(opened, by_rows, folder, None, first_read)
        rows, row_bytes = prepared.size
        kept = not in_order or prepared.encoding.cells or prepared.crossed
        most = most if kept else min(most, KEPT_BYTES)
        streamed = not keep and rows * row_bytes > most
        if streamed and prepared.crossed:
            raise RefusedError(
                f"expected factors that cross, {', '.join(prepared.crossed)}, in a store or in "
                f"memory, found a table that is only read in order: {rows:,} rows of {row_bytes} "
                "bytes are more than half of the memory; make a store, of rows to predict with "
                "--like the store of the run"
            )
        store: MemoryStore | StreamedTable
        if streamed:
            refuse_in_order()
            from streammc.stores.ingest.streamed_table import StreamedTable  # loads the compiler

            store = StreamedTable(prepared, folder, sampled=sampled)
        else:
            _warn(prepared.size_warnings(in_memory=True), depth)
            store = _in_memory(prepared, options.chunk_rows)
    finally:
        if not streamed:
            with suppress(OSError):
                remove(folder)
    _warn(prepared.warnings, depth)
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
    levels = (arrays.pop(LEVEL), prepared.crossed) if prepared.crossed else None
    attributes |= described_crossed(prepared.crossed, prepared.effects)
    return MemoryStore(
        X,
        arrays.get("y", empty),
        arrays.get("offset", empty),
        arrays.get("weight", empty),
        attributes,
        chunk_rows,
        arrays.get(ROW_ID),
        groups,
        levels,
    )


def _warn(messages: list[str], depth: int) -> None:
    for message in messages:
        warnings.warn(message, stacklevel=depth)
