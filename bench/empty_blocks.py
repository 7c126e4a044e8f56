"""Blocks of a table that does not exist: a pass over them costs what graph and scheduler cost.

They carry what the blocks of a store carry (place, lengths and checksums of every chunk), and their
results have the size of those of a logistic regression; only rows are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import PassTask, RowBlock
from streammc.stores.format.layout import Layout, Member, choose_chunk_rows, chunks_per_block
from streammc.stores.format.manifest import Entry, Manifest
from streammc.stores.rows.row_blocks import StoreBlock, store_blocks

RESULT_NUMBERS = 20_000
"""Numbers of one result: sums, and the highest scores of a block."""


@dataclass(frozen=True)
class EmptyBlock:
    """A block without rows, as heavy in the graph as that of a store."""

    index: int
    of_store: StoreBlock

    def pieces(self) -> Iterator[RowBlock]:
        """Yield one piece of no rows."""
        nothing = np.empty(0)
        yield RowBlock(self.index, 0, np.empty((0, 1)), nothing, nothing, nothing)


class EmptyPass(PassTask[NDArray[np.float64]]):
    """A pass that adds up arrays of the size of a result."""

    def map(self, block: RowBlock) -> NDArray[np.float64]:
        """Return the number of the block, many times."""
        return np.full(RESULT_NUMBERS, float(block.index))

    def combine(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum."""
        return left + right


def empty_blocks(rows: int, columns: int) -> list[EmptyBlock]:
    """Return the blocks of a table of single precision with a response of bytes."""
    chunk = choose_chunk_rows(columns * 4, rows)
    layout = Layout(rows, chunk, (Member("X", "float32", columns), Member("y", "uint8")))
    manifest = Manifest({key: Entry(0, 0) for key in layout.chunk_sizes()})
    blocks = store_blocks(Path("none"), layout, manifest, chunk * chunks_per_block(rows, chunk))
    return [EmptyBlock(block.index, block) for block in blocks]
