"""The second pass of ``ingest``: write the rows into a new store, or into memory."""

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

from streammc.errors import ConfigError
from streammc.owner_mark import marked_folder
from streammc.stores.cloud.address import Root, store_root
from streammc.stores.format.codes import read_columns, with_codes
from streammc.stores.format.destination import refuse_output, scratch_for
from streammc.stores.format.layout import (
    CODES,
    FORMAT,
    GROUP,
    ROW_GROUP,
    ROW_ID,
    choose_chunk_rows,
    round_chunk_rows,
)
from streammc.stores.format.objects import local_path
from streammc.stores.format.writer import StoreWriter
from streammc.stores.ingest.ingest_options import IngestOptions, missing_spellings
from streammc.stores.ingest.prepare import Prepared, Progress
from streammc.stores.ingest.record_expansion import Expansion
from streammc.stores.memory import MemoryStore
from streammc.stores.rows.group_labels import table_of
from streammc.stores.sources.input_record import complete_records, input_records
from streammc.stores.sources.tables import open_table, table_parts
from streammc.stores.store import Store, open_store
from streammc.trace.local_path import is_address

Announce = Callable[[int, int, Sequence[str]], None]
"""``announce(rows, bytes of a row, warnings)``, before the rows are written."""


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
            y_dtype=prepared.found.y_dtype,
            offset=prepared.columns.offset is not None,
            weight=(prepared.columns.weight or prepared.columns.trials) is not None,
            row_id=prepared.encoding.id_dtype,
            **{prepared.encoding.group_field: prepared.encoding.group_dtype},
            chunk_rows=options.chunk_rows,
            n_rows=prepared.found.n_rows,
            codes=prepared.described_codes(),
            overwrite=overwrite,
            cloud=options.cloud,
        ) as writer:
            for records in prepared.records():
                if writer.groups is not None:
                    writer.groups.add_rows(records[GROUP])
                writer.append_with(len(records), partial(_expand, prepared.expansion, records))
            writer.commit(prepared.attributes(), [complete_records(inputs, table.rows_read)])
    store = open_store(str(target))
    return {
        "path": str(target),
        **store.attributes,
        "references": store.references(),
        "y_dtype": prepared.found.y_dtype,
        "chunk_rows": store.layout.chunk_rows,
        "row_bytes": store.layout.row_bytes,
        "bytes": sum(entry.size for entry in store.manifest.entries.values()),
        "fingerprint": store.fingerprint,
        "warnings": prepared.warnings,
        "seconds": monotonic() - started,
    }


def make_data_set(
    table: Any,
    options: IngestOptions,
    path: str | os.PathLike[str] | None,
    *,
    overwrite: bool,
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


def _expand(
    expansion: Expansion, records: NDArray[Any], start: int, into: Mapping[str, NDArray[Any]]
) -> None:
    """Write as many records, from ``start`` on, as the arrays have rows."""
    expansion.write(records[start : start + len(into["X"])], into)


def _in_memory(prepared: Prepared, chunk_rows: int | None) -> MemoryStore:
    rows = prepared.found.n_rows
    arrays = prepared.expansion.empty(rows)
    done = 0
    for records in prepared.records():
        end = done + records.size
        parts = {name: array[done:end] for name, array in arrays.items()}
        prepared.expansion.write(records, parts)
        done = end
    X = arrays.pop("X")
    empty = np.empty(0)
    stated = prepared.described_codes()
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
    step = choose_chunk_rows(X.shape[1] * X.dtype.itemsize) if chunk_rows is None else chunk_rows
    return MemoryStore(
        X,
        arrays.get("y", empty),
        arrays.get("offset", empty),
        arrays.get("weight", empty),
        attributes,
        min(round_chunk_rows(step), rows),
        arrays.get(ROW_ID),
        groups,
    )


def _warn(messages: list[str]) -> None:
    for message in messages:
        warnings.warn(message, stacklevel=4)


def check_output(target: Root, sources: Any) -> None:
    """Refuse an output that is an input or inside one."""
    for source in sources if isinstance(sources, (list, tuple)) else [sources]:
        if not isinstance(source, (str, os.PathLike)):
            continue
        if not isinstance(target, Path) or is_address(source):
            continue
        given = os.path.realpath(local_path(source))
        real = os.path.realpath(target)
        if real == given or real.startswith(given + os.sep):
            raise ConfigError(
                f"expected an output outside the input {str(source)!r}, found {str(target)!r}: "
                "choose another path"
            )
