"""CSV files as record batches, in bounded memory.

Arrow infers types from the first block; every number is then read as float64, so that a
column may turn from integers to decimals anywhere in the file. A value that is not a number
stops the reader, which does not give its place; :meth:`CsvSource.batches` with ``text``
gives the same rows as text, to find it.

A quoted value may have line breaks and separators in it, so that two stray quotes make one value
of the lines between them. Lines are counted while they are read; where there are more than rows,
such values are looked for in one more pass.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from streammc.errors import DataError, StreammcError
from streammc.stores.sources.input_files import open_input
from streammc.stores.sources.source import Source, Texts

_COMPRESSION: Final[dict[bytes, Any]] = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
}
_SAMPLE: Final = 1 << 16
_BLOCK: Final = 1 << 20
_DECIMAL: Final = re.compile(r"^[+-]?(\d*\.\d+|\d+\.?)([eE][+-]?\d+)?$")


class NotANumberError(Exception):
    """A CSV value that cannot be read as a number."""


def _shortest(array: Any) -> Any:
    """Return texts without zeros at the end of decimals: ``7.0`` as ``7``."""
    array = pc.replace_substring_regex(array, r"^(\s*[+-]?[0-9]+)\.0*$", r"\1")
    return pc.replace_substring_regex(array, r"^(\s*[+-]?[0-9]*\.[0-9]*[1-9])0+$", r"\1")


class _CountedLines:
    """A stream of bytes that counts its lines, also a last one without an end, as it is read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._before = b""
        self.count = 0
        self.closed = False

    def read(self, size: int) -> bytes:
        content: bytes = self._stream.read(size)
        self.count += content.count(b"\n")
        if b"\r" in content or self._before == b"\r":
            self.count += content.count(b"\r") - content.count(b"\r\n")
            self.count -= self._before == b"\r" and content.startswith(b"\n")
        if not content:
            self.count += self._before not in (b"", b"\n", b"\r")
        self._before = content[-1:]
        return content

    def close(self) -> None:
        self.closed = True


