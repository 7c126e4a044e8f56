"""Reads of the committed arrays of a run, with every byte checked against the root document."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import MissingError, StoreError
from streammc.trace.codec import ArraySpec, chunk_checksum, chunk_key, decode
from streammc.trace.durable import read_file
from streammc.trace.layout import GROUPS, SAMPLES
from streammc.trace.sealed import crc32c
from streammc.trace.state import RunState


def draw_axis(spec: ArraySpec) -> int:
    """Return the axis of the draws, along which an array grows."""
    return spec.dims.index("draw")


def chunk_path(folder: Path, spec: ArraySpec, number: int) -> Path:
    """Return the path of chunk ``number`` along the draws."""
    return folder / chunk_key(tuple(number if dim == "draw" else 0 for dim in spec.dims))


def fold(total: int, part: int) -> int:
    """Return the checksum of a sequence of chunks extended by one chunk.

    ``total`` is the checksum of the sequence, ``part`` that of the chunk.
    """
    return crc32c(struct.pack("<II", total, part))


def interval_checksum(values: NDArray[Any]) -> int:
    """Return the checksum of the draws in one chunk, without padding."""
    return crc32c(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())


def read_chunk(path: Path, key: str, spec: ArraySpec, number: int) -> NDArray[Any]:
    """Return the committed draws in one chunk, without padding.

    Raises
    ------
    StoreError
        If the file is missing, damaged or of another size.
    """
    where = chunk_path(path / key, spec, number)
    size = spec.chunk_bytes()
    try:
        data = read_file(where, limit=size)
    except MissingError:
        raise StoreError(
            f"expected the committed draws in {where}, found none: the run is incomplete; "
            "restore the file from a copy"
        ) from None
    values = decode(data, spec.chunk, spec.dtype, where)
    axis = draw_axis(spec)
    left = spec.shape[axis] - number * spec.chunk[axis]
    return values[:left] if axis == 0 else values[:, :left]


def chunks(path: Path, state: RunState, key: str) -> Iterator[NDArray[Any]]:
    """Yield the committed chunks of a growing array; at the end check their sequence.

    Raises
    ------
    StoreError
        If a chunk is missing, damaged, or not the committed one at its place.
    """
    spec = state.growing()[key]
    axis = draw_axis(spec)
    total = 0
    for number in range(-(-spec.shape[axis] // spec.chunk[axis])):
        values = read_chunk(path, key, spec, number)
        total = fold(total, interval_checksum(values))
        yield values
    if total != state.sums[key][1]:
        raise StoreError(
            f"expected the chunks of {path / key} as they were committed, found others in their "
            "place: restore the array from a copy"
        )


def read_fixed(path: Path, state: RunState, key: str) -> NDArray[Any]:
    """Return an array that was written once.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """
    array = state.fixed[key]
    where = path / key / chunk_key((0,) * len(array.spec.shape))
    try:
        data = read_file(where, limit=array.size)
    except MissingError:
        raise StoreError(
            f"expected {where}, found none: the run is incomplete: restore the file from a copy"
        ) from None
    values = decode(data, array.spec.shape, array.spec.dtype, where)
    if chunk_checksum(data) != array.crc32c:
        raise StoreError(
            f"expected {where} as it was committed, found another version of it"
            ": restore the file from a copy"
        )
    return values


def check_contents(path: Path, state: RunState) -> None:
    """Read all committed arrays once and compare them with the root document.

    Raises
    ------
    StoreError
        If a file is missing or wrong; the message names the first one.
    """
    for key in state.fixed:
        read_fixed(path, state, key)
    for key in state.sums:
        for _ in chunks(path, state, key):
            pass


def read_group(path: Path, state: RunState, group: str) -> dict[str, NDArray[Any]]:
    """Return the committed arrays of a group by name.

    Raises
    ------
    MissingError
        If the run has no such group.
    StoreError
        If an array of the group is damaged.
    """
    found: dict[str, NDArray[Any]] = {}
    for key, spec in state.specs().items():
        owner, _, name = key.partition("/")
        if owner != group:
            continue
        if key in state.fixed:
            found[name] = read_fixed(path, state, key)
        else:
            parts = list(chunks(path, state, key))
            empty = np.empty(spec.shape, spec.dtype)
            found[name] = np.concatenate(parts, axis=draw_axis(spec)) if parts else empty
    require_group(path, state, group)
    return found


def require_group(path: Path, state: RunState, group: str) -> None:
    """Raise MissingError if the run has no group of this name."""
    if group not in state.groups():
        raise MissingError(
            f"expected a group {group!r} in {path}, found {', '.join(state.groups())}"
            ": choose one of them"
        )


def read_theta(path: Path, state: RunState, phase: str) -> NDArray[np.float64]:
    """Return the committed theta (chain, draw, d) of a phase."""
    layout = state.layout
    theta = np.empty((layout.chains, state.committed[phase], len(layout.labels)))
    for variable in layout.variables:
        key, start = f"{GROUPS[phase][0]}/{variable.name}", 0
        for values in chunks(path, state, key):
            block = values if variable.dim else values[:, :, None]
            theta[:, start : start + block.shape[1], variable.columns] = block
            start += block.shape[1]
    return theta


def digest(state: RunState, read: Callable[[str], dict[str, NDArray[Any]]]) -> str:
    """Return the SHA-256 over (key, dtype, shape, decoded bytes) of all draws and statistics.

    ``read`` returns the arrays of a group by name. The digest does not depend on attributes,
    constant data or the size of the intervals: two runs have the same digest exactly if their
    draws are the same bit for bit.
    """
    total = hashlib.sha256()
    for group in sorted(SAMPLES):
        if group not in state.groups():
            continue
        for name, values in sorted(read(group).items()):
            text = name.encode() if values.dtype.kind != "U" else name.encode() + b"*"
            total.update(repr((group, text, values.dtype.str, values.shape)).encode())
            total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()
