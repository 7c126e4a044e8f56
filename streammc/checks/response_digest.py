"""Digest of the responses and weights of a table by position: whether two tables hold the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Dataset, PassTask, RowBlock

_MASK = (1 << 64) - 1


class ResponseDigest(PassTask[int]):
    """``PassTask`` that sums a hash of (position, response, weight) over rows, modulo 2^64.

    The sum does not depend on chunks, which differ between stores of different width.
    """

    def map(self, block: RowBlock) -> int:
        """Return the sum over the rows of a block."""
        at = np.arange(block.start, block.start + len(block.y), dtype=np.uint64)
        mixed = _mixed(at)
        for part in (block.y, block.weight):
            values = np.asarray(part, dtype=np.float64) + 0.0  # one zero
            mixed = _mixed(mixed + values.view(np.uint64))
        return int(mixed.sum(dtype=np.uint64))

    def combine(self, left: int, right: int) -> int:
        """Return the sum over two neighbouring blocks."""
        return (left + right) & _MASK


def response_digest(table: Dataset, scheduler: Any = None) -> int:
    """Return the digest of the responses and weights of a table, from one pass."""
    return table.reduce(ResponseDigest(), scheduler=scheduler)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 (Steele, Lea and Flood 2014) of values (m,)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return found
