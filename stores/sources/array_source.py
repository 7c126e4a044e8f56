"""Labelled arrays, read block by block, as a source of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError, OutOfMemoryError, StreammcError
from streammc.stores.format.layout import CODES, DENSE_FEATURE
from streammc.stores.number_checks import unmasked
from streammc.stores.sources.source import Source, Texts

Read = Callable[[int, int], "tuple[NDArray[Any], list[NDArray[Any]]]"]
"""``(start, stop)`` -> rows of the design (m, q) and of each vector (m,)."""

_KINDS: Final = "biuf"


class ArraySource(Source):
    """A design matrix with further vectors.

    ``features`` are the q columns of the design; ``dtypes`` has that of the design first. Row
    numbers ``edges`` bound the blocks, from 0 to the number of rows, and ``read`` returns the rows
    between two of them. ``row_id`` is the vector of row ids, which may hold text.
    """

    def __init__(
        self,
        label: str,
        features: Sequence[str],
        vectors: Sequence[str],
        dtypes: Sequence[np.dtype[Any]],
        edges: Sequence[int],
        read: Read,
        *,
        spool: bool,
        row_id: str | None = None,
    ) -> None:
        self.label = label
        self.names = (*features, *vectors)
        self.n_rows = edges[-1]
        self.spool = spool
        self._width = len(features)
        self._places = {name: place for place, name in enumerate(self.names)}
        self._edges = edges
        self._read = read
        self._row_id = row_id
        for name, dtype in zip(("the design", *vectors), dtypes, strict=True):
            if np.dtype(dtype).kind not in _KINDS and name != row_id:
                raise DataError(
                    f"expected numbers in {name} of {label}, found dtype {dtype}: "
                    "convert it with .astype('float64')"
                )
        types = [_arrow_type(np.dtype(dtype)) for dtype in dtypes]
        self.types = (*[types[0]] * self._width, *types[1:])

    def batches(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Iterator[Any]:
        """Yield record batches of at most ``rows`` rows, each within one block."""
        for start, stop in pairwise(self._edges):
            design, vectors = self._block(start, stop)
            for low in range(0, stop - start, rows):
                part = slice(low, min(low + rows, stop - start))
                arrays = []
                for name in columns:
                    index = self._places[name]
                    if index < self._width:
                        values = design[part, index]
                    else:
                        values = vectors[index - self._width][part]
                    arrays.append(_arrow_array(values))
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _block(self, start: int, stop: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """Return one block; errors of its computation and wrong shapes become one-line errors."""
        where = f"rows {start} to {stop} of {self.label}"
        try:
            design, vectors = self._read(start, stop)
        except StreammcError:
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"no memory for {where}: make smaller chunks") from error
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise DataError(f"cannot compute {where}: {reason}; correct what makes them") from error
        m = stop - start
        by_name = zip(self.names[self._width :], vectors, strict=True)
        parts = [("", design, (m, self._width)), *((name, v, (m,)) for name, v in by_name)]
        for name, array, shape in parts:
            text = array.dtype.kind not in _KINDS and name != self._row_id
            if array.shape != shape or text:
                raise DataError(
                    f"expected numbers of shape {shape} in {where}, found {array.dtype} of shape "
                    f"{array.shape}: correct what makes them"
                )
        return design, vectors


def _arrow_array(values: NDArray[Any]) -> Any:
    if values.dtype.kind in _KINDS:
        return pa.array(values.astype(_arrow_dtype(values.dtype), copy=False))
    return pa.array(values.astype(object), from_pandas=True)


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    return pa.from_numpy_dtype(_arrow_dtype(dtype)) if dtype.kind in _KINDS else pa.string()


def _arrow_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the native dtype that Arrow supports for ``dtype``: float64 for half precision."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float64)
    return dtype.newbyteorder("=")


def vector_numbers(label: str, value: Any) -> NDArray[Any]:
    """Return ``value`` as a NumPy vector."""
    array = unmasked(value, label)
    if array.ndim != 1:
        raise DataError(
            f"expected {label} with 1 dimension, found shape {array.shape}: pass one number per row"
        )
    return array


def refuse_groups(groups: Any, what: str) -> None:
    """Refuse labels of groups, which these arrays cannot have: rows of a group come together."""
    if groups is not None:
        raise ConfigError(
            f"expected {what} without groups, found {type(groups).__name__} as groups: write the "
            "table as Parquet for streammc.ingest(..., group=column), or use "
            "streammc.from_arrays(X, y, groups=labels) in memory"
        )


def refuse_codes(dataset: Any, design: str) -> None:
    """Refuse the design of a store whose factors are codes: ``X`` lacks their columns."""
    array = dataset[design] if hasattr(dataset, "data_vars") else dataset
    if DENSE_FEATURE in array.dims:
        raise ConfigError(
            f"expected every column in {design!r}, found those of a store without its factors, "
            f"which are in {CODES!r}: use streammc.open_store(path), or ingest the table again "
            "with codes_above=4096"
        )


def require_path(path: Any, what: str, instead: str) -> None:
    """Refuse a missing path for the new store."""
    if path is None:
        raise ConfigError(
            f"expected a path for the store that is made from {what}, found none: "
            f"add path='data.zarr', or {instead}"
        )
