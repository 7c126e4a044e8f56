"""Draws of a finished run, with what a check of its model must know and refuse."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.default_priors import as_recorded
from streammc.errors import ConfigError, IdentityError, ModelError, RefusedError
from streammc.likelihood.temperature import temperature_of
from streammc.prediction.thinned import load_draws
from streammc.protocols import Dataset, Matrix, Model
from streammc.runs.audit import thin
from streammc.runs.identity import registered_model
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
            "expected draws that count the same, found a run with signs: a check of its model "
            "needs equal weights; sample with hmc-ecs or hmc"
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


def rows_of_run(run: RunDirectory, table: Any) -> Dataset:
    """Return the rows that a run was fitted to: a table, or its rows before others were appended.

    Raises
    ------
    IdentityError
        If the table is not that of the run.
    """
    fingerprint = run.identity["store"]
    if table.fingerprint == fingerprint:
        return table  # type: ignore[no-any-return]
    before = table.earlier(fingerprint) if hasattr(table, "earlier") else None
    if before is None:
        raise IdentityError(
            f"expected the store of the run (fingerprint {fingerprint[:12]}), found "
            f"{table.address!r} ({table.fingerprint[:12]}): give the store that was sampled; "
            "rows of another one are scored by streammc predict"
        )
    return before  # type: ignore[no-any-return]
