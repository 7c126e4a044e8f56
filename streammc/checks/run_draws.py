"""Draws of a finished run for checks of its model, and log-likelihoods of rows at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError, ModelError, RefusedError
from streammc.likelihood.temperature import temperature_of
from streammc.prediction.predictive import densities_at
from streammc.prediction.predictors import Coefficients, Draws, load_draws
from streammc.protocols import Dataset, Index, Matrix, Model, Rows
from streammc.trace.run_directory import RunDirectory


def run_draws(
    run: RunDirectory, model: Model, wanted: int, trained_on: Dataset | None = None
) -> Draws:
    """Return evenly spaced draws of a finished run, about ``wanted`` of all chains together.

    The draws have equal weights. ``trained_on`` is the data set of the run, needed if an earlier
    version sampled it: such a run does not describe its design. DataError if the run is unfinished;
    ModelError if the likelihood of the model is not a product over rows; RefusedError if the draws
    have signs, or the run has a temperature other than 1.
    """
    if model.joint is not None:
        raise ModelError(
            f"expected a likelihood that is a product over rows, found the model {model.name!r}, "
            "of which no row has a likelihood of its own: check it by simulating a store"
        )
    heat = temperature_of(run.identity, run.attributes)
    if heat != 1.0:
        raise RefusedError(
            f"expected a run at temperature 1, found {heat:g}: at others the draws are not those "
            "of the posterior; sample at temperature 1"
        )
    posterior = load_draws(run, model, wanted, trained_on)
    if posterior.weights is not None:
        raise RefusedError(
            "expected draws of equal weight, found a run whose draws have signs: a check of its "
            "model takes unweighted draws; sample with hmc-ecs or hmc"
        )
    return posterior


_ENTRIES: Final = 2**18
"""Predictors of a tile: 2 MB."""


def tile_rows(predictors: int, draws: int) -> int:
    """Return the rows of a tile whose predictors fit into a cache."""
    return max(_ENTRIES // max(predictors * draws, 1), 1)


@dataclass(frozen=True, eq=False)
class RowDensities:
    """Log-likelihoods ``w_i log p(y_i | theta_s)`` of rows at S draws.

    For a mixed model, whose data set has a unit of one group in each row, they are of groups.
    """

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

        DataError if one is not finite; ``numbers`` (m,) are those of the rows, for the message.
        """
        return self.of_predictors(self.coefficients.predictors(rows.X, rows.offset), rows, numbers)

    def of_predictors(self, eta: NDArray[np.float64], rows: Rows, numbers: Index) -> Matrix:
        """Return the log-likelihoods (S, m) of rows at predictors ``eta`` (p, m, S)."""
        values = densities_at(self.model, eta, rows.X, rows.y)
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
