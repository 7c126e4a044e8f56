"""Checks of the arrays passed to a store writer, and their conversion to the store's dtypes."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.stores.format.layout import Member
from streammc.stores.ingest.faults import Faults
from streammc.stores.number_checks import check_finite
from streammc.stores.rows.row_weights import find_weight_faults


def check_given(
    members: Sequence[Member], given: Mapping[str, NDArray[Any] | None], start: int, where: str
) -> dict[str, NDArray[Any]]:
    """Check that a block of rows has exactly the arrays of the store; return them by name.

    Parameters
    ----------
    members
        The row arrays of the store, ``X`` among them.
    given
        Arrays by name; ``None`` for an absent array.
    start
        Number of the first row, for messages.
    where
        The store, for messages.

    Raises
    ------
    ConfigError
        If an array is missing, not in the store, or of another length.
    DataError
        If a weight is negative or above 2**53.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for member in members:
        texts = found.get(member.name)
        if texts is not None and texts.dtype.kind == "S":
            found[member.name] = label_bytes(texts, member)
    count = found["X"].shape[0]
    shapes = {member.name: member.shape(count) for member in members}
    for name in given:
        if (name in found) != (name in shapes):
            expected, given_ = ("no ", "some") if name in found else ("", "none")
            raise ConfigError(
                f"expected {expected}{name} in a block of rows of {where}, found {given_}: "
                "pass the arrays that it has"
            )
        if name in found and found[name].shape != shapes[name]:
            raise ConfigError(
                f"expected {count} rows of {name}, found shape {found[name].shape}"
                ": pass as many rows of every column"
            )
    if "weight" in found:
        faults = Faults()
        find_weight_faults(faults, "weight", start, found["weight"])
        faults.refuse(lambda row: f"row {row} of {where}, counted from 0")
    return found


def check_chunks(written: Mapping[int, int], chunk_rows: int, path: str) -> None:
    """Raise ConfigError unless all chunks were written, all but the last whole.

    ``written`` has the rows of each chunk.
    """
    last = len(written) - 1
    for chunk in range(last + 1):
        rows = written.get(chunk, 0)
        if rows == 0 or (chunk < last and rows < chunk_rows):
            raise ConfigError(
                f"expected {chunk_rows} rows in chunk {chunk} of {path!r}, "
                f"found {rows}: put every chunk once, all but the last whole"
            )


def label_bytes(texts: NDArray[Any], member: Member) -> NDArray[np.uint8]:
    """Return texts (m,), such as row ids, as the (m, width) bytes of the stored array.

    Raises
    ------
    ConfigError
        If a text is longer than ``width``, or the store has integers there.
    """
    width = member.columns
    if width is None or texts.dtype.itemsize > width:
        raise ConfigError(
            f"expected {member.name} of {width or 0} bytes, found {texts.dtype.itemsize}"
            ": use texts of that length"
        )
    wide = np.ascontiguousarray(texts, f"S{width}")
    return wide.view(np.uint8).reshape(len(texts), width)


def convert(values: NDArray[Any], into: NDArray[Any], names: Sequence[str], start: int) -> None:
    """Copy ``values`` into ``into``; check that no value changes in the dtype of ``into``.

    Parameters
    ----------
    values, into
        (m, q) or (m,) of the same shape.
    names
        Names of the columns.
    start
        Number of the first row, for messages.

    Raises
    ------
    DataError
        If a value is not finite or not representable in the dtype of ``into``.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        into[...] = values
    if into.dtype.kind == "f":
        check_finite(into.reshape(len(into), -1), names, start)
    elif values.dtype.kind != "b" and not np.array_equal(into, values):
        row = int(np.flatnonzero(into != values)[0])
        raise DataError(
            f"expected {into.dtype} in column {names[0]!r}, found {values[row]} in row "
            f"{start + row}: choose a wider dtype"
        )


def whole(
    values: NDArray[Any], member: Member, length: int, names: Sequence[str], start: int
) -> NDArray[Any]:
    """Return ``values`` padded with zeros to a chunk of ``length`` rows, checked by `convert`.

    An array that already has this length and the dtype of the member is returned uncopied.
    """
    ready = values.dtype == member.dtype and len(values) == length and values.flags.c_contiguous
    if not ready:
        chunk = page_aligned(member.shape(length), member.dtype)
        convert(values, chunk[: len(values)], names, start)
        return chunk
    if values.dtype.kind == "f":
        check_finite(values.reshape(length, -1), names, start)
    return values


def page_aligned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return a page-aligned array of zeros, as direct writes (``O_DIRECT``) need."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + mmap.PAGESIZE, np.uint8)
    start = -raw.ctypes.data % mmap.PAGESIZE
    return raw[start : start + size].view(dtype).reshape(shape)
