"""Whether draws of a normal density reach the tails of the posterior.

``N`` draws of a normal density come up to a distance ``r`` that one of them exceeds about once. The
posterior is followed along lines through the mode, whitened by its Laplace approximation: the
direction of every parameter, across it at the typical distance of draws, and random ones. On each

    missed(r) = integral over |t| > r of (1 + u^2) p(t) dt,

with ``p`` the posterior density on the line and ``u`` standard under it, bounds what is lost of
masses, means (in sd) and variances, however the draws look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from streammc import rng as streams
from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.pilot import remainders
from streammc.control_variates.plan.tails import FAR, ends_of, unit
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES, SUBSET_ROWS
from streammc.numerics.prior import log_prior
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector

_AXES: Final = 16
_RADIAL: Final = 8
_POINTS: Final = 401
_AT_ONCE: Final = 2**22
"""Rows times points that are evaluated together."""


class Lines(NamedTuple):
    """The posterior along L lines at T points each."""

    t: Matrix
    """(L, T) distances from the centre."""
    weight: Matrix
    """(L, T) posterior mass at the points times ``1 + u^2``."""
    radial: Vector
    """(L,) 1 where t is the length of all coordinates, 0 where it is one of them."""
    names: tuple[str, ...]
    """The parameter of each line; empty for a random one."""

    def missed(self, along: float, radial: float) -> Vector:
        """Return (L,) what lies beyond these distances."""
        reach = np.where(self.radial > 0.0, radial, along)
        found: Vector = np.where(np.abs(self.t) > reach[:, None], self.weight, 0.0).sum(axis=1)
        return found


def more_than_normal(lines: Lines, count: int, dim: int) -> Vector:
    """Return (L,) what ``count`` normal draws miss on each line, more than of a normal density."""
    along, radial = normal_reach(count, dim)
    own = _normal_lines(dim).missed(along, radial)
    excess: Vector = lines.missed(along, radial) - np.where(lines.radial > 0.0, own[1], own[0])
    return excess


def lines_of(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    *,
    most_rows: int = SUBSET_ROWS,
    per_line: int = _POINTS,
) -> Lines:
    """Return the posterior along its lines, at ``per_line`` points of each.

    Of more than ``most_rows`` rows it is from a sample of their remainders.
    """
    posterior = _posterior(dataset, model, cv, most_rows)
    d = cv.dim
    axes = np.arange(d)
    if d > _AXES:  # those along which the density falls least
        far = 4.0 * unit(cv.factor)
        fall = posterior(np.concatenate([far, -far]))[0].reshape(2, -1).max(axis=0)
        axes = np.sort(np.argsort(-fall, kind="stable")[:_AXES])
    directions = unit(cv.factor[axes])
    generator = streams.stream(0, 6, streams.Role.PLAN)
    across = generator.standard_normal(directions.shape)
    across -= (across * directions).sum(axis=1, keepdims=True) * directions
    across = math.sqrt(d - 1.0) * unit(across)
    radial = unit(generator.standard_normal((_RADIAL, d)))
    # Through the mode and beside it.
    origin = np.concatenate([np.zeros_like(directions), across, np.zeros_like(radial)])
    direction = np.concatenate([directions, directions, radial])
    power = np.repeat([0.0, d - 1.0], [2 * len(axes), _RADIAL])
    names = [cv.labels[j] for j in axes] * 2 + [""] * _RADIAL
    ends = ends_of(posterior, origin, direction, power)
    alive = ~np.isnan(ends[0])
    origin, direction, power, ends = origin[alive], direction[alive], power[alive], ends[:, alive]
    far_away = 3.0 * FAR[-1]
    low, high = np.maximum(ends[0], -far_away), np.minimum(ends[1], far_away)
    t = np.linspace(low, high, per_line, axis=1)
    points = origin[:, None] + t[..., None] * direction[:, None]
    log = posterior(points.reshape(-1, d))[0].reshape(t.shape)
    weight = _second_moments(t, log, power)
    weight[~np.isfinite(ends).all(axis=0)] = np.inf
    kept = tuple(name for name, used in zip(names, alive, strict=True) if used)
    return Lines(t, weight, np.where(power > 0.0, 1.0, 0.0), kept)


def _second_moments(t: Matrix, log: Matrix, power: Vector) -> Matrix:
    """Return (L, T) the mass at evenly spaced points times ``1 + u^2``."""
    log = log + power[:, None] * np.log(np.maximum(np.abs(t), 1e-3))
    mass = np.exp(log - log.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    square = (t - (mass * t).sum(axis=1, keepdims=True)) ** 2
    spread = np.maximum((mass * square).sum(axis=1, keepdims=True), 1e-12)
    found: Matrix = mass * (1.0 + square / spread)
    return found


def _normal_lines(d: int) -> Lines:
    """Return a line of one coordinate and one of all, of a normal density."""
    t = np.tile(np.linspace(-12.0 - math.sqrt(d), 12.0 + math.sqrt(d), 4001), (2, 1))
    weight = _second_moments(t, -0.5 * t * t, np.array([0.0, d - 1.0]))
    return Lines(t, weight, np.array([0.0, 1.0]), ("", ""))


def normal_reach(count: int, d: int) -> tuple[float, float]:
    """Return how far normal proposals reach along a coordinate, and in length."""
    from scipy.special import chdtri, ndtri

    return float(ndtri(1.0 - 1.0 / count)), math.sqrt(chdtri(d, 1.0 / count))


def _posterior(
    dataset: Dataset, model: Model, cv: ControlVariates, most_rows: int
) -> Callable[[Matrix], Matrix]:
    """Return the function z (S, d) -> (1, S) log posterior, up to a constant."""
    rows = draw_subset(dataset, SUBSET_BYTES)
    every = max(-(-len(rows.y) // most_rows), 1)
    rows = Rows(*(np.ascontiguousarray(part[::every]) for part in rows))
    scale = dataset.n_rows / max(len(rows.y), 1)
    table = model.prior_table(cv.labels)
    where = coordinates(model, cv.theta_star, cv.noise)
    gradient, hessian = where.from_theta(cv.gradient, cv.hessian)
    step = max(_AT_ONCE // max(len(rows.y), 1), 1)

    def batch(z: Matrix) -> Vector:
        shifts = z @ cv.factor.T
        moved = where.shifts(shifts)
        with np.errstate(all="ignore"):
            log: Vector = scale * remainders(cv, model, rows, shifts).sum(axis=1)
            if cv.order >= 1:
                log = log + moved @ gradient
            if cv.order == 2:
                log = log + 0.5 * ((moved @ hessian) * moved).sum(axis=1)
            log = log + [log_prior(cv.theta_star + s, table, np.zeros(cv.dim)) for s in shifts]
        return np.where(np.isnan(log) | (log == np.inf), -np.inf, log)

    def posterior(z: Matrix) -> Matrix:
        parts = [batch(z[first : first + step]) for first in range(0, len(z), step)]
        return np.concatenate(parts)[None]

    return posterior
