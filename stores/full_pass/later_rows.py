"""The last rows of a store as blocks of a full pass, cut at any row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streammc.protocols import RowBlock
from streammc.stores.full_pass.row_blocks import Block, StoreBlock


def later_blocks(blocks: Sequence[StoreBlock], first_row: int) -> list[Block]:
    """Return the parts of ``blocks`` from the row ``first_row`` on; rows keep their numbers.

    Chunks before that of the first row are not read.
    """
    found: list[Block] = []
    for block in blocks:
        n_chunks = len(block.entries[0])
        left_out = min(max((first_row - block.start) // block.chunk_rows, 0), n_chunks)
        if left_out == n_chunks:
            continue
        rows = left_out * block.chunk_rows
        part = replace(
            block,
            index=len(found),
            start=block.start + rows,
            rows=block.rows - rows,
            first_chunk=block.first_chunk + left_out,
            entries=tuple(each[left_out:] for each in block.entries),
        )
        found.append(LaterBlock(part, first_row))
    return found


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
