"""Checks of arrays in memory: finite numbers, exact in float64, and one name per column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streammc.errors import DataError

LARGEST: Final = 1e150
"""Largest absolute value accepted; squares of larger numbers could overflow."""


def given_names(names: Sequence[str] | None, columns: int) -> list[str]:
    """Return one name per column of a matrix: ``names``, or ``x0``, ``x1``, ... by default."""
    if names is None:
        return [f"x{column}" for column in range(columns)]
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise DataError(
            f"expected {columns} feature_names, found {names!r}: give a list with one per column"
        )
    texts = [str(name) for name in names]
    if len(texts) != columns:
        raise DataError(
            f"expected {columns} feature_names, found {len(texts)}: give one name per column"
        )
    return texts


def unmasked(value: Any, label: str) -> NDArray[Any]:
    """Return an array; raise DataError if some of its values are masked: they mean nothing."""
    if np.ma.is_masked(value):
        missing = int(np.count_nonzero(np.ma.getmaskarray(value)))
        raise DataError(
            f"expected numbers in {label}, found {missing} masked: leave these out, or fill them"
        )
    return np.asarray(value)


def checked_numbers(value: ArrayLike, label: str, ndim: int) -> NDArray[Any]:
    """Return numbers as a C-contiguous array of floats with ``ndim`` dimensions."""
    try:
        array = unmasked(value, label)
    except DataError:
        raise
    except (TypeError, ValueError):
        raise DataError(
            f"expected {label} with {ndim} dimensions, found rows of different lengths: "
            "make them equal"
        ) from None
    if array.ndim != ndim:
        raise DataError(
            f"expected {label} with {ndim} dimensions, found shape {array.shape}: reshape it"
        )
    if array.dtype.kind not in "biuf":
        raise DataError(f"expected numbers in {label}, found dtype {array.dtype}: encode them")
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > 2**53:
        raise DataError(
            f"expected integers up to 2**53 in {label}, found larger ones, which float64 would "
            "round: rescale them"
        )
    keep = (np.float32, np.float64) if ndim == 2 else (np.float64,)
    return np.ascontiguousarray(array, None if array.dtype in keep else np.float64)


def check_finite(matrix: NDArray[Any], names: Sequence[str], start: int = 0) -> None:
    """Refuse NaN, infinities, and numbers whose squares would overflow.

    ``start`` is the number of the first row, for the message.
    """
    step = max(1, (1 << 20) // matrix.shape[1])
    limit = matrix.dtype.type(min(LARGEST, float(np.finfo(matrix.dtype).max)))
    for low in range(0, matrix.shape[0], step):
        part = matrix[low : low + step]
        # NaN fails every comparison.
        if part.min(initial=0) >= -limit and part.max(initial=0) <= limit:
            continue
        for column, name in enumerate(names):
            bad = np.flatnonzero(~np.isfinite(matrix[:, column]))
            if bad.size:
                raise DataError(
                    f"expected finite numbers in column {name!r}, found "
                    f"{matrix[bad[0], column]} in row {start + int(bad[0])} "
                    f"({bad.size} such rows): remove or impute them"
                )
            huge = np.flatnonzero(np.abs(matrix[:, column]) > limit)
            if huge.size:
                raise DataError(
                    f"expected numbers of at most {LARGEST:g} in size in column {name!r}, found "
                    f"{matrix[huge[0], column]:g} in row {start + int(huge[0])} "
                    f"({huge.size} such rows): rescale them"
                )


def checked_vectors(by_name: Mapping[str, ArrayLike | None], rows: int) -> list[NDArray[Any]]:
    """Return vectors (rows,) by name, or empty for ``None``; ``y`` keeps its dtype."""
    vectors: list[NDArray[Any]] = []
    for label, value in by_name.items():
        if value is None:
            vectors.append(np.empty(0))
            continue
        vector = checked_numbers(value, label, 1)
        if vector.shape[0] != rows:
            raise DataError(
                f"expected {rows} values of {label}, as X has, found {vector.shape[0]}"
                ": pass one value per row"
            )
        check_finite(vector[:, np.newaxis], [label])
        vectors.append(vector.astype(np.float64) if label != "y" else vector)
    return vectors
