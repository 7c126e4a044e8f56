"""Blocks of rows in memory, with the Taylor expansions of their log-likelihoods.

The design is kept transposed, (q, m): a linear predictor is then ``q`` scaled
additions over contiguous rows and a gradient ``q`` dot products, both of which
LLVM vectorises over rows (with rows first, 29 columns leave most lanes idle).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.errors import OutOfMemoryError
from streammc.models.base import wide
from streammc.numerics.addresses import matrix_view
from streammc.numerics.jit import LINK_TYPE, i8, inline, jit, record_type
from streammc.numerics.process_limits import available_memory
from streammc.numerics.row_products import aligned
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

TILE = 512
"""Rows evaluated at once: their predictors and derivatives stay in the L1 cache."""


class Block(NamedTuple):
    """``m`` rows with the expansions that their remainders need."""

    design: Matrix
    """(q, m) transposed design."""
    y: Vector
    """(m,) response."""
    weight: Vector
    """(m,) weight of the log-likelihood of each row; 0 leaves a row out."""
    eta_star: Matrix
    """(p, m) predictors at the expansion point, offset included."""
    expansion: Matrix
    """(1 + p + p(p+1)/2, m) weighted log-likelihood and derivatives at the expansion point.

    (1 + p, m) for several predictors expanded to order 1 at most: second derivatives would
    take most of the memory, 1,225 of 1,275 numbers a row for a network with 49 predictors.
    """


class ExpansionPoint(NamedTuple):
    """Point and order of the expansions of rows, with the sizes and constants of the model."""

    theta_star: Vector
    """(d,) expansion point."""
    constants: Vector
    """(c,) constants of the model's link."""
    n_linear: int
    order: int
    """-1: nothing is expanded, and the remainder is the log-likelihood itself."""


BLOCK_TYPE: Any = record_type(Block)
ROWS_TYPE: Any = record_type(Rows)


def expansion_size(p: int) -> int:
    """Return the number of scalars per row: value, gradient, upper triangle."""
    return 1 + p + p * (p + 1) // 2


def block_width(p: int, order: int) -> int:
    """Return how many numbers a block stores of a row's expansion to ``order``."""
    return 1 + p if order < 2 and p > 1 else expansion_size(p)


class Scratch(NamedTuple):
    """Flat buffers of one tile, sliced into arrays of the exact width."""

    eta: Vector
    """(p TILE,) predictors."""
    step: Vector
    """(p TILE,) predictors minus those at the expansion point."""
    out: Vector
    """((1 + p + p(p+1)/2) TILE,) value and derivatives from the link."""


SCRATCH_TYPE: Any = record_type(Scratch)


def allocate_scratch(p: int) -> Scratch:
    """Return the buffers of a tile for ``p`` predictors."""
    size = expansion_size(p) * TILE
    return Scratch(np.zeros(p * TILE), np.zeros(p * TILE), np.zeros(size))


def allocate_block(m: int, q: int, p: int, order: int = 2) -> Block:
    """Return a block of zeros, for expansions up to ``order``."""
    return Block(
        np.zeros((q, m)),
        np.zeros(m),
        np.zeros(m),
        np.zeros((p, m)),
        np.zeros((block_width(p, order), m)),
    )


def allocate_rows(m: int, q: int) -> Rows:
    """Return rows of zeros, a buffer for gathered rows."""
    return Rows(np.zeros((m, q)), np.zeros(m), np.zeros(m), np.zeros(m))


