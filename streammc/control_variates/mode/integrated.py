"""Expansion point for a response that can be fitted without error: the scale integrated out.

With ``r`` the rank of the design and ``W`` the total weight of the rows, the density of
``(beta, log sigma)`` grows as ``sigma^-W`` towards an exact fit, and there is no joint mode.
Integrated over ``beta`` it goes as ``sigma^(a + r - W)``, ``a`` the power of the prior of
``sigma`` at 0: a proper posterior where ``a + r > W``, and no posterior elsewhere.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streammc.control_variates.mode.mode_mass import laplace_evidence
from streammc.control_variates.mode.newton import Objective, Point, flat_message, maximise
from streammc.control_variates.mode.starts import log_scales, prior_location
from streammc.errors import ModelError
from streammc.numerics.prior import (
    GAMMA,
    HALF_NORMAL,
    HALF_STUDENT_T,
    KIND,
    LOCATION,
    LOG_FLAT,
    LOG_UNIFORM,
    SHAPE,
    log_prior,
    part_of,
    smooth,
)
from streammc.protocols import Index, Matrix, Model, Rows, Vector

_EXACT: Final = 1e-12
"""Largest residual, relative to the response, of a fit without error."""
_GRID: Final = np.linspace(-12.0, 6.0, 49)
"""Grid of log scales, relative to the residuals about the prior's location."""
_ITERATIONS: Final = 100


def exact_fit(model: Model, rows: Rows) -> tuple[int, float] | None:
    """Return rank and total weight of rows whose response can be fitted without error.

    ``None`` where it cannot, and for models whose scale is not that of residuals.
    """
    if not getattr(model, "location_scale", False):
        return None
    used = rows.weight > 0.0
    X, target = rows.X[used], rows.y[used] - rows.offset[used]
    if not len(target):
        return None
    size = np.sqrt(np.einsum("ij,ij->j", X, X))
    X = X / np.where(size > 0.0, size, 1.0)
    largest = float(np.abs(target).max())
    if len(X) > 2 * X.shape[1]:  # cheaper, and enough to see that a fit has an error
        beta = np.linalg.lstsq(X.T @ X, X.T @ target, rcond=1e-12)[0]
        if np.abs(target - X @ beta).max() > 1e-6 * largest:
            return None
    beta, _, rank, _ = np.linalg.lstsq(X, target, rcond=1e-10)
    beta = beta + np.linalg.lstsq(X, target - X @ beta, rcond=1e-10)[0]
    if np.abs(target - X @ beta).max() > _EXACT * largest:
        return None
    return int(rank), float(rows.weight[used].sum())


def power_at_zero(row: Vector) -> float:
    """Return ``a`` of a prior whose density in the scale goes as ``sigma^(a - 1)`` at 0."""
    if row[KIND] == GAMMA:
        return float(row[SHAPE])
    vanishing = row[KIND] == LOG_UNIFORM and row[LOCATION] > -math.inf
    smooth_there = row[KIND] in (HALF_NORMAL, HALF_STUDENT_T, LOG_FLAT, LOG_UNIFORM)
    return 1.0 if smooth_there and not vanishing else math.inf


def integrated_point(
    model: Model, rows: Rows, table: Matrix, objective: Objective, labels: tuple[str, ...]
) -> Point | None:
    """Return a centre if an exact fit leaves no joint mode; ``None`` if there is a joint mode.

    For every scale on a grid, the other parameters are put at their mode, and Laplace's
    formula (exact for a Gaussian with normal priors) gives the marginal density. The centre
    is at the scale with the highest density. Its factor is block diagonal: the factor of the
    other parameters given the scale, and the standard deviation of the log scale.

    Raises
    ------
    ModelError
        If the posterior is improper, or has no mode given any scale.
    """
    fit = exact_fit(model, rows)
    if fit is None:
        return None
    rank, total = fit
    j = int(log_scales(model, len(table))[0])
    power = power_at_zero(table[j])
    if power + rank <= total:
        raise ModelError(
            f"expected a response that the columns do not fit without error, found residuals of "
            f"0 in rows of total weight {total:.6g} for {rank} independent columns: the posterior "
            f"is improper at {labels[j]} = 0; give {labels[j]} a prior that vanishes there "
            f"(--prior '{labels[j]}=inverse_gamma(2, 1)')"
        )
    if power == math.inf:
        return None
    centre = prior_location(table, np.zeros(len(table)))
    k = model.n_linear * rows.X.shape[1]
    used = rows.weight > 0.0
    residual = rows.y[used] - rows.offset[used] - rows.X[used] @ centre[:k]
    spread = max(
        float(np.sqrt(np.mean(residual * residual))), 1e-6 * float(np.abs(rows.y).max()), 1e-300
    )
    others = np.delete(np.arange(len(table)), j)
    theta, points, density = model.start(rows), [], []
    for log_scale in (math.log(spread) + _GRID)[::-1]:
        theta[j] = log_scale
        point = _given(objective, theta, table, others)
        if point is None:
            continue
        theta[others] = point.theta
        own = np.array([log_scale])
        height = log_prior(own, smooth(table[j : j + 1]), np.zeros(1))
        points.append((log_scale, point))
        density.append(laplace_evidence(point) + height)
    if not points or not np.isfinite(np.max(density)):
        raise ModelError(flat_message(table))
    logs = np.array([log_scale for log_scale, _ in points])
    mass = np.exp(np.array(density) - np.max(density))
    mean = float(mass @ logs / mass.sum())
    sd = math.sqrt(max(float(mass @ (logs - mean) ** 2 / mass.sum()), 1e-4))
    log_scale, given = points[int(np.argmax(density))]
    theta[others], theta[j] = given.theta, log_scale
    factor = np.zeros((len(table), len(table)))
    factor[np.ix_(others, others)] = given.factor
    factor[j, j] = sd
    height = objective(theta)[0] + log_prior(theta, smooth(table), np.zeros_like(theta))
    return Point(theta, float(height), factor, np.zeros_like(theta), 0.0)


def _given(objective: Objective, theta: Vector, table: Matrix, others: Index) -> Point | None:
    """Return the mode of the ``others`` with the rest of ``theta`` fixed, or None without one."""

    def part(free: Vector) -> tuple[float, Vector, Matrix]:
        whole = theta.copy()
        whole[others] = free
        value, gradient, hessian = objective(whole)
        return value, gradient[others], hessian[np.ix_(others, others)]

    try:
        return maximise(part, theta[others], part_of(table, others), max_iterations=_ITERATIONS)
    except ModelError:
        return None
