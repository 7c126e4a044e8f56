"""The modes of a posterior, from several starts of Newton's method on rows in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular

from streammc.control_variates.mode.mode_mass import corrected_evidence, log_posteriors
from streammc.control_variates.mode.newton import Objective, Point, maximise
from streammc.control_variates.mode.starts import concave, starting_points
from streammc.control_variates.subset import in_memory
from streammc.errors import ModelError
from streammc.models.mixed.recognise import is_table_model
from streammc.protocols import Matrix, Model, Rows, Vector

SEARCH_ROWS: Final = 4096
"""Largest number of the rows in memory on which the other starts run; of groups four times as many
of the table, where 4096 would be too few groups."""
MOST_PARAMETERS: Final = 300
"""Above this dimension only the first start runs: factorisations cost more than the rows."""
COMPARABLE: Final = math.log(1e4)
"""Modes within this log evidence of the best are named: Laplace's formula is crude."""
STARTING: Final = math.log(20.0)
"""Chains also start at modes within this log evidence of the best."""
_ITERATIONS: Final = 100
_LEAST_OF_GROUP: Final = 64
"""Rows of a group that are always kept in the search."""
_SETTLED: Final = 0.1
_APART: Final = 0.5


@dataclass(frozen=True)
class Mode:
    """A mode and the log of the posterior mass around it, up to a constant."""

    point: Point
    log_evidence: float


def find_modes(
    model: Model, rows: Rows, n_rows: int, table: Matrix, objective: Objective
) -> list[Mode]:
    """Return the modes found from several starts, the one with most evidence first.

    If the log posterior is concave, the model's own start is the only one. The other starts
    run on at most 4096 of the rows, weighted to represent all; if they end in several modes,
    each of these is refined on all ``rows``.

    Parameters
    ----------
    model, rows
        The likelihood, and the rows in memory.
    n_rows
        Number of rows that ``rows`` represent.
    table
        (d, 5) prior.
    objective
        Log-likelihood of ``rows``, counted ``n_rows / len(rows)`` times.

    Raises
    ------
    ModelError
        If no start leads to a mode; the error is that of the first start.
    """
    start = model.start(rows)
    failed: ModelError | None = None
    climbed: list[Point] = []
    try:
        climbed = [maximise(objective, start, table)]
    except ModelError as error:
        failed = error
    found = [point for point in climbed if _settled(point)]
    if not concave(model, table) and _searched(model, len(start)):
        found = _search(model, rows, n_rows, table, objective, start, found)
    found = found or climbed
    if not found:
        assert failed is not None
        raise failed
    if len(found) == 1:
        return [Mode(found[0], 0.0)]
    density = log_posteriors(model, rows, n_rows / len(rows.y), table)
    evidence = corrected_evidence(density, found, _table_rows(model, rows) * _columns(model, rows))
    return [Mode(found[k], float(evidence[k])) for k in np.argsort(-evidence, kind="stable")]


def comparable(modes: Sequence[Mode], within: float = COMPARABLE) -> list[Mode]:
    """Return the modes whose log evidence is at most ``within`` below that of the first."""
    return [mode for mode in modes if mode.log_evidence >= modes[0].log_evidence - within]


def apart(theta: Vector, point: Point) -> float:
    """Return the root mean square over d whitened coordinates of ``theta`` minus a mode."""
    z = solve_triangular(point.factor, theta - point.theta, lower=True)
    return float(np.sqrt(np.mean(z * z)))


def _searched(model: Model, dim: int) -> bool:
    """Return whether to try other starts: in a network each would end in another mode."""
    countless = getattr(model, "multimodal", False) and not hasattr(model, "relabelled")
    return dim <= MOST_PARAMETERS and not countless


def _search(
    model: Model,
    rows: Rows,
    n_rows: int,
    table: Matrix,
    objective: Objective,
    start: Vector,
    found: list[Point],
) -> list[Point]:
    """Return the modes found from all starts, including ``found``, in no particular order."""
    search_objective = objective
    sample = _thinned(model, rows)
    counted = n_rows / len(rows.y) * _table_rows(model, rows) / _table_rows(model, sample)
    if sample is not rows:
        search_objective = in_memory(model, sample, counted)
    heights = log_posteriors(model, sample, counted, table)
    with np.errstate(all="ignore"):
        known: list[Point] = []
        _climb(model, search_objective, found[0].theta if found else start, table, known)
        here, factor = (known[0].theta, known[0].factor) if known else (start, None)
        for other in starting_points(model, search_objective, heights, table, here, factor):
            _climb(model, search_objective, other, table, known)
        if len(known) == 1 and found:
            return found
        if sample is rows:
            return known
        final = list(found)
        for point in known:
            _climb(model, objective, point.theta, table, final)
    return final


def _climb(
    model: Model, objective: Objective, theta: Vector, table: Matrix, known: list[Point]
) -> None:
    """Climb from ``theta``, and add the mode to ``known`` unless it is there already."""
    try:
        point = maximise(objective, theta, table, max_iterations=_ITERATIONS)
    except ModelError:
        return
    if _settled(point) and not any(_same(model, point, other) for other in known):
        known.append(point)


def _same(model: Model, point: Point, other: Point) -> bool:
    """Return whether two modes coincide, or differ only by the labels of components."""
    if max(apart(point.theta, other), apart(other.theta, point)) <= _APART:
        return True
    height_difference = abs(point.log_posterior - other.log_posterior)
    if not hasattr(model, "relabelled") or height_difference > 1e-6 * (
        1.0 + abs(point.log_posterior)
    ):
        return False
    return any(apart(theta, point) <= _APART for theta in model.relabelled(other.theta))


def _settled(point: Point) -> bool:
    return point.decrement < _SETTLED and math.isfinite(point.log_posterior)


def _thinned(model: Model, rows: Rows) -> Rows:
    """Return at most 4096 of the rows, drawn without replacement, in their order.

    Of groups, those that have 16,384 rows together, at least 256, each with its first rows.
    """
    most, longest = SEARCH_ROWS, 0
    if is_table_model(model):
        most = max(4 * SEARCH_ROWS * len(rows.y) // _table_rows(model, rows), SEARCH_ROWS // 16)
        longest = max(4 * SEARCH_ROWS // min(most, len(rows.y)), _LEAST_OF_GROUP)
        if np.max(rows.X[:, 1]) > longest:
            rows = rows._replace(X=np.minimum(rows.X, [math.inf, longest]))
    if len(rows.y) <= most:
        return rows
    picked = np.random.default_rng(0).choice(len(rows.y), most, replace=False)
    return Rows(*(part[np.sort(picked)] for part in rows))


def _table_rows(model: Model, rows: Rows) -> int:
    """Return the number of rows, of groups that of their rows."""
    return int(np.sum(rows.X[:, 1])) if is_table_model(model) else len(rows.y)


def _columns(model: Model, rows: Rows) -> int:
    """Return the number of columns of a row."""
    return int(model.n_features if is_table_model(model) else rows.X.shape[1])
