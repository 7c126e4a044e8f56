"""Full pass that sums the remainders ``l_i - q_i`` of all rows at many draws of theta.

A remainder is small, since the Taylor terms are subtracted row by row: its sum keeps its
precision over a billion rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streammc.likelihood.blocks import TILE, allocate_block, allocate_scratch
from streammc.likelihood.remainder_kernel import NODES, POWERS, TAIL, Buffers, Draws, add_remainders
from streammc.numerics.compile_ahead import make_ready
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Matrix, Model, RowBlock, Rows, Vector

_CALL_EVALUATIONS: Final = 2**25
_PIECE_ENTRIES: Final = 2**21
_SUM_ERROR: Final = 1e-5
"""Largest error of a sum of remainders from interpolation over draws."""


@dataclass(frozen=True)
class RemainderTask:
    """Sum of ``l_i - q_i`` over all rows at several draws; see ``protocols.PassTask``."""

    model: Model
    theta_star: Vector
    deltas: Matrix
    """(S, d) draws minus theta_star."""
    order: int
    tolerance: float = -1.0
    """Tolerance of the interpolation over draws, per row; negative: every draw is evaluated."""

    def make_ready(self) -> None:
        """Compile or load the functions of :meth:`map`, so that its first call can be timed."""
        make_ready(add_remainders, self.model.link)

    def map(self, block: RowBlock) -> Matrix:
        """Return (2, S): sums over the rows of a block, and their compensations."""
        model = self.model
        n, p, q = model.n_linear, model.n_linear + model.n_scalar, block.X.shape[1]
        draws = len(self.deltas)
        padded = -(-draws // 4) * 4
        slopes, scalars = np.zeros((n, padded, q)), np.zeros((padded, p - n))
        for a in range(n):
            slopes[a, :draws] = self.deltas[:, a * q : (a + 1) * q]
        scalars[:draws] = self.deltas[:, n * q :]
        sums = np.zeros((2, draws))
        buffers = Buffers(
            allocate_block(TILE, q, p),
            allocate_scratch(p),
            np.empty((n, padded, TILE)),
            np.empty((2 * NODES + 1, TILE)),
            np.empty(padded),
        )
        smooth = p == 1 and n == 1 and getattr(model, "analytic", False)
        tolerance = self.tolerance if smooth else -1.0
        wanted = Draws(slopes, scalars, tolerance, POWERS, TAIL)
        fit = min(_PIECE_ENTRIES // max(q, 1), _CALL_EVALUATIONS // max(draws, 1))
        step = max(fit // TILE, 1) * TILE
        for lo in range(0, len(block.y), step):
            parts = (block.X, block.y, block.offset, block.weight)
            rows = Rows(*(np.array(part[lo : lo + step], np.float64, order="C") for part in parts))
            add_remainders(
                model.link,
                model.constants,
                self.theta_star,
                self.order,
                rows,
                wanted,
                buffers,
                sums,
            )
        return sums

    def combine(self, left: Matrix, right: Matrix) -> Matrix:
        """Return the compensated sums of two neighbouring blocks."""
        return merge_compensated(left, right)


def remainder_task(
    dataset: Dataset, model: Model, theta_star: Vector, order: int, theta: Matrix
) -> RemainderTask:
    """Return the task of a pass that sums the remainders at draws ``theta`` (..., d)."""
    d = theta.shape[-1]
    deltas = np.ascontiguousarray(theta.reshape(-1, d) - theta_star)
    return RemainderTask(model, theta_star, deltas, order, _SUM_ERROR / dataset.n_rows)


def remainder_sums(
    dataset: Dataset,
    model: Model,
    theta_star: Vector,
    order: int,
    theta: Matrix,
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Vector:
    """Return the sums (S,) of remainders at draws ``theta`` (..., d), from one full pass."""
    task = remainder_task(dataset, model, theta_star, order, theta)
    sums = dataset.reduce(task, scheduler=scheduler, progress=progress)
    total: Vector = sums[0] + sums[1]
    return total
