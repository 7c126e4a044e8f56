"""Leave-one-out terms of rows from their log-likelihoods at draws (PSIS-LOO, WAIC).

With draws ``theta_s`` of the posterior and ``l_is = log p(y_i | theta_s)``, row i has

    lpd_i  = log (1/S) sum_s exp(l_is)
    elpd_i = log sum_s v_is exp(l_is),   v_is: smoothed and normalised exp(-l_is)
    waic_i = lpd_i - var_s l_is

(Vehtari, Gelman and Gabry 2017, eqs. 3, 10 and 11-13). The smoothing is that of
:mod:`streammc.diagnostics.pareto_tail`.

A row of weight w counts as w observations of one response, of which **one** is left out: its terms
are w times those of an observation, as in the table that has the row w times. Of a weight below 1
there is no more to leave out than the row: its importance weights are ``exp(-w l_is)``. Binomial
trials are weights too, but not equal observations: such a row is one observation, left out with all
its trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streammc.checks.row_densities import RowDensities
from streammc.diagnostics.pareto_tail import smoothed_rows
from streammc.protocols import Index, Matrix, PassTask, RowBlock, Rows, Vector


class RowTerms(NamedTuple):
    """Terms of m rows, each (m,), over all observations of a row; all 0 for a row of weight 0."""

    elpd: Vector
    """Log density of the response, one observation left out."""
    lpd: Vector
    """Log density of the response, all observations included."""
    waic: Vector
    """``lpd`` less the variance of the log-likelihood of each observation over draws."""
    shape: Vector
    """Pareto k of the weights that leave the row out; minus infinity where all are equal."""
    observations: Vector
    """Number in the row: its weight, or 1 for a row that is one observation."""
    weight: Vector


def observations(weight: Vector, whole_rows: bool) -> tuple[Vector, Vector]:
    """Return the powers of the density that make an observation of each row, and their numbers.

    Parameters
    ----------
    weight
        (m,) weights of the rows.
    whole_rows
        Whether a row is one observation, whatever its weight: the weights are trials.
    """
    used = (weight > 0.0).astype(np.float64)
    return (weight, used) if whole_rows else (used, weight)


def weight_kinds(weight: Vector) -> Vector:
    """Return the sum of weights, and the numbers of those but 0 and 1 and of fractions, (3,)."""
    uneven, fractions = (weight != 0.0) & (weight != 1.0), weight != np.rint(weight)
    return np.array([weight.sum(dtype=np.float64), uneven.sum(), fractions.sum()], np.float64)


def row_terms(values: Matrix, count: Vector, relative_size: float) -> RowTerms:
    """Return the terms of rows from the log-likelihoods ``values`` (S, m) of one observation each.

    Parameters
    ----------
    values
        Log-likelihoods at S draws, at least 25.
    count
        (m,) observations of each row; its ``weight`` too, unless the caller replaces it.
    relative_size
        Effective sample size of the draws over their number.
    """
    from scipy.special import logsumexp

    rows = np.ascontiguousarray(values.T)
    left_out = np.minimum(count, 1.0)
    log_weight, shape = smoothed_rows(-rows * left_out[:, None], relative_size)
    level = np.ptp(rows, axis=1) == 0.0
    shape = np.where(level, -np.inf, np.where(np.isnan(shape), np.inf, shape))
    used = count > 0.0
    lpd = logsumexp(rows, axis=1) - np.log(rows.shape[1])
    elpd = logsumexp(log_weight + rows, axis=1)
    waic = lpd - rows.var(axis=1, ddof=1)
    # Rounding must not make a term of a row without an observation.
    elpd, lpd, waic = (np.where(used, count * each, 0.0) for each in (elpd, lpd, waic))
    shape = np.where(used, shape, -np.inf)
    return RowTerms(elpd, lpd, waic, shape, count, count)


def joined(parts: list[RowTerms]) -> RowTerms:
    """Return the terms of neighbouring rows as one."""
    return RowTerms(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class LeaveOneOut(PassTask[RowTerms]):
    """``PassTask`` that returns the terms of all rows, in their order."""

    densities: RowDensities
    relative_size: float
    whole_rows: bool = False
    """Whether a row is one observation, whatever its weight."""

    def map(self, block: RowBlock) -> RowTerms:
        """Return the terms of the rows of a block."""
        return self.of_rows(Rows(*block[2:]), block.start + np.arange(len(block.y)))

    def combine(self, left: RowTerms, right: RowTerms) -> RowTerms:
        """Return the terms of two neighbouring blocks."""
        return joined([left, right])

    def of_rows(self, rows: Rows, numbers: Index) -> RowTerms:
        """Return the terms of rows, evaluated in tiles; ``numbers`` (m,) are for messages."""
        step = self.densities.tile_rows()
        parts = []
        for low in range(0, len(rows.y), step):
            tile = Rows(
                *(np.ascontiguousarray(each[low : low + step], np.float64) for each in rows)
            )
            power, count = observations(tile.weight, self.whole_rows)
            values = self.densities.of_rows(tile._replace(weight=power), numbers[low : low + step])
            found = row_terms(values, count, self.relative_size)
            parts.append(found._replace(weight=tile.weight))
        return joined(parts)
