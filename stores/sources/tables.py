"""Tables to ingest: files or objects as one table of record batches, for several passes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Final

import numpy as np

from streammc.errors import (
    AccessError,
    ConfigError,
    DataError,
    MissingError,
    StorageIOError,
    StreammcError,
)
from streammc.protocols import Index
from streammc.stores.sources.input_files import (
    InputFile,
    input_files,
    input_stamp,
    open_input,
    refuse_logged,
)
from streammc.stores.sources.source import NoArrowType, Source, Texts, with_partitions
from streammc.trace.addresses import is_address, real_place
from streammc.trace.disk import FileStamp, stamp_difference

_FOREIGN: Final = {
    b"PK\x03\x04": "a zip archive or spreadsheet",
    b"\x89HDF": "an HDF5 file",
    b"FEA1": "a Feather file of version 1",
    b"\x93NUM": "a NumPy file",
    b"7z\xbc\xaf": "a 7z archive",
    b"\xfd7zX": "an xz archive",
    b"ORC": "an ORC file",
    b"SQLi": "an SQLite file",
}


class Table:
    """A table: one or more sources with the same columns, one after the other.

    ``hidden``, ``integers``, ``booleans``, ``written`` and ``spool`` are those of ``Source``: a
    column that has a property in one source has it in the table.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        first = self.sources[0]
        self.names = first.names
        for source in self.sources:
            _check_names(source, first)
        self._types = [dict(zip(source.names, source.types, strict=True)) for source in sources]
        self.hidden = frozenset[str]().union(*(source.hidden for source in self.sources))
        self.integers = frozenset[str]().union(*(source.integers for source in self.sources))
        self.booleans = frozenset[str]().union(*(source.booleans for source in self.sources))
        self.written = frozenset[str]().union(*(source.written for source in self.sources))
        self.spool = any(source.spool for source in self.sources)
        rows = [source.n_rows for source in self.sources]
        self.n_rows = None if None in rows else sum(row or 0 for row in rows)
        self._starts: list[int] = []
        """First row of each source in the last pass, counted over the table."""
        self.rows_read: list[int] = []
        """Rows of each source in the last pass; empty before its end."""
        self._stamps = self._stamp()

    @property
    def n_bytes(self) -> int | None:
        """Bytes of the files, and of Arrow tables in memory; ``None`` if one is not known."""
        sizes = [
            source.n_bytes if stamp is None else stamp.size
            for source, stamp in zip(self.sources, self._stamps, strict=True)
        ]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def paths(self) -> list[str]:
        """Paths of the files as the user gave them."""
        return [source.path for source in self.sources if source.path is not None]

    def types_of(self, name: str) -> list[Any]:
        """Return the Arrow types of a column, one per source."""
        of_sources = [types[name] for types in self._types]
        for source, type_ in zip(self.sources, of_sources, strict=True):
            if isinstance(type_, NoArrowType):
                raise DataError(
                    f"expected numbers or text in column {name!r} of {source.label}, found "
                    f"{type_.found}: {type_.remedy}"
                )
        return of_sources

    def __contains__(self, name: object) -> bool:
        """Return whether there is a column ``name``."""
        return name in self._types[0]

    @property
    def divisible(self) -> bool:
        """Whether :meth:`part` reads some of the rows, and other processes may."""
        return all(source.divisible for source in self.sources)

    def part(self, first: int, stop: int) -> Table:
        """Return the rows from ``first`` to ``stop`` of a divisible table."""
        sizes = [source.n_rows or 0 for source in self.sources]
        one, chosen, start = copy(self), list[int](), 0
        sources = list[Source]()
        for index, (source, size) in enumerate(zip(self.sources, sizes, strict=True)):
            low, high = max(first - start, 0), min(stop - start, size)
            start += size
            if low < high:
                sources.append(source.part(low, high))
                chosen.append(index)
        one.sources, one.n_rows = tuple(sources), min(stop, start) - first
        one._types = [self._types[index] for index in chosen]
        one._stamps = [self._stamps[index] for index in chosen]
        one._starts, one.rows_read = [], []
        return one

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: Texts = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield record batches of every source in turn; arguments as of ``Source.batches``."""
        self._starts, self.rows_read = [], []
        done = 0
        for source in self.sources:
            self._starts.append(done)
            with input_errors(source.label):
                for batch in source.batches(columns, rows, text, levels):
                    done += batch.num_rows
                    yield batch
        self.rows_read = np.diff([*self._starts, done]).tolist()

    def counted(self, start: int, stop: int) -> Index | None:
        """Return how many rows each from ``start`` to ``stop`` is (m,); ``None``: one each."""
        return None

    def warnings(self) -> list[str]:
        """Return the warnings of every source about the last pass, see ``Source.warnings``."""
        lines = []
        for source in self.sources:
            with input_errors(source.label):
                lines += source.warnings()
        return lines

    def locate(self, row: int) -> str:
        """Return the place of a row of the last pass: ``row 3 of 'a.csv', counted from 1``."""
        index = max(i for i, start in enumerate(self._starts) if start <= row)
        number = row - self._starts[index] + 1
        return f"row {number} of {self.sources[index].label}, counted from 1"

    def check_unchanged(self) -> None:
        """Refuse files that changed since they were opened."""
        for source, before, now in zip(self.sources, self._stamps, self._stamp(), strict=True):
            if before is not None and now is not None and before != now:
                raise DataError(
                    f"expected {source.label} to stay as it is while it is read, found it "
                    f"changed, with {stamp_difference(before, now)}: its rows may be others now; "
                    "wait until no program writes or touches it, and read it again"
                )

    def _stamp(self) -> list[FileStamp | None]:
        stamps: list[FileStamp | None] = []
        for source in self.sources:
            with input_errors(source.label):
                stamps.append(None if source.path is None else input_stamp(source.path))
        return stamps


def open_table(sources: Any, missing: Sequence[str] | None = None) -> Table:
    """Open one source or a list of them; the content of a file decides its format.

    Sources are paths, patterns or addresses of CSV (also .gz, .zst, .bz2), Parquet, Feather or
    Arrow IPC files, or of directories of them; or tables in memory, see
    ``arrow_source.MemorySource``; also the result of :func:`table_parts`. For ``missing`` see
    ``csv_source.CsvSource``.
    """
    parts = table_parts(sources)
    if not parts:
        raise ConfigError("expected at least one file or table to ingest, found none: name one")
    opened: list[Source] = []
    files: list[InputFile] = []
    for part in parts:
        known = isinstance(part, InputFile)
        opened.append(_open_file(part.path, missing) if known else memory_source(part))
        files.append(part if known else InputFile(opened[-1].label))
    different = [source for source in opened if type(source) is not type(opened[0])]
    if different:
        raise DataError(
            f"expected sources of one format, found {_format(opened[0])} in {opened[0].label} "
            f"and {_format(different[0])} in {different[0].label}: ingest one format at a time"
        )
    return Table(with_partitions(opened, files))


def table_parts(sources: Any) -> list[Any]:
    """Return every file that sources name, as an ``InputFile``, once; and the tables in memory.

    Errors are those of :func:`named_files`.
    """
    parts: list[Any] = []
    checked: set[str] = set()
    several = isinstance(sources, (list, tuple)) and not isinstance(sources, InputFile)
    for item in sources if several else [sources]:
        parts += named_files(item, checked) if isinstance(item, (str, os.PathLike)) else [item]
    return distinct_files(parts)


@contextmanager
def input_errors(label: str) -> Iterator[None]:
    """Turn the errors of the operating system about the input ``label`` into streammc errors."""
    try:
        yield
    except StreammcError:
        raise
    except OSError as error:
        raise _translated(error, label) from error


def _translated(error: OSError, label: str) -> StreammcError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return MissingError(f"expected a file at {label}, found nothing: check the path")
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessError(f"expected to read {label}: {reason}; check the permissions")
    if error.errno == errno.ENAMETOOLONG:
        return ConfigError(
            "expected the path of a file, found a name that is too long: give a shorter one"
        )
    return StorageIOError(f"cannot read {label}: {reason}; check the disk")


def named_files(item: Any, checked: set[str] | None = None) -> list[InputFile]:
    """Return the files that a path, pattern, folder or address names.

    ``checked`` is as of :func:`refuse_logged`.
    """
    path = os.fspath(item)
    with input_errors(repr(os.fsdecode(path))):
        files = input_files(path)
        refuse_logged(files, checked)
    return files


def _open_file(path: str, missing: Sequence[str] | None) -> Source:
    from streammc.stores.sources.arrow_source import IpcSource, ParquetSource
    from streammc.stores.sources.csv_source import CsvSource

    with input_errors(repr(path)):
        if not is_address(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(
                f"expected a regular file at {path!r}, found a pipe or device: save it as a file"
            )
        with open_input(path) as file:
            magic = file.read(8)
        if magic[:4] == b"PAR1":
            return ParquetSource(path)
        if magic[:6] == b"ARROW1" or magic[:4] == b"\xff\xff\xff\xff":
            return IpcSource(path)
        for start, what in _FOREIGN.items():
            if magic.startswith(start):
                raise DataError(
                    f"expected CSV, Parquet or Arrow in {path!r}, found {what}: convert it"
                )
        return CsvSource(path, missing)


def _check_names(source: Source, first: Source) -> None:
    seen: set[str] = set()
    for name in source.names:
        if name in seen:
            raise DataError(
                f"expected different column names in {source.label}, found {name!r} twice: "
                "rename one"
            )
        seen.add(name)
    for name in sorted(seen ^ set(first.names)):
        has, lacks = (source, first) if name in seen else (first, source)
        raise DataError(
            f"expected the same columns in all sources, found {name!r} in {has.label} but not "
            f"in {lacks.label}: ingest tables with the same columns"
        )


def _format(source: Source) -> str:
    name = type(source).__name__.removesuffix("Source")
    return {"Csv": "CSV", "Ipc": "Arrow", "Memory": "a table", "Lazy": "a lazy frame"}.get(
        name, name
    )


def distinct_files(parts: Sequence[Any]) -> list[Any]:
    """Return parts of a table without files that a path, a pattern or a link names again.

    A file below other folders ``name=value`` is kept, since their columns differ.
    """
    once: dict[Any, Any] = {}
    for part in parts:
        known = isinstance(part, InputFile)
        once.setdefault((real_place(part.path), part.partitions) if known else object(), part)
    return list(once.values())


def memory_source(item: Any) -> Source:
    """Return the source of a table in memory."""
    from streammc.stores.sources.array_source import ArraySource
    from streammc.stores.sources.arrow_source import MemorySource
    from streammc.stores.sources.lazy_source import lazy_source

    if isinstance(item, ArraySource):
        return item
    if not isinstance(item, Mapping) and (lazy := lazy_source(item)) is not None:
        return lazy
    wanted = ("__arrow_c_stream__", "__arrow_c_array__")
    module = type(item).__module__.partition(".")[0]
    series = module in ("pandas", "polars") and not hasattr(item, "columns")
    if (
        module == "xarray"
        or series
        or (not isinstance(item, Mapping) and not any(hasattr(item, name) for name in wanted))
    ):
        raise ConfigError(
            f"expected a path, a data frame or an Arrow table, found {type(item).__name__}: "
            f"{_remedy(item)}"
        )
    return MemorySource(item)


def _remedy(item: Any) -> str:
    """Return the advice for an object that is not a table."""
    if isinstance(item, Iterator):  # also a file that is open
        return "it can be read only once, save it as a file or collect it in a table"
    module = type(item).__module__.partition(".")[0]
    if module.startswith("dask"):
        return "make arrays of it, frame.to_dask_array(lengths=True), for streammc.from_dask"
    if module == "xarray":
        return "use streammc.from_xarray for xarray"
    if hasattr(item, "files"):
        return "ingest its files"
    return "use streammc.from_arrays for arrays"
