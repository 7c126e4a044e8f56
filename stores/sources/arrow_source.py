"""Parquet files, Arrow IPC files and streams, and tables in memory, as record batches."""

from __future__ import annotations

import io
import json
import mmap
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streammc.errors import DataError, OutOfMemoryError, StreammcError
from streammc.stores.in_threads import ahead
from streammc.stores.sources.input_files import open_input
from streammc.stores.sources.source import NoArrowType, Source, Texts
from streammc.trace.addresses import is_address

_REMOTE_BUFFER: Final = 4 << 20
"""Bytes of one request for a column of a Parquet file at an address."""
_MOST_INDEX: Final = 64 << 20
"""Bytes before the footer of a Parquet file that are searched for the end of another file."""
_END_OF_STREAM: Final = 8
"""Bytes of the mark at the end of an Arrow stream: no message follows."""
_END_OF_FILE: Final = 128
"""Most bytes of this mark and of padding before the footer of an Arrow file."""


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


class ArrowSource(Source):
    """Base class of the sources with an Arrow schema."""

    def _use(self, schema: Any) -> None:
        self.names = tuple(schema.names)
        self.types = tuple(map(_without_views, schema.types))
        self.hidden = _index_columns(schema.metadata or {})


def _index_columns(metadata: Mapping[bytes, bytes]) -> frozenset[str]:
    """Return the columns that hold a pandas index, which the user does not see as columns."""
    try:
        columns = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
        return frozenset(name for name in columns if isinstance(name, str))
    except (ValueError, AttributeError, TypeError):
        return frozenset()


class ParquetSource(ArrowSource):
    """One Parquet file.

    Pages that were written with a checksum are checked.
    """

    divisible = True

    def __init__(self, path: str) -> None:
        self.label = repr(path)
        self.path = path
        self._first, self._stop = 0, -1
        """The rows that are read; a stop of -1: to the end."""
        with self._file() as (file, raw):
            self._use(file.schema_arrow)
            self.n_rows = file.metadata.num_rows
            _refuse_joined(raw, file.metadata, self.label)

    @contextmanager
    def _file(self, as_codes: Sequence[str] = ()) -> Iterator[tuple[Any, Any]]:
        # Buffered reads of single pages: pre_buffer would load whole row groups.
        with (
            translated(self.label, "a Parquet file"),
            open_input(self.path or "") as raw,
            pq.ParquetFile(
                raw,
                pre_buffer=False,
                buffer_size=_REMOTE_BUFFER if is_address(self.path) else 1 << 20,
                read_dictionary=list(as_codes),
                page_checksum_verification=True,
            ) as file,
        ):
            yield file, raw

    def part(self, first: int, stop: int) -> Source:
        """Return the source of some rows, see ``Source.part``; it reads whole row groups."""
        one = copy(self)
        one._first, one._stop, one.n_rows = first, stop, stop - first
        return one

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows; a thread decodes the next."""
        types = dict(zip(self.names, self.types, strict=True))
        plain = (pa.string(), pa.large_string())
        as_codes = sorted(name for name in levels if types[name] in plain)
        yield from ahead(self._decoded(list(columns), rows, as_codes))

    def _decoded(self, columns: list[str], rows: int, as_codes: list[str]) -> Generator[Any]:
        with self._file(as_codes) as (file, _):
            stop = file.metadata.num_rows if self._stop < 0 else self._stop
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = list(accumulate(sizes))
            wanted = [
                i for i, end in enumerate(ends) if end > self._first and end - sizes[i] < stop
            ]
            at = ends[wanted[0]] - sizes[wanted[0]] if wanted else 0
            for batch in file.iter_batches(rows, row_groups=wanted, columns=columns):
                low, high = max(self._first - at, 0), min(stop - at, batch.num_rows)
                at += batch.num_rows
                if low < high:
                    # The reader takes "a" to mean the column "a.b" as well.
                    yield _plain(batch.slice(low, high - low).select(columns))
                if at >= stop:
                    break


def _refuse_joined(raw: Any, metadata: Any, label: str) -> None:
    """Refuse Parquet files joined one after the other.

    Only the last footer would be read, and with it bytes of the first file.
    """
    size = raw.seek(0, io.SEEK_END)
    raw.seek(size - 8)
    end, groups = size - 8 - int.from_bytes(raw.read(4), "little"), metadata.num_row_groups
    last = 4
    for index in range(metadata.num_columns if groups else 0):
        column = metadata.row_group(groups - 1).column(index)
        first = column.dictionary_page_offset or column.data_page_offset
        last = max(last, first + column.total_compressed_size)
    # Indexes and filters lie between the last page and the footer, or all of the first files.
    between = end - last
    start = max(0, between - _MOST_INDEX)
    raw.seek(start)
    if between > 0 and b"PAR1PAR1" in raw.read(between + 4 - start):
        raise _joined(label, "Parquet files")


def _joined(label: str, what: str) -> DataError:
    return DataError(
        f"expected one table in {label}, found several {what} one after the other, of which one "
        "would be read: give each as a file of its own"
    )


class IpcSource(ArrowSource):
    """One Arrow IPC file (Feather version 2) or stream.

    The file is memory-mapped, so that a record batch of any size can be read slice by
    slice; only a compressed batch, or one at an address, must fit into memory.
    """

    def __init__(self, path: str) -> None:
        self.label = repr(path)
        self.path = path
        with self._reader() as (reader, source, _):
            self._use(reader.schema)
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                _refuse_joined_arrow(source, self.label)

    @contextmanager
    def _reader(self) -> Iterator[tuple[Any, Any, mmap.mmap | None]]:
        # Without included_fields: with it Arrow copies the arrays instead of mapping them.
        with translated(self.label, "an Arrow file"), open_input(self.path or "") as file:
            mapped, source = None, file
            whole = file.read(6) == b"ARROW1"
            file.seek(0)
            if not is_address(self.path):
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                source = pa.BufferReader(pa.py_buffer(mapped))
            yield (pa.ipc.open_file if whole else pa.ipc.open_stream)(source), source, mapped

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows, each valid until the next one."""
        with self._reader() as (reader, source, mapped):
            for batch in _record_batches(reader, source, self.label):
                batch.validate()
                chosen = batch.select(list(columns))
                for start in range(0, batch.num_rows, rows):
                    yield _plain(chosen.slice(start, rows))
                    # Otherwise the pages that were read stay resident.
                    if mapped is not None:
                        mapped.madvise(mmap.MADV_DONTNEED)


