"""The row blocks of a full pass: small picklable objects that read their own rows.

A block is read piece by piece, a chunk at a time, into the same buffers: fresh memory
costs a page fault every 4 kB. While the task works on one piece, a thread reads and checks
the next.
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
    """Buffers for two chunks of every array, reused by a thread from block to block."""

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
        """Position among the leaves of the fixed reduction tree."""

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows piece by piece, in order; the next piece overwrites the last."""


@dataclass(frozen=True)
class StoreBlock:
    """A block of whole chunks of a store, with their expected checksums."""

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
    """Whether to drop the chunk files from the page cache after the read."""
    fingerprint: str = ""
    """Fingerprint of the store, for workers that read it elsewhere."""

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows chunk by chunk; each file is read once, checked and not copied.

        Raises
        ------
        StoreError
            If a chunk is missing or damaged; the message names it.
        """
        shapes = (self.chunk_rows, self.members)
        # Removed while in use, so that two blocks read in turn by one thread share no buffer.
        cached = vars(_thread).pop("buffers", None)
        buffers = cached if cached is not None and cached.shapes == shapes else _Buffers(*shapes)
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
        """Read and check one chunk of every array; ask the system to read the next one ahead."""
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
    """Return the blocks of a store, each of ``block_rows`` rows except the last.

    The first rows of a store, up to half of the memory, stay in the page cache for the next
    pass; later rows are dropped after the read. The system alone would keep the latest rows:
    in a store larger than memory every page would be evicted before its next read.
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
                manifest.fingerprint,
            )
        )
    return blocks


@dataclass(frozen=True, eq=False)
class MemoryBlock:
    """A block of rows of arrays in memory; an empty array stands for an absent one."""

    index: int
    start: int
    rows: int
    X: NDArray[Any]
    y: NDArray[Any]
    offset: Vector
    weight: Vector
    piece_rows: int = 0
    """Rows of a piece; 0 for all rows in one piece."""

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows piece by piece; only arrays that a kernel cannot take are copied."""
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
    # A compiled kernel takes writeable arrays; those that arrive at a worker are read-only.
    return np.require(array, requirements=["C", "W"])
