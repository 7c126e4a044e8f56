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

The region (:class:`Edge`): far from ``theta_star`` the perturbed density exceeds the posterior
without bound, with false tails and modes. The region is a ball cut by walls, both in whitened
coordinates ``z`` of ``theta = theta_star + S z``; about a millionth of the posterior is outside of
it. It is fixed before the first draw and shared by all chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng
from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.effect_coordinates import level_coordinates, stretched
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode.newton import PLAN, Counter
from streammc.control_variates.plan import LARGEST_PERTURBATION
from streammc.control_variates.plan.certainty_choice import Choice
from streammc.control_variates.plan.pilot import (
    Pilot,
    choose_runs,
    gather_runs,
    least_run,
    pilot_shifts,
    remainders,
)
from streammc.likelihood.data_views import fewer, gather
from streammc.numerics.prior import log_prior
from streammc.protocols import Dataset, Index, Matrix, Model, Phases, Vector

HOPELESS = 10.0
"""Perturbation above which a subsample of given size is refused; smaller ones only warn."""
LARGEST_MEAN_VARIANCE = 1.0
_AXES = 16
_SPREAD = 4
_POINTS = 21


@dataclass(frozen=True)
class Tails:
    """The posterior along L lines ``o + t v`` at T points each."""

    origin: Matrix
    direction: Matrix
    """(L, d) whitened o, relative to ``theta_star``, and v."""
    low: Vector
    high: Vector
    """(L,) ends of each line inside the region; infinite where the posterior has no end."""
    radius: float
    walls: Matrix
    """The region ``|z| <= radius``, ``a'z <= h`` for the 2 L rows ``(a, h)`` of ``walls``: two
    walls of each line, along ``-v`` and ``v``."""
    mass: Matrix
    """(L, T) posterior mass at the points of a line; sums to 1 over the line."""
    log_weight: Matrix
    """(L, T) the logarithm of ``mass`` times 1 + u^2."""
    second: Matrix
    third: Matrix
    """(L, T) k V and k^2 kappa."""
    order: int
    """Order of the control variates."""
    names: tuple[str, ...]
    """The parameter of each line; empty for the direction of a draw, or a random one."""

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
        integral: Vector = terms.sum(axis=1)
        return integral

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
        perturbation = self.perturbation(k)
        line = int(np.argmax(perturbation))
        where = f"in the tail of {self.names[line]}" if self.names[line] else "in its tails"
        size = f"{perturbation[line]:.2g}" if perturbation[line] < 1e3 else "more than 1,000"
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
    names = [name for name, lives in zip(names, alive, strict=True) if lives]
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
        known, of_rows = np.quantile(seen, 0.9) * per_unit, np.quantile(here, 0.9)
        if math.isfinite(known) and of_rows > 0.0:
            scale = max(scale, float(known / of_rows))
    return scale


def _log_perturbation(variance: Vector | float, k: int) -> Vector:
    """Return ``V / 2 - (k - 1) / 2 log(1 + V / (k - 1))``."""
    freedom = max(k - 1, 1)
    value: Vector = 0.5 * (variance - freedom * np.log1p(np.asarray(variance) / freedom))
    return value


_ROWS = 16_384
_ENTRIES = 2**21
_BATCH = 256


