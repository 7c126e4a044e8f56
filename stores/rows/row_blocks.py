"""The row blocks of a full pass: small picklable objects that read their own rows.

A block is read piece by piece, a chunk at a time, into the same buffers: fresh memory
costs a page fault every 4 kB. While the task works on one piece, a thread reads and checks
the next; of a store at an address, several threads read some megabytes ahead, since a request
takes its time whatever its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import local
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix, expanded_pieces
from streammc.protocols import RowBlock, Vector
from streammc.stores.cloud.address import Root, store_root
from streammc.stores.format.codes import checked_codes
from streammc.stores.format.layout import CODES, Layout, Member
from streammc.stores.format.manifest import Entry, Manifest, Scratch, read_chunk, rows_of_chunk
from streammc.stores.format.objects import cached_bytes, will_read
from streammc.stores.format.shards import Shards

_EXACT = 2**53
_AHEAD_BYTES, _AHEAD_CHUNKS = 32 << 20, 8
"""Most bytes and chunks that a block of a store at an address reads ahead."""


class _Slot:
    """Memory for one chunk of every array."""

    def __init__(self, chunk_rows: int, members: tuple[Member, ...]) -> None:
        self.members = [np.empty(member.shape(chunk_rows), member.dtype) for member in members]
        self.scratch = Scratch()


class _Buffers:
    """Slots for the chunk that is used and those read ahead, kept by a thread between blocks."""

    def __init__(self, chunk_rows: int, members: tuple[Member, ...], ahead: int) -> None:
        self.shapes = (chunk_rows, members, ahead)
        self.slots = [_Slot(chunk_rows, members) for _ in range(1 + ahead)]
        self.response, self.zeros = np.empty(chunk_rows), np.zeros(chunk_rows)
        self.ones = np.ones(chunk_rows)


_thread = local()


class Block(Protocol):
    """Contiguous rows that a task of a full pass can read."""

    @property
    def index(self) -> int:
        """Position among the leaves of the fixed reduction tree."""

    @property
    def coded(self) -> bool:
        """Whether the design has codes."""

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
    entries: tuple[tuple[Entry, ...], ...]
    """Length and crc32c of each chunk, by member."""
    forget: bool = False
    """Whether to drop the chunk files from the page cache after the read."""
    shards: Shards | None = None
    columns: CodedColumns | None = None
    """The columns of a design with codes."""
    fingerprint: str = ""
    """Fingerprint of the store, for workers that read it elsewhere."""
    last_chunk_rows: int = 0
    """Rows in the file of the last chunk, with those of later generations."""

    @property
    def coded(self) -> bool:
        """Whether the design has codes."""
        return self.columns is not None

    @property
    def at_an_address(self) -> bool:
        """Whether the store is not a folder of this machine."""
        return not isinstance(store_root(self.root), Path)

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows chunk by chunk; each file is read once, checked and not copied."""
        shapes = (self.chunk_rows, self.members, self._ahead())
        # Removed while in use, so that two blocks read in turn by one thread share no buffer.
        cached = vars(_thread).pop("buffers", None)
        buffers = cached if cached is not None and cached.shapes == shapes else _Buffers(*shapes)
        try:
            yield from self._chunks(buffers)
        finally:
            _thread.buffers = buffers

    def _ahead(self) -> int:
        """Return how many chunks are read while one is used."""
        if not self.at_an_address:
            return 1
        chunk_bytes = self.chunk_rows * sum(member.row_bytes for member in self.members)
        ahead = min(_AHEAD_BYTES // chunk_bytes, _AHEAD_CHUNKS, len(self.entries[0]) - 1)
        return max(ahead, 1)

    def _chunks(self, buffers: _Buffers) -> Iterator[RowBlock]:
        zeros, ones, response = buffers.zeros, buffers.ones, buffers.response
        n_chunks, slots = len(self.entries[0]), buffers.slots
        ahead = len(slots) - 1
        with ThreadPoolExecutor(ahead, "streammc-read") as reader:
            first = range(min(ahead, n_chunks))
            reading = deque(reader.submit(self._read, each, slots[each]) for each in first)
            for position in range(n_chunks):
                arrays = reading.popleft().result()
                if (after := position + ahead) < n_chunks:
                    reading.append(reader.submit(self._read, after, slots[after % len(slots)]))
                m = min(self.chunk_rows, self.rows - position * self.chunk_rows)
                y = response[:m]
                y[:] = self._exact(arrays["y"][:m]) if "y" in arrays else 0.0
                start = self.start + position * self.chunk_rows
                yield RowBlock(
                    self.index,
                    start,
                    self._design(arrays, m, start),
                    y,
                    arrays.get("offset", zeros)[:m],
                    arrays.get("weight", ones)[:m],
                )

    def _design(self, arrays: dict[str, NDArray[Any]], m: int, start: int) -> Any:
        if self.columns is None:
            return arrays["X"][:m]
        design = CodedMatrix(arrays["X"][:m], arrays[CODES][:m], self.columns)
        return checked_codes(design, start, self.root)

    def _read(self, position: int, slot: _Slot) -> dict[str, NDArray[Any]]:
        """Read and check one chunk of every array; ask the system to read the next one ahead."""
        root, chunk = store_root(self.root), self.first_chunk + position
        if position + 1 < len(self.entries[0]):
            for member in self.members:
                will_read(root, member.key(chunk + 1))
        arrays = {}
        last = position + 1 == len(self.entries[0])
        rows = self.last_chunk_rows if last else self.chunk_rows
        for member, buffer, entries in zip(self.members, slot.members, self.entries, strict=True):
            place = root, member, chunk
            read_chunk(
                place,
                entries[position],
                buffer,
                rows,
                self.shards,
                forget=self.forget,
                scratch=slot.scratch,
            )
            arrays[member.name] = buffer
        return arrays

    def _exact(self, y: NDArray[Any]) -> NDArray[Any]:
        if y.dtype == np.int64 and max(-int(y.min()), int(y.max())) > _EXACT:
            raise StoreError(
                f"expected integers up to 2**53 in y of store {self.root!r}, found larger ones "
                f"in rows {self.start} to {self.start + self.rows}: float64 would round them"
                ": make the store again from rounded values"
            )
        return y


def store_blocks(
    root: Root,
    layout: Layout,
    manifest: Manifest,
    block_rows: int,
    columns: CodedColumns | None = None,
) -> list[StoreBlock]:
    """Return the blocks of a store, each of ``block_rows`` rows except the last.

    The first rows of a store, up to half of the memory, stay in the page cache for the next
    pass; later rows are dropped after the read. The system alone would keep the latest rows:
    in a store larger than memory every page would be evicted before its next read.
    """
    blocks = []
    members = layout.data_members
    cached_rows = cached_bytes() // sum(member.row_bytes for member in members)
    step = block_rows // layout.chunk_rows
    fingerprint = manifest.fingerprint  # a digest of all entries: once, and not for every block
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
                    tuple(manifest.entries[member.key(chunk)] for chunk in chunks)
                    for member in members
                ),
                start >= cached_rows,
                layout.shards,
                columns,
                fingerprint,
                rows_of_chunk(layout, chunks[-1]),
            )
        )
    return blocks


