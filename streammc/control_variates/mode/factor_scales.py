"""Scales of factors for the search of the mode, by Laplace's approximation and EM.

The density of effects ``u_l ~ Normal(0, tau)`` and ``log tau`` together has no bound as tau goes
to 0, so that there is no joint mode to expand at. Here tau is the mode of its marginal density,
the effects and the other parameters integrated out by Laplace's approximation. ``theta_star`` is
the mode of all others given tau; the samplers use the prior with a free tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.mode.newton import Objective, maximise
from streammc.errors import ModelError
from streammc.numerics.prior import (
    COLUMNS,
    EFFECT,
    FLAT,
    KIND,
    LOCATION,
    LOG_UNIFORM,
    SHAPE,
    UNIFORM,
    log_prior,
    prior_precision,
    smooth,
)
from streammc.priors import normal
from streammc.protocols import Index, Matrix, Rows, Vector

_ROUNDS: Final = 4
"""Largest number of modes of the other parameters that are computed."""
_STEPS: Final = 40
"""Largest number of EM steps on one expansion of the log-likelihood."""
_LEAP: Final = 1.5
"""Largest extrapolation of a log scale."""
_WORK: Final = 4e9
"""Largest number of products of a Hessian for the first estimate: 10,000 rows of 600 columns."""
_CLOSE: Final = 0.01
"""Change of a log scale at which it has converged."""
_APART: Final = 0.1
_NARROWEST: Final = 0.03
_WIDEST: Final = 1.0
"""Bounds of the standard deviation of a log scale."""
_FARTHEST: Final = 60.0
"""Largest size of a log scale."""


@dataclass(frozen=True)
class _Factors:
    """The factors of a prior table."""

    table: Matrix
    scales: Sequence[int]
    """Component of each log scale."""
    effects: Sequence[Index]
    """Components of the effects of each factor."""

    def given(self, logs: Vector, widths: Vector) -> Matrix:
        """Return the prior table with normal priors in place of those of effects and scales."""
        out = self.table.copy()
        for log, width, scale, effects in zip(logs, widths, self.scales, self.effects, strict=True):
            out[effects, :COLUMNS] = normal(math.exp(log)).table(("",))[0]
            out[scale, :COLUMNS] = normal(width, location=log).table(("",))[0]
        return out

    def prior_slope(self, k: int, log: float) -> float:
        """Return the derivative of the log prior density of log scale ``k``."""
        own = np.zeros(1)
        row = self.table[self.scales[k] : self.scales[k] + 1]
        log_prior(np.array([log]), smooth(row), own)
        return float(own[0])

    def slope(self, k: int, log: float, square: float) -> float:
        """Return the derivative of the marginal log density in log scale ``k``.

        ``square`` is the posterior mean of the sum of the squared effects (Fisher's identity).
        """
        inverse = math.exp(-2.0 * log)
        return self.prior_slope(k, log) - len(self.effects[k]) + square * inverse

    def zero(self, k: int, slope: Callable[[float], float]) -> float:
        """Return where a falling function of log scale ``k`` is 0, inside the prior's bounds."""
        low, high = -_FARTHEST, _FARTHEST
        row = self.table[self.scales[k]]
        if row[KIND] in (UNIFORM, LOG_UNIFORM):
            low, high = max(low, float(row[LOCATION])), min(high, float(row[SHAPE]))
        while high - low > 1e-6:
            middle = 0.5 * (low + high)
            if slope(middle) > 0.0:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)

    def best(self, squares: Vector) -> Vector:
        """Return the log scales of highest density given the means of the squared effects."""
        return np.array(
            [
                self.zero(k, partial(self.slope, k, square=float(square)))
                for k, square in enumerate(squares)
            ]
        )

    def at_priors(self) -> Vector:
        """Return the modes of the priors of the log scales."""
        return np.array(
            [self.zero(k, partial(self.prior_slope, k)) for k in range(len(self.scales))]
        )


def has_factors(table: Matrix) -> bool:
    """Return whether a prior table has effects with a sampled scale."""
    return bool(np.any(table[:, KIND] == EFFECT))


def given_scales(table: Matrix, likelihood: Objective, start: Vector, fixed: bool) -> Matrix:
    """Return the prior table for the search of the mode, with the scales of factors estimated.

    Effects have Normal(0, tau) priors, and each log scale a normal prior around its estimate, of
    the standard deviation of its marginal posterior. Without factors the table (d, 5) is returned.
    The ``likelihood`` counts each row in memory once: a sample that is counted as all rows would
    pass its noise for variation between levels. ``start`` (d,) is that of Newton's method, or with
    ``fixed`` a centre whose scales stay.
    """
    if not has_factors(table):
        return table
    factors = _factors(table)
    scales, widths = factors.scales, np.full(len(factors.scales), 0.5)
    if fixed:
        logs = np.clip(start[scales], -_FARTHEST, _FARTHEST)
        squares = _expanded(factors, likelihood, start, softened(table))
        return factors.given(logs, _widths(factors, logs, squares))
    logs = factors.at_priors()
    theta = start.copy()
    for _ in range(_ROUNDS):
        theta[scales] = logs
        try:
            theta = maximise(likelihood, theta, softened(factors.given(logs, widths))).theta
        except ModelError:  # the search meets it again, and raises it
            return factors.given(logs, widths)
        squares = _expanded(factors, likelihood, theta, softened(table))
        new = _climbed(factors, logs, squares)
        moved = float(np.max(np.abs(new - logs)))
        logs = new
        if moved < 5.0 * _CLOSE:
            break
    return factors.given(logs, _widths(factors, logs, squares))