@inline(reassociate=True)
def expand_inline(link, point, rows, start, count, block, shift, scratch):  # type: ignore[no-untyped-def]
    """Expand as :func:`expand`, without a call: that took a quarter of the time for one row."""
    if start < 0 or shift < 0:  # never true: tells the compiler that no index is negative
        return
    theta_star, constants, n_linear, order = point
    source, offset, row_weight = rows.X, rows.offset, rows.weight
    design, weight, eta_star, expansion = (
        block.design,
        block.weight,
        block.eta_star,
        block.expansion,
    )
    q = source.shape[1]
    p = eta_star.shape[0]
    size = expansion.shape[0]
    used = size
    if order < 2:
        used = 0 if order < 0 else (1 if order == 0 else 1 + p)
    for done in range(0, count, TILE):
        w = min(TILE, count - done)
        first = start + done
        lo = shift + done
        for i in range(w):
            for j in range(q):
                design[j, lo + i] = source[first + i, j]
            block.y[lo + i] = rows.y[first + i]
            weight[lo + i] = row_weight[first + i]
        eta = matrix_view(scratch.eta, p, w)
        out = matrix_view(scratch.out, size, w)
        for a in range(p):
            for i in range(w):
                total = 0.0
                if a < n_linear:
                    for j in range(q):
                        total += theta_star[a * q + j] * source[first + i, j]
                    if a == 0:
                        total += offset[first + i]
                else:
                    total = theta_star[n_linear * q + a - n_linear]
                eta[a, i] = total
                eta_star[a, lo + i] = total
        if order >= 0:
            X = design[:, lo : lo + w]
            link(eta, X, block.y[lo : lo + w], constants, order, out)
        for s in range(size):
            for i in range(w):
                value = out[s, i] * weight[lo + i] if s < used else 0.0
                # A row of weight 0 must not turn inf * 0 into NaN.
                expansion[s, lo + i] = value if weight[lo + i] != 0.0 else 0.0


@jit(
    types.void(
        LINK_TYPE, record_type(ExpansionPoint), ROWS_TYPE, i8, i8, BLOCK_TYPE, i8, SCRATCH_TYPE
    ),
    reassociate=True,
    borrow=True,
)
def expand(link, point, rows, start, count, block, shift, scratch):  # type: ignore[no-untyped-def]
    """Expand the log-likelihoods of rows at ``point`` (Dang et al. 2019, eq. 11).

    Row ``start + i`` of ``rows`` becomes row ``shift + i`` of ``block``, for ``count`` rows.
    Because of vectorisation, rounding in a row may depend on the rows expanded with it.
    """
    expand_inline(link, point, rows, start, count, block, shift, scratch)


@inline
def copy_rows(source, source_start, target, target_start, count):  # type: ignore[no-untyped-def]
    """Copy ``count`` expanded rows from one block to another."""
    for i in range(count):
        s, t = source_start + i, target_start + i
        for j in range(source.design.shape[0]):
            target.design[j, t] = source.design[j, s]
        target.y[t] = source.y[s]
        target.weight[t] = source.weight[s]
        for a in range(source.eta_star.shape[0]):
            target.eta_star[a, t] = source.eta_star[a, s]
        for a in range(source.expansion.shape[0]):
            target.expansion[a, t] = source.expansion[a, s]


def expanded(model: Model, theta_star: Vector, order: int, rows: Rows) -> Block:
    """Return all ``rows`` expanded at ``theta_star``; see :func:`expand`."""
    m, q = rows.X.shape
    p = model.n_linear + model.n_scalar
    block, scratch = allocate_block(m, q, p, order), allocate_scratch(p)
    at = wide(model, theta_star, q)
    point = ExpansionPoint(at, model.constants, model.n_linear, order)
    expand(model.link, point, rows, 0, m, block, 0, scratch)
    return block


_SLICE = 8192
"""Rows that are gathered at once."""


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
    at = wide(model, theta_star, dataset.n_features)
    point = ExpansionPoint(at, model.constants, model.n_linear, order)
    for start in range(0, len(rows), _SLICE):
        piece = rows[start : start + _SLICE]
        buffer = allocate_rows(len(piece), dataset.n_features)
        source.gather(piece, 1, buffer)
        expand(model.link, point, buffer, 0, len(piece), block, start, scratch)
    return block
