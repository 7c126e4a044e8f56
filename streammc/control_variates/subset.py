"""Rows in memory, and their log-likelihood as a function of theta."""

from __future__ import annotations

import numpy as np

from streammc import rng
from streammc.control_variates.block_pass import expansion_of
from streammc.control_variates.newton import Objective
from streammc.control_variates.row_sums import RowSums
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

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
    weight = rows.weight * scale
    scores = np.empty(len(rows.y))

    def objective(theta: Vector) -> tuple[float, Vector, Matrix]:
        sums = RowSums(model, theta, np.empty((0, len(theta))), 2, rows.X.shape[1])
        sums.add(rows.X, rows.y, rows.offset, weight, scores)
        return expansion_of(sums.totals, len(theta))

    return objective
