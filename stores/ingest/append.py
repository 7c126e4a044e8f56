"""Rows appended to a store: a new generation, in the columns and on the scale of the first.

Files whose rows the store has are refused. A file is known by its place, size and times, or by its
contents: under another name, or at another time, it has the same rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import DataError, IdentityError
from streammc.group_table import CrossedFactor
from streammc.stores.format.generations import LEVELS, described, with_inputs, without_places
from streammc.stores.format.layout import CELLS, ROW_GROUP, ROW_ID, Member
from streammc.stores.format.partial import scratch
from streammc.stores.format.writer import ExtendingWriter
from streammc.stores.ingest.column_values import LIMIT
from streammc.stores.ingest.ingest_options import IngestOptions, as_in, missing_spellings, unscored
from streammc.stores.ingest.ingestion import IngestCall, check_output, store_report
from streammc.stores.ingest.prepare import Prepared, Progress
from streammc.stores.ingest.row_labels import id_texts
from streammc.stores.sources.input_files import (
    complete_records,
    equal_input,
    input_records,
    same_input,
)
from streammc.stores.sources.tables import Table, open_table, table_parts
from streammc.stores.store import Store, open_store
from streammc.trace.addresses import is_address, real_place

Record = Mapping[str, Any]
AGAIN: Final = "leave it out, or append its rows once more with --again"
"""Advice about a file whose rows a store has."""


_FITS: Final = {
    "uint8": ("uint8",),
    "int32": ("uint8", "int32"),
    "int64": ("uint8", "int32", "int64"),
    "float32": ("uint8", "float32"),
    "float64": ("uint8", "int32", "int64", "float32", "float64"),
}
"""Dtypes of a response that each dtype of ``y`` holds exactly; whole numbers by their size."""
_EXACT: Final = {"float32": 2.0**24, "float64": LIMIT}


@documented(IngestCall)
def append(
    sources: Any,
    path: str | os.PathLike[str],
    *,
    shuffle: bool | None = None,
    seed: int = 0,
    drop_missing: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Append the rows of a table to a store, as a new generation.

    The columns, the levels and knots of a formula, the scale and the dtypes are those of the store;
    means and standard deviations are not computed again. Factors that cross get new levels, behind
    those that they have. The rows are shuffled among themselves and
    follow the earlier ones. Readers find the store as it was or with all new rows, and a process
    that is killed leaves it as it was. Rows of a file that the store has are not appended again:
    a file is known by its place, without links, size and modification time, and by its contents
    under any other name or time.

    Parameters
    ----------
    path
        Path of the store.
    shuffle
        Put the new rows into a uniformly random order. ``None``: as the rows of the store were.
    again
        Append the rows also if the store has those of the same files, or of files with the same
        contents: rows that are really there twice.

    Returns
    -------
    dict
        JSON, as of :func:`ingest`; and ``generation``, its number from 1 on, ``appended_rows``,
        and ``new``: false if a generation has the rows of these files.

    Raises
    ------
    ConfigError
        If an option is wrong, or the store would have too many chunks.
    IdentityError
        If the store has groups, whose rows are stored together, or keeps no ids for rows in another
        order. Without ``again``, if it has the rows of some of the files, or of a file with the
        contents of one, or two of the files have the same contents.
    DataError
        If the table does not fit the store: a column is missing, a level of a factor that is
        columns is new, a value is outside the range of a spline or not exact in the dtype of the
        response, or labels are texts where the store has integers, or the other way round.
    BusyError
        If another process is writing the store.

    Notes
    -----
    After any error, and after Ctrl-C, the store is as it was.
    """
    started = monotonic()
    store = open_store(path)
    _refuse_kind(store)
    check_output(Path(store.address), sources)
    parts = table_parts(sources)
    inputs = input_records(parts)
    recorded = recorded_generations(store)
    if inputs and not again:
        number = generation_of(recorded, inputs)
        if number is not None:
            return _report(store, number, False, [], started)
        refuse_known(recorded, inputs, [part.path for part in parts], store.address)
    options = _options(store, shuffle=shuffle, seed=seed, drop_missing=drop_missing)
    table = open_table(parts, missing_spellings(options))
    _require_columns(store, table, options)
    with scratch(Path(store.address)) as folder:
        prepared = Prepared(table, options, folder, progress)
        prepared.warnings += prepared.size_warnings()
        _check_fit(store, prepared, table)
        files = complete_records(inputs, table.rows_read)
        if files and not again:
            refuse_twice(files, table.paths)
        labels = prepared.number_as(store.crossed)
        with ExtendingWriter(store, store.n_rows + prepared.scan.n_rows, labels) as writer:
            _write(store, prepared, writer)
            entry = {
                "n_rows": prepared.scan.n_rows,
                "n_dropped": prepared.scan.n_dropped,
                "shuffle_seed": int(seed) if options.shuffle else False,
                "sources": [],
                "inputs": files,
                "fingerprint": None,
                **({LEVELS: [len(each) for each in labels.values()]} if labels else {}),
            }
            before = {**recorded[-1], "fingerprint": store.fingerprint}
            recorded = [*recorded[:-1], before, entry]
            records = [each["inputs"] for each in recorded]
            writer.commit(_attributes(store, without_places(recorded)), records)
    warnings = prepared.warnings
    return _report(open_store(path), len(recorded), True, warnings, started)


