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
from streammc.protocols import Matrix, Model, Rows, Vector

SEARCH_ROWS: Final = 4096
"""Rows, drawn from those in memory, on which the other starts run."""
MOST_PARAMETERS: Final = 300
"""Above it a factorisation costs more than the rows, and only the first start runs."""
COMPARABLE: Final = math.log(1e4)
"""Modes this much below the best in log evidence are named: Laplace's formula is crude."""
STARTING: Final = math.log(20.0)
"""Modes this much below the best are where chains start, too."""
_ITERATIONS: Final = 100
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
    """Return the modes that several starts lead to, the one with most evidence first.

    Where the log posterior is concave the model's own start is the only one. The others run
    on at most 4096 of the rows, counted as many times as makes up for it; only where
    they end in several modes does each climb again on all ``rows``.

    Parameters
    ----------
    model, rows
        The likelihood, and the rows in memory.
    n_rows
        Rows that these stand for.
    table
        (d, 5) prior.
    objective
        Log-likelihood of ``rows``, counted ``n_rows / len(rows)`` times.

    Raises
    ------
    ModelError
        If no start leads to a mode: that of the first start.
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
    evidence = corrected_evidence(density, found, rows.X.size)
    return [Mode(found[k], float(evidence[k])) for k in np.argsort(-evidence, kind="stable")]


def comparable(modes: Sequence[Mode], within: float = COMPARABLE) -> list[Mode]:
    """Return the modes whose log evidence is at most ``within`` below that of the first."""
    return [mode for mode in modes if mode.log_evidence >= modes[0].log_evidence - within]


def apart(theta: Vector, point: Point) -> float:
    """Return how many posterior standard deviations ``theta`` is from a mode, d taken out."""
    z = solve_triangular(point.factor, theta - point.theta, lower=True)
    return float(np.sqrt(np.mean(z * z)))


def _searched(model: Model, dim: int) -> bool:
    """Return whether other starts can tell something: of a network every one ends elsewhere."""
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
    """Return the modes that all starts lead to, ``found`` among them, in no order."""
    look = objective
    few = _thinned(rows)
    if few is not rows:
        look = in_memory(model, few, n_rows / len(few.y))
    with np.errstate(all="ignore"):
        known: list[Point] = []
        _climb(model, look, found[0].theta if found else start, table, known)
        here, factor = (known[0].theta, known[0].factor) if known else (start, None)
        for other in starting_points(model, look, table, here, factor):
            _climb(model, look, other, table, known)
        if len(known) == 1 and found:
            return found
        if few is rows:
            return known
        final = list(found)
        for point in known:
            _climb(model, objective, point.theta, table, final)
    return final


def _climb(
    model: Model, objective: Objective, theta: Vector, table: Matrix, known: list[Point]
) -> None:
    """Add the mode that ``theta`` leads to, if it leads to one that is not known."""
    try:
        point = maximise(objective, theta, table, max_iterations=_ITERATIONS)
    except ModelError:
        return
    if _settled(point) and not any(_same(model, point, other) for other in known):
        known.append(point)


def _same(model: Model, point: Point, other: Point) -> bool:
    """Return whether two modes are one, or differ by nothing but labels."""
    if max(apart(point.theta, other), apart(other.theta, point)) <= _APART:
        return True
    higher = abs(point.log_posterior - other.log_posterior)
    if not hasattr(model, "relabelled") or higher > 1e-6 * (1.0 + abs(point.log_posterior)):
        return False
    return any(apart(theta, point) <= _APART for theta in model.relabelled(other.theta))


def _settled(point: Point) -> bool:
    return point.decrement < _SETTLED and math.isfinite(point.log_posterior)


def _thinned(rows: Rows) -> Rows:
    """Return at most 4096 of the rows, drawn without replacement, in their order."""
    if len(rows.y) <= SEARCH_ROWS:
        return rows
    picked = np.random.default_rng(0).choice(len(rows.y), SEARCH_ROWS, replace=False)
    return Rows(*(part[np.sort(picked)] for part in rows))
