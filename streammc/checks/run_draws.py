"""Draws of a finished run for checks of its model, and log-likelihoods of rows at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.default_priors import as_recorded
from streammc.errors import ConfigError, DataError, IdentityError, ModelError, RefusedError
from streammc.likelihood.temperature import temperature_of
from streammc.prediction.predictive import log_densities
from streammc.prediction.predictors import Coefficients, load_draws
from streammc.protocols import Dataset, Index, Matrix, Model, Rows
from streammc.runs.audit import thin
from streammc.runs.record import registered_model
from streammc.trace.run_directory import RunDirectory


class RunDraws(NamedTuple):
    """Thinned draws of a run, all of the same weight."""

    theta: Matrix
    """(S, d) unconstrained draws, chain after chain."""
    kept: NDArray[np.int64]
    """(D,) numbers of the draws in each chain, S = chains D."""
    design: dict[str, Any]


def run_draws(
    run: RunDirectory, model: Model, wanted: int, trained_on: Dataset | None = None
) -> RunDraws:
    """Return evenly spaced draws of a finished run, about ``wanted`` of all chains together.

    ``trained_on``: the data set of the run, which one of an earlier version does not describe.

    Raises
    ------
    DataError
        If the run is unfinished.
    ModelError
        If the likelihood of the model is not a product over rows.
    RefusedError
        If the draws have signs, or the run has a temperature other than 1.
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
    found = load_draws(run, model, wanted, trained_on)
    if found.weights is not None:
        raise RefusedError(
            "expected draws of equal weight, found a run whose draws have signs: a check of its "
            "model takes unweighted draws; sample with hmc-ecs or hmc"
        )
    return RunDraws(found.theta, thin(run.chains, run.committed_draws, wanted), found.design)


def model_of(run: RunDirectory, given: Model | None) -> Model:
    """Return the model of a run, rebuilt from its record, or as given where it is that one.

    Raises
    ------
    ConfigError
        If the given model is another.
    StoreError
        If none is given and the model is the user's own.
    """
    known = run.identity["model"]
    built = registered_model(known) if given is None else as_recorded(given, known)
    if built.describe() != known:
        raise ConfigError(
            f"expected the model of the run {str(run.path)!r}, found another: {built.name!r}; "
            "leave model out, or give that of the run"
        )
    return built


def rows_of_run(run: RunDirectory, table: Dataset) -> Dataset:
    """Return the rows that a run was fitted to: a table, or its rows before others were appended.

    Raises
    ------
    IdentityError
        If the table is not that of the run.
    """
    fingerprint = run.identity["store"]
    if table.fingerprint == fingerprint:
        return table
    before = table.earlier(fingerprint)
    if before is None:
        raise IdentityError(
            f"expected the store of the run (fingerprint {fingerprint[:12]}), found "
            f"{table.address!r} ({table.fingerprint[:12]}): give the store that was sampled; "
            "rows of another one are scored by streammc predict"
        )
    return before


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
