"""Responses that can be fitted without error: refused, or expanded with the scale integrated out.

With ``r`` the rank of the design and ``W`` the total weight of the rows, the density of
``(beta, log sigma)`` grows as ``sigma^-W`` towards an exact fit, and there is no joint mode.
Integrated over ``beta`` it goes as ``sigma^(a + r - W)``, ``a`` the power of the prior of
``sigma`` at 0: a proper posterior where ``a + r > W``, and no posterior elsewhere. Effects of
groups count as columns: they fit a response that is constant within the groups. The same holds of
a ``residual_scale``, as ``sigma = shape^(-1 / 2)`` of a gamma response, with the response on the
scale of the predictor. The density of a Student t grows like that where most of the rows are equal
in their groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.control_variates.mode.modes import laplace_evidence, log_scales, prior_location
from streammc.control_variates.mode.newton import Objective, Point, flat_message, maximise
from streammc.errors import ModelError
from streammc.models.base import ResidualScale
from streammc.models.mixed.effect_terms import is_table_model
from streammc.numerics.prior import (
    GAMMA,
    HALF_NORMAL,
    HALF_STUDENT_T,
    INVERSE_GAMMA,
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
_EXACT_OF_SINGLE: Final = 1e-6
"""The same by columns in single precision, relative to the variation of the response."""
_GRID: Final = np.linspace(-12.0, 6.0, 49)
"""Grid of log scales, relative to the residuals about the prior's location."""
_ITERATIONS: Final = 100
_LEAST_DF: Final = 1.0
"""Degrees of freedom of a Student t, where they are sampled, for which there has to be a posterior:
below it rows that are equal by rounding would leave none."""


class ExactFit(NamedTuple):
    """Rows whose responses are fitted without error, and by how many columns."""

    rank: int
    total: float
    """Weight of these rows."""
    missed: float = 0.0
    """Weight of rows that are not fitted."""


def exact_fit(model: Model, rows: Rows) -> ExactFit | None:
    """Return how the responses are fitted without error, by columns and effects of groups.

    ``None`` where they are not, and for models without a scale of residuals.
    """
    inner: Any = model.of_a_row
    scale = _residual_scale(inner)
    if scale is None:
        return None
    group = np.zeros(len(rows.y), dtype=np.int64)
    slope = None
    if is_table_model(model):
        rows, group = model.rows_of(rows.X)
        slope = None if model.slope is None else rows.X[:, model.features.index(model.slope)]
    used = rows.weight > 0.0
    late = used & (rows.y < 0.0) & inner.censored
    if inner.censored:
        used &= rows.y > 0.0  # a time that is censored has no density, but a probability
    X, offset, group, weight = rows.X[used], rows.offset[used], group[used], rows.weight[used]
    with np.errstate(invalid="ignore", divide="ignore"):
        target = scale.transform(rows.y[used]) - offset
    if not len(target) or not np.isfinite(target).all():
        return None
    total, largest = float(weight.sum()), float(np.abs(target).max())
    varied = float(np.abs(target - target.mean()).max())
    if inner.heavy_tailed:
        of_equal = _equal_in_groups(target, group, weight, largest, is_table_model(model))
        if of_equal is not None:
            return of_equal
    absorbed, before = 0, np.sqrt(np.einsum("ij,ij->j", X, X))
    if is_table_model(model):
        carriers = [np.ones(len(target))] + ([] if slope is None else [slope[used]])
        absorbed, (target, *columns) = _without_effects([target, *X.T], carriers, group)
        X = np.stack(columns, axis=1)
    size = np.sqrt(np.einsum("ij,ij->j", X, X))
    X = X / np.where(size > 1e-10 * before, size, np.inf)  # what effects fit is rounding here
    if len(X) > 2 * X.shape[1]:  # cheaper, and enough to see that a fit has an error
        beta = np.linalg.lstsq(X.T @ X, X.T @ target, rcond=1e-12)[0]
        if np.abs(target - X @ beta).max() > 1e-6 * largest:
            return None
    beta, _, rank, _ = np.linalg.lstsq(X, target, rcond=1e-10)
    beta = beta + np.linalg.lstsq(X, target - X @ beta, rcond=1e-10)[0]
    rounding = _EXACT * largest
    if _single(rows.X[used]):
        rounding = max(rounding, _EXACT_OF_SINGLE * varied)
    if np.abs(target - X @ beta).max() > rounding:
        return None
    if late.any() and rank == X.shape[1] and not absorbed:  # after the fit its probability is 0
        after = scale.transform(-rows.y[late]) - rows.offset[late] - rows.X[late] / size @ beta
        if after.max() > rounding:
            return None
    return ExactFit(int(rank) + absorbed, total)


def _residual_scale(model: Any) -> ResidualScale | None:
    """Return the scale that an exact fit leaves to its prior; ``None``: there is none."""
    if model.location_scale:
        return ResidualScale("sigma", 1.0, np.asarray)
    found: ResidualScale | None = model.residual_scale
    return found


def _single(X: Matrix) -> bool:
    """Return whether some numbers have fractions, and all are those of single precision."""
    return bool((np.round(X) != X).any() and (X.astype(np.float32) == X).all())


