"""Rows kept in memory with their expansions: the certainty rows, or all rows."""

from __future__ import annotations

import numpy as np

from streammc.errors import OutOfMemoryError
from streammc.likelihood.blocks import (
    Block,
    ExpansionPoint,
    allocate_block,
    allocate_rows,
    allocate_scratch,
    block_width,
    expand,
)
from streammc.likelihood.pass_cost import available_memory
from streammc.numerics.row_products import aligned
from streammc.protocols import Dataset, Index, Model

_SLICE = 8192


def memory_limit() -> int:
    """Return the largest size in bytes of rows kept in memory: half of the available memory."""
    return available_memory() // 2


def block_bytes(rows: int, q: int, p: int, order: int) -> int:
    """Return the size in bytes of ``rows`` expanded rows, with their buffers."""
    return 8 * rows * (q + 4 + 2 * p + block_width(p, order))


def require_memory(dataset: Dataset, model: Model, rows: int, order: int) -> None:
    """Raise OutOfMemoryError if a number of rows is too large for :func:`load_block`.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    p = model.n_linear + model.n_scalar
    needed = block_bytes(rows, dataset.n_features, p, order)
    if needed > memory_limit():
        raise OutOfMemoryError(
            f"expected rows that fit into half of the available memory, found {rows} rows x "
            f"{dataset.n_features} features, {needed / 1e9:.1f} GB; use hmc-ecs"
        )


def load_block(
    dataset: Dataset, model: Model, rows: Index, theta_star: np.ndarray, order: int
) -> Block:
    """Return ``rows`` in memory, expanded at ``theta_star``; ``order`` -1: not expanded.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    p = model.n_linear + model.n_scalar
    require_memory(dataset, model, len(rows), order)
    block = allocate_block(len(rows), 0, p, order)
    block = block._replace(design=aligned(dataset.n_features, len(rows)))
    source, scratch = dataset.rows(), allocate_scratch(p)
    point = ExpansionPoint(theta_star, model.constants, model.n_linear, order)
    for start in range(0, len(rows), _SLICE):
        piece = rows[start : start + _SLICE]
        buffer = allocate_rows(len(piece), dataset.n_features)
        source.gather(piece, 1, buffer)
        expand(model.link, point, buffer, 0, len(piece), block, start, scratch)
    return block
