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
    ROWS_TYPE,
    SCRATCH_TYPE,
    TILE,
    allocate_block,
    allocate_scratch,
    expand,
)
from streammc.estimators.difference import remainders
from streammc.numerics.jit import LINK_TYPE, i8, jit, matrix, vector
from streammc.numerics.summation import merge_compensated, two_sum
from streammc.protocols import Dataset, Matrix, Model, RowBlock, Rows, Vector

AUDIT_DRAWS = 400
FEWEST_DRAWS = 40
_EVALUATIONS = 4e10
_CALL_EVALUATIONS = 2**25
_PIECE_ENTRIES = 2**21


def audit_draws(n_rows: int) -> int:
    """Return the draws to look at: 400 up to 1e8 rows, where a pass takes minutes, then fewer."""
    return max(FEWEST_DRAWS, min(AUDIT_DRAWS, int(_EVALUATIONS / max(n_rows, 1))))


@jit(
    types.void(
        LINK_TYPE, vector, vector, i8, i8, ROWS_TYPE, matrix, BLOCK_TYPE, SCRATCH_TYPE,
        vector, matrix, matrix,
    ),
    borrow=True,
)  # fmt: skip
def add_remainders(  # type: ignore[no-untyped-def]
    link, constants, theta_star, n_linear, order, rows, deltas, tile, scratch, value, slope, sums
):
    """Add the remainders of ``rows`` at every draw to ``sums`` (2, S), tile by tile.

    ``deltas`` (S, d) is theta - theta_star; ``tile`` holds ``TILE`` expanded rows.
    """
    m = rows.y.shape[0]
    for lo in range(0, m, TILE):
        w = min(TILE, m - lo)
        expand(link, constants, theta_star, n_linear, order, rows, lo, w, tile, 0, scratch)
        for s in range(deltas.shape[0]):
            remainders(link, constants, tile, deltas[s], n_linear, 0, w, scratch, value, slope)
            total = 0.0
            for i in range(w):
                total += value[i]
            sums[0, s], error = two_sum(sums[0, s], total)
            sums[1, s] += error


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
        model = self.model
        p, q = model.n_linear + model.n_scalar, block.X.shape[1]
        sums = np.zeros((2, len(self.deltas)))
        tile, scratch = allocate_block(TILE, q, p), allocate_scratch(p)
        value, slope = np.empty(TILE), np.empty((p, TILE))
        fit = min(_PIECE_ENTRIES // max(q, 1), _CALL_EVALUATIONS // max(len(self.deltas), 1))
        step = max(fit // TILE, 1) * TILE
        for lo in range(0, len(block.y), step):
            parts = (block.X, block.y, block.offset, block.weight)
            rows = Rows(*(np.array(part[lo : lo + step], np.float64, order="C") for part in parts))
            add_remainders(
                model.link,
                model.constants,
                self.theta_star,
                model.n_linear,
                self.order,
                rows,
                self.deltas,
                tile,
                scratch,
                value,
                slope,
                sums,
            )
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
