"""Arrow columns as float64, exactly or not at all."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammc.protocols import Vector
from streammc.stores.faults import Faults

LIMIT: Final = 2**53
"""Integers up to here, either sign, are exact in float64."""

_NUMBER: Final = r"(?i)^\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*$"
_BOOLEAN: Final = r"(?i)^\s*(0|1|true|false)\s*$"


def kind(type_: Any) -> str:
    """Return ``"number"``, ``"text"`` or ``"other"`` for an Arrow type."""
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
    return "other"


def to_float64(array: Any, column: str, start: int, faults: Faults) -> Vector:
    """Return an Arrow array of numbers as float64, NaN where it is null.

    Integers beyond 2**53 are recorded in ``faults``: float64 would round them.

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
            bad = pc.fill_null(wide, False).to_numpy(zero_copy_only=False)
            faults.add("large integers", column, start, bad, array)
    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64)


def find_text(
    array: Any, column: str, start: int, faults: Faults, *, boolean: bool = False
) -> None:
    """Record in ``faults`` the values of a text array that are not written as numbers.

    ``boolean``: not written as truth values. An array that holds no text has none.
    """
    if kind(array.type) != "text":
        return
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    pattern = _BOOLEAN if boolean else _NUMBER
    numeric = pc.fill_null(pc.match_substring_regex(array, pattern), True)
    bad = ~numeric.to_numpy(zero_copy_only=False)
    faults.add("something else" if boolean else "text", column, start, bad, _Decoded(array))


class _Decoded:
    """Examples of text, whatever its bytes."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, position: int) -> str:
        value = self._array[position].as_py()
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
