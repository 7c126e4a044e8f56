"""Numba types of records, the NamedTuples that are arguments of compiled functions."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numba import from_dtype, types
from numba.core.types.containers import BaseTuple

_NUMBERS = {float: types.float64, int: types.int64}


@cache
def record_type(record: type) -> Any:
    """Return the numba type of a NamedTuple, derived from its annotations.

    ``Vector``, ``Matrix`` and ``Index`` are C-contiguous arrays, a number is ``float`` or
    ``int``, a record may hold records, and ``Annotated[Any, t]`` is of the numba type ``t``.

    Raises
    ------
    TypeError
        If an annotation has no numba type.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     first: float
    ...     second: int
    >>> record_type(Pair)
    Pair(float64, int64)
    """
    hints = get_type_hints(record, include_extras=True)
    fields = [_type(record, name, hint) for name, hint in hints.items()]
    return BaseTuple.from_types(fields, record)


def _type(record: type, name: str, hint: Any) -> Any:
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if hasattr(hint, "_fields"):
        return record_type(hint)
    if get_origin(hint) is Annotated:
        array, given = get_args(hint)
        if isinstance(given, types.Type):
            return given
        # NDArray[t] is ndarray[shape, dtype[t]]; from NumPy 2.5 on an alias whose argument is t.
        while arguments := get_args(array):
            array = arguments[-1]
        return types.Array(from_dtype(np.dtype(array)), given, "C")
    raise TypeError(
        f"expected a number, an array of known dimension or a record, found {hint!r} as "
        f"{record.__qualname__}.{name}: annotate it with an alias of streammc.protocols"
    )
