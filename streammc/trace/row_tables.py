"""Tables of rows or groups as CSV and Parquet files, written part by part in constant memory."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.trace.addresses import given_path
from streammc.trace.disk import reporting
from streammc.unfinished import refuse_reserved_name

ZARR: Final = "zarr"
CSV: Final = "csv"
PARQUET: Final = "parquet"
_SUFFIXES: Final = {"": ZARR, ".zarr": ZARR, ".csv": CSV, ".parquet": PARQUET}
_METADATA: Final = b"streammc"
"""Key of the facts in the metadata of a Parquet file."""
_COLUMN: Final = re.compile("row_id|group|category|effect|chain|draw|mean|sd|rows|u|q[0-9.]+")
_BLOCK: Final = 1 << 20
_HEADER_BYTES: Final = 1 << 16


def output_format(path: str | os.PathLike[str]) -> str:
    """Return the format of an output that its suffix names: ``zarr``, ``csv`` or ``parquet``."""
    suffix = Path(given_path(path)).suffix
    found = _SUFFIXES.get(suffix.lower())
    if found is None:
        refuse_reserved_name(Path(given_path(path)))
        raise ConfigError(
            f"expected a path that ends in .zarr, .csv or .parquet, or has no suffix for zarr, "
            f"found {suffix!r} at the end of {os.fspath(path)!r}: the suffix decides the format"
        )
    return found


def require_zarr(path: str | os.PathLike[str] | None) -> None:
    """Refuse a path whose suffix asks for a table, where a zarr group is made and returned."""
    if path is not None and output_format(path) != ZARR:
        raise ConfigError(
            f"expected a path that ends in .zarr or has no suffix, found {os.fspath(path)!r}: what "
            "is returned becomes a table by .to_dataframe().to_csv(...), and the command line "
            "writes .csv and .parquet itself"
        )


def long_columns(
    columns: Mapping[str, NDArray[Any]],
    label: str,
    dims: Sequence[str],
    coordinates: Mapping[str, NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    """Return arrays by row (m, ...) as columns of a table with a line per row and coordinate.

    ``columns`` are of the first dimensions of ``dims`` or none of them; ``dims`` lacks that of the
    rows. The column ``label`` comes first, if there is one; ``coordinates`` are the values along
    each dimension.
    """
    m = len(next(iter(columns.values())))
    sizes = [len(coordinates[dim]) for dim in dims]
    whole = (m, *sizes)
    found: dict[str, NDArray[Any]] = {}

    def put(name: str, values: NDArray[Any], axes: Sequence[int]) -> None:
        shape = [values.shape[axes.index(k)] if k in axes else 1 for k in range(len(whole))]
        found[name] = np.broadcast_to(values.reshape(shape), whole).reshape(prod(whole))

    for name in sorted(columns, key=lambda name: name != label):
        if columns[name].ndim == 1 and name == label:
            put(name, columns[name], [0])
    for place, dim in enumerate(dims, 1):
        put(dim, np.asarray(coordinates[dim]), [place])
    for name, values in columns.items():
        if name != label:
            put(name, values, range(values.ndim))
    return found


def write_table(
    path: Path, kind: str, parts: Iterator[Mapping[str, NDArray[Any]]], facts: Mapping[str, Any]
) -> str:
    """Write the parts of a table into a new file, flushed to the disk; return its SHA-256.

    Every part has the same columns (m,) by name; a Parquet file has ``facts`` in its metadata.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    writer: Any = None
    with reporting("write", path), open(path, "xb") as file:
        for part in parts:
            batch = pa.table({name: pa.array(values) for name, values in part.items()})
            if writer is None and kind == CSV:
                writer = pa_csv.CSVWriter(file, batch.schema)
            elif writer is None:
                text = json.dumps(facts)
                writer = pq.ParquetWriter(file, batch.schema.with_metadata({_METADATA: text}))
            writer.write_table(batch)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    return file_digest(path)


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with reporting("read", Path(path)), open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def is_row_table(path: Path) -> bool:
    """Return whether a file has the columns, or the metadata, that :func:`write_table` writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return False
    try:
        if output_format(path) == PARQUET:
            return _METADATA in (pq.read_schema(path).metadata or {})
        with open(path, encoding="utf-8") as file:
            names = file.read(_HEADER_BYTES).partition("\n")[0].split(",")
    except (OSError, ValueError, pa.ArrowException):
        return False
    return len(names) > 1 and all(_COLUMN.fullmatch(name.strip('"')) for name in names)
