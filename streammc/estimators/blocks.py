"""Rows in memory with the Taylor expansion of their log-likelihoods.

The design is kept transposed, (q, m): a linear predictor is then ``q`` scaled
additions over contiguous rows and a gradient ``q`` dot products, both of which
LLVM vectorises over rows (with rows first, 29 columns leave most lanes idle).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.numerics.jit import LINK_TYPE, i8, index_vector, jit, matrix, vector
from streammc.protocols import Matrix, Rows, Vector


class Block(NamedTuple):
    """``m`` rows and what their remainders need."""

    design: Matrix
    """(q, m) transposed design."""
    y: Vector
    """(m,) response."""
    weight: Vector
    """(m,) times the log-likelihood of the row counts; 0 leaves a row out."""
    eta_star: Matrix
    """(p, m) predictors at the expansion point, offset included."""
    expansion: Matrix
    """(1 + p + p(p+1)/2, m) log-likelihood and derivatives there, times the weight."""


BLOCK_TYPE: Any = types.NamedTuple((matrix, vector, vector, matrix, matrix), Block)
ROWS_TYPE: Any = types.NamedTuple((matrix, vector, vector, vector), Rows)


def expansion_size(p: int) -> int:
    """Return the number of scalars per row: value, gradient, upper triangle."""
    return 1 + p + p * (p + 1) // 2


def allocate_block(m: int, q: int, p: int) -> Block:
    """Return a block of zeros."""
    return Block(
        np.zeros((q, m)),
        np.zeros(m),
        np.zeros(m),
        np.zeros((p, m)),
        np.zeros((expansion_size(p), m)),
    )


def allocate_rows(m: int, q: int) -> Rows:
    """Return rows of zeros, to be gathered into."""
    return Rows(np.zeros((m, q)), np.zeros(m), np.zeros(m), np.zeros(m))


@jit(types.void(LINK_TYPE, vector, i8, i8, ROWS_TYPE, index_vector, BLOCK_TYPE, i8))
def expand(link, theta_star, n_linear, order, rows, bounds, block, shift):  # type: ignore[no-untyped-def]
    """Expand the log-likelihoods of ``rows`` at ``theta_star`` (Dang et al. 2019, eq. 11).

    Row ``i`` becomes row ``shift + i`` of ``block``. ``bounds`` cuts the rows into
    pieces that are evaluated one by one: the bits of a row must not depend on which
    other pieces share the batch. ``order`` -1 expands nothing (the remainder is then
    the log-likelihood itself).
    """
    q = rows.X.shape[1]
    p = block.eta_star.shape[0]
    size = block.expansion.shape[0]
    for piece in range(bounds.shape[0] - 1):
        first = bounds[piece]
        w = bounds[piece + 1] - first
        lo = shift + first
        hi = lo + w
        for i in range(w):
            for j in range(q):
                block.design[j, lo + i] = rows.X[first + i, j]
            block.y[lo + i] = rows.y[first + i]
            block.weight[lo + i] = rows.weight[first + i]
        eta = np.zeros((p, w))
        out = np.zeros((size, w))
        for a in range(p):
            if a < n_linear:
                for j in range(q):
                    coefficient = theta_star[a * q + j]
                    for i in range(w):
                        eta[a, i] += coefficient * block.design[j, lo + i]
                if a == 0:
                    for i in range(w):
                        eta[a, i] += rows.offset[first + i]
            else:
                for i in range(w):
                    eta[a, i] = theta_star[n_linear * q + a - n_linear]
            for i in range(w):
                block.eta_star[a, lo + i] = eta[a, i]
        used = 0
        if order >= 0:
            link(eta, block.y[lo:hi], order, out)
            used = 1 if order == 0 else (1 + p if order == 1 else size)
        for s in range(size):
            for i in range(w):
                value = out[s, i] * block.weight[lo + i] if s < used else 0.0
                # A row that counts 0 times must not turn inf * 0 into NaN.
                block.expansion[s, lo + i] = value if block.weight[lo + i] != 0.0 else 0.0


@jit(types.void(BLOCK_TYPE, i8, BLOCK_TYPE, i8, i8))
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
