"""Pilot of the plan: remainders of sampled runs of rows at posterior draws.

The histogram of the pass is exact over the rows but sees each row alone, at few draws
and around the centre of an earlier pass. The pilot sees neighbours together, at more
draws, around the mode that the last pass points to.

Sums are compiled: NumPy takes ten passes over copies of 2 MB for each of 64 draws: half a second of
a plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray
from scipy.special import chdtri

from streammc import rng
from streammc.control_variates.coordinates import coordinates, covering_draws
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.block_pass import RowSums
from streammc.likelihood.data_views import fewer, gather
from streammc.numerics.jit import i8, index_vector, jit, matrix, vector
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

PILOT_ROWS = 262_144
N_DRAWS = 64
"""Draws S from the Laplace approximation."""
_BATCH_BYTES = 2**24
"""Rows that are gathered at once."""
_FEW_UNITS = 30
_BY_CHANCE = 1e-4
"""With fewer units, the chance of a design effect that counts as one of independent rows."""


def remainders(
    cv: ControlVariates, model: Model, rows: Rows, shifts: Matrix
) -> NDArray[np.float64]:
    """Return (S, m): ``w (l - q)`` of each row at each ``theta_star + shift``."""
    m, q = rows.X.shape
    result = np.empty((len(shifts), m))
    expansions = coordinates(model, cv.theta_star, cv.noise)
    shifts = expansions.shifts(shifts)
    sums = RowSums(expansions.model, expansions.centre, shifts, cv.order, q, with_sums=False)
    sums.add(rows.X, rows.y, rows.offset, rows.weight, np.empty(m), result)
    return result


@dataclass(frozen=True)
class UnitMoments:
    """Moments of D_j over the units of a pilot, one value per draw (S,)."""

    variance: Vector
    skewness: Vector
    kurtosis: Vector
    largest: Vector
    """Largest abs(D_j - mean D)."""
    mean: Vector


@dataclass(frozen=True)
class Pilot:
    """Remainders of aligned runs of rows at S draws."""

    starts: Index
    """(runs,) first row of each run, ascending."""
    run_rows: int
    """Rows of a run; the last run of the data may be short, its missing rows are 0."""
    values: NDArray[np.float32]
    """(S, runs, run_rows) float32: 64 MB for a pilot of full size; sums are float64."""
    n_rows: int
    """Rows of the data."""
    left_out: NDArray[np.bool_]
    """(runs, run_rows) whether a row is certain; its remainder counts as 0."""
    relative: NDArray[np.float32] | None = None
    """(U,) probabilities of the units over the uniform one, U omega_j; ``None``: all the same.
    Totals are then ``D_j / (U omega_j)``, and their moments those under omega."""

    @property
    def rows(self) -> Index:
        """(runs, run_rows) row index of each value; ``n_rows`` or more for padding."""
        return self.starts[:, None] + np.arange(self.run_rows)

    def without(self, certain: Index, relative: NDArray[np.float32] | None = None) -> Pilot:
        """Return the pilot with the rows ``certain`` left out, units drawn by ``relative``."""
        return replace(self, left_out=np.isin(self.rows, certain), relative=relative)

    def shares(self, unit_rows: int) -> Vector:
        """Return (units,) relative probabilities U omega_j of the units of the pilot."""
        first = self.starts[:, None] + np.arange(0, self.run_rows, unit_rows)
        units = first[first < self.n_rows] // unit_rows
        if self.relative is None:
            return np.ones(len(units))
        shares: Vector = self.relative[units].astype(np.float64)
        return shares

    def totals(self, unit_rows: int) -> Iterator[Vector]:
        """Yield, draw by draw (a few MB at a time), the totals of the units."""
        real = self.starts[:, None] + np.arange(0, self.run_rows, unit_rows) < self.n_rows
        shares = self.shares(unit_rows)
        for values in self.values:
            sampled = np.where(self.left_out, 0.0, values.astype(np.float64))
            with np.errstate(invalid="ignore", over="ignore"):
                yield sampled.reshape(*real.shape, unit_rows).sum(axis=2)[real] / shares

    def units(self, unit_rows: int) -> UnitMoments:
        """Return the moments of the totals of the units of ``unit_rows`` rows."""
        shares = self.shares(unit_rows)
        weight = shares / shares.mean()
        moments = np.empty((5, len(self.values)))
        values = np.ascontiguousarray(self.values, np.float32).reshape(len(self.values), -1)
        left_out, totals = np.ascontiguousarray(self.left_out).ravel(), np.empty(len(shares))
        unit_moments(values, left_out, unit_rows, shares, weight, totals, moments)
        return UnitMoments(*moments)

    def variance_ratio(self, unit_rows: int) -> float:
        """Return Var(D_j) / (b Var(d_i)), the median over draws; 1 where nothing varies.

        With ``d_i`` the remainders of rows. By it k is chosen: unlike in :meth:`deff`, rows left
        out count as rows of remainder 0, and a short last unit like any other.
        """
        if unit_rows == 1:
            return 1.0
        equal = replace(self, relative=None)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = equal.units(unit_rows).variance / (unit_rows * equal.units(1).variance)
        ratio = ratio[np.isfinite(ratio)]
        return float(np.median(ratio)) if len(ratio) else 1.0

    def deff(self, unit_rows: int) -> float:
        """Return the design effect: the variance of unit totals over that of independent rows.

        With ``c_j`` rows in unit ``j``, certainty rows left out, and ``m`` the mean of ``d_i``:
        ``sum_j (D_j - c_j m)^2 / sum_i (d_i - m)^2``, the median over draws. A short last unit
        counts as the rows that it has. At most 1 where fewer than 30 units do not differ
        significantly from independent rows (chi-square, 1e-4).
        """
        if unit_rows == 1:
            return 1.0
        sampled = (self.rows < self.n_rows) & ~self.left_out
        shape = (len(self.starts), -1, unit_rows)
        units = int(sampled.reshape(shape).any(axis=2).sum())
        ratios = []
        for values in self.values:
            d = np.where(sampled, values.astype(np.float64), 0.0)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                d -= np.where(sampled, d.sum() / sampled.sum(), 0.0)
                ratios.append((d.reshape(shape).sum(axis=2) ** 2).sum() / (d * d).sum())
        known = np.asarray(ratios)[np.isfinite(ratios)]
        ratio = float(np.median(known)) if len(known) else 1.0
        if units < _FEW_UNITS and ratio * units < chdtri(max(units - 1, 1), _BY_CHANCE):
            return min(ratio, 1.0)
        return ratio


def evaluate(cv: ControlVariates, dataset: Dataset, model: Model, unit_rows: int) -> Pilot:
    """Return the pilot: runs of rows, and their remainders at :func:`pilot_shifts`."""
    most = fewer(PILOT_ROWS, dataset)
    starts, run_rows = choose_runs(dataset.n_rows, unit_rows, most, least_run(dataset))
    shifts = pilot_shifts(cv)
    values = np.empty((N_DRAWS, len(starts), run_rows), np.float32)
    batch = max(1, _BATCH_BYTES // (8 * run_rows * (dataset.n_features + 3)))
    for first in range(0, len(starts), batch):
        some = starts[first : first + batch]
        rows = gather_runs(dataset, some, run_rows)
        part = remainders(cv, model, rows, shifts)
        part[~(np.abs(part) < 3e38)] = np.inf  # float32 has no larger number; NaN too
        values[:, first : first + batch] = part.reshape(N_DRAWS, len(some), run_rows)
    left_out = np.zeros((len(starts), run_rows), np.bool_)
    return Pilot(starts, run_rows, values, dataset.n_rows, left_out)


def choose_runs(
    n_rows: int, unit_rows: int, most_rows: int, least_rows: int = 64
) -> tuple[Index, int]:
    """Return the first rows of aligned runs, all or a random part, and the length of a run.

    A run consists of whole units and has at least ``least_rows`` rows; together the runs have at
    most ``most_rows`` rows.
    """
    run_rows = unit_rows * -(-least_rows // unit_rows)
    n_runs = -(-n_rows // run_rows)
    wanted = max(1, most_rows // run_rows)
    if n_runs <= wanted:
        runs = np.arange(n_runs, dtype=np.int64)
    else:
        generator = rng.stream(0, 2, rng.Role.PLAN)
        chosen = generator.choice(n_runs, size=wanted, replace=False, shuffle=False)
        runs = np.sort(chosen).astype(np.int64)
    return runs * run_rows, run_rows


def least_run(dataset: Dataset) -> int:
    """Return the fewest rows of a run: 64, but 1 of groups, which are read one by one."""
    return 64 if dataset.unit_offset is None else 1


def gather_runs(dataset: Dataset, starts: Index, run_rows: int) -> Rows:
    """Return the rows of runs, padded past the end of the data with rows of weight 0."""
    rows = gather(dataset, starts, run_rows)
    rows.y[rows.weight == 0.0] = rows.y[0]  # padding: any response the model can take
    return rows


def pilot_shifts(cv: ControlVariates) -> Matrix:
    """Return (N_DRAWS, d) Laplace draws around the mode, as shifts from ``theta_star``."""
    shifts: Matrix = cv.newton_step + covering_draws(N_DRAWS, cv.dim, 3) @ cv.factor.T
    return shifts


_values: Any = types.Array(types.float32, 2, "C")
_flags: Any = types.Array(types.boolean, 1, "C")
_group_sums: Any = types.Array(types.float64, 3, "C")


@jit(types.void(_values, index_vector, _group_sums, matrix), borrow=True)
def add_by_group(values, group, sums, maxima):  # type: ignore[no-untyped-def]
    """Add the columns of ``values`` (S, m) to the sums of their ``group`` (m,).

    ``sums`` (S, G, 3) are those of r, r^2 and r^3, and ``maxima`` (S, G) the largest abs(r).
    """
    for s in range(values.shape[0]):
        for i in range(values.shape[1]):
            g = group[i]
            r = np.float64(values[s, i])
            square = r * r
            sums[s, g, 0] += r
            sums[s, g, 1] += square
            sums[s, g, 2] += square * r
            maxima[s, g] = max(maxima[s, g], abs(r))


@jit(types.void(_values, _flags, i8, vector, vector, vector, matrix), borrow=True)
def unit_moments(values, left_out, unit_rows, shares, weight, totals, moments):  # type: ignore[no-untyped-def]
    """Write the moments (5, S) of the totals of the first units, of ``unit_rows`` values each.

    A total is the sum of the values (S, >= m b) that are not ``left_out`` over its share (m,);
    ``weight`` (m,) has mean 1. The moments are those of ``pilot.UnitMoments``, in its order;
    ``totals`` (m,) is scratch. What is undefined is NaN.
    """
    m = totals.shape[0]
    for s in range(values.shape[0]):
        mean = 0.0
        for j in range(m):
            total = 0.0
            for i in range(j * unit_rows, (j + 1) * unit_rows):
                if not left_out[i]:
                    total += np.float64(values[s, i])
            totals[j] = total / shares[j]
            mean += weight[j] * totals[j]
        mean /= m
        second, third, fourth, largest = 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            away = totals[j] - mean
            square = away * away
            second += weight[j] * square
            third += weight[j] * square * away
            fourth += weight[j] * square * square
            largest = max(largest, abs(away))
        second /= m
        moments[0, s] = second
        moments[1, s] = third / m / second**1.5
        moments[2, s] = fourth / m / second**2
        moments[3, s] = math.nan if math.isnan(second) else largest
        moments[4, s] = mean