def _refuse_kind(store: Store) -> None:
    """Raise IdentityError for a store whose rows have an order that new rows would break."""
    if store.foreign is not None:
        raise IdentityError(
            f"expected a store of streammc to append to, found arrays of another program at "
            f"{store.address!r}: use that program to append, or make a store of them"
        )
    if is_address(store.address):
        raise IdentityError(
            f"expected a store on a local disk to append to, found {store.address!r}: make it "
            "again from all tables, or copy it to a disk with 'streammc pull' and append there"
        )
    if CELLS in store.attributes:
        raise IdentityError(
            f"expected a store of rows to append to, found cells at {store.address!r}, whose "
            "weights count rows that are equal: make it again from all tables"
        )
    column = (store.attributes.get("groups") or {}).get("column")
    column = column or store.attributes.get(ROW_GROUP)
    if column is not None:
        raise IdentityError(
            f"expected a store without groups to append to, found {store.address!r} with the "
            f"groups of {column!r}: the rows of a group are neighbours, and new ones would move "
            "all rows behind them; make it again from all tables"
        )


def _options(store: Store, *, shuffle: bool | None, seed: int, drop_missing: bool) -> IngestOptions:
    """Return the options that encode a table as the store did; refuse an order without ids."""
    moved = store.attributes["shuffle_seed"] is not False
    wanted = moved if shuffle is None else shuffle
    if wanted and store.layout.member(ROW_ID) is None:
        raise IdentityError(
            f"expected a store with row ids to shuffle new rows, found {store.address!r}, whose "
            "ids are positions: use --no-shuffle, or make it again from all tables"
        )
    dtype = str(store.attributes["dtype"])
    options = IngestOptions(shuffle=wanted, seed=seed, dtype=dtype, drop_missing=drop_missing)
    ids = store.layout.member(ROW_ID)
    texts = [each.column for each in store.crossed if _has_texts(each)]
    if ids is not None and ids.columns is not None:
        texts.append(store.attributes[ROW_ID])
    return replace(as_in(options, store), text_labels=tuple(texts))


def _has_texts(factor: CrossedFactor) -> bool:
    return factor.labels(0, 1).dtype.kind == "S"


def _require_columns(store: Store, table: Table, options: IngestOptions) -> None:
    """Raise DataError if the table lacks response, row ids or factors that cross of the store."""
    label = table.sources[0].label
    if store.response is not None and unscored(options, table) is not None:
        raise DataError(
            f"expected the response {store.response!r} of store {store.address!r} in {label}, "
            "found none: give rows to sample from, with all columns"
        )
    name = store.attributes.get(ROW_ID)
    columns = {} if name is None else {name: "row ids"}
    for factor in store.crossed:
        columns |= dict.fromkeys(factor.column.split(":"), f"levels of {factor.column!r}")
    for name, what in columns.items():
        if name not in table:
            raise DataError(
                f"expected the {what} of store {store.address!r} in column {name!r} of {label}, "
                "found none: give a table with that column"
            )