class CsvSource(Source):
    """One CSV file, compressed or not.

    The separator is the most frequent of comma, tab, semicolon and bar in the header. Blanks
    around column names are dropped.

    ``missing`` has the spellings of a missing value beside nothing at all; ``None``: NA, NULL, nan
    and such.
    """

    spool = True  # reading a copy of float64 is many times faster than parsing again

    def __init__(self, path: str, missing: Sequence[str] | None = None) -> None:
        self.label = repr(path)
        self.path = path
        self._missing = None if missing is None else ["", *missing]
        self._raw: list[str] = []
        self._more_lines = False
        """Whether the last pass found more lines than rows."""
        header = self._header()
        self._delimiter = max(",\t;|", key=header.count)
        self._single = self._delimiter not in header
        self._block = max(_BLOCK, 64 * len(header))  # a line must fit into a block
        with self._translated(), self._reader({}, None) as reader:
            try:
                self._raw = list(reader.schema.names)
            except UnicodeDecodeError as error:
                raise self._wrong("column names in UTF-8", "other bytes") from error
            self.types = tuple(reader.schema.types)
        self.names = tuple(name.strip() for name in self._raw)
        # Spreadsheets, pandas and R write row numbers under an empty name.
        self.hidden = frozenset({""} & set(self.names))
        self.written = frozenset(self.names)
        self.integers = self._named(pa.types.is_integer)
        self.booleans = self._named(pa.types.is_boolean)
        self._decimals = self._named(pa.types.is_floating)
        # Distinct integers are accepted as names: pandas numbers the columns of a matrix.
        numbers = all(_DECIMAL.match(name) for name in self.names)
        if numbers and (
            len(set(self.names)) < len(self.names)
            or not all(name.isdecimal() for name in self.names)
        ):
            found = f"numbers ({', '.join(self.names[:3])})"
            raise self._wrong("a first line with the names of the columns", found)

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches of ``columns``: numbers as float64, or everything as text.

        With the names of columns as ``text``, numbers of a column of decimals are without zeros at
        the end: pandas writes integers as ``7.0`` beside missing values. In these columns a
        spelling of a missing value in quotes is text, but for nothing at all.

        A value that is no number raises NotANumberError: read again with ``text`` to find it.
        """
        raw = dict(zip(self.names, self._raw, strict=True))
        wanted = [raw[name] for name in columns]
        types: dict[str, Any] = {}
        for name in columns:
            number = pa.bool_() if name in self.booleans else pa.float64()
            as_text = text if isinstance(text, bool) else name in text
            types[raw[name]] = pa.binary() if as_text else number
        decimals = frozenset() if isinstance(text, bool) else text & self._decimals
        last = self._raw[-1]
        if last not in wanted:  # only to check its last value
            wanted.append(last)
            types[last] = pa.binary()
        read = 1  # with the header
        tail = None
        texts = [] if isinstance(text, bool) else [raw[name] for name in columns if name in text]
        with self._translated():
            for batch in self._batches(types, wanted, texts):
                if batch.num_rows:
                    read += batch.num_rows
                    tail = batch.column(wanted.index(last))[-1].as_py()
                    arrays = [
                        _shortest(batch.column(index)) if name in decimals else batch.column(index)
                        for index, name in enumerate(columns)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
        self._check_tail(tail)
        self._more_lines = self._lines.count > read

    def warnings(self) -> list[str]:
        """Return the warning about quoted values of the last pass that may have lost rows in them.

        They are legal values; only line breaks and separators together may be rows.
        """
        if not self._more_lines:
            return []
        count, breaks, before = 0, 0, 0
        first: tuple[int, bytes] | None = None
        types = dict.fromkeys(self._raw, pa.binary())
        with self._translated(), self._reader(types, None) as reader:
            for batch in reader:
                for column in batch.columns:
                    broken = pc.match_substring_regex(column, "[\r\n]")
                    if not self._single:
                        broken = pc.and_(broken, pc.match_substring(column, self._delimiter))
                    rows = pc.indices_nonzero(pc.fill_null(broken, False)).to_pylist()
                    values = [column[row].as_py() for row in rows]
                    count += len(rows)
                    breaks += sum(len(re.split(b"\r\n?|\n", value)) - 1 for value in values)
                    if rows and (first is None or before + rows[0] < first[0]):
                        first = before + rows[0], values[0]
                before += batch.num_rows
        if first is None:
            return []
        row, value = first
        start = b'"' + re.split(b"[\r\n]", value)[0].replace(b'"', b'""')
        line = self._line(lambda content: start in content, row + 2)
        shown = "1 quoted value" if count == 1 else f"{count:,} quoted values"
        inside = "1 line break" if breaks == 1 else f"{breaks:,} line breaks"
        inside = inside if self._single else f"separators and {inside}"
        return [
            f"{self.label} has {shown} with {inside} inside, the first in line "
            f"{line}: if a quote there is a stray one, the rows between it and the next are lost; "
            "correct the file, unless it is meant"
        ]

    def _batches(self, types: dict[str, Any], wanted: list[str], texts: list[str]) -> Iterator[Any]:
        """Yield record batches; in the columns ``texts`` quotes make a text of any spelling.

        Arrow has one rule for all columns. Where it meets a missing value in quotes among numbers,
        the columns ``texts`` are read apart from the others, from the same row on.
        """
        done = 0
        try:
            with self._reader(types, wanted, quoted_missing=not texts) as reader:
                for batch in reader:
                    yield _without_empty(batch, texts)
                    done += batch.num_rows
            return
        except pa.ArrowInvalid as error:
            if not texts or "conversion error" not in str(error):
                raise
        others = [name for name in wanted if name not in texts]
        with (
            self._reader(types, others) as first,
            self._reader(types, texts, quoted_missing=False) as second,
        ):
            for parts in zip(first, second, strict=True):
                arrays = {name: part.column(name) for part in parts for name in part.schema.names}
                batch = pa.RecordBatch.from_pydict({name: arrays[name] for name in wanted})
                yield _without_empty(batch.slice(min(done, batch.num_rows)), texts)
                done = max(done - batch.num_rows, 0)

    def _named(self, test: Any) -> frozenset[str]:
        pairs = zip(self.names, self.types, strict=True)
        return frozenset(name for name, type_ in pairs if test(type_))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the decompressed bytes as an Arrow stream."""
        with open_input(self.path or "", stream=True) as file:
            start = file.read(4)
            file.seek(0)
            stream: Any = pa.PythonFile(file, mode="r")
            for magic, name in _COMPRESSION.items():
                if start.startswith(magic):
                    stream = pa.CompressedInputStream(stream, name)
            yield stream

    @contextmanager
    def _reader(
        self,
        types: dict[str, Any],
        wanted: list[str] | None,
        on_ragged: Any = None,
        quoted_missing: bool = True,
    ) -> Iterator[Any]:
        with self._open() as stream:
            self._lines = _CountedLines(stream)
            # Arrow numbers the rows for the handler only when it uses one thread.
            reader = csv.open_csv(
                self._lines,
                csv.ReadOptions(block_size=self._block, use_threads=on_ragged is None),
                csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    # In a single column a blank line is a missing value.
                    ignore_empty_lines=not self._single,
                    invalid_row_handler=on_ragged,
                ),
                csv.ConvertOptions(
                    column_types=types,
                    include_columns=wanted,
                    null_values=self._missing,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=quoted_missing,
                ),
            )
            with reader:
                yield reader

    def _header(self) -> str:
        """Return the header line, at most 64 kB, with quoted text removed."""
        with self._translated(), self._open() as stream:
            head: bytes = stream.read(_SAMPLE)
        if b"\0" in head:
            raise self._wrong("a table as CSV, Parquet or Arrow", "binary data or UTF-16")
        if not head.strip(b"\r\n\t ,;\xef\xbb\xbf"):
            raise self._wrong("a header and rows", "an empty file")
        text = re.sub(r'"[^"]*"', '""', head.decode("utf-8", "replace"))
        return re.split("[\r\n]", text.lstrip("\ufeff\r\n"), maxsplit=1)[0]

    def _check_tail(self, value: Any) -> None:
        """Refuse an unclosed quote, which puts the last lines into the last value."""
        lines = value.split(b"\n")[1:] if isinstance(value, bytes) else []
        mark = self._delimiter.encode()
        if any(line.strip() and line.count(mark) >= len(self._raw) - 1 for line in lines):
            raise self._wrong("every quote closed", "one that is not")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn Arrow's errors into streammc errors; leave those of the operating system."""
        try:
            yield
        except StreammcError:
            raise
        except pa.ArrowInvalid as error:
            text = " ".join(str(error).split())
            if re.search(r"Expected \d+ columns, got \d+", text):
                raise self._ragged() from error
            if "conversion error" in text:
                raise NotANumberError(text) from error
            if "Empty CSV" in text:
                raise self._wrong("a header and rows", "no rows") from error
            if "straddl" in text or "out of sync" in text:
                expected = f"lines below {self._block >> 20} MB"
                raise self._wrong(expected, "a longer one, or an open quote") from error
            raise self._wrong("a table as CSV", text[:200]) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise self._wrong("a whole compressed file", str(error)) from error

    def _ragged(self) -> DataError:
        """Find the first line of a wrong length in one slow pass; return the error for it."""
        bad: list[Any] = []

        def keep(row: Any) -> str:
            bad.append(row)
            return "error"

        try:
            with self._reader({}, self._raw[:1] or None, keep) as reader:
                for _ in reader:
                    pass
        except pa.ArrowInvalid:
            pass
        if not bad:
            return self._wrong("lines of equal length", "unequal ones")
        row = bad[0]
        wanted = row.text.split("\n", 1)[0].rstrip("\r").encode()
        line = self._line(lambda content: content == wanted, row.number or 1)
        return DataError(
            f"expected {row.expected_columns} columns in line {line} of {self.label}, as in its "
            f"header, found {row.actual_columns}: correct the line"
        )

    def _line(self, wanted: Callable[[bytes], bool], number: int) -> int:
        """Return the number of the first line that is wanted, from ``number`` on.

        Arrow's own numbers do not count blank lines.
        """
        with self._open() as stream, io.BufferedReader(stream) as lines:
            for line, content in enumerate(lines, 1):
                if line >= number and wanted(content.rstrip(b"\r\n")):
                    return line
        return number

    def _wrong(self, expected: str, found: str) -> DataError:
        return DataError(f"expected {expected} in {self.label}, found {found}: correct the file")


def _without_empty(batch: Any, texts: list[str]) -> Any:
    """Return a batch with null for empty texts in some columns: quotes around nothing."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in texts:
            empty = pc.equal(pc.binary_length(column), 0)
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
