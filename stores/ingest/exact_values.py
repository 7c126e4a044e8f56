"""Conversion of Arrow columns to float64 and to codes of text, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.level_order import LevelOrder

LIMIT: Final = 2**53
"""Largest absolute value up to which every integer is exact in float64."""

_MAX_TEXTS: Final = 1_000_000
NUMBER: Final = r"(?i)^\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*$"
"""A number as it is written in text, as a regular expression."""
_BOOLEAN: Final = r"(?i)^\s*(0|1|true|false)\s*$"
DECIMAL_COMMA: Final = r"[+-]?[0-9]{1,3}(\.?[0-9]{3})*,[0-9]+"
"""A number with a decimal comma, as a regular expression."""
ISO_DATE: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
"""A date, with or without a time of day, as a regular expression."""
# Patterns of text with advice of its own, by the kind of fault in ``faults``.
_KNOWN_TEXT: Final = {"numbers with a decimal comma": DECIMAL_COMMA, "dates": ISO_DATE}


def kind(type_: Any) -> str:
    """Return the kind of an Arrow type: ``"number"``, ``"text"``, ``"date"`` or ``"other"``.

    Times are dates; a dictionary type has the kind of its values.
    """
    types = pa.types
    if types.is_dictionary(type_):
        return kind(type_.value_type)
    if (
        types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_boolean(type_)
        or types.is_decimal(type_)
        or types.is_null(type_)
    ):
        return "number"
    if (
        types.is_string(type_)
        or types.is_large_string(type_)
        or types.is_binary(type_)
        or types.is_large_binary(type_)
        or types.is_string_view(type_)
    ):
        return "text"
    if types.is_date(type_) or types.is_timestamp(type_) or types.is_time(type_):
        return "date"
    return "other"


def iso_text(array: Any) -> Any:
    """Return Arrow dates and times (m,) as ISO text; other types unchanged.

    A time stamp at midnight becomes a date.
    """
    if kind(array.type) != "date":
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    text = array.cast(pa.string())
    # Cut a fraction of zeros, and zeros at the end of a fraction; keep what follows it.
    for fraction, kept in ((r"\.0+", r"\1"), (r"(\.\d*[1-9])0+", r"\1\2")):
        text = pc.replace_substring_regex(text, fraction + r"(Z|[+-]\d+)?$", kept)
    return pc.replace_substring_regex(text, " 00:00:00$", "")


def to_float64(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return an Arrow array of numbers as float64, with NaN for null.

    Integers beyond 2**53, of decimal types too, are recorded in ``faults``: float64 would round
    them. The digits after the point of a decimal are rounded.

    Parameters
    ----------
    array
        (m,) ``pyarrow.Array`` of a type that :func:`kind` calls a number.
    column, start
        Name of the column and number of the first row, for ``faults``.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type in (pa.int64(), pa.uint64()):
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < -LIMIT or high > LIMIT):
            wide = pc.or_(
                pc.greater(array, pa.scalar(LIMIT, array.type)),
                pc.less(array, pa.scalar(-LIMIT, array.type))
                if array.type == pa.int64()
                else pa.scalar(False),
            )
            bad = _flags(wide)
            faults.add("large integers", column, start, bad, array)
    values = _with_nan(array.cast(pa.float64(), safe=False))
    if pa.types.is_decimal(array.type):
        bad = np.abs(values) >= LIMIT
        for row in np.flatnonzero(bad):
            exact = array[int(row)].as_py()
            bad[row] = abs(exact) > LIMIT and exact == int(exact)
        faults.add("large integers", column, start, bad, array)
    return values


def number_order(column: str) -> LevelOrder:
    """Return an empty order of the levels of a column whose categories are numbers."""

    def numbers(dictionary: Any) -> list[float]:
        values = to_float64(dictionary, column, 0, Faults())
        return [float(value) for value in values if not np.isnan(value)]

    return LevelOrder(column, numbers)


def _with_nan(array: Any) -> Vector:
    """Return an Arrow array of float64 (m,) with NaN for null.

    ``Array.to_numpy`` would import pandas.
    """
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(np.nan, pa.float64()))
    return np.asarray(np.from_dlpack(array), np.float64)


def _flags(array: Any) -> NDArray[np.bool_]:
    """Return an Arrow array of truth values (m,), false for null."""
    flags: NDArray[np.bool_] = np.from_dlpack(pc.fill_null(array, False).cast(pa.uint8())) != 0
    return flags


def find_text(
    array: Any, column: str, start: int, faults: Faults, *, boolean: bool = False
) -> None:
    """Record in ``faults`` the values of a text array that are not written as numbers.

    With ``boolean``: those that are not written as truth values. Dates are text here; an array
    of any other type is left alone.
    """
    array = iso_text(array)
    if kind(array.type) != "text":
        return
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    pattern = _BOOLEAN if boolean else NUMBER
    bad = ~_flags(pc.fill_null(pc.match_substring_regex(array, pattern), True))
    if boolean:
        faults.add("something else", column, start, bad, _Decoded(array))
        return
    for name, known in _KNOWN_TEXT.items() if bad.any() else ():
        found = bad & _flags(pc.match_substring_regex(array, rf"^\s*({known})\s*$"))
        faults.add(name, column, start, found, _Decoded(array))
        bad &= ~found
    faults.add("text", column, start, bad, _Decoded(array))
    faults.note_texts(column, lambda: map(_shown_text, pc.unique(array).drop_null().to_pylist()))


class Coder:
    """Coder of a column of text or dates: numbers its values in order of appearance.

    Parameters
    ----------
    column
        Name of the column, for messages.
    categories
        Whether the column is one of categories in every source, whose order counts.
    """

    def __init__(self, column: str, categories: bool = False) -> None:
        self._column = column
        self._codes: dict[str, int] = {}
        self._order = LevelOrder(column, self._texts, unordered=categories)
        self.values: list[str] = []

    def codes(self, array: Any) -> Vector:
        """Return the code of each value of an Arrow array (m,), NaN for null.

        Raises
        ------
        DataError
            If the column has over a million different values, or bytes that are not UTF-8.
        """
        self._order.add(array)
        array = iso_text(array)
        if not pa.types.is_dictionary(array.type):
            if pa.types.is_string_view(array.type):
                array = array.cast(pa.string())
            array = array.dictionary_encode()
        index = _with_nan(array.indices.cast(pa.float64()))
        place = np.where(np.isnan(index), -1, index).astype(np.int64)
        table = np.full(len(array.dictionary) + 1, np.nan)  # the last, index -1, is of null
        seen = np.zeros(len(table), np.bool_)
        seen[place] = True
        used = np.flatnonzero(seen[:-1])
        place_of = pa.Array.from_buffers(pa.int64(), len(used), [None, pa.py_buffer(used)])
        words = array.dictionary.take(place_of).to_pylist()
        for code, word in zip(used, words, strict=True):
            if word is not None:
                table[code] = self._code(self._text(word))
        return table[place]

    def ordered(self, codes: Sequence[int]) -> list[Any]:
        """Return the values of ``codes``: in the order of the categories, else sorted."""
        return self._order.arrange(self.values[code] for code in codes)

    def _texts(self, dictionary: Any) -> list[str]:
        """Return the words of an Arrow dictionary as text, without null."""
        words = iso_text(dictionary).to_pylist()
        return [self._text(word) for word in words if word is not None]

    def _text(self, word: Any) -> str:
        """Return a value, which may be binary, as text."""
        try:
            return word.decode() if isinstance(word, bytes) else str(word)
        except UnicodeDecodeError:
            raise DataError(
                f"expected text in UTF-8 in column {self._column!r}, found {word[:20]!r}: "
                "correct the file"
            ) from None

    def _code(self, word: str) -> int:
        """Return the code of a value; give a new value the next code."""
        code = self._codes.setdefault(word, len(self._codes))
        if code == len(self.values):
            if code >= _MAX_TEXTS:
                raise DataError(
                    f"expected at most {_MAX_TEXTS} different texts in column {self._column!r}, "
                    "found more: leave it out of the formula"
                )
            self.values.append(word)
        return code


def _shown_text(value: Any) -> str:
    """Return a text, which may be binary; bad UTF-8 is replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _Decoded:
    """Text of an Arrow array by row, for examples in messages; bad UTF-8 is replaced."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, position: int) -> str:
        return _shown_text(self._array[position].as_py())