def _check_fit(store: Store, prepared: Prepared, table: Table) -> None:
    """Raise DataError if responses, row ids or levels do not fit the dtypes of the store."""
    label, y = table.sources[0].label, store.layout.member("y")
    y_dtype = prepared.scan.y_dtype
    if y is not None and y_dtype is not None:
        index = prepared.columns.index(prepared.columns.response)
        assert index is not None
        low, high = prepared.scan.minimum[index], prepared.scan.maximum[index]
        whole = y_dtype not in ("float32", "float64")
        size = max(-low, high)
        exact = y.dtype in _EXACT and whole and size <= _EXACT[y.dtype]
        if y_dtype not in _FITS[y.dtype] and not exact:
            raise DataError(
                f"expected responses in column {prepared.columns.response!r} of {label} that "
                f"{y.dtype} holds exactly, as store {store.address!r} has them, found "
                f"{'whole' if whole else 'fractional'} numbers from {low:g} to {high:g}: make it "
                "again from all tables"
            )
    member, ids = store.layout.member(ROW_ID), prepared.encoding.id_dtype
    if member is None and prepared.scan.n_dropped:
        raise DataError(
            f"expected no missing values in {label}, since the row ids of store {store.address!r} "
            f"are positions, found {prepared.scan.n_dropped} rows with some: give values for them"
        )
    if member is not None and ids is not None and not _holds(member, ids):
        width = f"texts of at most {member.columns} bytes"
        expected = "integers" if member.columns is None else width
        found = "integers" if ids == "int64" else f"texts of up to {ids[1:]} bytes"
        raise DataError(
            f"expected {expected} as row ids in {label}, as store {store.address!r} has them, "
            f"found {found}: make it again from all tables"
        )
    for factor in store.crossed:
        given = prepared.crossed[factor.column]
        if (given.dtype.kind == "S") != _has_texts(factor):
            kinds = ("integers", "texts") if given.dtype.kind == "S" else ("texts", "integers")
            raise DataError(
                f"expected {kinds[0]} as labels of {factor.column!r} in {label}, as store "
                f"{store.address!r} has them, found {kinds[1]} such as "
                f"{str(id_texts(given[:1])[0])[:60]!r}: convert them, or make it again from all "
                "tables"
            )


def _holds(member: Member, dtype: str) -> bool:
    """Return whether an array of row ids holds ids of a dtype."""
    if member.columns is None:
        return dtype == "int64"
    return dtype.startswith("S") and int(dtype[1:]) <= member.columns


def _write(store: Store, prepared: Prepared, writer: ExtendingWriter) -> None:
    """Write the rows of the table behind those of the store."""
    named = store.attributes.get(ROW_ID) is not None
    first = store.n_rows + int(store.attributes.get("n_dropped") or 0)
    done = 0
    for records in prepared.records():
        fields = prepared.expansion.empty(records.size)
        prepared.expansion.write(records, fields)
        if store.layout.member(ROW_ID) is None:
            fields.pop(ROW_ID, None)
        elif not named:
            place: NDArray[Any] = np.arange(done, done + records.size)
            fields[ROW_ID] = first + fields.get(ROW_ID, place)
        done += records.size
        writer.append(fields.pop("X"), fields.pop("y", None), **fields)