def _without_effects(
    columns: list[Vector], carriers: list[Vector], group: Index
) -> tuple[int, list[Vector]]:
    """Return the rank of the effects of groups, and columns without what effects fit of them."""
    absorbed = 0
    done: list[Vector] = []
    for carrier in carriers:
        z = carrier
        for before in done:
            z = z - before * (_sums(before * z, group) / _sums(before * before, group))[group]
        square, own = _sums(z * z, group), _sums(carrier * carrier, group)
        varies = square > 1e-20 * own
        absorbed += int(np.count_nonzero(varies))
        z = np.where(varies[group], z, 0.0)
        over = np.where(varies, square, 1.0)
        columns = [each - z * (_sums(z * each, group) / over)[group] for each in columns]
        done.append(np.where(varies[group], z, 1e-300))
    return absorbed, columns


def _sums(values: Vector, group: Index) -> Vector:
    """Return the sum of each group."""
    return np.bincount(group, values).astype(np.float64)


def _equal_in_groups(
    target: Vector, group: Index, weight: Vector, largest: float, grouped: bool
) -> ExactFit | None:
    """Return how the most frequent value of each group fits the rows, if it fits more than half."""
    order = np.lexsort((target, group))
    value, of = target[order], group[order]
    new = np.r_[True, (np.abs(np.diff(value)) > _EXACT * largest) | (np.diff(of) != 0)]
    run = np.cumsum(new) - 1
    count = np.bincount(run, weight[order])
    best = np.zeros(int(group.max()) + 1)
    np.maximum.at(best, of[new], count)
    fitted, total = float(best[best > 0.0].sum()), float(weight.sum())
    rank = int(np.count_nonzero(best)) if grouped else 1
    fit = ExactFit(rank, fitted, total - fitted)
    return fit if fit.missed < fitted - rank and fitted < total else None


def power_at_zero(row: Vector) -> float:
    """Return ``a`` of a prior whose density in the scale goes as ``sigma^(a - 1)`` at 0."""
    if row[KIND] == GAMMA:
        return float(row[SHAPE])
    vanishing = row[KIND] == LOG_UNIFORM and row[LOCATION] > -math.inf
    smooth_there = row[KIND] in (HALF_NORMAL, HALF_STUDENT_T, LOG_FLAT, LOG_UNIFORM)
    return 1.0 if smooth_there and not vanishing else math.inf


def power_at_infinity(row: Vector) -> float:
    """Return ``a`` of a prior whose density in a shape goes as ``shape^(-a - 1)`` at infinity."""
    if row[KIND] in (HALF_STUDENT_T, INVERSE_GAMMA):
        return float(row[SHAPE])
    unbounded = row[KIND] == LOG_FLAT or (row[KIND] == LOG_UNIFORM and row[SHAPE] == math.inf)
    return -1.0 if unbounded else math.inf


def improper_scale(
    model: Model, rows: Rows, table: Matrix, labels: Sequence[str]
) -> tuple[ExactFit | None, str]:
    """Return how the response is fitted without error, and why there is no posterior then.

    The text is empty where there is one.
    """
    fit = exact_fit(model, rows)
    if fit is None:
        return None, ""
    inner: Any = model.of_a_row
    scale = _residual_scale(inner)
    assert scale is not None
    label, vanishing = scale.label, scale.power > 0.0
    row = table[list(labels).index(label)]
    power = (power_at_zero if vanishing else power_at_infinity)(row) / abs(scale.power)
    if power + fit.rank + fit.missed * (inner.df or _LEAST_DF) > fit.total:
        return fit, ""
    effects = f" and effects of {model.column}" if is_table_model(model) else ""
    most = f" of {fit.total + fit.missed:.6g}" if fit.missed else ""
    return fit, (
        f"expected a response that the columns{effects} do not fit without error, found residuals "
        f"of 0 in rows of total weight {fit.total:.6g}{most} for {fit.rank} independent columns"
        f"{effects}: the posterior is improper at {label} = "
        + (
            f"0; give {label} a prior that vanishes there (--prior '{label}=inverse_gamma(2, 1)')"
            if vanishing
            else f"infinity; give {label} a prior of lighter tail (--prior "
            f"'{label}=exponential(0.1)')"
        )
    )


def integrated_point(
    model: Model, rows: Rows, table: Matrix, objective: Objective, labels: tuple[str, ...]
) -> Point | None:
    """Return a centre if an exact fit leaves no joint mode; ``None`` if there is a joint mode.

    For every scale on a grid, the other parameters are put at their mode, and Laplace's
    formula (exact for a Gaussian with normal priors) gives the marginal density. The centre
    is at the scale with the highest density. Its factor is block diagonal: the factor of the
    other parameters given the scale, and the standard deviation of the log scale. ModelError if the
    posterior is improper, or has no mode given any scale.
    """
    fit, improper = improper_scale(model, rows, table, labels)
    if improper:
        raise ModelError(improper)
    if fit is None or fit.missed or not model.location_scale:
        return None
    j = int(log_scales(model, len(table))[0])
    if power_at_zero(table[j]) == math.inf:
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
    log_scale, conditional = points[int(np.argmax(density))]
    theta[others], theta[j] = conditional.theta, log_scale
    factor = np.zeros((len(table), len(table)))
    factor[np.ix_(others, others)] = conditional.factor
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
