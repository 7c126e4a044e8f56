"""Check that the perturbed target matches the posterior in its tails, and the edge of it.

With ``V`` the variance of the log-likelihood estimate from ``k`` units and ``kappa`` its
third cumulant, ``E_u exp(l^ - s^2 / 2)`` is about ``exp(l + delta)``,

    delta = V / 2 - (k - 1) / 2 log(1 + V / (k - 1)) - kappa / 3

(Dang et al. 2019, eq. 12, with the distribution of ``s^2``). ``V`` grows with the sixth
power of the distance and more, so draws around the mode do not show it. Here the
posterior is followed along lines ``theta = theta_star + S (o + t v)``: the direction of
every parameter, those of the draws with the largest ``V``, and random ones through the
centre. ``o`` is, across ``v``, at the typical distance of posterior draws. The log posterior
along a line (of all rows, or of a sample of them and all certainty rows) gives the density
``p`` of ``t`` on it, which may have any shape. On every line

    integral (1 + u^2) |exp(delta - mean delta) - 1| p(t) dt <= 0.05,

with ``u`` standard under ``p``: that bounds the relative error of masses, means (in sd)
and variances. The region ends where a line has 1e-7 of its mass left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streammc import rng
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.forecast import Phases
from streammc.control_variates.plan.certainty_choice import Choice
from streammc.control_variates.plan.edge import Edge
from streammc.control_variates.plan.far_posterior import FarPosterior
from streammc.control_variates.plan.pilot import pilot_shifts
from streammc.control_variates.plan.tail_lines import FAR, ends_of, inside, region, unit
from streammc.protocols import Dataset, Index, Matrix, Model, Vector

LARGEST_PERTURBATION = 0.05
HOPELESS = 10.0
"""Perturbation above which a subsample of given size is refused; smaller ones only warn."""
LARGEST_MEAN_VARIANCE = 1.0
_AXES = 16
_SPREAD = 4
_POINTS = 21


@dataclass(frozen=True)
class Tails:
    """The posterior along L lines ``o + t v`` at T points each.

    Attributes
    ----------
    origin, direction
        (L, d) whitened o, relative to ``theta_star``, and v.
    low, high
        (L,) ends of each line inside the region; infinite where the posterior has no end.
    radius, walls
        The region ``|z| <= radius``, ``a'z <= h`` for the 2 L rows ``(a, h)`` of ``walls``:
        two walls of each line, along ``-v`` and ``v``.
    mass
        (L, T) posterior mass at the points of a line; sums to 1 over the line.
    log_weight
        (L, T) the logarithm of ``mass`` times 1 + u^2.
    second, third
        (L, T) k V and k^2 kappa.
    order
        Order of the control variates.
    names
        The parameter of each line; empty for the direction of a draw, or a random one.
    """

    origin: Matrix
    direction: Matrix
    low: Vector
    high: Vector
    radius: float
    walls: Matrix
    mass: Matrix
    log_weight: Matrix
    second: Matrix
    third: Matrix
    order: int
    names: tuple[str, ...]

    def perturbation(self, k: int) -> Vector:
        """Return (L,) the integral of the module docstring for each line, with ``k`` units."""
        with np.errstate(over="ignore", invalid="ignore"):
            delta = _log_perturbation(self.second / k, k) - self.third / (3.0 * float(k) ** 2)
            delta = np.nan_to_num(delta, nan=np.inf, posinf=np.inf)
            middle = (self.mass * np.clip(delta, -1.0, 1.0)).sum(axis=1, keepdims=True)
            delta -= middle
            # Far from the mode one factor underflows before the other is large.
            log = np.where(np.isfinite(self.log_weight), self.log_weight + delta, -np.inf)
            near = np.exp(self.log_weight) * np.abs(np.expm1(np.minimum(delta, 1.0)))
            terms = np.where(delta < 1.0, near, np.exp(np.minimum(log, 600.0)))
        found: Vector = terms.sum(axis=1)
        return found

    def mean_variance(self, k: int) -> float:
        """Return the largest mean of ``V`` on a line."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = (self.mass * np.where(self.mass > 0.0, self.second, 0.0)).sum(axis=1) / k
        return float(np.nan_to_num(means, nan=np.inf, posinf=np.inf).max())

    def holds(self, k: int) -> bool:
        """Return whether perturbation and mean variance are within their limits on every line."""
        largest = float(self.perturbation(k).max())
        return largest <= LARGEST_PERTURBATION and self.mean_variance(k) <= LARGEST_MEAN_VARIANCE

    def fault(self, k: int) -> str:
        """Return the text of where the perturbed density leaves the posterior, and by how much."""
        found = self.perturbation(k)
        line = int(np.argmax(found))
        where = f"in the tail of {self.names[line]}" if self.names[line] else "in its tails"
        size = f"{found[line]:.2g}" if found[line] < 1e3 else "more than 1,000"
        mean = self.mean_variance(k)
        return f"{where} (off by {size}, mean log_lik_variance {mean:.2g}, with {k} units)"

    def units(self, least: int, most: int) -> float:
        """Return the fewest units from ``least`` to ``most`` that hold; ``inf`` if none does."""
        if self.holds(least):
            return least
        if most <= least or not self.holds(most):
            return math.inf
        low, high = least, most
        while high > low + max(low // 100, 1):
            middle = max(math.isqrt(low * high), low + 1)
            low, high = (low, middle) if self.holds(middle) else (middle, high)
        return high

    def edge(self, k: int) -> Edge:
        """Return the region: the ball, and the walls that the perturbation requires.

        A wall is kept if the log of the perturbation would exceed 1 between the end of its line
        and the ball. There ``V`` is extrapolated as ``|t|^(2 (order + 1))``.
        """
        ends = np.stack([self.low, self.high], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.maximum(self.radius / np.abs(ends), 1.0) ** (2 * (self.order + 1))
            variance = self.second[:, [0, -1]] / k * growth
            high = np.isfinite(ends) & ~(_log_perturbation(variance, k) < 1.0)
        return Edge(self.radius, np.ascontiguousarray(self.walls[high.ravel()]))


def profile(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    unit_rows: int,
    choice: Choice,
    phases: Phases | None = None,
) -> Tails:
    """Return the posterior along the lines, for the certainty rows and units of ``choice``."""
    posterior = FarPosterior(cv, dataset, model, unit_rows, choice, phases)
    centre = np.asarray(np.linalg.solve(cv.factor, cv.newton_step), np.float64)
    shifts = pilot_shifts(cv)
    draws = np.linalg.solve(cv.factor, shifts.T).T
    scored = np.linalg.solve(cv.factor, cv.score_draws.T).T
    second = posterior(np.concatenate([draws, scored]))[1]
    scale = _underestimate(choice, unit_rows, second[: len(draws)], second[len(draws) :])
    worst = (draws - centre)[np.argsort(-second[: len(draws)])[:_SPREAD]]
    axes = _axes(cv, posterior, centre)
    names = [cv.labels[j] for j in axes] + [""] * (len(worst) + _SPREAD)
    directions = unit(np.concatenate([cv.factor[axes], worst]))
    generator = rng.stream(0, 5, rng.Role.PLAN)
    across = generator.standard_normal(directions.shape)
    across -= (across * directions).sum(axis=1, keepdims=True) * directions
    across = math.sqrt(cv.dim - 1.0) * unit(across)
    radial = unit(generator.standard_normal((_SPREAD, cv.dim)))
    power = np.repeat([0.0, cv.dim - 1.0], [len(directions), _SPREAD])
    origin = centre + np.concatenate([across, np.zeros_like(radial)])
    direction = np.concatenate([directions, radial])
    ends = ends_of(posterior, origin, direction, power)
    alive = ~np.isnan(ends[0])
    origin, direction, power, ends = origin[alive], direction[alive], power[alive], ends[:, alive]
    names = [name for name, kept in zip(names, alive, strict=True) if kept]
    radius, walls = region(origin, direction, ends)
    low, high = inside(origin, direction, radius, walls)
    low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
    t = np.linspace(np.maximum(low, -FAR[-1]), np.minimum(high, FAR[-1]), _POINTS, axis=1)
    points = origin[:, None] + t[..., None] * direction[:, None]
    log, second, third = posterior(points.reshape(-1, cv.dim)).reshape(3, *t.shape)
    log_mass = _log_mass(log, t, power)
    mass = np.exp(log_mass)
    mean = (mass * t).sum(axis=1, keepdims=True)
    square = (t - mean) ** 2
    spread = np.maximum((mass * square).sum(axis=1, keepdims=True), 1e-12)
    return Tails(
        origin, direction, low, high, radius, walls, mass, log_mass + np.log1p(square / spread),
        scale * second, scale**1.5 * third, cv.order, tuple(names),
    )  # fmt: skip


def _axes(cv: ControlVariates, posterior: FarPosterior, centre: Vector) -> Index:
    """Return the parameters whose directions are used: at most 16, those with the largest V.

    The direction of parameter j is ``S' e_j``: the other parameters move by their regression
    on it.
    """
    if cv.dim <= _AXES:
        return np.arange(cv.dim)
    far = 4.0 * unit(cv.factor)
    second = posterior(centre + np.concatenate([far, -far]))[1].reshape(2, -1).max(axis=0)
    chosen: Index = np.sort(np.argsort(-second, kind="stable")[:_AXES])
    return chosen


def _log_mass(log: Matrix, t: Matrix, power: Vector) -> Matrix:
    """Return (L, T) the log of the posterior mass at evenly spaced points of each line."""
    spacing = t[:, 1:2] - t[:, :1]
    log = log + power[:, None] * np.log(np.maximum(np.abs(t), 0.1 * spacing + 1e-300))
    log = log - log.max(axis=1, keepdims=True)
    shares: Matrix = log - np.log(np.exp(log).sum(axis=1, keepdims=True))
    return shares


def _underestimate(choice: Choice, unit_rows: int, drawn: Vector, scored: Vector) -> float:
    """Return the factor by which the rows of :class:`FarPosterior` understate V, at least 1.

    They may miss rare rows that are in the larger samples of the pass and of the pilot; V is
    compared at the draws of each.
    """
    scale = 1.0
    per_unit = choice.deff * choice.rows / unit_rows
    for moments, here in zip(choice.moments, (scored, drawn), strict=True):
        seen = moments.variance[0]
        if len(seen) != len(here):
            continue
        known, found = np.quantile(seen, 0.9) * per_unit, np.quantile(here, 0.9)
        if math.isfinite(known) and found > 0.0:
            scale = max(scale, float(known / found))
    return scale


def _log_perturbation(variance: Vector | float, k: int) -> Vector:
    """Return ``V / 2 - (k - 1) / 2 log(1 + V / (k - 1))``."""
    freedom = max(k - 1, 1)
    value: Vector = 0.5 * (variance - freedom * np.log1p(np.asarray(variance) / freedom))
    return value
