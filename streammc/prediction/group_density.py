"""Posterior density of the effects of one group at a draw of the parameters, and exact draws.

With ``u = A v``, ``v ~ Normal(0, I)``, the log density is ``log f(y | theta, A v) - v . v / 2``.
Draws invert its distribution function on a grid in standard deviations: of an intercept and a
slope that of the slope's coordinate, the other one integrated out by the trapezoidal rule, which
is exact to rounding on such a grid, and then that of the other one.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction.log_scores import log_densities
from streammc.protocols import Matrix, Rows, Vector

_SPACING: Final = 0.25
"""Distance of the points of the grid, in standard deviations."""
_INNER_SPACING: Final = 0.5
_REACH: Final = 8.0
"""Half the length of the grid, at first."""
_DROP: Final = 28.0
"""Least fall of the log density from its maximum to the ends of the grid: 1e-12 of it."""
_LONGER: Final = 1.5
_MOST_REACH: Final = 200.0
_FINER: Final = 16
"""Parts of a step in which the interpolated density is integrated."""
_ENTRIES: Final = 2**20
"""Rows times points that are evaluated at once."""


class GroupDensity:
    """Log density of the effects of a group at a draw of theta.

    Parameters
    ----------
    model
        The mixed model.
    theta
        (d,) draw.
    rows
        Rows of the group.
    """

    def __init__(self, model: MixedModel, theta: Vector, rows: Rows) -> None:
        self._inner, q = model.inner, model.n_features
        count = len(model.group_parameters)
        used = rows.weight != 0.0
        X = np.ascontiguousarray(rows.X[used], dtype=np.float64)
        self._y = np.ascontiguousarray(rows.y[used])
        self._weight = rows.weight[used]
        self._predictor = X @ theta[:q] + rows.offset[used]
        self._scalars = theta[q : len(theta) - count]
        self._carrier = np.zeros(len(X))
        group = theta[len(theta) - count :]
        self.tau1, self.tau2 = math.exp(group[0]), 0.0
        self.rho, self.kappa = 0.0, 1.0
        if model.slope is not None:
            self._carrier = X[:, model.features.index(model.slope)]
            self.tau2 = math.exp(group[1])
        if model.correlated:
            self.rho, self.kappa = math.tanh(group[2]), 1.0 / math.cosh(group[2])

    def effects(self, v1: Vector, v2: Vector) -> tuple[Vector, Vector]:
        """Return intercepts and slopes u of standardised effects v."""
        return self.tau1 * v1, self.tau2 * (self.rho * v1 + self.kappa * v2)

    def log(self, v1: Vector, v2: Vector) -> Vector:
        """Return the log density at points (m,), up to a constant."""
        u1, u2 = self.effects(v1, v2)
        found = -0.5 * (v1 * v1 + v2 * v2)
        step = max(_ENTRIES // max(len(self._y), 1), 1)
        for low in range(0, len(v1) if len(self._y) else 0, step):
            here = slice(low, low + step)
            found[here] += self._weight @ self._terms(u1[here], u2[here])
        return found

    def _terms(self, u1: Vector, u2: Vector) -> Matrix:
        """Return the log-likelihood (n, m) of each row at each point."""
        n, m = len(self._y), len(u1)
        p = 1 + len(self._scalars)
        eta = np.empty((p, n, m))
        eta[0] = self._predictor[:, None] + u1 + self._carrier[:, None] * u2
        eta[1:] = self._scalars[:, None, None]
        values = np.empty((m, n))
        some, out = np.empty((p, n)), np.empty((1 + p + p * (p + 1) // 2, n))
        design = np.empty((0, n))
        log_densities(
            self._inner.link, eta, design, self._y, self._inner.constants, some, out, values
        )
        return values.T


def draw_effects(
    density: GroupDensity, mean: Vector, covariance: Matrix, uniform: Vector
) -> Vector:
    """Return a draw (effects,) of a group's effects from uniform numbers (effects,).

    Parameters
    ----------
    density
        Their density.
    mean, covariance
        Of the standardised effects: where the grid is placed, and how wide it is.
    uniform
        Numbers between 0 and 1, one per effect.

    Raises
    ------
    DataError
        If the density is nowhere finite.
    """
    if len(mean) == 1:
        sd = math.sqrt(covariance[0, 0])
        v1 = _inverse(lambda v: density.log(v, np.zeros(len(v))), mean[0], sd, uniform[0])
        return np.array([density.effects(np.array([v1]), np.zeros(1))[0][0]])
    sd = math.sqrt(covariance[1, 1])
    slope = covariance[0, 1] / covariance[1, 1]
    rest = math.sqrt(max(covariance[0, 0] - slope * covariance[0, 1], 1e-12 * covariance[0, 0]))
    t = np.arange(-_REACH - 2.0, _REACH + 2.5, _INNER_SPACING)

    def marginal(v2: Vector) -> Vector:
        center = mean[0] + slope * (v2 - mean[1])
        v1 = center[:, None] + rest * t
        log = density.log(v1.ravel(), np.repeat(v2, len(t))).reshape(v1.shape)
        top = np.max(np.where(np.isfinite(log), log, -math.inf), axis=1, initial=-math.inf)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            total: Vector = np.log(np.nansum(np.exp(log - safe[:, None]), axis=1)) + safe
        return total

    v2 = _inverse(marginal, mean[1], sd, uniform[1])
    center = mean[0] + slope * (v2 - mean[1])
    v1 = _inverse(lambda v: density.log(v, np.full(len(v), v2)), center, rest, uniform[0])
    return np.array([each[0] for each in density.effects(np.array([v1]), np.array([v2]))])


def _inverse(log_density: Any, center: float, scale: float, uniform: float) -> float:
    """Return the quantile of a density on the line at the probability ``uniform``."""
    low = high = _REACH
    while True:
        steps = np.arange(-math.ceil(low / _SPACING), math.ceil(high / _SPACING) + 1)
        t = np.asarray(steps * _SPACING, dtype=np.float64)
        log: Vector = log_density(center + scale * t)
        finite = np.isfinite(log)
        top = log[finite].max(initial=-math.inf)
        if not math.isfinite(top):
            raise DataError(
                "expected a finite density of the effects of a group, found none near their mean: "
                "check the columns of the group"
            )
        log = np.maximum(np.where(finite, log - top, -700.0), -700.0)  # no part of the mass
        short_low, short_high = log[0] > -_DROP, log[-1] > -_DROP
        if not (short_low or short_high) or max(low, high) > _MOST_REACH:
            break
        low, high = low * (_LONGER if short_low else 1.0), high * (_LONGER if short_high else 1.0)
    return center + scale * _grid_quantile(t, log, uniform)


def _grid_quantile(t: Vector, log: Vector, uniform: float) -> float:
    """Return the quantile of the density that interpolates its log on a grid by a spline."""
    from scipy.interpolate import CubicSpline

    fine = np.linspace(t[0], t[-1], 2 * _FINER * (len(t) - 1) + 1)
    density: NDArray[np.float64] = np.exp(CubicSpline(t, log)(fine))
    ends, middle = density[::2], density[1::2]
    step = fine[2] - fine[0]
    mass = step / 6.0 * (ends[:-1] + 4.0 * middle + ends[1:])  # Simpson
    below = np.concatenate([[0.0], np.cumsum(mass)])
    wanted = uniform * below[-1]
    cell = min(max(int(np.searchsorted(below, wanted, side="right")) - 1, 0), len(mass) - 1)
    share = min(max((wanted - below[cell]) / mass[cell], 0.0), 1.0) if mass[cell] > 0.0 else 0.5
    # Within the cell the density is a straight line.
    left, right = ends[cell], ends[cell + 1]
    part = share * 0.5 * (left + right)
    root = left + math.sqrt(max(left * left + 2.0 * (right - left) * part, 0.0))
    inside = 2.0 * part / root if root > 0.0 else share
    return float(fine[2 * cell] + step * min(inside, 1.0))
