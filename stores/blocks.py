"""The row blocks of a full pass: small, picklable, and able to read themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.protocols import RowBlock, Vector
from streammc.stores.layout import Layout, Member
from streammc.stores.manifest import Manifest
from streammc.stores.objects import read_object

_EXACT = 2**53


class Block(Protocol):
    """Contiguous rows that a task of a full pass can read."""

    @property
    def index(self) -> int:
        """Place in the fixed tree."""

    def read(self) -> RowBlock:
        """Return the rows."""


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

    def read(self) -> RowBlock:
        """Return the rows: encoded bytes are read once, checked, then reinterpreted.

        Raises
        ------
        StoreError
            Naming the chunk that is missing or damaged.
        """
        found = {
            member.name: self._member(member, crcs)
            for member, crcs in zip(self.members, self.checksums, strict=True)
        }
        y = found.get("y")
        return RowBlock(
            self.index,
            self.start,
            found["X"],
            np.zeros(self.rows) if y is None else self._response(y),
            found.get("offset", np.zeros(self.rows)),
            found.get("weight", np.ones(self.rows)),
        )

    def _member(self, member: Member, crcs: tuple[int, ...]) -> NDArray[Any]:
        array = np.empty(member.shape(self.chunk_rows * len(crcs)), member.dtype)
        raw = array.reshape(-1).view(np.uint8)
        size = member.row_bytes * self.chunk_rows
        root = Path(self.root)
        for position, crc in enumerate(crcs):
            part = raw[position * size : (position + 1) * size]
            read_object(root, member.key(self.first_chunk + position), part, crc)
        return array[: self.rows]

    def _response(self, y: NDArray[Any]) -> Vector:
        if y.dtype == np.int64 and max(-int(y.min()), int(y.max())) > _EXACT:
            raise StoreError(
                f"expected integers up to 2**53 in y of store {self.root!r}, found larger ones "
                f"in rows {self.start} to {self.start + self.rows}: float64 would round them"
            )
        return y.astype(np.float64)


def store_blocks(
    root: Path, layout: Layout, manifest: Manifest, block_rows: int
) -> list[StoreBlock]:
    """Return the blocks of a store, each of ``block_rows`` rows but the last."""
    blocks = []
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
                layout.members,
                tuple(
                    tuple(manifest.entries[member.key(chunk)].crc for chunk in chunks)
                    for member in layout.members
                ),
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

    def read(self) -> RowBlock:
        """Return the rows; nothing is copied that a kernel could have as it is."""
        return RowBlock(
            self.index,
            self.start,
            _writeable(self.X),
            self.y.astype(np.float64) if self.y.size else np.zeros(self.rows),
            _writeable(self.offset) if self.offset.size else np.zeros(self.rows),
            _writeable(self.weight) if self.weight.size else np.ones(self.rows),
        )


def _writeable(array: NDArray[Any]) -> NDArray[Any]:
    # A compiled kernel has one type of array; what arrives at a worker is read-only.
    return np.require(array, requirements=["C", "W"])
