"""Results as frames of the kind that a table was given in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streammc.unfinished import temporary_folder


def is_frame(item: Any) -> bool:
    """Return whether an object is a table in memory or a lazy one, and no path or list of them."""
    if isinstance(item, Mapping) or hasattr(item, "__arrow_c_stream__"):
        return True
    package = type(item).__module__.partition(".")[0]
    return package.startswith("dask") or hasattr(item, "collect_schema")


def frame_of_kind(frame: Any, schema: Any, batches: Iterator[Any]) -> Any:
    """Return record batches as a frame of the kind of ``frame``, with its index if it has one.

    Several lines of each of its rows have the same index.

    For a lazy frame they are written into a temporary Parquet file, which is removed at the exit of
    the process; a mapping gives a dictionary of NumPy arrays,
    and an object that is no frame of narwhals, such as a stream, a ``pyarrow.Table``.
    """
    package = type(frame).__module__.partition(".")[0]
    if package.startswith("dask"):
        import dask.dataframe

        return dask.dataframe.read_parquet(_written(schema, batches))
    if not isinstance(frame, Mapping):
        import narwhals.stable.v2 as nw

        known = nw.from_native(frame, pass_through=True)
        if isinstance(known, nw.LazyFrame):
            path = _written(schema, batches)
            backend = known.implementation
            if package == "ibis":
                return (
                    nw.from_arrow(pq.read_table(path), backend="pyarrow").lazy(backend).to_native()
                )
            return nw.scan_parquet(path, backend=backend).to_native()
        if isinstance(known, nw.DataFrame):
            table = pa.Table.from_batches(batches, schema)
            made = nw.from_arrow(table, backend=known.implementation).to_native()
            if package != "pandas":
                return made
            lines = len(made) // max(len(frame.index), 1)
            return made.set_index(frame.index if lines == 1 else frame.index.repeat(lines))
    table = pa.Table.from_batches(batches, schema)
    if isinstance(frame, Mapping):
        return {name: table[name].to_numpy() for name in table.column_names}
    return table


def _written(schema: Any, batches: Iterator[Any]) -> str:
    """Return the path of a temporary Parquet file with these record batches."""
    path = temporary_folder("streammc-") / "frame.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return str(path)