def refined_scales(
    table: Matrix, before: Matrix, expansion: tuple[float, Vector, Matrix], theta: Vector
) -> tuple[Matrix, Index]:
    """Return the prior table for the search, its scales estimated again from all rows.

    The components of the log scales are returned too. ``given`` (d, 5) is the last table by
    :func:`given_scales`, ``expansion`` the log-likelihood of all rows, gradient and Hessian at
    ``theta``.
    """
    factors = _factors(table)
    squares = _expanded(factors, lambda _: expansion, theta, softened(table))
    logs = _climbed(factors, before[factors.scales, LOCATION], squares)
    refined = factors.given(logs, _widths(factors, logs, squares))
    return refined, np.array(factors.scales, dtype=np.int64)


def fewer_rows(rows: Rows) -> Rows:
    """Return some of the rows, evenly spaced, for the first estimate: of many columns fewer."""
    most = max(_WORK / rows.X.shape[1] ** 2, 2048.0)
    step = max(math.ceil(len(rows.y) / most), 1)
    return Rows(*(np.ascontiguousarray(part[::step]) for part in rows))


def _factors(table: Matrix) -> _Factors:
    at = np.flatnonzero(table[:, KIND] == EFFECT)
    owners = table[at, LOCATION].astype(np.int64)
    scales = [int(scale) for scale in np.unique(owners)]
    return _Factors(table, scales, [at[owners == scale] for scale in scales])


def with_effects(likelihood: Objective, table: Matrix, own: NDArray[np.bool_]) -> Objective:
    """Return a log-likelihood plus the log density of effects and scales, as ``table`` has it.

    Checks of what only the prior determines count the distribution of effects as a part of the
    model: levels add up to the intercept, and a rare level has little data. ``table`` is that of
    :func:`given_scales`; ``own`` (d,) says whether a component is an effect or a log scale.
    """
    part = table.copy()
    part[~own] = 0.0

    def objective(theta: Vector) -> tuple[float, Vector, Matrix]:
        value, gradient, hessian = likelihood(theta)
        slope = gradient.copy()
        value += log_prior(theta, part, slope)
        return value, slope, hessian - prior_precision(theta, part)

    return objective


def softened(table: Matrix) -> Matrix:
    """Replace flat priors by Normal(0, 10): a subset may be separated even if all rows are not."""
    soft = table.copy()
    soft[table[:, KIND] == FLAT, :COLUMNS] = normal(scale=10.0).table(("",))
    return soft


def _expanded(
    factors: _Factors, likelihood: Objective, theta: Vector, table: Matrix
) -> Callable[[Vector], Vector]:
    """Return the function: log scales -> posterior means of the sums of squared effects.

    The log-likelihood is that of its expansion at ``theta``, the priors of the others too.
    """
    _, gradient, hessian = likelihood(theta)
    others = np.setdiff1d(np.arange(len(theta)), factors.scales)
    place = {int(j): i for i, j in enumerate(others)}
    effects = [np.array([place[int(j)] for j in each]) for each in factors.effects]
    plain = smooth(table)
    plain[table[:, KIND] == EFFECT] = 0.0
    slope = gradient.copy()
    log_prior(theta, plain, slope)
    precision = (prior_precision(theta, plain) - hessian)[np.ix_(others, others)]
    known, here = slope[others], theta[others]

    def squares(logs: Vector) -> Vector:
        whole, right = precision.copy(), known.copy()
        for log, at in zip(logs, effects, strict=True):
            inverse = math.exp(-2.0 * log)
            whole[at, at] += inverse
            right[at] -= inverse * here[at]
        covariance = np.linalg.inv(whole)
        mean, variance = here + covariance @ right, np.diag(covariance)
        return np.array([np.sum(mean[at] ** 2 + variance[at]) for at in effects])

    return squares


def _climbed(factors: _Factors, logs: Vector, squares: Callable[[Vector], Vector]) -> Vector:
    """Return the log scales after EM steps, until they stay.

    Where the data say little about the effects EM is slow: after two steps each scale goes to the
    limit of a geometric series (Aitken), at most ``_LEAP`` away.
    """
    for _ in range(_STEPS // 2):
        first = factors.best(squares(logs))
        second = factors.best(squares(first))
        if float(np.max(np.abs(second - first))) < 0.1 * _CLOSE:
            return second
        before, after = first - logs, second - first
        ratio = after / np.where(before == 0.0, 1.0, before)
        ratio = np.where((ratio > 0.0) & (ratio < 0.99), ratio, 0.0)
        logs = second + np.clip(after * ratio / (1.0 - ratio), -_LEAP, _LEAP)
    return logs


def _widths(factors: _Factors, logs: Vector, squares: Callable[[Vector], Vector]) -> Vector:
    """Return standard deviations of the log scales, by the curvature of their marginal density."""
    widths = np.full(len(logs), _WIDEST)
    for k in range(len(logs)):
        slopes = []
        for side in (-_APART, _APART):
            moved = logs.copy()
            moved[k] += side
            slopes.append(factors.slope(k, moved[k], float(squares(moved)[k])))
        curvature = (slopes[0] - slopes[1]) / (2.0 * _APART)
        if curvature > 0.0:
            widths[k] = min(max(1.0 / math.sqrt(curvature), _NARROWEST), _WIDEST)
    return widths
