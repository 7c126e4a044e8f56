"""Centre of the first full pass: the mode of the rows in memory, refined on more rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streammc.control_variates.forecast import Phases, counted
from streammc.control_variates.mode.integrated import integrated_point
from streammc.control_variates.mode.modes import Mode, comparable, find_modes
from streammc.control_variates.mode.newton import Point, damped_point, maximise
from streammc.control_variates.subset import Spread, in_memory, level_columns
from streammc.likelihood.invalid_responses import invalid_responses
from streammc.numerics.prior import COLUMNS, FLAT, KIND
from streammc.priors import normal
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector


@dataclass(frozen=True)
class Centre:
    """First centre of the full passes, with location and width of the draws that score rows.

    If there is no later centre, rows are scored at draws around the mode of the subset,
    widened by the uncertainty of that mode.
    """

    point: Point
    shift: Vector
    """(d,) from the centre to the mean of the scoring draws."""
    inflation: float = 1.0
    """Width of the scoring draws in Laplace standard deviations."""
    modes: list[Mode] = field(default_factory=list)
    """Modes of comparable evidence, the best first; empty if not searched."""
    integrated: bool = False
    """Whether there is no joint mode, and the centre is the mode with the scale integrated out."""


def first_centre(
    dataset: Dataset,
    model: Model,
    subset: Rows,
    spread: Spread,
    theta: Vector | None,
    table: Matrix,
    only: bool,
    phases: Phases | None = None,
) -> Centre:
    """Return the first centre: ``theta``, or the mode with most evidence.

    Parameters
    ----------
    dataset, model, subset, spread, table
        The data, the model, the rows in memory, runs spread over the table, the prior table.
    theta
        (d,) given centre, or ``None``.
    only
        Whether this centre is the only one.
    phases
        Called after evaluations of the log-likelihood; see ``certify.compute``.

    Raises
    ------
    ModelError
        If the posterior has no mode, or is improper.
    """
    dim = len(table)
    origin = np.zeros(dim)
    # The first pass finds all, and raises.
    if invalid_responses(model, subset.X, subset.y) is not None:
        return Centre(Point(origin, 0.0, np.zeros((dim, dim)), origin, np.inf), origin)
    scale, columns = dataset.n_rows / len(subset.y), level_columns(dataset, model)
    objective = counted(in_memory(model, subset, scale, columns), phases)
    if len(subset.y) < dataset.n_rows:
        table = softened(table)
    if theta is not None and not only:
        return Centre(damped_point(theta, objective(theta), table), origin)
    if theta is None and len(subset.y) == dataset.n_rows:
        labels = tuple(model.labels(dataset.feature_names))
        found = integrated_point(model, subset, table, objective, labels)
        if found is not None:
            return Centre(found, origin, integrated=True)
    modes = comparable(find_modes(model, subset, dataset.n_rows, table, objective))
    mode = modes[0].point
    if not only:
        if len(spread.starts) and np.isfinite(spread(mode.theta)[0]):
            mode = maximise(counted(spread, phases), mode.theta, table, max_iterations=2)
        return Centre(mode, origin, modes=modes)
    inflation = float(np.sqrt(dataset.n_rows / len(subset.y)))
    if theta is None:
        return Centre(mode, origin, inflation, modes)
    given = damped_point(theta, objective(theta), table)
    return Centre(given, mode.theta - theta, inflation)


def softened(table: Matrix) -> Matrix:
    """Replace flat priors by Normal(0, 10): a subset may be separated even if all rows are not."""
    soft = table.copy()
    soft[table[:, KIND] == FLAT, :COLUMNS] = normal(scale=10.0).table(("",))
    return soft
