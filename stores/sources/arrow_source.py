"""Parquet files, Arrow IPC files and streams, and tables in memory, as record batches."""

from __future__ import annotations

import json
import mmap
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streammc.errors import DataError, OutOfMemoryError, StreammcError
from streammc.stores.sources.ahead import ahead
from streammc.stores.sources.input_files import open_input
from streammc.trace.local_path import is_address

_REMOTE_BUFFER: Final = 4 << 20
"""Bytes of one request for a column of a Parquet file at an address."""


@contextmanager
def translated(label: str, what: str) -> Iterator[None]:
    """Turn Arrow's errors about the content of ``label`` into streammc errors."""
    try:
        yield
    except StreammcError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(label, what, error) from error
    except pa.ArrowMemoryError as error:
        raise OutOfMemoryError(
            f"no memory to read {label}: {error}; make the file again with smaller batches"
        ) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(label, what, error) from error


def _damaged(label: str, what: str, error: Exception) -> DataError:
    reason = " ".join("; ".join(map(str, error.args)).split())[:200].rstrip(".")
    if label == MemorySource.label:
        remedy = "cast its columns to integers, floats, text or categories"
    else:
        remedy = "make the file again"
    return DataError(f"expected {what} in {label}, found {reason}: {remedy}")


def _without_views(type_: Any) -> Any:
    """Return an Arrow type without views: text and bytes views become their large types."""
    if pa.types.is_dictionary(type_):
        inner = _without_views(type_.value_type)
        return (
            type_
            if inner == type_.value_type
            else pa.dictionary(type_.index_type, inner, type_.ordered)
        )
    if type_ == pa.string_view():
        return pa.large_string()
    return pa.large_binary() if type_ == pa.binary_view() else type_


def _plain(batch: Any) -> Any:
    """Return a record batch without views, as pyarrow cannot decode a dictionary of views."""
    wanted = [_without_views(type_) for type_ in batch.schema.types]
    if wanted == batch.schema.types:
        return batch
    columns = []
    for array, type_ in zip(batch.columns, wanted, strict=True):
        if pa.types.is_dictionary(type_) and array.type != type_:
            words = array.dictionary.cast(type_.value_type)
            array = pa.DictionaryArray.from_arrays(array.indices, words, ordered=type_.ordered)
        columns.append(array.cast(type_))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class _ArrowSchema:
    """Base class of the sources with an Arrow schema."""

    integers: frozenset[str] = frozenset()
    booleans: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    spool = False

    def _use(self, schema: Any) -> None:
        self.names: tuple[str, ...] = tuple(schema.names)
        self.types: tuple[Any, ...] = tuple(map(_without_views, schema.types))
        self.hidden = _index_columns(schema.metadata or {})


def _index_columns(metadata: Mapping[bytes, bytes]) -> frozenset[str]:
    """Return the columns that hold a pandas index, which the user does not see as columns."""
    try:
        columns = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
        return frozenset(name for name in columns if isinstance(name, str))
    except (ValueError, AttributeError, TypeError):
        return frozenset()


