"""Values of Arrow columns as numbers and as ISO text, without loss, and those that are neither."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streammc.protocols import Vector
from streammc.stores.ingest.faults import Faults

LIMIT: Final = 2**53
"""Largest absolute value up to which every integer is exact in float64."""

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
_MOMENT: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
"""A date with a time of day, of which the hour suffices, as a regular expression."""
_TIME: Final = r"([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)?"
_PADDED_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]*0"
"""A time of day with a zero at the end of its fraction."""
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
            pc.match_substring_regex(array, f"^({_MOMENT}|{_PADDED_TIME})$"), False
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
    for fraction, kept in ((r"\.0+", r"\1"), (r"(\.\d*[1-9])0+", r"\1\2")):
        text = pc.replace_substring_regex(text, fraction + r"(Z|[+-]\d+)?$", kept)
    return pc.replace_substring_regex(text, " 00:00:00$", "")


def iso_word(word: str, times: bool = False) -> str:
    """Return a text of a moment in the way of :func:`iso_text`; other text unchanged.

    With ``times``: ``12:30`` is a time of day as well, and not a score or a verse.
    """
    time = re.fullmatch(_TIME, word)
    if time is not None and (times or time[2]):
        seconds = time[2] or ":00"
        return time[1] + (seconds.rstrip("0").rstrip(".") if "." in seconds else seconds)
    found = re.fullmatch(_MOMENT, word)
    if found is None:
        return word
    day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {hour}:{minute or '00'}:{second or '00'}")
        if zone not in (None, "Z"):
            digits = zone[1:].replace(":", "").ljust(4, "0")
            ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            moment = moment - ahead if zone[0] == "+" else moment + ahead
    except (ValueError, OverflowError):  # no such day or hour
        return word
    text = f"{moment}{(fraction or '').rstrip('0').rstrip('.')}"
    return text.removesuffix(" 00:00:00") if zone is None else f"{text}Z"


def to_float64(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return an Arrow array of numbers as float64, with NaN for null.

    Integers beyond 2**53, of decimal types too, are recorded in ``faults``: float64 would round
    them. Any other decimal becomes the nearest double.

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
        found = bad & _flags(pc.match_substring_regex(array, rf"^\s*({known})\s*$"))
        faults.add(name, column, start, found, Decoded(array))
        bad &= ~found
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
    """Return an Arrow array of text, which may be binary, as Python texts.

    Raises
    ------
    UnicodeDecodeError
        If bytes are not UTF-8.
    """
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
