"""Remainders of some runs of rows at posterior draws: what the plan is checked against.

The histogram of the pass is exact over the rows but sees each row alone, at few draws
and around the centre of an earlier pass. The pilot sees neighbours together, at more
draws, around the mode that the last pass points to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammc import rng
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.row_sums import RowSums
from streammc.control_variates.subset import gather
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

PILOT_ROWS = 262_144
N_DRAWS = 32
_BATCH_BYTES = 2**24


def remainders(
    model: Model, rows: Rows, theta: Vector, shifts: Matrix, order: int
) -> NDArray[np.float64]:
    """Return (S, m): ``w (l - q)`` of each row at each ``theta + shift``."""
    m, q = rows.X.shape
    result = np.empty((m, len(shifts)))
    sums = RowSums(model, theta, shifts, order, q, with_sums=False)
    sums.add(rows.X, rows.y, rows.offset, rows.weight, np.empty(m), result)
    return np.ascontiguousarray(result.T)


@dataclass(frozen=True)
class Pilot:
    """Remainders of aligned runs.

    Attributes
    ----------
    starts
        (runs,) first row of each run, ascending.
    run_rows
        Rows of a run; the last run of the data may be short, its missing rows are 0.
    values
        (S, runs, run_rows).
    n_rows
        Rows of the data.
    """

    starts: Index
    run_rows: int
    values: NDArray[np.float64]
    n_rows: int

    @property
    def rows(self) -> Index:
        """(runs, run_rows) index of each value; at or past ``n_rows`` for padding."""
        return self.starts[:, None] + np.arange(self.run_rows)

    @property
    def is_everything(self) -> bool:
        """Whether every row of the data is in it."""
        return len(self.starts) * self.run_rows >= self.n_rows

    def without(self, certain: Index) -> Pilot:
        """Return the pilot with the remainders of the rows ``certain`` (sorted) left out."""
        keep = ~np.isin(self.rows, certain, assume_unique=True)
        return Pilot(self.starts, self.run_rows, np.where(keep, self.values, 0.0), self.n_rows)

    def totals(self, unit_rows: int) -> Matrix:
        """Return (S, units): D_j of the whole units of ``unit_rows`` rows."""
        whole = self.values[:, self.starts + self.run_rows <= self.n_rows]
        if whole.shape[1] == 0:
            whole = self.values
        totals: Matrix = whole.reshape(len(whole), -1, unit_rows).sum(axis=2)
        return totals

    def deff(self, unit_rows: int) -> float:
        """Return b Var(D_j / b) / Var(d_i), the median over draws."""
        if unit_rows == 1:
            return 1.0
        units, single = self.totals(unit_rows), self.totals(1)
        if units.shape[1] < 2:
            return 1.0
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = units.var(axis=1) / (unit_rows * single.var(axis=1))
        ratio = ratio[np.isfinite(ratio)]
        return float(np.median(ratio)) if len(ratio) else 1.0

    def largest_jump(self, unit_rows: int) -> float:
        """Return max abs(D_j - mean D) over units and draws."""
        units = self.totals(unit_rows)
        return float(np.nan_to_num(np.max(np.abs(units - units.mean(axis=1, keepdims=True)))))


def evaluate(cv: ControlVariates, dataset: Dataset, model: Model, unit_rows: int) -> Pilot:
    """Gather runs of at least 64 rows, whole units each, and their remainders."""
    run_rows = unit_rows * -(-64 // unit_rows)
    n_runs = -(-dataset.n_rows // run_rows)
    wanted = max(1, PILOT_ROWS // run_rows)
    if n_runs <= wanted:
        runs = np.arange(n_runs, dtype=np.int64)
    else:
        generator = rng.stream(0, 2, rng.Role.PLAN)
        chosen = generator.choice(n_runs, size=wanted, replace=False, shuffle=False)
        runs = np.sort(chosen).astype(np.int64)
    starts = runs * run_rows
    xi = rng.stream(0, 3, rng.Role.PLAN).standard_normal((N_DRAWS, cv.dim))
    shifts = cv.newton_step + xi @ cv.factor.T
    values = np.empty((N_DRAWS, len(starts), run_rows))
    batch = max(1, _BATCH_BYTES // (8 * run_rows * (dataset.n_features + 3)))
    for first in range(0, len(starts), batch):
        some = starts[first : first + batch]
        rows = gather(dataset, some, run_rows)
        rows.y[rows.weight == 0.0] = rows.y[0]  # padding: any response the model can take
        part = remainders(model, rows, cv.theta_star, shifts, cv.order)
        part[:, rows.weight == 0.0] = 0.0
        part[np.isnan(part)] = np.inf
        values[:, first : first + batch] = part.reshape(N_DRAWS, len(some), run_rows)
    return Pilot(starts, run_rows, values, dataset.n_rows)