class FarPosterior:
    """The log posterior and the moments of the units at any point."""

    def __init__(
        self,
        cv: ControlVariates,
        dataset: Dataset,
        model: Model,
        unit_rows: int,
        choice: Choice,
        phases: Phases | None = None,
    ) -> None:
        self._count = Counter(PLAN, phases)
        most = fewer(max(min(_ROWS, _ENTRIES // max(dataset.n_features, 1)), 2048), dataset)
        starts, run_rows = choose_runs(dataset.n_rows, unit_rows, most, least_run(dataset))
        none = np.empty((0, len(starts), run_rows), np.float32)
        left_out = np.zeros((len(starts), run_rows), np.bool_)
        whole = Pilot(starts, run_rows, none, dataset.n_rows, left_out)
        self._pilot = whole.without(choice.certain, choice.rest.relative)
        self._rows = gather_runs(dataset, starts, run_rows)
        self._certain = gather(dataset, choice.certain)
        self._cv, self._model, self._unit_rows = cv, model, unit_rows
        self._n_units = -(-dataset.n_rows // unit_rows)
        self._table = model.prior_table(cv.labels)
        self._levels = level_coordinates(self._table, cv)

    def __call__(self, z: Matrix) -> Matrix:
        """Return (3, S): log posterior, k V, k^2 kappa (see ``tails``) at whitened ``z`` (S, d)."""
        values = np.empty((3, len(z)))
        for first in range(0, len(z), _BATCH):
            here = slice(first, first + _BATCH)
            moved = z[here] @ self._cv.factor.T
            shifts, log_jacobian = stretched(self._levels, self._cv.theta_star, moved)
            values[:, here] = self._batch(shifts)
            values[0, here] += log_jacobian
            self._count(len(z[here]))
        return values

    def _batch(self, shifts: Matrix) -> Matrix:
        cv, pilot, n_units = self._cv, self._pilot, float(self._n_units)
        part = remainders(cv, self._model, self._rows, shifts)
        part[~(np.abs(part) < 3e38)] = np.inf
        values = part.reshape(len(shifts), *pilot.left_out.shape).astype(np.float32)
        units = replace(pilot, values=values).units(self._unit_rows)
        with np.errstate(over="ignore", invalid="ignore"):
            log = n_units * units.mean
            if len(self._certain.y):
                exact = remainders(cv, self._model, self._certain, shifts)
                log = log + exact.sum(axis=1)
            where = coordinates(self._model, cv.theta_star, cv.noise)
            steps = where.shifts(shifts)
            gradient, hessian = where.from_theta(cv.gradient, cv.hessian)
            if cv.order >= 1:
                log = log + steps @ gradient
            if cv.order == 2:
                log = log + 0.5 * ((steps @ hessian) * steps).sum(axis=1)
            slope = np.zeros(cv.dim)
            log = log + [log_prior(cv.theta_star + s, self._table, slope) for s in shifts]
            second = n_units**2 * units.variance
            third = n_units**3 * units.skewness * units.variance**1.5
        log[np.isnan(log) | (log == np.inf)] = -np.inf
        second = np.nan_to_num(second, nan=np.inf, posinf=np.inf)
        third = np.where(second > 0.0, np.nan_to_num(third, posinf=0.0, neginf=0.0), 0.0)
        return np.stack([log, second, third])


MASS_BEYOND: Final = 1e-7
"""Posterior mass of a line beyond its end, on either side."""
_NEAR = (1.5, 3.0, 4.2, 5.2, 6.3)
FAR: Final = (8.0, 10.5, 14.0, 19.0, 26.0, 36.0, 50.0, 70.0, 100.0)
"""Farther grid points of a line, in standard deviations of the Laplace approximation."""
_START = 4.0
"""Largest distance of a start, in standard deviations."""
_DROP = 17.0
"""Drop of the log density below its maximum at which a line has less than 1e-7 left."""


def ends_of(
    posterior: Callable[[Matrix], Matrix], origin: Matrix, direction: Matrix, power: Vector
) -> Matrix:
    """Return (2, L) the ends of each line, beyond which ``MASS_BEYOND`` of its mass lies.

    Both sides are followed until the density has fallen by ``_DROP``; if it never does, the
    end is infinite. NaN where the posterior has no mass on the line.
    """
    dim = origin.shape[1]
    # on a line through the centre t is the length of all d coordinates
    longer = np.where(power > 0.0, math.sqrt(dim - 1.0 + _NEAR[-1] ** 2) / _NEAR[-1], 1.0)
    half = np.array([*_NEAR, *FAR])
    grid = np.concatenate([-half[::-1], [0.0], half])
    t = longer[:, None] * grid
    log = np.full(t.shape, -np.inf)
    middle = len(half)
    columns = np.arange(middle - len(_NEAR), middle + len(_NEAR) + 1)
    needed = np.zeros(t.shape, np.bool_)
    needed[:, columns] = True
    for step in range(len(_NEAR), len(half) + 1):
        line, column = np.nonzero(needed)
        if not len(line):
            break
        z = origin[line] + t[line, column, None] * direction[line]
        with np.errstate(divide="ignore"):
            volume = np.where(power > 0.0, power, 0.0)[line] * np.log(
                np.maximum(np.abs(t[line, column]), 1e-3)
            )
        log[line, column] = posterior(z)[0] + volume
        needed[:] = False
        top = log.max(axis=1)
        open_sides = [log[:, middle + side * step] > top - _DROP for side in (-1, 1)]
        if step < len(half):
            for side, still in zip((-1, 1), open_sides, strict=True):
                needed[still, middle + side * (step + 1)] = True
    ends = np.empty((2, len(t)))
    for row in range(len(t)):
        if not np.isfinite(log[row]).any():  # beyond a wall of the prior
            ends[:, row] = np.nan
            continue
        fine = np.linspace(t[row, 0], t[row, -1], 8001)
        value = np.interp(fine, t[row], np.maximum(log[row], log[row].max() - 1e4))
        mass = np.exp(value - value.max())
        below = np.cumsum(mass) / mass.sum()
        first, last = (int(np.searchsorted(below, p)) for p in (MASS_BEYOND, 1.0 - MASS_BEYOND))
        ends[:, row] = fine[first], fine[min(last, len(fine) - 1)]
    for end, still, infinite in zip(ends, open_sides, (-np.inf, np.inf), strict=True):
        end[still] = infinite
    return ends


def region(origin: Matrix, direction: Matrix, ends: Matrix) -> tuple[float, Matrix]:
    """Return the radius of the smallest ball, and walls across the lines, that hold all ends.

    Every wall is beyond the ends of all lines, not only of its own: the end of a slanted line
    may be near although the posterior has a long tail to its side. The Laplace approximation
    at ``theta_star``, where chains start, is also inside, however far from the mode it is.
    """
    d = origin.shape[1]
    with np.errstate(invalid="ignore"):  # an infinite end of a line along few coordinates
        corners = np.concatenate([origin + end[:, None] * direction for end in ends])
    walls = np.full((2 * len(direction), d + 1), np.inf)
    walls[0::2, :d], walls[1::2, :d] = -direction, direction
    finite = np.isfinite(corners).all(axis=1)
    walls[:, d] = (walls[:, :d] @ corners[finite].T).max(axis=1, initial=-np.inf)
    walls[:, d] = np.maximum(walls[:, d], _START)
    walls[~np.isfinite(ends.T.ravel()), d] = np.inf
    walls[~np.isfinite(walls[:, d]), d] = np.inf
    if not finite.all():
        return math.inf, walls
    farthest = float(np.sqrt((corners**2).sum(axis=1).max()))
    return max(farthest, math.sqrt(d) + _START), walls


def inside(origin: Matrix, direction: Matrix, radius: float, walls: Matrix) -> Matrix:
    """Return (2, L) the interval of t in which ``o + t v`` is inside the region."""
    middle = (origin * direction).sum(axis=1)
    square = radius**2 - (origin**2).sum(axis=1) + middle**2
    half = np.sqrt(np.maximum(square, 0.0))
    low, high = -middle - half, -middle + half
    slope = direction @ walls[:, :-1].T
    room = walls[:, -1] - origin @ walls[:, :-1].T
    with np.errstate(divide="ignore", invalid="ignore"):
        at = room / slope
    low = np.maximum(low, np.where(slope < -1e-9, at, -np.inf).max(axis=1))
    high = np.minimum(high, np.where(slope > 1e-9, at, np.inf).min(axis=1))
    return np.stack([low, high])


def unit(rows: Matrix) -> Matrix:
    """Return the rows scaled to length 1; a row of zeros stays zero."""
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    scaled: Matrix = rows / np.where(length > 0.0, length, 1.0)
    return scaled


WALLS: Final = "edge_walls"


@dataclass(frozen=True)
class Edge:
    """Region in whitened coordinates: a ball cut by walls, which are half-spaces."""

    radius: float
    """Largest ``|z|``; infinite where there is no ball."""
    walls: Matrix
    """(w, d + 1) rows ``(a, h)``: inside is ``a'z <= h``."""

    def describe(self) -> dict[str, Any]:
        """Return JSON with the radius and the number of walls."""
        return {
            "radius": self.radius if math.isfinite(self.radius) else None,
            "walls": len(self.walls),
        }

    def arrays(self) -> dict[str, Any]:
        """Return the walls as arrays by name, for the group ``constant_data``."""
        if not len(self.walls):
            return {}
        return {WALLS: (("wall", "wall_coefficient"), self.walls)}

    def inside(self, z: Matrix) -> NDArray[np.bool_]:
        """Return whether each of the positions ``z`` (S, d) is in the region."""
        within: NDArray[np.bool_] = (z**2).sum(axis=1) <= self.radius**2
        if not len(self.walls):
            return within
        inside: NDArray[np.bool_] = within & np.all(
            z @ self.walls[:, :-1].T <= self.walls[:, -1], axis=1
        )
        return inside

    @classmethod
    def from_description(
        cls, described: Mapping[str, Any], read: Callable[[str], NDArray[Any]]
    ) -> Edge:
        """Restore from :meth:`describe` and :meth:`arrays`, read by name."""
        radius = math.inf if described["radius"] is None else float(described["radius"])
        walls = np.asarray(read(WALLS), np.float64) if described["walls"] else np.zeros((0, 0))
        return cls(radius, np.ascontiguousarray(walls))
