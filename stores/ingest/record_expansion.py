"""Rows of the arrays of a store from records, in which every factor is a code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.coded_matrix import CODE_DTYPE
from streammc.protocols import Vector
from streammc.stores.format.layout import CODES
from streammc.stores.formula.coded_factors import CodedFactor

Arrays = Mapping[str, NDArray[Any]]

_SLICE_BYTES: Final = 1 << 19
"""Bytes of the arrays that are written at once: a part of the second-level cache."""


class Expansion:
    """Arrays of a store, written from records.

    A factor is one code in a record, whatever the store has: the indicators of the factors that
    a store holds as columns, ``((code == j) - mean) / scale``, and the intercept are written last,
    so that a shuffle moves few bytes.

    Parameters
    ----------
    records
        Dtype of the records: dense columns ``X``, ``codes``, and one field for each other array.
    intercept
        Whether the first column of ``X`` is ones.
    x_dtype
        Dtype of ``X``.
    factors
        The factors of ``codes``, in this order.
    stored
        Those that the store has as codes.
    mean, scale
        (features,) subtracted from every column of the design without the intercept, and divisors.
    """

    def __init__(
        self,
        records: np.dtype[Any],
        intercept: bool,
        x_dtype: str,
        factors: Sequence[CodedFactor],
        stored: Sequence[CodedFactor],
        mean: Vector,
        scale: Vector,
    ) -> None:
        kept = {factor.first for factor in stored}
        coded = np.zeros(mean.size, np.bool_)
        absent = np.zeros(mean.size, np.bool_)
        for factor in factors:
            coded[factor.range] = True
            absent[factor.range] = factor.first in kept
        place = intercept + np.cumsum(~absent) - 1
        self._intercept = intercept
        self._dense = _runs(place[~coded])
        self._kept = [k for k, factor in enumerate(factors) if factor.first in kept]
        self._levels = []
        for k, factor in enumerate(factors):
            if factor.first not in kept:
                first, own = int(place[factor.first]), factor.range
                zero = (-mean[own] / scale[own]).astype(x_dtype)
                one = ((1.0 - mean[own]) / scale[own]).astype(x_dtype)
                self._levels.append((k, first, zero, one))
        width = intercept + int((~absent).sum())
        self.dtypes: dict[str, np.dtype[Any]] = {"X": np.dtype((x_dtype, (width,)))}
        """Dtype of a row of each array, with the shape of the row."""
        if stored:
            self.dtypes[CODES] = np.dtype((CODE_DTYPE, (len(stored),)))
        others = [name for name in records.names or () if name not in ("X", CODES)]
        self.dtypes |= {name: records[name] for name in others}
        self.row_bytes = sum(
            prod(dtype.shape) * dtype.base.itemsize for dtype in self.dtypes.values()
        )
        self.slice_rows = max(1, _SLICE_BYTES // self.row_bytes)

    def empty(self, rows: int) -> dict[str, NDArray[Any]]:
        """Return new arrays of ``rows`` rows, by name."""
        return {name: np.empty(rows, dtype) for name, dtype in self.dtypes.items()}

    def write(self, records: NDArray[Any], into: Arrays) -> None:
        """Write the records (m,) into the rows (m, ..) of every array of ``into``."""
        for name, array in into.items():
            if name == "X":
                self._write_design(records, array)
            elif name == CODES:
                array[:] = records[CODES][:, self._kept]
            elif array.dtype.kind == "u" and records[name].dtype.kind == "S":
                texts = np.ascontiguousarray(records[name])
                array[:] = texts.view(np.uint8).reshape(len(texts), -1)
            else:
                array[:] = records[name]

    def _write_design(self, records: NDArray[Any], X: NDArray[Any]) -> None:
        if self._intercept:
            X[:, 0] = 1
        done = 0
        for start, stop in self._dense:
            X[:, start:stop] = records["X"][:, done : done + stop - start]
            done += stop - start
        for k, first, zero, one in self._levels:
            X[:, first : first + zero.size] = zero
            codes = records[CODES][:, k].astype(np.intp)
            rows = np.flatnonzero(codes)
            codes = codes[rows] - 1
            X[rows, first + codes] = one[codes]


def _runs(places: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Return the runs ``(start, stop)`` of consecutive numbers in ascending ``places``."""
    if not places.size:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(places) > 1) + 1).tolist(), places.size]
    return [(int(places[low]), int(places[high - 1]) + 1) for low, high in pairwise(cuts)]
