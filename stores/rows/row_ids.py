"""Row ids: integers or texts that join predictions with the rows of the original table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.stores.format.layout import MAX_ID_BYTES, ROW_ID
from streammc.stores.ingest.columns import require_column
from streammc.stores.ingest.faults import Faults
from streammc.stores.sources.tables import Table

if TYPE_CHECKING:
    from streammc.stores.ingest.ingest_options import IngestOptions

_INTEGER: Final = r"^(0|-?[1-9][0-9]{0,17})$"
"""A whole number of at most 18 digits in canonical form, which int64 holds without loss."""
_EXACT: Final = 2.0**53


class IdColumn:
    """Row ids of a table: copied to disk in the first pass, read back in the second.

    A column of a CSV file is kept as text, and becomes integers if every value is written as
    an integer in canonical form.

    With ``text`` it stays text.
    """

    role: ClassVar[str] = "row id"
    what: ClassVar[str] = "row ids"
    """Name of the values in messages."""

    def __init__(self, table: Table, column: str, folder: Path, text: bool = False) -> None:
        from streammc.stores.sources.csv_source import CsvSource

        require_column(table, column, self.role)
        self.column = column
        source: Any = table.sources[0]
        source = getattr(source, "inner", source)  # without the columns of folders
        self.as_written = isinstance(source, CsvSource) and column in source.names
        kinds = {self.kind(type_) for type_ in table.types_of(column)}
        if not self.as_written and (len(kinds) > 1 or "other" in kinds):
            found = ", ".join(dict.fromkeys(map(str, table.types_of(column))))
            raise DataError(
                f"expected integers or text as {self.what} in column {column!r} of "
                f"{table.sources[0].label}, found {found}: convert it, or name another column"
            )
        self._text = self.as_written or kinds == {"text"}
        self._all_integers = column in table.integers and not text
        self._files = folder / f"{self.role}.values", folder / f"{self.role}.lengths"
        self._width = 1
        self._content_offset = 0

    def add(self, array: Any, start: int, faults: Faults) -> None:
        """Add the ids of the rows from number ``start``; record unusable ids in ``faults``."""
        if not self._text:
            append(self._files[0], integers(array, self.column, start, faults, self.what))
            return
        lengths, content = texts(array, self.column, start, faults, self.what)
        if self._all_integers:
            self._all_integers = _written_as_integers(array)
        self._width = max(self._width, int(lengths.max(initial=0)))
        append(self._files[0], content)
        append(self._files[1], lengths)

    @staticmethod
    def kind(type_: Any) -> str:
        """Return ``"number"``, ``"text"`` or ``"other"`` for an Arrow type."""
        return _kind(type_)

    @staticmethod
    def prepared(array: Any) -> Any:
        """Return an Arrow array of such a type without dictionary and views."""
        return plain(array)

    def missing(self, start: int, count: int) -> NDArray[np.bool_] | None:
        """Return the rows to leave out (m,) among ``count`` from ``start``; ``None``: none are."""
        return None

    @property
    def dtype(self) -> str:
        """Dtype of the ids after the first pass: ``int64``, or ``S`` and the longest length."""
        return "int64" if self._all_integers or not self._text else f"S{self._width}"

    def read(self, start: int, count: int) -> NDArray[Any]:
        """Return the ids of the rows from ``start``; blocks are read in order, from row 0 on."""
        if not self._text:
            return np.fromfile(self._files[0], np.int64, count, offset=8 * start)
        lengths = np.fromfile(self._files[1], np.int32, count, offset=4 * start)
        self._content_offset = 0 if start == 0 else self._content_offset
        size = int(lengths.sum(dtype=np.int64))
        content = np.fromfile(self._files[0], np.uint8, size, offset=self._content_offset)
        self._content_offset += size
        found = fixed_width(lengths, content, self._width)
        return found.astype(np.int64) if self._all_integers else found


def id_column(
    table: Table, options: IngestOptions, folder: Path, messages: list[str]
) -> IdColumn | None:
    """Return the column of the row ids: that of the options, or of the store ``options.like``.

    If the table lacks the column of that store, ``messages`` gets a line.
    """
    name = options.row_id
    if name is None and options.like is not None:
        name = options.like.get(ROW_ID)
        if name is not None and name not in table:
            messages.append(
                f"no column {name!r}, the row id of the store given to --like: the ids are "
                "positions in the table"
            )
            name = None
    return None if name is None else IdColumn(table, name, folder, options.text_ids)


def in_memory(
    values: Any, n_rows: int, name: str = "row_id", column: type[IdColumn] = IdColumn
) -> NDArray[Any]:
    """Return row ids given as an array: (n,) int64, or UTF-8 texts as bytes of one width.

    ``name`` is that of the argument in messages; the class ``column`` decides the types that are
    allowed.
    """
    import pyarrow as pa

    # As objects: NumPy would give each text of a list the length of the longest.
    given = np.asarray(values, object if isinstance(values, (list, tuple)) else None)
    if given.shape != (n_rows,):
        raise DataError(
            f"expected {n_rows} values of {name}, as X has, found shape {given.shape}"
            ": pass one per row"
        )
    if given.dtype.kind not in "biufUM":
        given = given.astype(object)
    try:
        array = pa.array(given, from_pandas=True)
    except (ValueError, TypeError, OverflowError):
        raise DataError(
            f"expected integers or text as {name}, found {type(given[0]).__name__}: convert them"
        ) from None
    if column.kind(array.type) == "other":
        raise DataError(f"expected integers or text as {name}, found {array.type}: convert them")
    array, faults = column.prepared(array), Faults()
    locate = "row {} of the arrays, counted from 0".format
    if _kind(array.type) == "number":
        numbers = integers(array, name, 0, faults, column.what)
        faults.refuse(locate)
        return numbers
    lengths, content = texts(array, name, 0, faults, column.what)
    faults.refuse(locate)
    return fixed_width(lengths, content, max(1, int(lengths.max(initial=0))))


def integers(array: Any, column: str, start: int, faults: Faults, what: str) -> NDArray[np.int64]:
    """Return an Arrow array of numbers as int64; record missing and inexact values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain(array)
    _add_missing(array, column, start, faults, what)
    array = pc.fill_null(array, 0)
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        bad = ~((np.rint(values) == values) & (np.abs(values) <= _EXACT))
        values[bad] = 0.0
    else:
        values = array.to_numpy(zero_copy_only=False)
        bad = values > np.uint64(2**63 - 1) if values.dtype == np.uint64 else np.zeros(1, bool)
    faults.add(f"unusable {what}", column, start, bad, array)
    whole: NDArray[np.int64] = values.astype(np.int64)
    return whole


