"""What the prior decides: directions without information, its influence, a conflict.

Directions that only the prior determines are collinear columns and separation. Minus the Hessian,
scaled to a unit diagonal, has an eigenvalue of 0 for every combination of columns that is constant
0. Separation shows in the likelihood without the prior: it rises for ever as its coefficients grow,
and every step of Newton's method moves some predictor by about 1 (by 1 / eta under a probit link),
however many were made, while the curvature vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from streammc.control_variates.mode.modes import UNFELT, apart, normal_rows, without_prior
from streammc.control_variates.mode.newton import Objective, Point, maximise
from streammc.errors import ModelError
from streammc.models.base import StatedModel, wide
from streammc.numerics.prior import (
    HALF_NORMAL,
    JOINT_NORMAL,
    KIND,
    LOCATION,
    NORMAL,
    SCALE,
    log_prior,
    prior_precision,
    put,
    smooth,
)
from streammc.priors import NamedPriors
from streammc.priors.densities import CORRELATION, POSITIVE
from streammc.protocols import Index, Matrix, Model, Rows, Vector

LARGEST_SHARE: Final = 0.1
"""Part of the information on a parameter above which its prior is said to decide about it."""
LARGEST_SHIFT: Final = 0.25
"""Shift of a parameter by its prior, in posterior standard deviations, likewise."""
_NEARLY_ALL: Final = 0.9
"""Part of the information above which the rows are said to have no estimate."""
_FAR: Final = 20.0
"""Posterior standard deviations beyond which an estimate of the rows alone has run away."""


def prior_influence(
    model: Model,
    at: Point,
    table: Matrix,
    likelihood: Objective | None,
    labels: Sequence[str],
    units: Vector,
    weak: bool,
    row: str,
) -> tuple[list[str], list[str]]:
    """Return what default priors decide, a warning, and what priors that were given do, a note.

    With ``S S'`` the posterior covariance at ``theta_star`` and ``P`` the precision of the prior,
    the eigenvalues of ``S'PS`` are the parts of the information that the prior supplies in its
    directions, the generalised eigenvalues of both curvatures; ``S (1 - S'PS)^-1 S'`` is the
    covariance by the rows alone. A parameter is named where the prior supplies over a tenth of the
    information on it, and moves it by over 0.25 posterior standard deviations from where it is
    under a flat prior of the reported parameter.

    ``likelihood`` is that of all rows, whose mode is the estimate of the rows alone; ``None``: it
    is that of one Newton step. ``units`` (d,) are those of the table in those of the store, by
    which coefficients are divided. If directions that the prior alone decides about are named
    already (``weak``), parameters without an estimate of the rows alone are not named again.
    """
    flags = np.zeros(len(labels), np.int64)
    if isinstance(model, StatedModel):
        stated = model.support_flags(labels)
        flags[: len(stated)] = stated
    default = _are_defaults(model, labels, flags)
    # Of a flat prior of v = exp(theta), or of v = tanh(theta), the slope in theta: its Jacobian.
    flat = np.where(flags == CORRELATION, -2.0 * np.tanh(at.theta), flags == POSITIVE)
    slope = -flat
    log_prior(at.theta, smooth(table), slope)
    precision = prior_precision(at.theta, smooth(table))
    lines: list[list[str]] = []
    for own in (default, ~default):
        lines.append([])
        part, alone = _beside_rows(at, np.outer(own, own) * precision, np.where(own, slope, 0.0))
        sd = np.sqrt(np.sum(at.factor**2, axis=1))
        shift = np.abs(alone - at.theta) / sd
        named = np.flatnonzero((part > LARGEST_SHARE) & (shift > LARGEST_SHIFT))
        if len(named) and likelihood is not None:
            alone = _without(at, np.flatnonzero(own), table, flat, likelihood, alone)
        with np.errstate(invalid="ignore", over="ignore"):
            shift = np.abs(alone - at.theta) / sd
            gone = ~(shift < _FAR) | (part > _NEARLY_ALL)
            values = [model.constrain(theta) / units for theta in (at.theta, alone)]
        named = named[np.where(gone[named], not weak, shift[named] > LARGEST_SHIFT)]
        if not len(named):
            continue
        worst = named[int(np.argmax(np.where(gone[named], 0.0, shift[named]) + part[named]))]
        strong = np.zeros(len(labels))
        strong[named] = part[named]
        moved = f"moves it by {shift[worst]:.2g} sd, to {values[0][worst]:.3g} from "
        moved += f"{values[1][worst]:.3g}"
        if gone[worst]:
            moved = f"keeps it at {values[0][worst]:.3g}, where the {row}s alone have no estimate"
        lines[-1].append(
            f"{names_of(labels, strong)}: it supplies {part[worst]:.0%} of the information on "
            f"{labels[worst]}, and {moved}"
        )
    advice = "merge rare levels, leave columns out, or state the prior that you mean (--prior)"
    return (
        [f"the default prior decides about {line}; {advice}" for line in lines[0]],
        [f"the prior that was given decides about {line}" for line in lines[1]],
    )


def _beside_rows(at: Point, precision: Matrix, slope: Vector) -> tuple[Vector, Vector]:
    """Return the parts (d,) of a prior in the information, and the mode without it, to first order.

    ``precision`` and ``slope`` are those of the log prior density at ``theta_star``.
    """
    share, turned = np.linalg.eigh(at.factor.T @ precision @ at.factor)
    turned, rest = at.factor @ turned, np.maximum(1.0 - share, 1e-12)
    part = 1.0 - np.sum(turned**2, axis=1) / np.sum(turned**2 / rest, axis=1)
    return part, at.theta - turned @ ((turned.T @ slope) / rest)


def _without(
    at: Point, own: Index, table: Matrix, flat: Vector, likelihood: Objective, first: Vector
) -> Vector:
    """Return the mode (d,) without some of the priors, NaN where it is nowhere or anywhere.

    They become normal priors too wide to be felt, with the slope ``flat`` at ``theta_star``. Where
    no mode is found, it is the ``first``.
    """
    sd = np.sqrt(np.sum(at.factor**2, axis=1))
    wide, out = UNFELT * sd[own], table.copy()
    centre = at.theta[own] + flat[own] * wide**2
    put(out, own, normal_rows(centre, wide))
    with np.errstate(all="ignore"):  # it may run away
        try:
            free = maximise(likelihood, at.theta, out, max_iterations=_ITERATIONS)
        except ModelError:
            return first
    return np.where(np.sum(free.factor**2, axis=1) > (_FAR * sd) ** 2, np.nan, free.theta)


def _are_defaults(model: Model, labels: Sequence[str], flags: Index) -> NDArray[np.bool_]:
    """Return (d,) whether each prior is a default; of a prior for all, that of positive numbers."""
    prior = model.prior
    if not isinstance(prior, NamedPriors):
        return flags > 0
    each = prior.each(labels, list(flags))
    return np.array(
        [one is None or label in prior.scaled for label, one in zip(labels, each, strict=True)]
    )


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

    Either the mode of the likelihood alone, all parameters free, scales too, is more than 4 of its
    standard deviations from ``theta_star``, or ``theta_star`` is more than 4 standard deviations of
    a normal prior from its location. Where the likelihood has no mode only the second is tested.
    With a scale that is estimated from few rows the first limit is the Student t quantile of the
    same probability.

    ``subset`` is the mode of the rows in memory, ``at`` if these are all rows, ``None`` if it is
    not computed; ``likelihood`` is theirs, scaled to all rows, whose weight is ``total_weight``.
    ``start`` (d,) of Newton's method does not depend on the prior.
    """
    if subset is not None and not model.multimodal:
        lines = _pull(model, subset, start, table, likelihood, labels, total_weight)
        if lines:
            return lines
    distance = np.zeros(len(table))
    is_normal = np.isin(table[:, KIND], (NORMAL, JOINT_NORMAL))
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
    if model.location_scale:
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
    here, without = model.constrain(at.theta)[worst], model.constrain(free.theta)[worst]
    return [
        f"the prior is in conflict with the likelihood: it moves {names_of(labels, pull)} by up to "
        f"{pull[worst]:.3g} standard deviations of the likelihood ({labels[worst]} to {here:.4g} "
        f"from {without:.4g}): give a wider prior, in the units of the response (--prior, "
        "--prior-scale)"
    ]


LARGEST_DIMENSION = 2000
"""Above it the eigenvalues would cost more than the pass."""
SMALLEST_EIGENVALUE = 1e-10
LARGEST_MOVE = 0.5
"""Move of a linear predictor by a step of Newton's method that has not converged."""
_SLOW_MOVE = 0.05
_VANISHED = 10.0
"""Standard deviation of a predictor of which the rows say nothing: a slow move is one too."""
_WIDEST = 64
_STEPS = 8
_SHOWN = 4


def weak_directions(
    sums: tuple[float, Vector, Matrix],
    theta: Vector,
    sd: Vector,
    labels: Sequence[str],
    likelihood: Objective,
    rows: Sequence[Rows],
    model: Model | None,
) -> list[str]:
    """Return one warning for each kind of direction that only the prior determines.

    ``sums`` are log-likelihood, gradient (d,) and Hessian (d, d) of all rows at the mode ``theta``,
    ``likelihood`` that of the rows in memory, scaled to all rows. The linear predictors of ``rows``
    are checked, those of ``model``; ``None`` where columns are not the cause.
    """
    if len(theta) > LARGEST_DIMENSION:
        return []
    lines = []
    scale = np.sqrt(np.maximum(-np.diag(sums[2]), 0.0))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(-sums[2] / scale / scale[:, None])
    known = values > SMALLEST_EIGENVALUE
    flat = np.abs(values) <= SMALLEST_EIGENVALUE
    if flat.any():
        why = "collinear or constant columns: " if model is not None and model.n_linear else ""
        lines.append(
            f"{why}the likelihood has rank {int((~flat).sum())} of {len(theta)}, and the prior "
            f"alone decides about {names_of(labels, np.abs(vectors[:, flat]).max(axis=1))}"
        )
    shares = vectors[:, known]
    step = shares @ ((shares.T @ (sums[1] / scale)) / values[known]) / scale
    if largest_move(rows, step, model)[0] <= _SLOW_MOVE:
        return lines
    # Too wide to affect a few steps; without this prior the curvature might be singular.
    wide_prior = normal_rows(theta, 1e4 * sd)
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            alone = maximise(likelihood, theta, wide_prior, max_iterations=_STEPS)
        except ModelError:
            return lines
    step = alone.step
    if runs_away(rows, alone, model):
        lines.append(
            "separation: some combination of columns tells the response (almost) exactly, and "
            f"the prior alone keeps {names_of(labels, np.abs(step) / sd)} from running away"
        )
    return lines


def runs_away(rows: Sequence[Rows], at: Point, model: Model | None) -> bool:
    """Return whether the next step of Newton's method still moves the predictor of a row."""
    largest, sd = largest_move(rows, at.step, model, at.factor)
    return largest > LARGEST_MOVE or (largest > _SLOW_MOVE and sd > _VANISHED)


def largest_move(
    rows: Sequence[Rows], step: Vector, model: Model | None, factor: Matrix | None = None
) -> tuple[float, float]:
    """Return the largest move of a linear predictor by ``step``, over rows of some weight.

    With ``factor`` also the largest standard deviation of the predictors that move most, else 0.
    """
    largest = widest = 0.0
    if model is None:
        return largest, widest
    for some in rows:
        X = some.X[some.weight > 0.0]
        q = X.shape[1]
        steps = wide(model, step, q)
        factors = None if factor is None else wide(model, factor.T, q).T
        for a in range(model.n_linear):
            own = slice(a * q, (a + 1) * q)
            moved = np.abs(X @ steps[own])
            largest = max(largest, float(moved.max(initial=0.0)))
            if factors is not None and len(moved):
                most = np.argsort(-moved, kind="stable")[:_WIDEST]
                sd = np.linalg.norm(X[most] @ factors[own], axis=1)
                widest = max(widest, float(sd[moved[most] > _SLOW_MOVE].max(initial=0.0)))
    return largest, widest


def unchecked(dim: int, by_passes: bool) -> list[str]:
    """Return a warning that names the checks that ``dim`` parameters do not allow.

    ``by_passes``: full passes made all Newton steps, since rows in memory were too few.
    """
    if dim <= LARGEST_DIMENSION and not by_passes:
        return []
    rank = "collinear columns, separation and " if dim > LARGEST_DIMENSION else ""
    return [
        f"{dim:,} parameters are too many to look for {rank}a prior in conflict with the "
        "likelihood: merge the rare levels of factors, or leave columns out, to have that looked "
        "for"
    ]


def names_of(labels: Sequence[str], loading: Vector) -> str:
    """Return the labels with the largest loadings in the direction, the largest first."""
    order = np.argsort(-loading, kind="stable")
    strong = [labels[j] for j in order if loading[j] >= 0.1 * loading.max()]
    more = f" and {len(strong) - _SHOWN} more" if len(strong) > _SHOWN else ""
    return ", ".join(strong[:_SHOWN]) + more
