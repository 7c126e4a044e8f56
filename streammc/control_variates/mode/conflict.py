"""Test for a conflict of prior and likelihood at the posterior mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import ndtr, stdtrit

from streammc.control_variates.mode.modes import apart
from streammc.control_variates.mode.newton import Objective, Point, maximise
from streammc.control_variates.mode.starts import without_prior
from streammc.control_variates.mode.weak_directions import names_of
from streammc.errors import ModelError
from streammc.numerics.prior import HALF_NORMAL, KIND, LOCATION, NORMAL, SCALE, log_prior, smooth
from streammc.protocols import Matrix, Model, Vector

LARGEST_PULL: Final = 4.0
"""Largest distance without a warning, in standard deviations of likelihood or prior."""
_LEAST_PULL: Final = 0.5
"""Shift of the mode by the prior, to first order, in posterior standard deviations. Below it,
and close to the start, the mode of the likelihood is not computed."""
_ITERATIONS: Final = 60
_SETTLED: Final = 0.1


def prior_conflict(
    model: Model,
    at: Point,
    subset: Point | None,
    start: Vector,
    table: Matrix,
    likelihood: Objective,
    labels: Sequence[str],
    total_weight: float,
) -> list[str]:
    """Return a warning if prior and likelihood place a parameter far apart.

    Either the mode of the likelihood alone, all parameters free, scales too, is more than
    4 of its standard deviations from ``theta_star``, or ``theta_star`` is more than 4
    standard deviations of a normal prior from its location. Where the likelihood has no
    mode only the second is tested. With a scale that is estimated from few rows the first
    limit is the Student t quantile of the same probability.

    Parameters
    ----------
    model
        The model; ``location_scale`` says whether the width of the likelihood is estimated.
    at
        ``theta_star``, with the factor of the posterior there.
    subset
        Mode of the rows in memory; ``at`` if these are all rows; ``None`` if not computed.
    start
        (d,) start of Newton's method, which does not depend on the prior.
    table
        (d, 5) prior.
    likelihood
        Log-likelihood of the rows in memory, scaled to all rows.
    labels
        Names (d,).
    total_weight
        Total weight of all rows.
    """
    if subset is not None and not getattr(model, "multimodal", False):
        lines = _pull(model, subset, start, table, likelihood, labels, total_weight)
        if lines:
            return lines
    distance = np.zeros(len(table))
    is_normal = table[:, KIND] == NORMAL
    distance[is_normal] = ((at.theta - table[:, LOCATION])[is_normal]) / table[is_normal, SCALE]
    half = table[:, KIND] == HALF_NORMAL
    distance[half] = np.exp(np.minimum((at.theta - table[:, LOCATION])[half], 700.0))
    worst = int(np.argmax(np.abs(distance)))
    if abs(distance[worst]) <= LARGEST_PULL:
        return []
    value = model.constrain(at.theta)[worst]
    return [
        f"the prior is in conflict with the data: theta_star has {labels[worst]} at {value:.3g}, "
        f"{abs(distance[worst]):.3g} prior standard deviations from where its prior is centred "
        f"({names_of(labels, np.abs(distance))}): give a wider prior, in the units of the response "
        "(--prior, --prior-scale)"
    ]


def _pull(
    model: Model,
    at: Point,
    start: Vector,
    table: Matrix,
    likelihood: Objective,
    labels: Sequence[str],
    total_weight: float,
) -> list[str]:
    """Return a warning if the mode of the likelihood of rows in memory is far from ``at``."""
    slope = np.zeros_like(at.theta)
    log_prior(at.theta, smooth(table), slope)
    near = np.linalg.norm(at.factor.T @ slope) <= _LEAST_PULL
    if near and apart(start, at) <= LARGEST_PULL:
        return []
    free_table = without_prior(model, at.theta, at.factor, table, likelihood)
    with np.errstate(all="ignore"):
        try:
            free = maximise(likelihood, start, free_table, max_iterations=_ITERATIONS)
        except ModelError:
            return []
    if not free.decrement < _SETTLED:
        return []
    limit = LARGEST_PULL
    if getattr(model, "location_scale", False):
        residual_df = total_weight - (len(table) - model.n_scalar)
        if residual_df < 1.0:
            return []
        limit = -float(stdtrit(residual_df, ndtr(-LARGEST_PULL))) * math.sqrt(
            total_weight / residual_df
        )
    pull = np.abs(free.theta - at.theta) / np.sqrt(np.sum(free.factor**2, axis=1))
    worst = int(np.argmax(pull))
    if not pull[worst] > limit:
        return []
    here, there = model.constrain(at.theta)[worst], model.constrain(free.theta)[worst]
    return [
        f"the prior is in conflict with the likelihood: it moves {names_of(labels, pull)} by up to "
        f"{pull[worst]:.3g} standard deviations of the likelihood ({labels[worst]} to {here:.4g} "
        f"from {there:.4g}): give a wider prior, in the units of the response (--prior, "
        "--prior-scale)"
    ]
