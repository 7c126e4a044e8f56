"""Where the first full pass is centred: the mode of what fits in memory, then of more."""

from __future__ import annotations

import numpy as np

from streammc.control_variates.newton import Point, damped_point, maximise
from streammc.control_variates.subset import Spread, in_memory
from streammc.priors import normal
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector


def first_centre(
    dataset: Dataset,
    model: Model,
    subset: Rows,
    spread: Spread,
    theta: Vector | None,
    table: Matrix,
    only: bool,
) -> tuple[Point, Vector, float]:
    """Return the first centre, and where and how wide the posterior is around it.

    Where it stays the only centre, the draws that score rows go where the subset puts
    the posterior, as wide as the subset leaves that open.
    """
    dim = len(table)
    if model.response_fault(subset.y) is not None:  # the first pass finds all, and raises
        origin = np.zeros(dim)
        return Point(origin, 0.0, np.zeros((dim, dim)), origin, np.inf), origin, 1.0
    objective = in_memory(model, subset, dataset.n_rows / len(subset.y))
    if len(subset.y) < dataset.n_rows:
        table = _soften(table)
    if theta is not None and not only:
        return damped_point(theta, objective(theta), table), np.zeros(dim), 1.0
    mode = maximise(objective, model.start(subset), table)
    if not only:
        if len(spread.starts) and np.isfinite(spread(mode.theta)[0]):
            mode = maximise(spread, mode.theta, table, max_iterations=2)
        return mode, np.zeros(dim), 1.0
    inflation = float(np.sqrt(dataset.n_rows / len(subset.y)))
    if theta is None:
        return mode, np.zeros(dim), inflation
    return damped_point(theta, objective(theta), table), mode.theta - theta, inflation


def _soften(table: Matrix) -> Matrix:
    """Replace flat priors by Normal(0, 10): a subset may be separated where all rows are not."""
    soft = table.copy()
    soft[table[:, 0] == 0.0] = normal(scale=10.0).table(("",))
    return soft
