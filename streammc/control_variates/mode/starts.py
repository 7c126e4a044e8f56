"""Further starts of Newton's method, for posteriors with several modes.

A conflict of prior and likelihood leaves a mode at each of them. A normal prior far from a
Gaussian response adds a mode whose scale is that of the residuals about the prior's
location. A heavy-tailed prior adds a mode at its own location, however far the data are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from streammc.control_variates.mode.newton import Objective, maximise
from streammc.errors import ModelError
from streammc.numerics.prior import (
    COLUMNS,
    FLAT,
    HALF_NORMAL,
    HALF_STUDENT_T,
    JOINT_NORMAL,
    KIND,
    LAPLACE,
    LKJ,
    LOCATION,
    LOG_FLAT,
    LOGIT_BETA,
    NORMAL,
    SCALE,
    SHAPE,
    STUDENT_T,
    UNIFORM,
    put,
)
from streammc.numerics.prior_draws import joint_normal
from streammc.priors import normal
from streammc.protocols import Index, Matrix, Model, Vector

CONCAVE: Final = (
    FLAT, NORMAL, JOINT_NORMAL, LAPLACE, UNIFORM, LOG_FLAT, HALF_NORMAL, HALF_STUDENT_T,
    LOGIT_BETA, LKJ,
)  # fmt: skip
"""Kinds of prior whose logarithm is concave in theta."""
_PRIOR_DRAWS: Final = 2
_WIDE_DRAWS: Final = 2
_WIDE: Final = 10.0
"""Laplace standard deviations of the dispersed draws around the first mode."""
_LADDER: Final = (-4, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
"""Trial shifts of a log scale."""
UNFELT: Final = 1e4
"""Posterior standard deviations of a normal prior that is not felt."""
_ITERATIONS: Final = 50


def concave(model: Model, table: Matrix) -> bool:
    """Return whether the log posterior is concave: then it has one mode."""
    known = getattr(model, "log_concave", False)
    return bool(known and np.isin(table[:, KIND], CONCAVE).all())


def starting_points(
    model: Model,
    objective: Objective,
    heights: Callable[[Matrix], Vector],
    table: Matrix,
    first: Vector,
    factor: Matrix | None,
) -> Iterator[Vector]:
    """Yield starts of Newton's method other than ``first`` (d,).

    The mode of the likelihood alone; the locations of the prior, half-way to them, and draws
    from the prior, each with the scale parameters of highest density there; draws 10 Laplace
    standard deviations wide, where there is a ``factor``; ``first`` with its components in
    other orders, where the model has components.

    Parameters
    ----------
    model, objective, table
        The likelihood, of rows in memory, and the prior table.
    heights
        Their log posterior; see ``mode_mass.log_posteriors``.
    first, factor
        The first mode and its factor; without a mode, the first start and ``None``.
    """
    alone = without_prior(model, first, factor, table, objective)
    with suppress(ModelError):
        yield maximise(objective, first, alone, max_iterations=_ITERATIONS).theta
    rng = np.random.default_rng(0)
    located = prior_location(table, first)
    starts = [located, 0.5 * (first + located)]
    starts += [_drawn(table, first, rng) for _ in range(_PRIOR_DRAWS)]
    scales = log_scales(model, len(first))
    for start in starts:
        if not np.array_equal(start, first):
            yield matched(heights, start, scales)
    if factor is not None:
        for _ in range(_WIDE_DRAWS):
            yield first + _WIDE * (factor @ rng.standard_normal(len(first)))
    relabelled = list(getattr(model, "relabelled", _no_relabelling)(first))
    height, *others = heights(np.array([first, *relabelled]))
    for other, found in zip(relabelled, others, strict=True):
        # The same height means that only the labels differ: no mode of its own.
        if abs(found - height) > 1e-8 * (1.0 + abs(height)):
            yield other


def without_prior(
    model: Model, theta: Vector, factor: Matrix | None, table: Matrix, likelihood: Objective
) -> Matrix:
    """Return the prior table with normal priors too wide to affect the likelihood.

    They are centred at ``theta``, and 10^4 times as wide as the posterior, by its ``factor``,
    and as the likelihood. Shape parameters, such as degrees of freedom, keep their priors:
    the likelihood may have no maximum in them.
    """
    curved = np.maximum(-np.diag(likelihood(theta)[2]), 0.0)
    sd = 1.0 / np.sqrt(np.where(curved > 0.0, curved, np.inf))
    if factor is not None:
        sd = np.maximum(sd, np.sqrt(np.sum(factor**2, axis=1)))
    kept = log_scales(model, len(table))
    if getattr(model, "location_scale", False):
        kept = kept[1:]
    out = table.copy()
    free = np.setdiff1d(np.flatnonzero(sd > 0.0), kept)
    rows = [normal(UNFELT * sd[j], location=theta[j]).table(("",))[0] for j in free]
    put(out, free, np.reshape(rows, (-1, COLUMNS)))
    return out


def matched(heights: Callable[[Matrix], Vector], theta: Vector, scales: Index) -> Vector:
    """Return ``theta`` with each scale parameter, in turn, at its best value on a grid."""
    best = theta.copy()
    for j in scales:
        trials = np.tile(best, (len(_LADDER), 1))
        trials[:, j] += _LADDER
        best = trials[int(np.argmax(heights(trials)))]
    return best


def log_scales(model: Model, d: int) -> Index:
    """Return the positions in theta of the parameters that are sampled as their logarithms.

    The scales of factors are not among them: the search keeps these as they were estimated.
    """
    at_zero, at_one = (model.constrain(np.full(d, at)) for at in (0.0, 1.0))
    found = np.flatnonzero((at_zero > 0.0) & np.isclose(at_one, math.e * at_zero))
    return np.setdiff1d(found, [block.scale for block in getattr(model, "factors", ())])


def _no_relabelling(theta: Vector) -> Sequence[Vector]:
    return ()


def prior_location(table: Matrix, first: Vector) -> Vector:
    """Return the locations of the priors that have one, and ``first`` elsewhere."""
    out = first.copy()
    has = np.isin(table[:, KIND], (NORMAL, JOINT_NORMAL, STUDENT_T, LAPLACE, LKJ))
    out[has] = table[has, LOCATION]
    between = table[:, KIND] == UNIFORM
    out[between] = 0.5 * (table[between, LOCATION] + table[between, SHAPE])
    return out


def _drawn(table: Matrix, first: Vector, rng: np.random.Generator) -> Vector:
    """Return a draw from the priors that have a location, and ``first`` elsewhere."""
    out = first.copy()
    joint, shifts = joint_normal(table, rng.standard_normal((1, len(table))))
    out[joint] = shifts[0]
    for j, row in enumerate(table):
        if row[KIND] == NORMAL:
            out[j] = row[LOCATION] + row[SCALE] * rng.standard_normal()
        elif row[KIND] == STUDENT_T:
            out[j] = row[LOCATION] + row[SCALE] * rng.standard_t(row[SHAPE])
        elif row[KIND] == LAPLACE:
            out[j] = row[LOCATION] + row[SCALE] * rng.laplace()
        elif row[KIND] == UNIFORM:
            out[j] = rng.uniform(row[LOCATION], row[SHAPE])
    return out
