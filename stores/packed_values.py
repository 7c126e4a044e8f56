"""Attributes by which the numbers of an array are not its values: packing, marks of missing ones.

They are those of the CF conventions, sections 2.5.1 and 8.1, which xarray writes to zarr.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError

MARKS: Final = ("_FillValue", "missing_value")
DECIDING: Final = ("scale_factor", "add_offset", "_Unsigned", *MARKS)
"""Attributes that say whether the numbers are the values."""
_HARMLESS: Final = {"scale_factor": 1.0, "add_offset": 0.0}


class StoredNumbers:
    """Numbers of an array that are its values, except for some marks of missing values.

    A message names the array as ``where``, and ends with ``advice``. Packed numbers are refused.
    """

    def __init__(
        self,
        attributes: Mapping[str, Any],
        dtype: np.dtype[Any],
        where: str,
        advice: str,
        error: type[DataError] = DataError,
    ) -> None:
        self._where, self._advice, self._error = where, advice, error
        for name in ("scale_factor", "add_offset", "_Unsigned"):
            if name in attributes and _packs(name, attributes[name], dtype):
                raise error(
                    f"expected the values themselves in {where}, found packed ones (attribute "
                    f"{name} = {_shown(attributes[name])}): {advice}"
                )
        self.marks: list[tuple[str, float]] = []
        """Name of the attribute, and the number; NaN, which is no value anyway, is left out."""
        names = [name for name in (*MARKS, "fill_value") if name in attributes]
        for name in names:
            try:
                numbers = [float(each) for each in _numbers(attributes[name])]
            except (ValueError, TypeError, struct.error):
                raise error(
                    f"expected a number as attribute {name} of {where}, found "
                    f"{_shown(attributes[name])}: {advice}"
                ) from None
            self.marks += [(name, each) for each in numbers if not math.isnan(each)]

    def refuse_marked(self, values: NDArray[Any], start: int) -> None:
        """Refuse rows, from row ``start`` on, with a number that stands for a missing value."""
        for name, mark in self.marks:
            # float32 of a mark of float64, as the values have been rounded to it too.
            with np.errstate(over="ignore"):
                marked = values == mark
            if marked.any():
                row = start + int(np.argwhere(marked)[0][0])
                raise self._error(
                    f"expected numbers in {self._where}, found {values[marked][0]}, the mark of "
                    f"missing values (attribute {name}), in row {row}, counted from 0: "
                    f"{self._advice}"
                )


def _packs(name: str, value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether an attribute changes the numbers of an array of ``dtype``."""
    if name == "_Unsigned":
        return dtype.kind == ("i" if str(value).lower() == "true" else "u")
    try:
        return any(float(each) != _HARMLESS[name] for each in _numbers(value))
    except (ValueError, TypeError, struct.error):
        return True


def _numbers(value: Any) -> Iterator[Any]:
    """Yield the numbers of an attribute: one, a list of some, or none."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, str):
        yield _number_of_text(value)
    elif value is not None:
        yield value


def _number_of_text(text: str) -> float:
    """Return the number of a text: decimal, or a double in base64, as xarray writes it."""
    try:
        return float(text)
    except ValueError:
        (number,) = struct.unpack("<d", b64decode(text, validate=True))
        return float(number)


def _shown(value: Any) -> str:
    return repr(value)[:60]
