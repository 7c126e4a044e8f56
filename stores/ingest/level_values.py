"""Values of Arrow columns as levels: each value in one way, and no two values in one.

Whole numbers are written without a point, other numbers with the fewest digits that their type
needs, moments as ``2024-01-31 12:30:00``, those with a zone in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.ingest.exact_values import (
    ISO_DATE,
    LIMIT,
    NUMBER,
    Decoded,
    is_zoned,
    iso_text,
    iso_word,
    kind,
    python_texts,
    with_nan,
)
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.level_order import LevelOrder
from streammc.stores.sources.csv_source import NotANumberError

_MAX_TEXTS: Final = 1_000_000


def level_numbers(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return the levels of an Arrow array (m,) of numbers or of texts of numbers, NaN for null.

    Two levels are never one number: a value beyond 2**53, or of more digits than the number has,
    is recorded in ``faults``. A number of half or single precision is the one of its fewest digits:
    0.1 is the same level in every type.

    Parameters
    ----------
    array, column, start, faults
        As of :func:`to_float64`.

    Raises
    ------
    NotANumberError
        If a text is no number.
    """
    array = _encoded(array)
    place, used = _places(array)
    exact = _exact_numbers(array.dictionary.take(_arrow(used)))
    values = np.full(len(array.dictionary) + 1, np.nan)  # the last, place -1, is of null
    values[used] = [np.nan if each is None else float(each) for each in exact]
    bad = np.zeros(len(values), np.bool_)
    bad[used] = [*map(_is_merged, exact, values[used])]
    faults.add("levels of too many digits", column, start, bad[place], Decoded(array))
    return values[place]


def _arrow(places: NDArray[np.int64]) -> Any:
    """Return integers as an Arrow array; ``pyarrow.array`` would import pandas."""
    return pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])


