"""Log-likelihoods of rows at draws of theta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.prediction.log_scores import log_densities
from streammc.prediction.mean_responses import Coefficients
from streammc.protocols import Index, Matrix, Model, Rows

_ENTRIES: Final = 2**18
"""Predictors of a tile: 2 MB."""


def tile_rows(predictors: int, draws: int) -> int:
    """Return the rows of a tile whose predictors fit into a cache."""
    return max(_ENTRIES // max(predictors * draws, 1), 1)


@dataclass(frozen=True, eq=False)
class RowDensities:
    """Log-likelihoods ``w_i log p(y_i | theta_s)`` of rows, or of groups, of a table."""

    model: Model
    coefficients: Coefficients
    where: str
    """The table, for messages."""

    @property
    def predictors(self) -> int:
        """Number of predictors of a row, p."""
        return self.model.n_linear + self.model.n_scalar

    def tile_rows(self) -> int:
        """Return the rows that are evaluated at once."""
        return tile_rows(self.predictors, self.coefficients.draws)

    def of_rows(self, rows: Rows, numbers: Index) -> Matrix:
        """Return the log-likelihoods (S, m) of some rows; 0 for rows of weight 0.

        ``numbers`` (m,) are those of the rows in the table, for the message.

        Raises
        ------
        DataError
            If one is not finite.
        """
        return self.of_predictors(self.coefficients.predictors(rows.X, rows.offset), rows, numbers)

    def of_predictors(self, eta: NDArray[np.float64], rows: Rows, numbers: Index) -> Matrix:
        """Return the log-likelihoods (S, m) of rows at predictors ``eta`` (p, m, S)."""
        p, m, draws = eta.shape
        values = np.empty((draws, m))
        log_densities(
            self.model.link,
            np.ascontiguousarray(eta),
            np.asarray(rows.X, dtype=np.float64).T,
            np.ascontiguousarray(rows.y, dtype=np.float64),
            self.model.constants,
            np.empty((p, m)),
            np.empty((1 + p + p * (p + 1) // 2, m)),
            values,
        )
        with np.errstate(invalid="ignore"):
            values *= rows.weight
        values[:, rows.weight == 0.0] = 0.0
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=0))
        if len(wrong):
            at = wrong[0]
            raise DataError(
                f"expected finite log-likelihoods at every draw in {self.where}, found "
                f"{values[:, at].min()} in row {int(numbers[at]) + 1}: check its columns and "
                "its response"
            )
        return values
