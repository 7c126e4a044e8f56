"""Rows in memory, and their log-likelihood as a function of theta."""

from __future__ import annotations

import numpy as np

from streammc import rng
from streammc.control_variates.block_pass import ExpansionPass
from streammc.control_variates.newton import Objective
from streammc.protocols import Dataset, Index, Matrix, Model, RowBlock, Rows, Vector

SUBSET_ROWS = 65_536


def gather(dataset: Dataset, starts: Index, unit_rows: int = 1) -> Rows:
    """Return the runs of ``unit_rows`` rows that begin at ``starts``."""
    m = len(starts) * unit_rows
    out = Rows(np.empty((m, dataset.n_features)), np.empty(m), np.empty(m), np.empty(m))
    source = dataset.rows()
    source.will_need(starts, unit_rows)
    source.gather(starts, unit_rows, out)
    return out


def draw_subset(dataset: Dataset, memory_limit: int) -> Rows:
    """Return all rows, or as many as fit, drawn without replacement and in row order."""
    fit = memory_limit // (8 * (dataset.n_features + 3))
    m = min(dataset.n_rows, SUBSET_ROWS, max(fit, 1))
    if m == dataset.n_rows:
        return gather(dataset, np.arange(m, dtype=np.int64))
    generator = rng.stream(0, 1, rng.Role.PLAN)
    rows = generator.choice(dataset.n_rows, size=m, replace=False, shuffle=False)
    return gather(dataset, np.sort(rows).astype(np.int64))


def in_memory(model: Model, rows: Rows, scale: float) -> Objective:
    """Return the log-likelihood of ``rows``, times ``scale``, with two derivatives."""
    block = RowBlock(0, 0, rows.X, rows.y, rows.offset, rows.weight * scale)

    def objective(theta: Vector) -> tuple[float, Vector, Matrix]:
        at = np.ascontiguousarray(theta)
        task = ExpansionPass(model, at, np.empty((0, len(at))), 2, 0, False)
        log_lik, _, gradient, hessian = task.map(block).totals(len(at))
        return log_lik, gradient, hessian

    return objective