def _places(array: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place in the dictionary of each value (m,), -1 for null, and those in use."""
    index = with_nan(array.indices.cast(pa.float64()))
    place = np.where(np.isnan(index), -1, index).astype(np.int64)
    seen = np.zeros(len(array.dictionary) + 1, np.bool_)
    seen[place] = True
    return place, np.flatnonzero(seen[:-1])


def _exact_numbers(array: Any) -> list[Any]:
    """Return an Arrow array of numbers or of texts of numbers as Python numbers, ``None`` for null.

    Texts become ``Decimal``, but for NaN and infinities.
    """
    if kind(array.type) == "text":
        return [None if word is None else _number_of(word) for word in python_texts(array)]
    values: list[Any] = array.to_pylist()
    if array.type in (pa.float16(), pa.float32()):
        narrow = np.float16 if array.type == pa.float16() else np.float32
        return [None if value is None else float(str(narrow(value))) for value in values]
    return values


def _number_of(word: str) -> Decimal | float:
    """Return the number of a text, exactly."""
    if not re.fullmatch(NUMBER, word):
        raise NotANumberError(f"the text {word[:40]!r}")
    found = Decimal(word.strip())
    return found if found.is_finite() else float(found)


def _is_merged(exact: Any, value: float) -> bool:
    """Return whether another number may be the same double ``value``."""
    if exact is None or not np.isfinite(value):
        return False
    if abs(exact) > LIMIT or (abs(exact) == LIMIT and isinstance(exact, float)):
        return True
    return isinstance(exact, Decimal) and Decimal(repr(float(value))) != exact


def number_order(column: str, types: Sequence[Any]) -> LevelOrder:
    """Return an empty order of the levels of a column whose categories are numbers.

    ``types`` are the Arrow types of the column in its sources.
    """

    def numbers(dictionary: Any) -> list[float]:
        values = level_numbers(dictionary, column, 0, Faults())
        return [float(value) for value in values if not np.isnan(value)]

    return LevelOrder(column, numbers, unordered=all(map(pa.types.is_dictionary, types)))


class Coder:
    """Coder of a column of text or dates: numbers its values in order of appearance.

    Parameters
    ----------
    column
        Name of the column, for messages.
    types
        Arrow types of the column in its sources.
    written
        Whether the types are guessed from text, as in CSV files.
    """

    def __init__(self, column: str, types: Sequence[Any], written: bool) -> None:
        self._column = column
        others = () if written else types
        self._types = [type_ for type_ in others if kind(type_) in ("number", "date")]
        self._times = any(map(pa.types.is_time, types))
        self._codes: dict[str, int] = {}
        self._order = LevelOrder(
            column,
            lambda words: [word for word in self._words(words) if word is not None],
            unordered=all(map(pa.types.is_dictionary, types)),
        )
        self.values: list[str] = []

    def codes(self, array: Any) -> Vector:
        """Return the code of each value of an Arrow array (m,), NaN for null.

        Raises
        ------
        DataError
            If the column has over a million different values, bytes that are not UTF-8, or a text
            that may be a number or date of another source.
        """
        self._order.add(array)
        array = _encoded(array)
        place, used = _places(array)
        table = np.full(len(array.dictionary) + 1, np.nan)  # the last, place -1, is of null
        words = self._words(array.dictionary.take(_arrow(used)))
        for code, word in zip(used, words, strict=True):
            if word is not None:
                table[code] = self._code(word)
        return table[place]

    def ordered(self, codes: Sequence[int]) -> list[Any]:
        """Return the values of ``codes``: in the order of ordered categories, else sorted."""
        return self._order.arrange(self.values[code] for code in codes)

    def _words(self, array: Any) -> list[str | None]:
        """Return the values of an Arrow array as the texts of levels, ``None`` for missing."""
        if kind(array.type) == "number":
            return [self._number_word(each) for each in _exact_numbers(array)]
        try:
            words = python_texts(iso_text(array))
        except UnicodeDecodeError as error:
            raise DataError(
                f"expected text in UTF-8 in column {self._column!r}, found {error.object[:20]!r}: "
                "correct the file"
            ) from None
        if self._times:
            words = [None if word is None else iso_word(word, times=True) for word in words]
        if self._types and kind(array.type) == "text":
            for word in words:
                if word is not None and word not in self._codes:
                    self._refuse_doubtful(word)
        return words

    def _number_word(self, exact: Any) -> str | None:
        """Return a number as a level is written."""
        if exact is None or exact != exact:
            return None
        value = float(exact)
        if isinstance(exact, float) and abs(value) >= LIMIT:
            raise DataError(
                f"expected text, or numbers below 2**53, in column {self._column!r}, which is text "
                f"in another source, found {value:g}: write it as text in every source"
            )
        if isinstance(exact, bool):
            return str(exact)
        if exact == int(exact):
            return str(int(exact))
        return f"{exact.normalize():f}" if isinstance(exact, Decimal) else repr(value)

    def _refuse_doubtful(self, word: str) -> None:
        """Refuse a text that may be a value of a source with numbers or dates, written otherwise.

        Raises
        ------
        DataError
            If the column has numbers and the text is one in other digits, or truth values, or
            moments with a zone and the text is one without, or the reverse.
        """
        for type_ in self._types:
            if pa.types.is_boolean(type_):
                doubtful = word.lower() in ("true", "false") and word not in ("True", "False")
            elif kind(type_) == "number":
                number = re.fullmatch(NUMBER, word) is not None
                exact = _number_of(word) if number else None
                doubtful = isinstance(exact, Decimal) and self._number_word(exact) != word
            else:
                moment = re.fullmatch(ISO_DATE, word) is not None
                time = pa.types.is_time(type_)
                doubtful = moment and not time and word.endswith("Z") != is_zoned(type_)
            if doubtful:
                raise DataError(
                    f"expected one way of writing each value of column {self._column!r}, found the "
                    f"text {word[:40]!r} in one source and the type {type_} in another: write the "
                    "column as text in every source, or as that type"
                )

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


def _encoded(array: Any) -> Any:
    """Return an Arrow array as a dictionary array."""
    if pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if pa.types.is_decimal(array.type) and array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array.dictionary_encode()
