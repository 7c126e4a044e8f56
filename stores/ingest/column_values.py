"""Values of Arrow columns without loss: as numbers, as ISO text, and as levels of factors.

Each value is one level, and no two values are the same level. Whole numbers are written without a
point, other numbers with the fewest digits that their type needs, moments as
``2024-01-31 12:30:00``, those with a zone in UTC. Values that are neither numbers nor text are
refused.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.ingest.faults import Faults
from streammc.stores.iso_words import ISO_DATE, MOMENT, PADDED_TIME, iso_word
from streammc.stores.sources.csv_source import NotANumberError

LIMIT: Final = 2**53
"""Largest absolute value up to which every integer is exact in float64."""

NUMBER: Final = r"(?i)^\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*$"
"""A number as it is written in text, as a regular expression."""
_BOOLEAN: Final = r"(?i)^\s*(0|1|true|false)\s*$"
DECIMAL_COMMA: Final = r"[+-]?[0-9]{1,3}(\.?[0-9]{3})*,[0-9]+"
"""A number with a decimal comma, as a regular expression."""
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


def is_zoned(type_: Any) -> bool:
    """Return whether an Arrow type is of moments with a time zone."""
    if pa.types.is_dictionary(type_):
        return is_zoned(type_.value_type)
    return pa.types.is_timestamp(type_) and type_.tz is not None


def iso_text(array: Any) -> Any:
    """Return Arrow dates and times (m,) as ISO text, and texts of them written in the same way.

    A moment with a zone is written in UTC, as ``2024-01-31 11:30:00Z``, and one without a zone at
    midnight as a date. Other types are returned unchanged.
    """
    if pa.types.is_dictionary(array.type):
        words = iso_text(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, words, ordered=array.type.ordered)
    if kind(array.type) == "text":
        moments = pc.fill_null(
            pc.match_substring_regex(array, f"^({MOMENT}|{PADDED_TIME})$"), False
        )
        if not pc.any(moments).as_py():
            return array
        words = [iso_word(each) for each in python_texts(array.filter(moments))]
        return pc.replace_with_mask(array, moments, pa.array(words, array.type))
    if kind(array.type) != "date":
        return array
    if is_zoned(array.type):
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    text = array.cast(pa.string())
    # Cut a fraction of zeros, and zeros at the end of a fraction; keep what follows it.
    for fraction, rest in ((r"\.0+", r"\1"), (r"(\.\d*[1-9])0+", r"\1\2")):
        text = pc.replace_substring_regex(text, fraction + r"(Z|[+-]\d+)?$", rest)
    return pc.replace_substring_regex(text, " 00:00:00$", "")


def to_float64(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return an Arrow array of numbers as float64, with NaN for null.

    Integers beyond 2**53, of decimal types too, are recorded in ``faults``: float64 would round
    them. Any other decimal becomes the nearest double.

    The array is of a type that :func:`kind` calls a number.
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
    if not pa.types.is_decimal(array.type):
        return with_nan(array.cast(pa.float64(), safe=False))
    values = _nearest(array)
    bad = np.abs(values) >= LIMIT
    for row in np.flatnonzero(bad):
        exact = array[int(row)].as_py()
        bad[row] = abs(exact) > LIMIT and exact == int(exact)
    faults.add("large integers", column, start, bad, array)
    return values


def _nearest(array: Any) -> Vector:
    """Return the double nearest to each decimal of an Arrow array (m,), NaN for null.

    Arrow's own cast multiplies by a rounded power of ten: it makes 0.30000000000000004 of 0.3.
    """
    scale = array.type.scale
    if array.type.bit_width == 128 and 0 <= scale <= 22 and len(array):
        words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
        low, high = words[::2], words[1::2]
        if (high == low >> 63).all() and low.min() >= -LIMIT and low.max() <= LIMIT:
            # Both are exact, so that their quotient is rounded once.
            values: Vector = low / float(10**scale)
            if array.null_count:
                values[_flags(array.is_null())] = np.nan
            return values
    return with_nan(array.cast(pa.string()).cast(pa.float64()))  # 30 times slower


def with_nan(array: Any) -> Vector:
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
    if kind(array.type) == "date":
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
        faults.add("something else", column, start, bad, Decoded(array))
        return
    for name, known in _KNOWN_TEXT.items() if bad.any() else ():
        matching = bad & _flags(pc.match_substring_regex(array, rf"^\s*({known})\s*$"))
        faults.add(name, column, start, matching, Decoded(array))
        bad &= ~matching
    faults.add("text", column, start, bad, Decoded(array))
    faults.note_texts(column, lambda: map(_shown_text, pc.unique(array).drop_null().to_pylist()))


def find_integers(array: Any, column: str, start: int, faults: Faults) -> None:
    """Record in ``faults`` the values of a text array that are integers of 2**53 or more."""
    if kind(array.type) != "text":
        return
    bad = _flags(pc.match_substring_regex(array, r"^\s*[+-]?[0-9]{16,}\s*$"))
    for row in np.flatnonzero(bad):
        bad[row] = abs(int(array[int(row)].as_py())) >= LIMIT
    faults.add("large integers", column, start, bad, Decoded(array))


def python_texts(array: Any) -> list[Any]:
    """Return an Arrow array of text, which may be binary, as Python texts."""
    return [each.decode() if isinstance(each, bytes) else each for each in array.to_pylist()]


def _shown_text(value: Any) -> str:
    """Return a text, which may be binary; bad UTF-8 is replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Decoded:
    """Text of an Arrow array by row, for examples in messages; bad UTF-8 is replaced."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, position: int) -> str:
        return _shown_text(self._array[position].as_py())


class LevelOrder:
    """Order of the categories of one column, merged from the dictionaries of its parts.

    Files and row groups may have dictionaries of their own, each with some of the categories.
    Ordered dictionaries must agree. Unordered ones are joined in the order of their appearance,
    as pandas joins them.

    ``levels_of`` returns the levels of an Arrow dictionary in their order, without missing ones.
    With ``unordered`` the unordered dictionaries count, too: those of a column of categories, and
    not of text that is only read as a dictionary.
    """

    def __init__(
        self, column: str, levels_of: Callable[[Any], list[Any]], unordered: bool = True
    ) -> None:
        self._column = column
        self._levels_of = levels_of
        self._unordered = unordered
        self._dictionaries: list[Any] = []
        self._orders: list[list[Any]] = []
        self._last: Any = None
        self._appeared: dict[Any, None] = {}

    def add(self, array: Any) -> None:
        """Record the order of an Arrow array, if it is of categories."""
        if not pa.types.is_dictionary(array.type):
            return
        words = array.dictionary
        # An equal dictionary comes with every batch of a source.
        if not array.type.ordered:
            if self._unordered and (self._last is None or not words.equals(self._last)):
                self._last = words
                self._appeared |= dict.fromkeys(self._levels_of(words))
        elif not any(words.equals(known) for known in self._dictionaries):
            self._dictionaries.append(words)
            self._orders.append(self._levels_of(words))

    def arrange(self, unordered: Iterable[Any]) -> list[Any]:
        """Return levels in the order of the categories; those that are none follow, sorted.

        Categories that no ordered dictionary compares are in the order of their appearance.
        """
        levels = set(unordered)
        ranked = dict.fromkeys([*self._merged(), *self._appeared])
        known = [level for level in ranked if level in levels]
        return known + sorted(levels - {*known})

    def _merged(self) -> list[Any]:
        """Return all categories in one order that agrees with every ordered dictionary."""
        appeared = dict.fromkeys(level for order in self._orders for level in order)
        place = {level: index for index, level in enumerate(appeared)}
        sorter = TopologicalSorter[Any](dict.fromkeys(appeared, ()))
        for order in self._orders:
            for low, high in pairwise(order):
                if low != high:  # two neighbours of a dictionary may be one level
                    sorter.add(high, low)
        try:
            sorter.prepare()
        except CycleError as error:
            circle = " before ".join(map(repr, error.args[1]))
            raise DataError(
                f"expected one order of the categories of column {self._column!r}, found "
                f"{circle[:200]}: write them in one order, or name it in the formula, "
                "C(column, levels=[...])"
            ) from None
        merged, ready = [], [(place[level], level) for level in sorter.get_ready()]
        heapq.heapify(ready)
        while ready:
            _, level = heapq.heappop(ready)
            merged.append(level)
            sorter.done(level)
            for follower in sorter.get_ready():
                heapq.heappush(ready, (place[follower], follower))
        return merged


_MAX_TEXTS: Final = 1_000_000


def level_numbers(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return the levels of an Arrow array (m,) of numbers or of texts of numbers, NaN for null.

    Two levels are never one number: a value beyond 2**53, or of more digits than the number has,
    is recorded in ``faults``. A number of half or single precision is the one of its fewest digits:
    0.1 is the same level in every type.

    A text that is no number raises NotANumberError.
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
    number = Decimal(word.strip())
    return number if number.is_finite() else float(number)


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

    With ``written`` the types are guessed from text, as in CSV files.
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
        """Return the code of each value of an Arrow array (m,), NaN for null."""
        self._order.add(array)
        array = _encoded(array)
        place, used = _places(array)
        table = np.full(len(array.dictionary) + 1, np.nan)  # the last, place -1, is of null
        words = self._words(array.dictionary.take(_arrow(used)))
        for code, word in zip(used, words, strict=True):
            if word is not None:
                table[code] = self.code(word)
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
        digits = exact if isinstance(exact, Decimal) else Decimal(repr(value))
        return f"{digits.normalize():f}"  # repr has an exponent below 1e-4

    def _refuse_doubtful(self, word: str) -> None:
        """Refuse a text that may be a number or date of another source, written otherwise."""
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

    def code(self, word: str) -> int:
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
