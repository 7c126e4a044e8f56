"""The row blocks of a full pass: small, picklable, and able to read themselves.

A block is read piece by piece, a chunk at a time, into the same buffers: fresh memory
costs a page fault every 4 kB. While one piece is worked on, a thread reads and checks the
next.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.protocols import RowBlock, Vector
from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.manifest import Manifest
from streammc.stores.format.objects import cached_bytes, read_object, will_read

_EXACT = 2**53


class _Buffers:
    """Memory for two chunks of every array, kept by a thread from block to block."""

    def __init__(self, chunk_rows: int, members: tuple[Member, ...]) -> None:
        self.shapes = (chunk_rows, members)
        self.members = [
            [np.empty(member.shape(chunk_rows), member.dtype) for member in members]
            for _ in range(2)
        ]
        self.response, self.zeros = np.empty(chunk_rows), np.zeros(chunk_rows)
        self.ones = np.ones(chunk_rows)


_thread = local()


class Block(Protocol):
    """Contiguous rows that a task of a full pass can read."""

    @property
    def index(self) -> int:
        """Place in the fixed tree."""

    def pieces(self) -> Iterator[RowBlock]:
        """Return the rows, in order; each piece is gone when the next one is asked for."""


@dataclass(frozen=True)
class StoreBlock:
    """Whole chunks of a store, with the checksums they must have."""

    index: int
    root: str
    start: int
    rows: int
    chunk_rows: int
    first_chunk: int
    members: tuple[Member, ...]
    checksums: tuple[tuple[int, ...], ...]
    """crc32c of each chunk, by member."""
    forget: bool = False
    """Whether the page cache gives up what was read."""

    def pieces(self) -> Iterator[RowBlock]:
        """Return the rows by chunks: encoded bytes are read once, checked, reinterpreted.

        Raises
        ------
        StoreError
            Naming the chunk that is missing or damaged.
        """
        shapes = (self.chunk_rows, self.members)
        # Taken while in use, so that two blocks read in turn by one thread do not meet.
        held = vars(_thread).pop("buffers", None)
        buffers = held if held is not None and held.shapes == shapes else _Buffers(*shapes)
        try:
            yield from self._chunks(buffers)
        finally:
            _thread.buffers = buffers

    def _chunks(self, buffers: _Buffers) -> Iterator[RowBlock]:
        zeros, ones, response = buffers.zeros, buffers.ones, buffers.response
        n_chunks = len(self.checksums[0])
        with ThreadPoolExecutor(1, "streammc-read") as reader:
            reading = reader.submit(self._read, 0, buffers.members[0])
            for position in range(n_chunks):
                found = reading.result()
                after = position + 1
                if after < n_chunks:
                    reading = reader.submit(self._read, after, buffers.members[after % 2])
                m = min(self.chunk_rows, self.rows - position * self.chunk_rows)
                y = response[:m]
                y[:] = self._exact(found["y"][:m]) if "y" in found else 0.0
                yield RowBlock(
                    self.index,
                    self.start + position * self.chunk_rows,
                    found["X"][:m],
                    y,
                    found.get("offset", zeros)[:m],
                    found.get("weight", ones)[:m],
                )

    def _read(self, position: int, into: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Read one chunk of every array, the chunk after it being on its way; check it."""
        root, chunk = Path(self.root), self.first_chunk + position
        if position + 1 < len(self.checksums[0]):
            for member in self.members:
                will_read(root, member.key(chunk + 1))
        found = {}
        for member, buffer, crcs in zip(self.members, into, self.checksums, strict=True):
            raw = buffer.reshape(-1).view(np.uint8)
            read_object(root, member.key(chunk), raw, crcs[position], self.forget)
            found[member.name] = buffer
        return found

    def _exact(self, y: NDArray[Any]) -> NDArray[Any]:
        if y.dtype == np.int64 and max(-int(y.min()), int(y.max())) > _EXACT:
            raise StoreError(
                f"expected integers up to 2**53 in y of store {self.root!r}, found larger ones "
                f"in rows {self.start} to {self.start + self.rows}: float64 would round them"
                ": make the store again from rounded values"
            )
        return y


def store_blocks(
    root: Path, layout: Layout, manifest: Manifest, block_rows: int
) -> list[StoreBlock]:
    """Return the blocks of a store, each of ``block_rows`` rows but the last.

    Of a store larger than half the memory, that half stays in the page cache for the next
    pass. Keeping the last half instead, as the system would, keeps nothing: each page is
    gone when its turn comes again.
    """
    blocks = []
    members = layout.data_members
    kept = cached_bytes() // sum(member.row_bytes for member in members)
    step = block_rows // layout.chunk_rows
    for index, first in enumerate(range(0, layout.n_chunks, step)):
        chunks = range(first, min(first + step, layout.n_chunks))
        start = first * layout.chunk_rows
        blocks.append(
            StoreBlock(
                index,
                str(root),
                start,
                min(block_rows, layout.n_rows - start),
                layout.chunk_rows,
                first,
                members,
                tuple(
                    tuple(manifest.entries[member.key(chunk)].crc for chunk in chunks)
                    for member in members
                ),
                start >= kept,
            )
        )
    return blocks


@dataclass(frozen=True, eq=False)
class MemoryBlock:
    """A slice of arrays in memory; an empty array stands for one the data do not have."""

    index: int
    start: int
    rows: int
    X: NDArray[Any]
    y: NDArray[Any]
    offset: Vector
    weight: Vector
    piece_rows: int = 0
    """Rows of a piece, as the chunks of a store; 0: all."""

    def pieces(self) -> Iterator[RowBlock]:
        """Return the rows; nothing is copied that a kernel could have as it is."""
        step = self.piece_rows or self.rows
        zeros, ones = np.zeros(min(step, self.rows)), np.ones(min(step, self.rows))
        for start in range(0, self.rows, step):
            here = slice(start, start + step)
            m = min(step, self.rows - start)
            yield RowBlock(
                self.index,
                self.start + start,
                _writeable(self.X[here]),
                _writeable(self.y[here]) if self.y.size else zeros[:m],
                _writeable(self.offset[here]) if self.offset.size else zeros[:m],
                _writeable(self.weight[here]) if self.weight.size else ones[:m],
            )


def whole(block: Block) -> RowBlock:
    """Return all rows of ``block`` at once, copied."""
    pieces = [
        RowBlock(*piece[:2], *(part.copy() for part in piece[2:])) for piece in block.pieces()
    ]
    first = pieces[0]
    parts = (np.concatenate(part) for part in list(zip(*pieces, strict=True))[2:])
    return RowBlock(first.index, first.start, *parts)


def _writeable(array: NDArray[Any]) -> NDArray[Any]:
    # A compiled kernel has one type of array; what arrives at a worker is read-only.
    return np.require(array, requirements=["C", "W"])