@dataclass(frozen=True, eq=False)
class MemoryBlock:
    """A block of rows of arrays in memory; an empty array stands for an absent one."""

    index: int
    start: int
    rows: int
    X: NDArray[Any] | CodedMatrix
    y: NDArray[Any]
    offset: Vector
    weight: Vector
    piece_rows: int = 0
    """Rows of a piece; 0 for all rows in one piece."""

    @property
    def coded(self) -> bool:
        """Whether the design has codes."""
        return isinstance(self.X, CodedMatrix)

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
        RowBlock(*piece[:2], *(part.copy() for part in piece[2:]))
        for piece in expanded_pieces(block.pieces())
    ]
    first = pieces[0]
    parts = (np.concatenate(part) for part in list(zip(*pieces, strict=True))[2:])
    return RowBlock(first.index, first.start, *parts)


def _writeable(array: Any) -> Any:
    if isinstance(array, CodedMatrix):
        return array  # compiled code takes read-only codes, and a copy is made of the rest
    # A compiled kernel takes writeable arrays; those that arrive at a worker are read-only.
    return np.require(array, requirements=["C", "W"])


def later_blocks(blocks: Sequence[StoreBlock], first_row: int) -> list[Block]:
    """Return the parts of ``blocks`` from the row ``first_row`` on; rows keep their numbers.

    Chunks before that of the first row are not read.
    """
    later: list[Block] = []
    for block in blocks:
        n_chunks = len(block.entries[0])
        left_out = min(max((first_row - block.start) // block.chunk_rows, 0), n_chunks)
        if left_out == n_chunks:
            continue
        rows = left_out * block.chunk_rows
        part = replace(
            block,
            index=len(later),
            start=block.start + rows,
            rows=block.rows - rows,
            first_chunk=block.first_chunk + left_out,
            entries=tuple(each[left_out:] for each in block.entries),
        )
        later.append(LaterBlock(part, first_row))
    return later


@dataclass(frozen=True)
class LaterBlock:
    """The rows of a block from a row of the store on."""

    block: StoreBlock
    first_row: int

    @property
    def index(self) -> int:
        """Position among the leaves of the fixed reduction tree."""
        return self.block.index

    @property
    def coded(self) -> bool:
        """Whether the design has codes."""
        return self.block.coded

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the rows piece by piece, without those before the first."""
        for piece in self.block.pieces():
            skip = max(self.first_row - piece.start, 0)
            if skip < len(piece.y):
                columns = (part[skip:] for part in piece[2:])
                yield RowBlock(piece.index, piece.start + skip, *columns)
