"""Sources of rows: one file, or one table in memory; with the columns of folders ``name=value``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from streammc.errors import DataError
from streammc.stores.sources.input_files import InputFile


class NoArrowType(NamedTuple):
    """Stands for the type of a column that Arrow cannot hold, such as one of mixed values."""

    found: str
    """What the column has, for a message."""
    remedy: str


Texts = bool | frozenset[str]
"""Columns that are read as text: the names of some, or all or none."""


class Source(ABC):
    """Source of rows: one file, or one table in memory."""

    label: str
    """Name in messages: the path in quotes."""
    path: str | None = None
    """Path as the user gave it; ``None`` for a table in memory."""
    names: tuple[str, ...]
    types: tuple[Any, ...]
    """Arrow type of each column, or ``NoArrowType``."""
    hidden: frozenset[str] = frozenset()
    """Index columns, which are features only if named."""
    integers: frozenset[str] = frozenset()
    """Columns of integers that are read as float64."""
    booleans: frozenset[str] = frozenset()
    """Columns of text that is read as booleans."""
    written: frozenset[str] = frozenset()
    """Columns of text whose types are guessed from values; those of ``levels`` are as written."""
    n_rows: int | None = None
    """Number of rows; ``None`` if it is not known before the read."""
    n_bytes: int | None = None
    """Bytes of a table in memory; ``None`` if they are not known."""
    spool = False
    """Whether to keep a copy on disk, because a second read is slow or impossible."""
    divisible = False
    """Whether :meth:`part` reads some of the rows, and other processes may."""

    @abstractmethod
    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches with ``columns`` in this order, of about ``rows`` rows.

        The columns ``text`` are returned as text; those of ``levels`` too, or as dictionaries of
        text where that is faster.
        """

    def part(self, first: int, stop: int) -> Source:
        """Return the source of the rows from ``first`` to ``stop``, where it is divisible."""
        raise TypeError(f"{self.label} is not read in parts")

    def warnings(self) -> list[str]:
        """Return the warnings about values of the last pass that may not be what they seem."""
        return []


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")


class PartitionedSource(Source):
    """A source with further columns, each of one value.

    ``constants`` has an Arrow array of one value for each further column, ``written`` the same
    values as text.
    """

    def __init__(
        self, source: Source, constants: Mapping[str, Any], written: Mapping[str, Any]
    ) -> None:
        both = next((name for name in constants if name in source.names), None)
        if both is not None:
            raise DataError(
                f"expected the column {both!r} in the file or in the names of the folders, found "
                f"both for {source.label}: leave out one"
            )
        self.inner = source
        self._constants, self._texts = dict(constants), dict(written)
        self.label, self.path, self.n_rows = source.label, source.path, source.n_rows
        self.hidden, self.integers = source.hidden, source.integers
        self.booleans, self.spool = source.booleans, source.spool
        self.divisible = source.divisible
        self.written = source.written | frozenset(written)
        self.names = (*source.names, *constants)
        self.types = (*source.types, *(value.type for value in constants.values()))

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches with ``columns``, see ``Source.batches``."""
        own = [name for name in columns if name not in self._constants]
        wanted = own or list(self.inner.names[:1])  # to count the rows
        text = text if own else True
        for batch in self.inner.batches(wanted, rows, text, levels & frozenset(own)):
            arrays = []
            for name in columns:
                if name not in self._constants:
                    arrays.append(batch.column(own.index(name)))
                    continue
                index = pa.array([0]).take(pa.repeat(0, batch.num_rows))
                value = (self._texts if name in levels else self._constants)[name]
                if name in levels and value.null_count == 0:
                    codes = index.cast(pa.int32())
                    arrays.append(pa.DictionaryArray.from_arrays(codes, value))
                else:
                    arrays.append(value.take(index))
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def part(self, first: int, stop: int) -> Source:
        """Return the source of some rows, see ``Source.part``."""
        return PartitionedSource(self.inner.part(first, stop), self._constants, self._texts)

    def warnings(self) -> list[str]:
        """Return the warnings of the file, see ``Source.warnings``."""
        return self.inner.warnings()


def with_partitions(sources: Sequence[Source], files: Sequence[InputFile]) -> list[Source]:
    """Return the sources with the columns of the folders above their files.

    As ``pyarrow.dataset`` does: a column is int64 if every value is a whole number, else text. As
    a level, a value is the text that is written.
    """
    names = [name for name, _ in files[0].partitions]
    for file in files:
        own = [name for name, _ in file.partitions]
        if own != names or len({*own}) < len(own):
            raise DataError(
                f"expected the same folders name=value above every file, each name once, found "
                f"{_listed(names)} above {files[0].path!r} and {_listed(own)} above "
                f"{file.path!r}: ingest one layout at a time"
            )
    if not names:
        return list(sources)
    columns, texts = {}, {}
    for place, name in enumerate(names):
        values = [file.partitions[place][1] for file in files]
        texts[name] = pa.array(values, pa.string())
        whole = all(value is None or _INTEGER.fullmatch(value) for value in values)
        if whole and any(value is not None for value in values):
            numbers = [None if value is None else int(value) for value in values]
            columns[name] = pa.array(numbers, pa.int64())
        else:
            columns[name] = texts[name]
    return [
        PartitionedSource(source, _row(columns, k), _row(texts, k))
        for k, source in enumerate(sources)
    ]


def _row(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return one value of each column, as arrays."""
    return {name: column[place : place + 1] for name, column in columns.items()}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{name}=" for name in names) or "none"
