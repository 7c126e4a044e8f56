"""Whether the perturbed target is the posterior out to its tails, and where it is cut.

With ``V`` the variance of the log-likelihood estimate from ``k`` units and ``kappa`` its
third cumulant, ``E_u exp(l^ - s^2 / 2)`` is about ``exp(l + delta)``,

    delta = V / 2 - (k - 1) / 2 log(1 + V / (k - 1)) - kappa / 3

(Dang et al. 2019, eq. 12, with the distribution of ``s^2``). ``V`` grows with the sixth
power of the distance and more, so draws around the mode do not show it. Here the
posterior is followed along lines ``theta = theta_star + S (o + t v)``: the direction of
every parameter, those of the draws with the largest ``V``, and random ones through the
centre. ``o`` is as far out, across ``v``, as the posterior is. The exact log posterior
along a line (of all rows, or of a sample of them and all certainty rows) is the posterior
of ``t`` there, whatever its shape. On every line

    integral (1 + u^2) |exp(delta - mean delta) - 1| p(t) dt <= 0.05,

with ``u`` standard under ``p``: that bounds the relative error of masses, means (in sd)
and variances. The region ends where a line has 1e-7 of its mass left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streammc import rng
from streammc.control_variates.certainty_choice import Choice
from streammc.control_variates.edge import Edge
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.pilot import (
    Pilot,
    choose_runs,
    gather_runs,
    pilot_shifts,
    remainders,
)
from streammc.control_variates.subset import gather
from streammc.numerics.prior import log_prior
from streammc.protocols import Dataset, Index, Matrix, Model, Vector

LARGEST_PERTURBATION = 0.05
HOPELESS = 1.0
"""Where a density that is off by that much is no approximation of the posterior."""
LARGEST_MEAN_VARIANCE = 1.0
MASS_BEYOND = 1e-7
"""Of a line, on either side."""
_ROWS = 16_384
_ENTRIES = 2**21
_AXES = 16
_SPREAD = 4
_NEAR = (1.5, 3.0, 4.2, 5.2, 6.3)
_FAR = (8.0, 10.5, 14.0, 19.0, 26.0, 36.0, 50.0, 70.0, 100.0)
_POINTS = 21
_DROP = 17.0
"""Of the log density, where a line has less than 1e-7 left."""
_BATCH = 256


class _Evaluator:
    """The log posterior and the moments of the units at any point."""

    def __init__(
        self, cv: ControlVariates, dataset: Dataset, model: Model, unit_rows: int, choice: Choice
    ) -> None:
        most = max(min(_ROWS, _ENTRIES // max(dataset.n_features, 1)), 2048)
        starts, run_rows = choose_runs(dataset.n_rows, unit_rows, most)
        none = np.empty((0, len(starts), run_rows), np.float32)
        left_out = np.zeros((len(starts), run_rows), np.bool_)
        whole = Pilot(starts, run_rows, none, dataset.n_rows, left_out)
        self._pilot = whole.without(choice.certain, choice.rest.relative)
        self._rows = gather_runs(dataset, starts, run_rows)
        self._certain = gather(dataset, choice.certain)
        self._cv, self._model, self._unit_rows = cv, model, unit_rows
        self._n_units = -(-dataset.n_rows // unit_rows)
        self._table = model.prior_table(cv.labels)

    def __call__(self, z: Matrix) -> Matrix:
        """Return (3, S): log posterior, k V and k^2 kappa at whitened positions (S, d)."""
        found = np.empty((3, len(z)))
        for first in range(0, len(z), _BATCH):
            here = slice(first, first + _BATCH)
            found[:, here] = self._batch(z[here] @ self._cv.factor.T)
        return found

    def _batch(self, shifts: Matrix) -> Matrix:
        cv, pilot, n_units = self._cv, self._pilot, float(self._n_units)
        part = remainders(self._model, self._rows, cv.theta_star, shifts, cv.order)
        part[~(np.abs(part) < 3e38)] = np.inf
        values = part.reshape(len(shifts), *pilot.left_out.shape).astype(np.float32)
        units = _with_values(pilot, values).units(self._unit_rows)
        with np.errstate(over="ignore", invalid="ignore"):
            log = n_units * units.mean
            if len(self._certain.y):
                exact = remainders(self._model, self._certain, cv.theta_star, shifts, cv.order)
                log = log + exact.sum(axis=1)
            if cv.order >= 1:
                log = log + shifts @ cv.gradient
            if cv.order == 2:
                log = log + 0.5 * ((shifts @ cv.hessian) * shifts).sum(axis=1)
            slope = np.zeros(cv.dim)
            log = log + [log_prior(cv.theta_star + s, self._table, slope) for s in shifts]
            second = n_units**2 * units.variance
            third = n_units**3 * units.skewness * units.variance**1.5
        log[np.isnan(log) | (log == np.inf)] = -np.inf
        second = np.nan_to_num(second, nan=np.inf, posinf=np.inf)
        third = np.where(second > 0.0, np.nan_to_num(third, posinf=0.0, neginf=0.0), 0.0)
        return np.stack([log, second, third])


def _with_values(pilot: Pilot, values: np.ndarray) -> Pilot:
    return Pilot(
        pilot.starts, pilot.run_rows, values, pilot.n_rows, pilot.left_out, pilot.relative
    )


@dataclass(frozen=True)
class Tails:
    """The posterior along lines ``o + t v``, one a row, at T points.

    Attributes
    ----------
    origin, direction
        (L, d) o, from ``theta_star``, and v, whitened.
    low, high
        (L,) the part of the line inside the region; infinite where the posterior has no end.
    radius, walls
        The region: ``|z| <= radius`` and, of 2 L rows ``(a, h)``, ``a'z <= h``; two of each
        line, along ``-v`` and ``v``.
    mass
        (L, T) shares of the posterior of the line, summing to 1.
    weight
        (L, T) these times 1 + u^2.
    second, third
        (L, T) k V and k^2 kappa.
    order
        Of the control variates.
    names
        The parameter of each line; empty where it is none.
    """

    origin: Matrix
    direction: Matrix
    low: Vector
    high: Vector
    radius: float
    walls: Matrix
    mass: Matrix
    weight: Matrix
    second: Matrix
    third: Matrix
    order: int
    names: tuple[str, ...]

    def worst(self, k: int) -> tuple[float, str]:
        """Return the largest perturbation with ``k`` units, and the parameter of its line."""
        found = self.perturbation(k)
        line = int(np.argmax(found))
        return float(found[line]), self.names[line]

    def perturbation(self, k: int) -> Vector:
        """Return (L,) the integral that is bounded, with ``k`` units; ``inf`` if V is large."""
        with np.errstate(over="ignore", invalid="ignore"):
            variance = self.second / k
            delta = _log_perturbation(variance, k) - self.third / (3.0 * float(k) ** 2)
            delta = np.clip(np.nan_to_num(delta, nan=500.0), -500.0, 500.0)
            middle = (self.mass * np.clip(delta, -1.0, 1.0)).sum(axis=1, keepdims=True)
            found = (self.weight * np.abs(np.expm1(delta - middle))).sum(axis=1)
            large = (self.mass * variance).sum(axis=1) > LARGEST_MEAN_VARIANCE
        result: Vector = np.where(large, np.inf, found)
        return result

    def holds(self, k: int) -> bool:
        """Return whether the bound is kept on every line."""
        return self.worst(k)[0] <= LARGEST_PERTURBATION

    def units(self, least: int, most: int) -> float:
        """Return the fewest units from ``least`` on that keep the bound; ``inf``: over ``most``."""
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
        """Return the region, with those walls before which the perturbation would explode.

        Between the end of a line and the ball ``V`` is extrapolated with the power of the
        distance that its order has.
        """
        ends = np.stack([self.low, self.high], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.maximum(self.radius / np.abs(ends), 1.0) ** (2 * (self.order + 1))
            variance = self.second[:, [0, -1]] / k * growth
            high = np.isfinite(ends) & ~(_log_perturbation(variance, k) < 1.0)
        return Edge(self.radius, np.ascontiguousarray(self.walls[high.ravel()]))


def profile(
    cv: ControlVariates, dataset: Dataset, model: Model, unit_rows: int, choice: Choice
) -> Tails:
    """Follow the posterior along the lines; ``choice`` is what will be drawn."""
    evaluator = _Evaluator(cv, dataset, model, unit_rows, choice)
    centre = np.linalg.solve(cv.factor, cv.newton_step)
    shifts = pilot_shifts(cv)
    draws = np.linalg.solve(cv.factor, shifts.T).T
    scored = np.linalg.solve(cv.factor, cv.score_draws.T).T
    second = evaluator(np.concatenate([draws, scored]))[1]
    scale = _underestimate(choice, unit_rows, second[: len(draws)], second[len(draws) :])
    worst = (draws - centre)[np.argsort(-second[: len(draws)])[:_SPREAD]]
    axes = _axes(cv, evaluator, centre)
    names = [cv.labels[j] for j in axes] + [""] * (len(worst) + _SPREAD)
    directions = _unit(np.concatenate([cv.factor[axes], worst]))
    generator = rng.stream(0, 5, rng.Role.PLAN)
    across = generator.standard_normal(directions.shape)
    across -= (across * directions).sum(axis=1, keepdims=True) * directions
    across = math.sqrt(cv.dim - 1.0) * _unit(across)
    radial = _unit(generator.standard_normal((_SPREAD, cv.dim)))
    power = np.repeat([0.0, cv.dim - 1.0], [len(directions), _SPREAD])
    origin = centre + np.concatenate([across, np.zeros_like(radial)])
    direction = np.concatenate([directions, radial])
    ends = _ends(evaluator, origin, direction, power)
    radius, walls = _region(origin, direction, ends)
    low, high = _inside(origin, direction, radius, walls)
    low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
    t = np.linspace(np.maximum(low, -_FAR[-1]), np.minimum(high, _FAR[-1]), _POINTS, axis=1)
    points = origin[:, None] + t[..., None] * direction[:, None]
    log, second, third = evaluator(points.reshape(-1, cv.dim)).reshape(3, *t.shape)
    mass = _mass(log, t, power)
    mean = (mass * t).sum(axis=1, keepdims=True)
    square = (t - mean) ** 2
    spread = np.maximum((mass * square).sum(axis=1, keepdims=True), 1e-12)
    return Tails(
        origin, direction, low, high, radius, walls, mass, mass * (1.0 + square / spread),
        scale * second, scale**1.5 * third, cv.order, tuple(names),
    )  # fmt: skip


def _region(origin: Matrix, direction: Matrix, ends: Matrix) -> tuple[float, Matrix]:
    """Return the smallest ball and walls across every line that hold the ends of all lines.

    A wall is no nearer than any end: the end of a slanted line may be near where the
    posterior has a long tail to its side.
    """
    d = origin.shape[1]
    corners = np.concatenate([origin + end[:, None] * direction for end in ends])
    walls = np.full((2 * len(direction), d + 1), np.inf)
    walls[0::2, :d], walls[1::2, :d] = -direction, direction
    if not np.isfinite(ends).all():
        finite = np.isfinite(corners).all(axis=1)
        own = (origin * direction).sum(axis=1)
        far = np.stack([ends[0] - own, ends[1] + own], axis=1)
        walls[:, d] = np.maximum((walls[:, :d] @ corners[finite].T).max(axis=1), np.abs(far).ravel())
        return math.inf, walls
    walls[:, d] = (walls[:, :d] @ corners.T).max(axis=1)
    return float(np.sqrt((corners**2).sum(axis=1).max())), walls


def _inside(origin: Matrix, direction: Matrix, radius: float, walls: Matrix) -> Matrix:
    """Return (2, L) the interval of t for which ``o + t v`` is in the region."""
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


def _axes(cv: ControlVariates, evaluator: _Evaluator, centre: Vector) -> Index:
    """Return the parameters whose directions are followed: of many those of the largest V.

    The direction of parameter j is ``S' e_j``, in which the others follow it.
    """
    if cv.dim <= _AXES:
        return np.arange(cv.dim)
    far = 4.0 * _unit(cv.factor)
    second = evaluator(centre + np.concatenate([far, -far]))[1].reshape(2, -1).max(axis=0)
    chosen: Index = np.sort(np.argsort(-second, kind="stable")[:_AXES])
    return chosen


def _ends(evaluator: _Evaluator, origin: Matrix, direction: Matrix, power: Vector) -> Matrix:
    """Return (2, L) where either side of each line has ``MASS_BEYOND`` left.

    Both sides are walked until the density has fallen far enough; where it never does the
    line has no end.
    """
    dim = origin.shape[1]
    # a line through the centre has the lengths of all d coordinates
    longer = np.where(power > 0.0, math.sqrt((dim - 1.0 + _NEAR[-1] ** 2)) / _NEAR[-1], 1.0)
    half = np.array([*_NEAR, *_FAR])
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
        log[line, column] = evaluator(z)[0] + volume
        needed[:] = False
        top = log.max(axis=1)
        open_sides = [log[:, middle + side * step] > top - _DROP for side in (-1, 1)]
        if step < len(half):
            for side, still in zip((-1, 1), open_sides, strict=True):
                needed[still, middle + side * (step + 1)] = True
    ends = np.empty((2, len(t)))
    for row in range(len(t)):
        fine = np.linspace(t[row, 0], t[row, -1], 8001)
        value = np.interp(fine, t[row], np.maximum(log[row], log[row].max() - 1e4))
        mass = np.exp(value - value.max())
        below = np.cumsum(mass) / mass.sum()
        ends[0, row] = fine[np.searchsorted(below, MASS_BEYOND)]
        ends[1, row] = fine[min(np.searchsorted(below, 1.0 - MASS_BEYOND), len(fine) - 1)]
    ends[0, open_sides[0]] = -np.inf
    ends[1, open_sides[1]] = np.inf
    return ends


def _mass(log: Matrix, t: Matrix, power: Vector) -> Matrix:
    """Return (L, T) the posterior's mass at each point of evenly spaced ones."""
    spacing = t[:, 1:2] - t[:, :1]
    log = log + power[:, None] * np.log(np.maximum(np.abs(t), 0.1 * spacing))
    mass = np.exp(log - log.max(axis=1, keepdims=True))
    shares: Matrix = mass / mass.sum(axis=1, keepdims=True)
    return shares


def _underestimate(choice: Choice, unit_rows: int, drawn: Vector, scored: Vector) -> float:
    """Return by how much the rows here understate V: rare rows are in larger samples.

    Those of the pass and of the pilot, at the draws of each.
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


def _unit(rows: Matrix) -> Matrix:
    """Return rows of length 1; a row of zeros stays."""
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    unit: Matrix = rows / np.where(length > 0.0, length, 1.0)
    return unit
