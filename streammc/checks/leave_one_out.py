"""Leave-one-out terms of rows from their log-likelihoods at draws (PSIS-LOO, WAIC).

With draws ``theta_s`` of the posterior and ``l_is = log p(y_i | theta_s)``, row i has

    lpd_i  = log (1/S) sum_s exp(l_is)
    elpd_i = log sum_s v_is exp(l_is),   v_is: smoothed and normalised exp(-l_is)
    waic_i = lpd_i - var_s l_is

(Vehtari, Gelman and Gabry 2017, eqs. 3, 10 and 11-13). The smoothing is that of
:mod:`streammc.diagnostics.pareto_tail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streammc.checks.row_densities import RowDensities
from streammc.diagnostics.pareto_tail import smoothed_rows
from streammc.protocols import Index, Matrix, PassTask, RowBlock, Rows, Vector


class RowTerms(NamedTuple):
    """Terms of m rows, each (m,); all 0 for a row of weight 0."""

    elpd: Vector
    """Log density of the response, the row left out."""
    lpd: Vector
    """Log density of the response, the row included."""
    waic: Vector
    """``lpd`` less the variance of the log-likelihood over draws."""
    shape: Vector
    """Pareto k of the weights that leave the row out; minus infinity where all are equal."""
    used: Vector
    """1 where the weight of the row is above 0, else 0."""
    weight: Vector


def row_terms(values: Matrix, weight: Vector, relative_size: float) -> RowTerms:
    """Return the terms of rows from their log-likelihoods ``values`` (S, m).

    Parameters
    ----------
    values
        Log-likelihoods at S draws, at least 25.
    weight
        (m,) weights of the rows.
    relative_size
        Effective sample size of the draws over their number.
    """
    from scipy.special import logsumexp

    rows = np.ascontiguousarray(values.T)
    log_weight, shape = smoothed_rows(-rows, relative_size)
    level = np.ptp(rows, axis=1) == 0.0
    shape = np.where(level, -np.inf, np.where(np.isnan(shape), np.inf, shape))
    used = weight > 0.0
    lpd = logsumexp(rows, axis=1) - np.log(rows.shape[1])
    elpd = logsumexp(log_weight + rows, axis=1)
    waic = lpd - rows.var(axis=1, ddof=1)
    # Rounding must not make a term of a row without an observation.
    elpd, lpd, waic = (np.where(used, each, 0.0) for each in (elpd, lpd, waic))
    shape = np.where(used, shape, -np.inf)
    return RowTerms(elpd, lpd, waic, shape, used.astype(np.float64), weight)


def joined(parts: list[RowTerms]) -> RowTerms:
    """Return the terms of neighbouring rows as one."""
    return RowTerms(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class LeaveOneOut(PassTask[RowTerms]):
    """``PassTask`` that returns the terms of all rows, in their order."""

    densities: RowDensities
    relative_size: float

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
            values = self.densities.of_rows(tile, numbers[low : low + step])
            parts.append(row_terms(values, tile.weight, self.relative_size))
        return joined(parts)