def _record_batches(reader: Any, source: Any, label: str) -> Iterator[Any]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
        return
    at = source.tell()
    for batch in reader:
        at = source.tell()
        yield batch
    end = source.tell()
    if end - at != _END_OF_STREAM:
        raise DataError(
            f"expected the end mark of an Arrow stream in {label}, found the end of the file "
            "without it, as if it were cut: write it again, and close the writer"
        )
    if source.seek(0, io.SEEK_END) > end:
        raise _joined(label, "Arrow streams")


def _refuse_joined_arrow(source: Any, label: str) -> None:
    """Refuse Arrow files joined one after the other: only the last footer would be read.

    It says where each batch is, counted from the start of its own file; between the last one and
    the footer there is an end mark, or all of the first files. The layout is that of ``File.fbs``
    and of the binary form of FlatBuffers.
    """
    end = source.seek(0, io.SEEK_END) - 10
    source.seek(end)
    length = int.from_bytes(source.read(4), "little")
    source.seek(end - length)
    footer = source.read(length)

    def number(place: int, form: str) -> int:
        value: int = struct.unpack_from(form, footer, place)[0]
        return value

    root = number(0, "<I")
    fields = root - number(root, "<i")
    last = 0
    for place in (8, 10):  # dictionaries, record batches
        offset = number(fields + place, "<H") if place < number(fields, "<H") else 0
        blocks = root + offset + number(root + offset, "<I") if offset else 0
        for index in range(number(blocks, "<I") if offset else 0):
            start, header, body = struct.unpack_from("<qi4xq", footer, blocks + 4 + 24 * index)
            last = max(last, start + header + body)
    if last and end - length - last > _END_OF_FILE:
        raise _joined(label, "Arrow files")