class ParquetSource(_ArrowSchema):
    """One Parquet file: a ``sources.source.Source``."""

    def __init__(self, path: str) -> None:
        self.label = repr(path)
        self.path: str | None = path
        with self._file() as file:
            self._use(file.schema_arrow)
            self.n_rows: int | None = file.metadata.num_rows

    @contextmanager
    def _file(self, as_codes: Sequence[str] = ()) -> Iterator[Any]:
        # Buffered reads of single pages: pre_buffer would load whole row groups.
        with (
            translated(self.label, "a Parquet file"),
            open_input(self.path or "") as raw,
            pq.ParquetFile(
                raw,
                pre_buffer=False,
                buffer_size=_REMOTE_BUFFER if is_address(self.path) else 1 << 20,
                read_dictionary=list(as_codes),
            ) as file,
        ):
            yield file

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: bool | frozenset[str] = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows; a thread decodes the next."""
        types = dict(zip(self.names, self.types, strict=True))
        plain = (pa.string(), pa.large_string())
        as_codes = sorted(name for name in levels if types[name] in plain)
        yield from ahead(self._decoded(list(columns), rows, as_codes))

    def _decoded(self, columns: list[str], rows: int, as_codes: list[str]) -> Generator[Any]:
        with self._file(as_codes) as file:
            for batch in file.iter_batches(rows, columns=columns):
                # The reader takes "a" to mean the column "a.b" as well.
                yield _plain(batch.select(columns))


class IpcSource(_ArrowSchema):
    """One Arrow IPC file (Feather version 2) or stream: a ``sources.source.Source``.

    The file is memory-mapped, so that a record batch of any size can be read slice by
    slice; only a compressed batch, or one at an address, must fit into memory.
    """

    n_rows: int | None = None

    def __init__(self, path: str) -> None:
        self.label = repr(path)
        self.path: str | None = path
        with self._reader() as (reader, _):
            self._use(reader.schema)

    @contextmanager
    def _reader(self) -> Iterator[tuple[Any, mmap.mmap | None]]:
        # Without included_fields: with it Arrow copies the arrays instead of mapping them.
        with translated(self.label, "an Arrow file"), open_input(self.path or "") as file:
            mapped, source = None, file
            whole = file.read(6) == b"ARROW1"
            file.seek(0)
            if not is_address(self.path):
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                source = pa.py_buffer(mapped)
            yield (pa.ipc.open_file if whole else pa.ipc.open_stream)(source), mapped

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: bool | frozenset[str] = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows, each valid until the next one."""
        with self._reader() as (reader, mapped):
            for batch in _record_batches(reader):
                batch.validate()
                chosen = batch.select(list(columns))
                for start in range(0, batch.num_rows, rows):
                    yield _plain(chosen.slice(start, rows))
                    # Otherwise the pages that were read stay resident.
                    if mapped is not None:
                        mapped.madvise(mmap.MADV_DONTNEED)


def _record_batches(reader: Any) -> Iterator[Any]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from reader


def _columns(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping as a dictionary of columns; refuse a column that is not a sequence."""
    for name, values in table.items():
        if not hasattr(values, "__len__") or isinstance(values, str | bytes):
            raise DataError(
                f"expected values in column {name!r} of the table, found "
                f"{type(values).__name__}: give a list or an array"
            )
    return dict(table)


class MemorySource(_ArrowSchema):
    """A table in memory, or an Arrow stream that can be read once.

    Parameters
    ----------
    table
        A ``pyarrow`` table or record batch, a pandas or polars data frame, a mapping
        of names to arrays, or any object with ``__arrow_c_stream__``.
    """

    label = "the table"
    path: str | None = None

    def __init__(self, table: Any) -> None:
        self.n_rows: int | None = None
        with translated(self.label, "columns of one type each"):
            if isinstance(table, Mapping):
                table = pa.table(_columns(table))
            if isinstance(table, pa.RecordBatch):
                table = pa.Table.from_batches([table])
            names = [str(name) for name in getattr(table, "columns", ())]
            if type(table).__module__.startswith("pandas") and len({*names}) < len(names):
                name = next(each for each in names if names.count(each) > 1)
                raise DataError(
                    f"expected different column names in the table, found {name!r} "
                    "twice: rename one"
                )
            # Text views that pyarrow below 24 hands to itself through C crash the process.
            own = isinstance(table, pa.Table)
            reader: Any = table.to_reader() if own else pa.RecordBatchReader.from_stream(table)
            # Any other object may be exhausted after one pass, or differ in the next.
            package = type(table).__module__.partition(".")[0]
            whole = package in {"pyarrow", "pandas", "polars"} and hasattr(table, "__len__")
            self.spool = not whole
            self.n_bytes: int | None = None
            if not self.spool:
                reader = reader.read_all()
                self.n_rows, self.n_bytes = reader.num_rows, reader.get_total_buffer_size()
        self._table = reader
        self._read = False
        self._use(reader.schema)

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: bool | frozenset[str] = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows."""
        if self.spool and self._read:
            raise DataError(
                "expected a table in memory where several factors (1 | g) are counted before it "
                "is read, found a stream that can be read once: make a table of it first, "
                "pyarrow.table(stream)"
            )
        self._read = True
        with translated(self.label, "a readable stream"):
            chunks = self._table if self.spool else self._table.to_batches(max_chunksize=rows)
            for batch in chunks:
                chosen = batch.select(list(columns))
                for start in range(0, batch.num_rows, rows):
                    yield _plain(chosen.slice(start, rows))
