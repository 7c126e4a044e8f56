"""Coordinates in which a chain moves through group effects and their standard deviations.

The effects of a factor and its scale are nearly independent (:func:`level_coordinates`): an effect
``u ~ Normal(0, tau)`` is sampled as ``tau^-a u``, with ``a = 1 / (1 + tau_low^2 I)`` and ``I`` the
information of the likelihood about the effect at ``theta_star``: as it is where the data decide
about it, and as a standard normal variate where the prior does. ``tau_low`` is two standard
deviations of ``log tau`` below its estimate: a chain that goes to small scales stays there for long
if its effects are not in proportion, while large scales are bounded by the data. The exponent is
fixed before the first draw, so that any value leaves the target as it is
(``numerics.effect_positions``).

A chain goes to the tails of scale parameters of few groups or few rows (:func:`group_coordinates`).
What ``lines`` and ``spreads`` are is in ``numerics.effect_positions``. Both are fixed before the
first draw, so that any value leaves the target as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.linalg import eigh

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode.newton import in_memory, level_columns
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.models.mixed.effect_terms import is_table_model
from streammc.numerics.prior import EFFECT, KIND, LOCATION, prior_curvature, prior_precision, smooth
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

if TYPE_CHECKING:
    from streammc.models.mixed.mixed_model import TableModel


_BELOW: Final = 2.0
"""Standard deviations of a log scale below its estimate. With 0 the draws of a scale near 0 are
worth half as many, and those of its tail a quarter (``bench/factor_coordinates.py``)."""


def level_coordinates(table: Matrix, cv: ControlVariates) -> Matrix:
    """Return (L, 3) component of each effect, component of its log scale, and its exponent a.

    ``table`` (d, 5) is the prior of the model.
    """
    at = np.flatnonzero(table[:, KIND] == EFFECT)
    owners = table[at, LOCATION].astype(np.int64)
    information = np.maximum(-np.diag(cv.hessian)[at], 0.0)
    sd = np.sqrt(np.sum(cv.factor[owners] ** 2, axis=1))
    log_low = cv.theta_star[owners] - _BELOW * sd
    exponent = 1.0 / (1.0 + np.exp(2.0 * log_low) * information)
    return np.ascontiguousarray(np.stack([at, owners, exponent], axis=1), np.float64)


def stretched(levels: Matrix, theta_star: Vector, shifts: Matrix) -> tuple[Matrix, Vector]:
    """Return shifts (S, d) from ``theta_star`` with stretched effects, and log Jacobians (S,)."""
    if not len(levels):
        return shifts, np.zeros(len(shifts))
    effects, owners = levels[:, :2].astype(np.int64).T
    log_factor = levels[:, 2] * shifts[:, owners]
    out = shifts.copy()
    with np.errstate(over="ignore"):
        stretched_effects = np.exp(log_factor) * (theta_star[effects] + shifts[:, effects])
    out[:, effects] = stretched_effects - theta_star[effects]
    return out, log_factor.sum(axis=1)


_EVEN: Final = 8.0
"""Fall of the log density from the mode to ``tau = 0`` below which positions are around 0."""
_FAR: Final = 60.0
"""Fall from which on positions are ``log tau``: no chain comes near 0."""
_REACH: Final = 3.0
"""Standard deviations of ``log tau`` over which the spread of coefficients is looked at."""
_STEADY: Final = 0.3
"""Largest change of the log spread, over that reach, of coefficients that are not stretched."""
_RANK: Final = 1e-10
_FEW_ROWS: Final = 1000
"""More rows say so much of a scale that no spread varies with it."""
_NOISE: Final = 1e-6
"""``c^2`` over ``tau^2`` at the mode where the variance given ``tau`` falls to 0 with it."""


class GroupCoordinates(NamedTuple):
    """Coordinates of the parameters of group effects, and of coefficients beside them."""

    lines: Matrix
    """(s, 3) standard deviations on the real line."""
    around: Matrix
    """(s, 2) centre of each, 0 or its mode, and its scale around 0."""
    spreads: Matrix
    """(r, 5 + 2 d) directions of coefficients that vary in proportion to one."""


@single_threaded()  # the same bits on any number of cores
def group_coordinates(dataset: Dataset, model: Model, cv: ControlVariates) -> GroupCoordinates:
    """Return the coordinates; empty where there are more modes.

    A standard deviation of group effects is on the real line unless its density falls too far from
    the mode to 0. Coefficients are stretched along directions in which their standard deviation
    changes by 30 % over three standard deviations of the logarithm of a scale.
    """
    d = len(cv.theta_star)
    none = GroupCoordinates(np.zeros((0, 3)), np.zeros((0, 2)), np.zeros((0, 5 + 2 * d)))
    if cv.certificate.modes:
        return none
    if not is_table_model(model):
        return none._replace(spreads=_spreads_of_few_rows(dataset, model, cv))
    from streammc.models.mixed.mixed_model import typical_noise

    groups = draw_subset(dataset, SUBSET_BYTES)
    rows, group = model.rows_of(groups.X)
    noise = cv.noise if len(cv.noise) else typical_noise(model, rows, group, cv.theta_star)
    if not len(noise):
        return none
    effects, first = len(model.effects), d - model.n_covariance
    log_tau = cv.theta_star[first : first + effects]
    sd = np.sqrt(np.sum(cv.factor[first : first + effects] ** 2, axis=1))
    lines, around = [], []
    for k in range(effects):
        fall = _fall_to_zero(log_tau[k], sd[k], noise[k])
        if fall < _FAR:
            unit = math.sqrt(noise[k])
            at = math.asinh(math.exp(log_tau[k]) / unit)
            lines.append([first + k, d - 1 if model.correlated else -1, unit])
            around.append([at if fall > _EVEN else 0.0, math.hypot(at, math.tanh(at) * sd[k])])
    return GroupCoordinates(
        np.array(lines, dtype=np.float64).reshape(-1, 3),
        np.array(around, dtype=np.float64).reshape(-1, 2),
        _spreads(model, rows, group, dataset.n_rows, cv),
    )


def _spreads(
    model: TableModel, rows: Rows, group: Index, n_groups: int, cv: ControlVariates
) -> Matrix:
    """Return the directions of coefficients, see ``numerics.effect_positions``.

    Given the standard deviations, the precision of the coefficients is ``X'W X - sum_g B_g' (I_g +
    Sigma^-1)^-1 B_g`` and that of their prior, with ``I_g = Z'W Z`` and ``B_g = Z'W X`` of a group.
    Its directions are those of what it loses as one standard deviation goes from 0 to infinity,
    the other one at its mode.
    """
    from streammc.models.mixed.mixed_model import row_curvature

    theta, d = cv.theta_star, len(cv.theta_star)
    effects, first = len(model.effects), d - model.n_covariance
    carriers = [np.ones(len(rows.y))]
    if model.slope is not None:
        carriers.append(rows.X[:, model.features.index(model.slope)])
    curve = np.maximum(row_curvature(model, rows, theta), 0.0)
    curve *= n_groups / (int(group.max()) + 1)
    table = np.ascontiguousarray(model.prior_table(cv.labels))
    curvature = np.empty(d)
    prior_curvature(theta, smooth(table), curvature)
    informed = (rows.X**2).T @ curve > 0.0
    used = np.flatnonzero(informed & (table[: model.n_features, KIND] != EFFECT))
    X = rows.X[:, used]
    if not len(used):
        return np.zeros((0, 5 + 2 * d))
    known = X.T @ (curve[:, None] * X) + np.diag(curvature[used])

    def total(values: Vector) -> Vector:
        return np.bincount(group, curve * values).astype(np.float64)

    information = np.array([[total(a * b) for b in carriers] for a in carriers])
    pulls = np.array([[total(a * column) for column in X.T] for a in carriers])
    rho = math.tanh(theta[-1]) if model.correlated else 0.0

    def precision(inverse: Vector) -> Matrix:
        """Return the precision of coefficients for ``1 / tau`` of each effect."""
        here = np.flatnonzero(inverse < math.inf)
        if not len(here):
            return known
        inner = np.array(information[np.ix_(here, here)])
        turn = np.eye(2) if rho == 0.0 else np.linalg.inv([[1.0, rho], [rho, 1.0]])
        turn = turn[:2, :2] if len(here) == 2 else np.eye(1)
        inner += (turn[: len(here), : len(here)] * np.outer(inverse[here], inverse[here]))[
            ..., None
        ]
        solved = np.linalg.solve(
            np.moveaxis(inner, -1, 0) + 1e-300, np.moveaxis(pulls[here], -1, 0)
        )
        remaining: Matrix = known - np.einsum("kag,gkb->ab", pulls[here], solved)
        return remaining

    at_mode = np.exp(-theta[first : first + effects])
    spreads = []
    for k in range(effects):
        ends = [at_mode.copy() for _ in range(2)]
        ends[0][k], ends[1][k] = math.inf, 0.0
        most, least = precision(ends[0]), precision(ends[1])
        log_tau, sd = theta[first + k], math.sqrt(np.sum(cv.factor[first + k] ** 2))
        for share, e, w in _directions(most, most - least):
            lost = float(e @ (most - precision(at_mode)) @ e) / share
            noise = math.exp(2.0 * log_tau) * (1.0 / min(max(lost, _RANK), 1.0 - _RANK) - 1.0)
            row = np.zeros(5 + 2 * d)
            row[:3], row[-1] = (first + k, share, noise), 1.0
            row[4 + used], row[4 + d + used] = e, w
            if _varies(row, log_tau, sd):
                spreads.append(row)
    return np.array(spreads, dtype=np.float64).reshape(-1, 5 + 2 * d)


def _spreads_of_few_rows(dataset: Dataset, model: Model, cv: ControlVariates) -> Matrix:
    """Return the same for the parameters that all rows share, such as sigma or a shape.

    Given one, the information of the rows on coefficients is that at the mode times a power of it,
    which is measured one standard deviation to both sides, beside that of their prior.
    """
    theta, d = cv.theta_star, len(cv.theta_star)
    coefficients = d - model.n_scalar
    sd = np.sqrt(np.sum(cv.factor[coefficients:] ** 2, axis=1))
    if dataset.n_rows > _FEW_ROWS or not len(sd) or not coefficients:
        return np.zeros((0, 5 + 2 * d))
    rows = draw_subset(dataset, SUBSET_BYTES)
    likelihood = in_memory(model, rows, 1.0, level_columns(dataset, model))

    def information(at: Vector) -> Matrix:
        return -likelihood(at)[2][:coefficients, :coefficients]

    known = information(theta)
    table = np.ascontiguousarray(model.prior_table(cv.labels))
    total = known + prior_precision(theta, table)[:coefficients, :coefficients]
    spreads = []
    for k in range(coefficients, d):
        step = np.zeros(d)
        step[k] = sd[k - coefficients]
        more, less = information(theta + step), information(theta - step)
        for share, e, w in _directions(total, known):
            above, below = e @ more @ e, e @ less @ e
            if share < _RANK or not (above > 0.0 and below > 0.0):
                continue
            power = -math.log(above / below) / (4.0 * step[k])
            row = np.zeros(5 + 2 * d)
            noise = _NOISE * math.exp(2.0 * power * theta[k])
            row[:3], row[-1] = (k, 1.0 - _NOISE * (1.0 - share) / share, noise), power
            row[4 : 4 + coefficients], row[4 + d : 4 + d + coefficients] = e, w
            if _varies(row, theta[k], step[k]):
                spreads.append(row)
    return np.array(spreads, dtype=np.float64).reshape(-1, 5 + 2 * d)


def _varies(row: Vector, at: float, sd: float) -> bool:
    """Scale a row of ``spreads`` to 1 at the mode; return whether its spread varies by much."""
    low, middle, high = (_log_spread(row, at + t * sd) for t in (-_REACH, 0.0, _REACH))
    row[3] = middle
    return max(abs(high - middle), abs(middle - low)) > _STEADY


def _fall_to_zero(log_tau: float, sd: float, noise: float) -> float:
    """Return by how much the log density of ``tau`` falls from the mode of ``log tau`` to 0.

    In the marginal precision P of the effects it is nearly ``a log P - b P``: exactly so if the
    effects of all groups are seen with one noise. Its derivatives in ``log tau`` are -1, by the
    Jacobian, and ``-1 / sd^2``, the other parameters at their best.
    """
    square = math.exp(2.0 * log_tau)
    precision = 1.0 / (square + noise)
    slope = -2.0 * square * precision**2
    gradient = -1.0 / slope
    curve = (-1.0 / sd**2 - gradient * (2.0 - 4.0 * square * precision) * slope) / slope**2
    a = max(-curve * precision**2, 0.0)
    ratio = 1.0 + square / noise
    return (a - gradient * precision) * (ratio - 1.0) - a * math.log(ratio)


def _directions(precision: Matrix, lost: Matrix) -> list[tuple[float, Vector, Vector]]:
    """Return shares of the precision that is lost along directions e, and w with ``w . e = 1``.

    ``e' precision e`` is 1.
    """
    size = np.sqrt(np.diag(precision))
    scaled = precision / size / size[:, None] + _RANK * np.eye(len(size))
    shares, vectors = eigh(lost / size / size[:, None], scaled)
    vectors /= size[:, None]
    weights = precision @ vectors
    weights /= np.einsum("aj,aj->j", weights, vectors)
    return [
        (float(min(share, 1.0 - _RANK)), e, w)
        for share, e, w in zip(shares, vectors.T, weights.T, strict=True)
        if share > _RANK
    ]


def _log_spread(row: Vector, log_scale: float) -> float:
    """Return ``log s(tau)`` before it is scaled, see ``numerics.effect_positions``."""
    square = math.exp(2.0 * row[-1] * log_scale)
    return 0.5 * math.log((row[2] + square) / (row[2] + (1.0 - row[1]) * square))
