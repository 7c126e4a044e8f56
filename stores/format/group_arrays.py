"""The arrays of groups and of levels in a store, with chunks of their own.

``group_offset`` (K + 1,) int64 has the first row of each group and then the number of rows;
``group`` (K,) has the labels, int64, or UTF-8 texts as the (K, width) bytes of one width. Both
are written chunk by chunk while the rows come, so that memory does not grow with K.
``level_label_f`` has the labels of the levels of factor number f likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.stores.format.layout import GROUP, GROUP_OFFSET, Layout, Member, choose_chunk_rows

Put = Callable[[str, NDArray[np.uint8]], None]
"""Writes the bytes of one object under a key."""


def one_group(column: str) -> DataError:
    """Return the error for a grouping column with one label."""
    return DataError(
        f"expected at least 2 groups in column {column!r}, found 1: a random effect needs several; "
        "leave the groups out, or name another column"
    )


def group_starts(labels: NDArray[Any], before: Any = None) -> NDArray[np.int64]:
    """Return the positions in ``labels`` (m,) at which a group begins.

    ``before`` is the label of the row before the first one; ``None`` if there is none.
    """
    first = np.empty(labels.size, np.bool_)
    first[1:] = labels[1:] != labels[:-1]
    first[:1] = before is None or labels[:1] != before
    return np.flatnonzero(first)


def label_array(put: Put, name: str, labels: NDArray[Any]) -> Layout:
    """Write labels (K,), int64 or texts as bytes, as the array ``name``; return its layout."""
    text = labels.dtype.kind == "S"
    member = Member(name, "uint8" if text else "int64", labels.dtype.itemsize if text else None)
    array = _Chunks(put, member, labels.dtype)
    array.add(labels)
    return array.finish()


class GroupArrays:
    """Writer of the arrays of the groups of a store, in the order of the rows.

    Parameters
    ----------
    put
        Writes one object.
    dtype
        Dtype of the labels: ``int64``, or ``S`` and a number of bytes.
    """

    def __init__(self, put: Put, dtype: str) -> None:
        width = np.dtype(dtype).itemsize if np.dtype(dtype).kind == "S" else None
        label = Member(GROUP, "int64" if width is None else "uint8", width)
        self._arrays = [
            _Chunks(put, Member(GROUP_OFFSET, "int64"), np.dtype("int64")),
            _Chunks(put, label, np.dtype(dtype)),
        ]
        self._rows = 0
        self._start = 0
        self._last: Any = None
        self.n_groups = 0
        self.largest = 0

    def add_rows(self, labels: NDArray[Any]) -> None:
        """Add the labels (m,) of the next rows; the rows of a group follow each other."""
        if labels.size:
            starts = group_starts(labels, self._last)
            self.add_groups(self._rows + starts, labels[starts])
            self._last = labels[-1]
            self._rows += labels.size

    def add_groups(self, starts: NDArray[np.int64], labels: NDArray[Any]) -> None:
        """Add groups by their first rows (g,) and labels (g,)."""
        if starts.size == 0:
            return
        sizes = np.diff(starts, prepend=self._start)
        self.largest = max(self.largest, int(sizes.max()))
        self._start = int(starts[-1])
        self.n_groups += starts.size
        for array, values in zip(self._arrays, (starts, labels), strict=True):
            array.add(values)

    def finish(self, n_rows: int) -> tuple[Layout, ...]:
        """Write what is left; return the layouts of both arrays."""
        self.largest = max(self.largest, n_rows - self._start)
        offset, labels = self._arrays
        offset.add(np.array([n_rows]))
        return offset.finish(), labels.finish()

    def described(self, groups: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attribute ``groups`` of the store, with the number and the largest size.

        Raises
        ------
        DataError
            If there is one group.
        """
        if self.n_groups < 2:
            raise one_group(groups["column"])
        return {**groups, "n_groups": self.n_groups, "largest": self.largest}


class _Chunks:
    """Writer of one array, whose length is known at the end."""

    def __init__(self, put: Put, member: Member, dtype: np.dtype[Any]) -> None:
        self._put, self._member = put, member
        self._buffer = np.zeros(choose_chunk_rows(member.row_bytes), dtype)
        self._filled = self._chunks = 0

    def add(self, values: NDArray[Any]) -> None:
        done = 0
        while step := min(values.size - done, self._buffer.size - self._filled):
            self._buffer[self._filled : self._filled + step] = values[done : done + step]
            done += step
            self._filled += step
            if self._filled == self._buffer.size:
                self._flush(self._filled)

    def finish(self) -> Layout:
        length = self._chunks * self._buffer.size + self._filled
        size = self._buffer.size if self._chunks else self._filled  # one chunk is not padded
        if self._filled:
            self._buffer[self._filled :] = np.zeros(1, self._buffer.dtype)
            self._flush(size)
        return Layout(length, min(length, self._buffer.size), (self._member,))

    def _flush(self, size: int) -> None:
        self._put(self._member.key(self._chunks), self._buffer[:size].view(np.uint8))
        self._chunks += 1
        self._filled = 0