def _attributes(store: Store, recorded: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the attributes of the store with these generations."""
    known = ("format", "features", "dtype")  # by the writer
    others = {key: value for key, value in store.attributes.items() if key not in known}
    return {**others, **described(recorded)}


def _report(
    store: Store, number: int, new: bool, warnings: list[str], started: float
) -> dict[str, Any]:
    """Return the JSON of :func:`append`."""
    generations = with_inputs(store.attributes, store.manifest.inputs)
    return store_report(store) | {
        **store.recorded_generations(),
        "generation": number,
        "appended_rows": generations[number - 1]["n_rows"],
        "new": new,
        "warnings": warnings,
        "seconds": monotonic() - started,
    }


def recorded_generations(store: Store) -> list[dict[str, Any]]:
    """Return the generations of a store, each with ``inputs``: the records of its files, or null.

    An earlier version kept none of the first generation: they are those of the receipt beside the
    store, if it has one that names files alone.
    """
    recorded = with_inputs(store.attributes, store.manifest.inputs)
    if recorded[0]["inputs"] is None:
        recorded[0]["inputs"] = _records_of_receipt(Path(store.address))
    return recorded


def generation_of(recorded: Sequence[Mapping[str, Any]], inputs: Sequence[Record]) -> int | None:
    """Return the number of the generation of exactly these files, unchanged; else ``None``."""
    places = {str(each["path"]) for each in inputs}
    for number, each in enumerate(recorded, 1):
        files = {real_place(file["path"]): file for file in each["inputs"] or ()}
        if files.keys() == places and all(same_input(files[path], path) for path in places):
            return number
    return None


def _files(recorded: Sequence[Mapping[str, Any]]) -> list[tuple[Record, int]]:
    """Return the records of all files, each with the number of its generation."""
    return [(file, n) for n, each in enumerate(recorded, 1) for file in each["inputs"] or ()]


def refuse_known(
    recorded: Sequence[Mapping[str, Any]],
    inputs: Sequence[Record],
    names: Sequence[str],
    store: str,
) -> None:
    """Refuse files of which a store has the rows of some."""
    by_place = {real_place(file["path"]): (file, number) for file, number in _files(recorded)}
    for name, record in zip(names, inputs, strict=True):
        before, number = by_place.get(record["path"], (None, 0))
        if before is not None and same_input(before, record["path"]):
            raise IdentityError(
                f"expected files that are not in {store!r} yet, found {name!r} among others, "
                f"which {_origin(number)}: name the new ones alone"
            )
    refuse_equal(recorded, inputs, names, store)


def refuse_equal(
    recorded: Sequence[Mapping[str, Any]],
    inputs: Sequence[Record],
    names: Sequence[str],
    store: str,
    *,
    advice: str = AGAIN,
) -> None:
    """Refuse a file with the contents of another one, whose rows a store has."""
    by_size: dict[int, list[tuple[Record, int]]] = {}
    for file, number in _files(recorded):
        by_size.setdefault(file["bytes"], []).append((file, number))
    for name, record in zip(names, inputs, strict=True):
        alike = by_size.get(record["bytes"], [])
        equal = equal_input(record, [file for file, _ in alike])
        if equal is None:
            continue
        origin = next(_origin(number) for file, number in alike if file is equal)
        same = real_place(equal["path"]) == record["path"]
        found = "another time and the same contents" if same else f"those of {equal['path']!r}"
        raise IdentityError(
            f"expected files with other contents than those in {store!r}, found {name!r} with "
            f"{found}, which {origin}: {advice}"
        )


def refuse_twice(inputs: Sequence[Record], names: Sequence[str]) -> None:
    """Refuse two files to append with the same contents; files without rows may be equal."""
    by_size: dict[int, list[Record]] = {}
    for name, record in zip(names, inputs, strict=True):
        alike = by_size.setdefault(record["bytes"], [])
        equal = equal_input(record, alike)
        if equal is not None:
            other = next(name for name, each in zip(names, inputs, strict=True) if each is equal)
            raise IdentityError(
                f"expected files with rows of their own, found {name!r} with the contents of "
                f"{other!r}: {AGAIN}"
            )
        alike.append(record)


def _origin(number: int) -> str:
    """Return how the rows of a file came into a store, by the number of their generation."""
    return "it was made of" if number == 1 else "was appended before"


def _records_of_receipt(store: Path) -> list[dict[str, Any]] | None:
    """Return the records of the tables that a store was made of, from the receipt beside it."""
    try:
        text = store.with_name(f"{store.name}.config.json").read_text(encoding="utf-8")
        asked = json.loads(text)["asked"]["sources"]
        records: list[dict[str, Any]] = [
            {
                "path": real_place(str(each["path"])),
                "bytes": int(each["bytes"]),
                "modified_ns": int(each["modified_ns"]),
            }
            for each in asked
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A pattern or a folder does not say which files it found.
    return records if records and all(os.path.isfile(each["path"]) for each in records) else None
