"""The audit: exact importance weights from what was sampled to the posterior.

A run of ``hmc-ecs`` leaves ``exp(l^ - s^2/2) p(theta) p(u)`` invariant, so

    w = exp(l(theta) - l^(theta, u) + s^2(theta, u) / 2)

is an exact importance weight of a draw ``(theta, u)`` to the posterior. One pass
evaluates ``l`` at some hundred thinned draws at once, as the sum of the remainders
``l_i - q_i``: the Taylor sums cancel, and the precision survives a billion rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates
from streammc.estimators.blocks import (
    BLOCK_TYPE,
    SCRATCH_TYPE,
    TILE,
    allocate_scratch,
    expanded,
)
from streammc.estimators.difference import remainders
from streammc.numerics.jit import LINK_TYPE, i8, jit, matrix, vector
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Matrix, Model, RowBlock, Rows, Vector


@jit(
    types.void(LINK_TYPE, vector, BLOCK_TYPE, matrix, i8, SCRATCH_TYPE, vector, matrix, vector),
    borrow=True,
)
def tile_remainders(link, constants, block, deltas, n_linear, scratch, value, slope, totals):  # type: ignore[no-untyped-def]
    """Write the summed remainders of one tile at every draw into ``totals`` (S,)."""
    w = block.y.shape[0]
    for s in range(deltas.shape[0]):
        remainders(link, constants, block, deltas[s], n_linear, 0, w, scratch, value, slope)
        total = 0.0
        for i in range(w):
            total += value[i]
        totals[s] = total


@dataclass(frozen=True)
class RemainderTask:
    """Sum of ``l_i - q_i`` over all rows at several draws; see ``protocols.PassTask``."""

    model: Model
    theta_star: Vector
    deltas: Matrix
    """(S, d) draws minus theta_star."""
    order: int

    def map(self, block: RowBlock) -> Matrix:
        """Return (2, S): sums and their compensations."""
        p = self.model.n_linear + self.model.n_scalar
        sums = np.zeros((2, len(self.deltas)))
        scratch = allocate_scratch(p)
        for lo in range(0, len(block.y), TILE):
            hi = min(lo + TILE, len(block.y))
            rows = Rows(
                np.ascontiguousarray(block.X[lo:hi], dtype=np.float64),
                np.ascontiguousarray(block.y[lo:hi], dtype=np.float64),
                np.ascontiguousarray(block.offset[lo:hi], dtype=np.float64),
                np.ascontiguousarray(block.weight[lo:hi], dtype=np.float64),
            )
            model = self.model
            tile = expanded(model, self.theta_star, self.order, rows)
            value, slope = np.empty(hi - lo), np.empty((p, hi - lo))
            totals = np.zeros((2, len(self.deltas)))
            tile_remainders(
                model.link,
                model.constants,
                tile,
                self.deltas,
                model.n_linear,
                scratch,
                value,
                slope,
                totals[0],
            )
            sums = merge_compensated(sums, totals)
        return sums

    def combine(self, left: Matrix, right: Matrix) -> Matrix:
        """Merge two neighbours."""
        return merge_compensated(left, right)


def thin(chains: int, draws: int, wanted: int) -> NDArray[np.int64]:
    """Return the draws, evenly spaced, that the audit looks at in every chain."""
    per_chain = min(draws, max(1, -(-wanted // chains)))
    return np.unique(np.linspace(0, draws - 1, per_chain).round().astype(np.int64))


def log_weights(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    theta: NDArray[np.float64],
    log_lik_remainder: NDArray[np.float64],
    log_lik_variance: NDArray[np.float64],
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Return the log importance weights of draws, in the shape of ``log_lik_variance``.

    Parameters
    ----------
    dataset, model, cv
        What was sampled.
    theta
        (..., d) draws.
    log_lik_remainder, log_lik_variance
        (...) as recorded with them.
    """
    d = theta.shape[-1]
    deltas = np.ascontiguousarray(theta.reshape(-1, d) - cv.theta_star)
    task = RemainderTask(model, cv.theta_star, deltas, cv.order)
    sums = dataset.reduce(task, scheduler=scheduler, progress=progress)
    exact = (sums[0] + sums[1]).reshape(log_lik_variance.shape)
    weights: NDArray[np.float64] = exact - log_lik_remainder + 0.5 * log_lik_variance
    return weights
