"""Bound on the terms of a minibatch acceptance test, from the norms of the rows.

The log-likelihood of a row has the derivative ``f^(k)`` of order k in its linear predictor,
bounded by ``M_k`` (``model.derivative_bounds``). Let ``r_i`` be the remainder of its expansion
of order k at theta_star, and ``delta = theta - theta_star``. The derivative of ``r_i`` in the
predictor is at most ``M_{k+1} |x_i . delta|^k / k!`` (Taylor's theorem for ``f'``), so that

    |r_i(theta') - r_i(theta)| <= w_i ||x_i||^(k+1) M_{k+1} / k! max(||delta||, ||delta'||)^k
                                  ||theta' - theta||,

Without an expansion, the bound is that of k = 0. A term of the acceptance test is U times the
sum over a unit of b rows: at most ``U b`` times the largest bound of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc.protocols import Dataset, Model, PassTask, RowBlock, Vector


@dataclass(frozen=True)
class LargestNorms(PassTask[Vector]):
    """The largest ``w_i ||x_i||^p`` of all rows for p = 1, 2, 3."""

    def map(self, block: RowBlock) -> Vector:
        """Return (3,) the largest values in a block."""
        if not len(block.weight):
            return np.zeros(3)
        norms = np.sqrt(np.einsum("ij,ij->i", block.X, block.X, dtype=np.float64))
        powers = block.weight * norms ** np.arange(1, 4)[:, None]
        largest: Vector = powers.max(axis=1)
        return largest

    def combine(self, left: Vector, right: Vector) -> Vector:
        """Return the elementwise maximum of two results."""
        return np.maximum(left, right)


def term_bound(
    dataset: Dataset,
    model: Model,
    order: int,
    unit_rows: int,
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Return B: a term is at most ``B max(||delta||, ||delta'||)^order ||theta' - theta||``.

    One pass over the rows, at temperature 1; infinite where the model bounds no derivative.
    ``order`` is that of the control variates, 0 also without any; a unit has ``unit_rows``.
    """
    bounds = model.derivative_bounds
    if len(bounds) <= order or model.n_scalar > 0:
        return math.inf
    norms = dataset.reduce(LargestNorms(), scheduler=scheduler, progress=progress)
    n_units = -(-dataset.n_rows // unit_rows)
    return float(n_units * unit_rows * norms[order] * bounds[order] / math.factorial(order))