def texts(
    array: Any, column: str, start: int, faults: Faults, what: str
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lengths in bytes (m,) of an Arrow array of texts, and their joined bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain(array)
    _add_missing(array, column, start, faults, what)
    try:
        array = array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"expected {what} in UTF-8 in column {column!r}, found other bytes: correct the file"
        ) from error
    array = pc.fill_null(array, "")
    offsets, content = array.buffers()[1:]
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(ends)
    if content is None:
        return lengths.astype(np.int32), np.empty(0, np.uint8)
    found = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    # An id may not contain NUL, which pads the ids to one width.
    bad = lengths > MAX_ID_BYTES
    if not found.all():
        bad = bad | pc.match_substring(array, "\0").to_numpy(zero_copy_only=False)
    faults.add(f"unusable {what}", column, start, bad, array)
    return lengths.astype(np.int32), found


def fixed_width(
    lengths: NDArray[np.int32], content: NDArray[np.uint8], width: int
) -> NDArray[np.bytes_]:
    """Return texts (m,) as bytes of one width, padded with NUL."""
    padded = np.zeros((len(lengths), width), np.uint8)
    padded[np.arange(width) < lengths[:, None]] = content
    return padded.reshape(-1).view(f"S{width}")


def _kind(type_: Any) -> str:
    import pyarrow as pa

    from streammc.stores.ingest.column_values import kind

    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_integer(inner) or pa.types.is_floating(inner):
        return "number"
    return "text" if kind(inner) == "text" else "other"


def plain(array: Any) -> Any:
    """Return an Arrow array without dictionary and views."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if pa.types.is_string_view(array.type) else array


def _add_missing(array: Any, column: str, start: int, faults: Faults, what: str) -> None:
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        faults.add(f"missing {what}", column, start, missing, array)


def _written_as_integers(array: Any) -> bool:
    import pyarrow.compute as pc

    found = pc.all(pc.match_substring_regex(plain(array), _INTEGER)).as_py()
    return found is not False


def append(path: Path, values: NDArray[Any]) -> None:
    """Append the bytes of an array to a file."""
    with open(path, "ab", buffering=0) as file:
        view = memoryview(np.ascontiguousarray(values).view(np.uint8).data)
        while view:
            view = view[file.write(view) :]


def id_values(values: NDArray[Any]) -> NDArray[Any]:
    """Return row ids (m,); the stored bytes (m, width) of a store become text."""
    if values.ndim == 1:
        return values
    return id_texts(np.ascontiguousarray(values).view(f"S{values.shape[1]}")[:, 0])


def id_texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Return row ids with bytes as texts."""
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
