"""The log posterior and the moments of the units, at points far from the mode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.forecast import PLAN, Counter, Phases
from streammc.control_variates.level_coordinates import level_coordinates, stretched
from streammc.control_variates.plan.certainty_choice import Choice
from streammc.control_variates.plan.pilot import (
    Pilot,
    choose_runs,
    gather_runs,
    least_run,
    remainders,
)
from streammc.control_variates.subset import gather
from streammc.likelihood.grouped import fewer
from streammc.numerics.prior import log_prior
from streammc.protocols import Dataset, Matrix, Model

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
        found = np.empty((3, len(z)))
        for first in range(0, len(z), _BATCH):
            here = slice(first, first + _BATCH)
            moved = z[here] @ self._cv.factor.T
            shifts, log_jacobian = stretched(self._levels, self._cv.theta_star, moved)
            found[:, here] = self._batch(shifts)
            found[0, here] += log_jacobian
            self._count(len(z[here]))
        return found

    def _batch(self, shifts: Matrix) -> Matrix:
        cv, pilot, n_units = self._cv, self._pilot, float(self._n_units)
        part = remainders(cv, self._model, self._rows, shifts)
        part[~(np.abs(part) < 3e38)] = np.inf
        values = part.reshape(len(shifts), *pilot.left_out.shape).astype(np.float32)
        units = _with_values(pilot, values).units(self._unit_rows)
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


def _with_values(pilot: Pilot, values: NDArray[np.float32]) -> Pilot:
    return Pilot(pilot.starts, pilot.run_rows, values, pilot.n_rows, pilot.left_out, pilot.relative)
