"""Rows of a design in which the columns of a factor are one integer a row.

The indicators of a factor have one of two values each, ``on`` in the rows of its level and ``off``
in all others. So a code says which indicator of a block is on, from 1, or 0 if none is (the
reference level). Expanded rows have the bits of a design that was stored dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Index, Matrix, RowBlock, Vector

CODE_DTYPE: Final = "uint16"
MOST_COLUMNS: Final = 2**16 - 1
"""Largest number of columns that a code can tell apart."""
_EXPANDED_BYTES: Final = 8 << 20
_ROW_MULTIPLE: Final = 512
"""Pieces are multiples of the tile of a full pass, so that its tiles begin at the same rows."""


class CodedColumns(NamedTuple):
    """The columns of a design of q columns, some of which are coded in K blocks."""

    place: Index
    """(dense,) columns that are stored as they are, increasing."""
    first: Index
    """(K,) first column of each block, increasing."""
    width: Index
    """(K,) columns of each block."""
    on: Vector
    """(q,) value of a column in the rows of its level; 1 for a dense column."""
    off: Vector
    """(q,) value of a column in all other rows; 0 for a dense column."""


def coded_columns(
    n_features: int, first: Index, count: Index, on: Vector, off: Vector
) -> CodedColumns:
    """Return the record of a design of ``n_features`` columns; see :class:`CodedColumns`."""
    dense = np.ones(n_features, np.bool_)
    for start, columns in zip(first, count, strict=True):
        dense[start : start + columns] = False
    return CodedColumns(
        np.flatnonzero(dense).astype(np.int64),
        np.ascontiguousarray(first, np.int64),
        np.ascontiguousarray(count, np.int64),
        np.where(dense, 1.0, on),
        np.where(dense, 0.0, off),
    )


class CodedMatrix:
    """Rows of a design as the dense columns and the codes; sliced by rows like an array.

    Parameters
    ----------
    dense
        (n, dense) float32 or float64.
    codes
        (n, K) uint16, at most the number of columns of their block.
    columns
        The columns of the design.
    """

    ndim = 2

    def __init__(
        self, dense: NDArray[Any], codes: NDArray[np.uint16], columns: CodedColumns
    ) -> None:
        self.dense = dense
        self.codes = codes
        self.columns = columns
        self.dtype = dense.dtype
        self.shape = (len(dense), len(columns.on))

    def __len__(self) -> int:
        return len(self.dense)

    def __getitem__(self, rows: slice) -> Self:
        """Return a slice of rows, without a copy."""
        return type(self)(self.dense[rows], self.codes[rows], self.columns)

    def copy(self) -> Self:
        """Return the rows in memory of their own."""
        return type(self)(self.dense.copy(), self.codes.copy(), self.columns)

    def expanded(self) -> NDArray[Any]:
        """Return the rows (n, q) with all columns, in the dtype of the dense ones."""
        columns = self.columns
        found = np.empty(self.shape, self.dtype)
        found[:, columns.place] = self.dense
        for k, (first, count) in enumerate(zip(columns.first, columns.width, strict=True)):
            block = found[:, first : first + count]
            block[:] = columns.off[first : first + count]
            rows = np.flatnonzero(self.codes[:, k])
            at = self.codes[rows, k].astype(np.int64) - 1
            block[rows, at] = columns.on[first + at]
        return found

    def fault(self) -> tuple[int, int, int] | None:
        """Return the first row with a code that its block does not have: row, block and code."""
        wrong = self.codes > self.columns.width
        if not wrong.any():
            return None
        row, block = (int(index) for index in np.argwhere(wrong)[0])
        return row, block, int(self.codes[row, block])


def expanded_pieces(pieces: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Yield pieces of a block with all columns, a few megabytes at a time."""
    for piece in pieces:
        if not isinstance(piece.X, CodedMatrix):
            yield piece
            continue
        size = max(piece.X.shape[1] * piece.X.dtype.itemsize, 1)
        step = max(_EXPANDED_BYTES // size // _ROW_MULTIPLE, 1) * _ROW_MULTIPLE
        for start in range(0, len(piece.X), step):
            here = slice(start, start + step)
            sides = (side[here] for side in (piece.y, piece.offset, piece.weight))
            yield RowBlock(piece.index, piece.start + start, piece.X[here].expanded(), *sides)


def compressed(X: Matrix, columns: CodedColumns) -> CodedMatrix:
    """Return expanded rows (m, q) as dense columns and codes."""
    codes = np.empty((len(X), len(columns.first)), CODE_DTYPE)
    for start in range(0, len(X), _ROW_MULTIPLE):
        here = slice(start, start + _ROW_MULTIPLE)
        for k, (first, width) in enumerate(zip(columns.first, columns.width, strict=True)):
            block = slice(first, first + width)
            on = X[here, block] != columns.off[block]
            codes[here, k] = np.where(on.any(axis=1), on.argmax(axis=1) + 1, 0)
    return CodedMatrix(np.ascontiguousarray(X[:, columns.place]), codes, columns)


def expanded_rows(X: Matrix | CodedMatrix) -> Any:
    """Return rows with all columns; an array as it is."""
    return X.expanded() if isinstance(X, CodedMatrix) else X