def _columns(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping as a dictionary of columns; refuse a column that is not a sequence."""
    for name, values in table.items():
        if not hasattr(values, "__len__") or isinstance(values, str | bytes):
            raise DataError(
                f"expected values in column {name!r} of the table, found "
                f"{type(values).__name__}: give a list or an array"
            )
    return dict(table)


class MemorySource(ArrowSource):
    """A table in memory, or an Arrow stream that can be read once.

    It is a ``pyarrow`` table or record batch, a pandas or polars data frame, a mapping of names to
    arrays, or any object with ``__arrow_c_stream__``.
    """

    label = "the table"

    def __init__(self, table: Any) -> None:
        unknown: dict[str, NoArrowType] = {}
        with translated(self.label, "columns of one type each"):
            if isinstance(table, Mapping):
                table = _columns(table)
            if isinstance(table, pa.RecordBatch):
                table = pa.Table.from_batches([table])
            names = [str(name) for name in getattr(table, "columns", ())]
            if type(table).__module__.startswith("pandas") and len({*names}) < len(names):
                name = next(each for each in names if names.count(each) > 1)
                raise DataError(
                    f"expected different column names in the table, found {name!r} "
                    "twice: rename one"
                )
            reader, error = _reader(table)
            if error is not None:
                table, unknown = _without_unknown(table)
                reader, error = _reader(table)
            if error is not None:
                raise _damaged(self.label, "columns of one type each", error) from error
            # Any other object may be exhausted after one pass, or differ in the next.
            package = type(table).__module__.partition(".")[0]
            packages = {"pyarrow", "pandas", "polars", "builtins"}  # the last of a dictionary
            whole = package in packages and hasattr(table, "__len__")
            self.spool = not whole
            if not self.spool:
                reader = reader.read_all()
                self.n_rows, self.n_bytes = reader.num_rows, reader.get_total_buffer_size()
        self._table = reader
        self._read = False
        self._use(reader.schema)
        self.names, self.types = (*self.names, *unknown), (*self.types, *unknown.values())

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
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


def _reader(table: Any) -> tuple[Any, Exception | None]:
    """Return an Arrow reader of a table, or the error about what Arrow cannot hold."""
    try:
        table = pa.table(table) if isinstance(table, dict) else table
        if isinstance(table, pa.Table):
            # Text views that pyarrow below 24 hands to itself through C crash the process.
            return table.to_reader(), None
        return pa.RecordBatchReader.from_stream(table), None
    except (pa.ArrowMemoryError, StreammcError, OSError):
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return None, error
    except Exception as error:  # of the program that hands over a stream
        raise DataError(
            f"expected a table that gives a stream of Arrow, found {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}; read it into a table first, pyarrow.table(...)"
        ) from error


def _without_unknown(table: Any) -> tuple[Any, dict[str, NoArrowType]]:
    """Return a table without the columns that Arrow cannot hold, and these columns by name.

    A table of another package than pandas and polars is returned as it is. The index of a pandas
    frame is left out where Arrow cannot hold it.
    """
    package = type(table).__module__.partition(".")[0]
    if package not in ("builtins", "pandas", "polars"):
        return table, {}
    unknown: dict[Any, NoArrowType] = {}
    for name in list(table) if isinstance(table, dict) else list(table.columns):
        alone = {name: table[name]} if package != "pandas" else table[[name]].reset_index(drop=True)
        _, error = _reader(table.select(name) if package == "polars" else alone)
        if error is not None:
            unknown[name] = _no_arrow_type(name, table[name], error)
    by_name = {str(name): why for name, why in unknown.items()}
    if package == "builtins":
        return {name: values for name, values in table.items() if name not in unknown}, by_name
    if package == "polars":
        return table.drop([*unknown]), by_name
    table = table.drop(columns=[*unknown])
    _, error = _reader(table.iloc[:, :0])
    return (table if error is None else table.reset_index(drop=True)), by_name


def _no_arrow_type(name: Any, values: Any, error: Exception) -> NoArrowType:
    """Return what a column has that Arrow cannot hold, and what to do."""
    dtype = getattr(values, "dtype", None)
    if type(dtype).__name__ == "SparseDtype":
        return NoArrowType(
            "a sparse column of pandas", f"make it dense, frame[{name!r}].sparse.to_dense()"
        )
    if getattr(values, "ndim", 1) != 1:
        return NoArrowType(f"an array of shape {values.shape}", "give each of its columns a name")
    kinds = dict.fromkeys(type(value).__name__ for value in values if value is not None)
    large = max((v for v in values if v is not None), key=abs) if [*kinds] == ["int"] else 0
    if not -(2**63) <= large < 2**63:
        return NoArrowType(
            f"integers beyond 64 bits ({large})", "write them as text, or in a larger unit"
        )
    if len(kinds) > 1:
        shown = ", ".join(sorted(kinds))
        return NoArrowType(f"values of different types ({shown})", "convert them to one type")
    reason = " ".join(str(error.args[0] if error.args else error).split())[:200].rstrip(".")
    return NoArrowType(f"the type {dtype or ', '.join(kinds)} ({reason})", "convert the column")
