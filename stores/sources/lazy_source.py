"""Lazy data frames of polars, Dask, Ibis and others that narwhals knows, in constant memory.

A query is computed once, by its own engine and in its own order, into a temporary Parquet file of
the columns in use. A second computation may differ, and may be slow.
"""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streammc.errors import DataError, StreammcError
from streammc.stores.sources.arrow_source import ArrowSource, ParquetSource
from streammc.stores.sources.source import Source, Texts
from streammc.unfinished import temporary_folder

_NUMBER = re.compile(r"\d+")


def lazy_source(item: Any) -> Source | None:
    """Return the source of a lazy data frame; ``None`` for any other object."""
    package = type(item).__module__.partition(".")[0]
    if package.startswith("dask") and hasattr(item, "npartitions") and hasattr(item, "_meta"):
        if not hasattr(item, "to_parquet"):  # a series, or an array
            return None
        return LazySource(
            lambda: pa.Schema.from_pandas(item._meta, preserve_index=False),
            lambda columns, folder: item[columns].to_parquet(str(folder), write_index=False),
        )
    if package != "ibis" and hasattr(item, "__arrow_c_stream__"):
        return None  # read from its stream; that of Ibis has the whole table in memory
    import narwhals.stable.v2 as nw

    frame = nw.from_native(item, pass_through=True)
    if not isinstance(frame, nw.LazyFrame):
        return None
    return LazySource(
        lambda: frame.head(0).collect("pyarrow").to_native().schema,
        lambda columns, folder: frame.select(columns).sink_parquet(folder / "part.0.parquet"),
    )


class LazySource(ArrowSource):
    """A query; ``schema`` returns its Arrow schema, ``sink`` writes columns into a folder."""

    label = "the table"

    def __init__(self, schema: Callable[[], Any], sink: Callable[[list[str], Path], Any]) -> None:
        self._sink = sink
        self._parts: list[ParquetSource] = []
        self._kept: set[str] = set()
        self._folder = temporary_folder("streammc-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._use(_computed(schema))

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows, see ``Source.batches``."""
        if not {*columns} <= self._kept:
            wanted = [name for name in self.names if name in self._kept or name in columns]
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
            _computed(lambda: self._sink(wanted, self._folder))
            # Dask numbers the files of its partitions: part.10 comes after part.9.
            files = sorted(
                self._folder.glob("*.parquet"), key=lambda path: int(_NUMBER.findall(path.name)[0])
            )
            self._parts, self._kept = [ParquetSource(str(path)) for path in files], {*wanted}
        for part in self._parts:
            yield from part.batches(columns, rows, text, levels)


def _computed(compute: Callable[[], Any]) -> Any:
    """Return what a query of another program gives; DataError with its reason if it fails."""
    try:
        return compute()
    except (StreammcError, MemoryError, OSError):
        raise
    except Exception as error:
        raise DataError(
            f"expected a lazy frame that can be computed, found {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}; compute it first"
        ) from error
