"""Coordinates in which the log-likelihoods of rows are expanded: theta, or nearly.

Groups of a mixed model are expanded in the marginal precision ``(Sigma + C)^-1`` of their effects
in place of ``log tau`` where this leaves the smaller remainders. ``Sigma`` is the covariance of the
effects, and ``C``, the noise, is that of an estimate of them from the rows of a typical group.
Positions of a chain, the mode and its curvature stay in theta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from streammc import rng
from streammc.control_variates.full_pass.block_pass import RowSums
from streammc.models.mixed.effect_terms import is_table_model
from streammc.numerics.effect_positions import (
    precision_derivatives,
    to_precision,
    to_precision_derivatives,
)
from streammc.protocols import Matrix, Model, Rows, Vector

_FEWEST_GROUPS: Final = 64
_ROWS: Final = 2**14
"""Rows of the groups on which coordinates are compared."""


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of expansions around ``theta_star`` (d,)."""

    model: Model
    """The model, with a link that takes these coordinates."""
    theta_star: Vector
    noise: Vector
    """(s,) entries of C: 11; 11, 22; or 11, 22, 12. Empty: the coordinates are theta."""

    @property
    def centre(self) -> Vector:
        """Return ``theta_star`` in these coordinates."""
        return self.positions(self.theta_star)

    def positions(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``theta`` (..., d) in these coordinates."""
        if not len(self.noise):
            return theta
        moved = np.array(theta, dtype=np.float64, order="C")
        for each in moved.reshape(-1, moved.shape[-1]):
            to_precision(each, self.noise)
        return moved

    def shifts(self, shifts: Matrix) -> Matrix:
        """Return (S, d) displacements from the centre of ``theta_star + shifts`` (S, d)."""
        if not len(self.noise):
            return shifts
        moved: Matrix = self.positions(self.theta_star + shifts) - self.centre
        return moved

    def from_theta(self, gradient: Vector, hessian: Matrix) -> tuple[Vector, Matrix]:
        """Return derivatives at ``theta_star`` in these coordinates, given those in theta."""
        if not len(self.noise):
            return gradient, hessian
        gradient, hessian = gradient.copy(), np.array(hessian, order="C")
        to_precision_derivatives(self.theta_star, self.noise, gradient, hessian)
        return gradient, hessian

    def to_theta(self, totals: Matrix) -> Matrix:
        """Return sums in theta (2, 1 + d + d^2), given those in these coordinates.

        Their rows are value, gradient and the upper triangle of the Hessian, and the parts lost
        to rounding: the transformation is linear.
        """
        s = len(self.noise)
        if not s:
            return totals
        d = len(self.theta_star)
        first, second = np.empty((s, s)), np.empty((s, s, s))
        precision_derivatives(self.theta_star, self.noise, first, second)
        turn = np.eye(d)
        turn[d - s :, d - s :] = first
        result = totals.copy()
        for row in result:
            gradient = row[1 : 1 + d].copy()
            upper = np.triu(row[1 + d :].reshape(d, d))
            hessian = turn.T @ (upper + np.triu(upper, 1).T) @ turn
            hessian[d - s :, d - s :] += np.einsum("b,bij->ij", gradient[d - s :], second)
            row[1 : 1 + d] = turn.T @ gradient
            row[1 + d :] = np.triu(hessian).ravel()
        return result


def coordinates(model: Model, theta_star: Vector, noise: Vector) -> Coordinates:
    """Return the coordinates of expansions with this ``noise`` (s,)."""
    moved: Any = model
    if len(noise):
        moved = replace(moved, noise=tuple(float(each) for each in noise))
    return Coordinates(moved, theta_star, noise)


def best_coordinates(
    model: Model, groups: Rows, theta_star: Vector, shifts: Matrix, order: int
) -> Coordinates:
    """Return the coordinates in which remainders of a sample of ``groups`` vary less.

    Remainders are those at ``theta_star + shifts`` (S, d) of an expansion of this ``order``; their
    variance is compared at its 90th percentile over the shifts.
    """
    straight = coordinates(model, theta_star, np.zeros(0))
    if not is_table_model(model):
        return straight
    some = _sample(groups)
    rows, group = model.rows_of(some.X)
    from streammc.models.mixed.mixed_model import typical_noise

    noise = typical_noise(model, rows, group, theta_star)
    if not len(noise):
        return straight
    bent = coordinates(model, theta_star, noise)
    return min((straight, bent), key=lambda each: _spread(each, some, shifts, order))


def _sample(groups: Rows) -> Rows:
    """Return the first groups that have ``_ROWS`` rows together, but not fewer than 64."""
    used = int(np.searchsorted(np.cumsum(groups.X[:, 1]), _ROWS)) + 1
    return Rows(*(part[: max(used, _FEWEST_GROUPS)] for part in groups))


def _spread(where: Coordinates, groups: Rows, shifts: Matrix, order: int) -> float:
    """Return the 90th percentile over the shifts of the variance of the groups' remainders."""
    m, q = groups.X.shape
    remainders = np.empty((len(shifts), m))
    sums = RowSums(where.model, where.centre, where.shifts(shifts), order, q, with_sums=False)
    sums.add(groups.X, groups.y, groups.offset, groups.weight, np.empty(m), remainders)
    with np.errstate(invalid="ignore", over="ignore"):
        variance = np.nan_to_num(np.var(remainders, axis=1), nan=np.inf)
    return float(np.quantile(variance, 0.9)) if np.all(variance < np.inf) else np.inf


def covering_draws(n_draws: int, dim: int, purpose: int) -> Matrix:
    """Return (S, d) standard normal draws with evenly spread directions and lengths.

    Directions are the columns of random orthogonal matrices (Yu et al. 2016, orthogonal
    random features), lengths the chi quantiles (j + 1/2) / S in random order. The
    variance of the estimate grows with the sixth power of the length, so its 90th
    percentile from 8 independent draws in 3 dimensions was between 0.04 and 4.2 times
    the truth (5 % and 95 %); from 8 of these between 0.2 and 3.4, and from 64 between
    0.5 and 1.8. Different purposes, numbers of the random stream, give independent draws.
    """
    generator = rng.stream(0, purpose, rng.Role.PLAN)
    directions = []
    for first in range(0, n_draws, dim):
        width = min(dim, n_draws - first)
        basis, triangle = np.linalg.qr(generator.standard_normal((dim, width)))
        directions.append((basis * np.sign(np.diag(triangle))).T)
    levels = (generator.permutation(n_draws) + 0.5) / n_draws
    lengths = np.sqrt(2.0 * gammaincinv(0.5 * dim, levels))
    draws: Matrix = np.ascontiguousarray(np.concatenate(directions) * lengths[:, None])
    return draws
