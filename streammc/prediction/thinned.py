"""Thinned draws of a finished run, with their weights and the design of its store."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError, RefusedError
from streammc.protocols import Dataset, Matrix, Model, Vector
from streammc.runs import design
from streammc.runs.audit import thin
from streammc.trace.run_directory import RunDirectory

LEAST_SIGN: Final = 0.2
"""Smallest mean sign that is accepted; below it weighted averages of draws are noise."""
DRAWS_PER_DIMENSION: Final = 5
"""Fewest draws per parameter whose covariance is matched; with fewer it is too uncertain."""


class Draws(NamedTuple):
    """Thinned draws of a run."""

    theta: Matrix
    """(S, d) unconstrained draws."""
    weights: Vector | None
    """(S,) weights of the draws; ``None``: all 1."""
    mean_sign: float
    design: dict[str, Any]


def load_draws(
    run: RunDirectory,
    model: Model,
    wanted: int,
    trained_on: Dataset | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Draws:
    """Return evenly spaced draws of a finished run, and the design of its store.

    Parameters
    ----------
    run, model
        The run and its model.
    wanted
        Number of draws of all chains together.
    trained_on
        The data set of the run; needed if the run has no description of its design.
    weights
        (chain, draw), such as signs; ``None`` takes the run's own signs, if it has any.

    Raises
    ------
    DataError
        If the run is unfinished, or its design is unknown.
    RefusedError
        If the mean sign is below 0.2.
    """
    if not run.finished():
        raise DataError(
            f"expected a finished run at {str(run.path)!r}, found {run.committed_draws} of "
            f"{run.draws} draws: resume it"
        )
    kept = thin(run.chains, run.committed_draws, wanted)
    reported = run.draws_matrix()[:, kept]
    theta = model.unconstrain(reported).reshape(-1, reported.shape[-1])
    if weights is None:
        weights = run.read_group("sample_stats").get("sign")
    chosen, mean_sign = None, 1.0
    if weights is not None:
        everywhere = _numbers(weights)
        if everywhere.shape != (run.chains, run.committed_draws):
            raise ConfigError(
                f"expected weights of shape {(run.chains, run.committed_draws)}, found "
                f"{everywhere.shape}: pass one weight per draw"
            )
        chosen = np.ascontiguousarray(everywhere[:, kept].ravel())
        mean_sign = min(
            float(part.sum() / max(np.abs(part).sum(), 1e-300)) for part in (everywhere, chosen)
        )
        if not mean_sign >= LEAST_SIGN:
            raise RefusedError(
                f"expected a mean sign of at least {LEAST_SIGN}, found {mean_sign:.3g}: weighted "
                "averages would be noise; sample with a larger subsample"
            )
    described = run.attributes.get("design")
    if described is None and trained_on is not None:
        described = design.describe(trained_on.attributes)
    if described is None:
        raise DataError(
            f"expected the run {str(run.path)!r} to describe its store, found one of an earlier "
            "version: give the store it was sampled on"
        )
    return Draws(theta, chosen, mean_sign, described)


def matched(kept: Matrix, everything: Matrix) -> Matrix:
    """Return draws, moved so that their mean and covariance are those of all draws.

    Means and variances of linear functions then have no Monte Carlo error of their own.

    Parameters
    ----------
    kept
        (S, d) thinned draws.
    everything
        (N, d) all draws.
    """
    center, away = everything.mean(axis=0), kept - kept.mean(axis=0)
    size, d = kept.shape
    if size < DRAWS_PER_DIMENSION * d:
        return np.ascontiguousarray(center + away)
    try:
        whole = np.linalg.cholesky(np.cov(everything.T, bias=True).reshape(d, d))
        part = np.linalg.cholesky(np.cov(kept.T, bias=True).reshape(d, d))
    except np.linalg.LinAlgError:  # a parameter that does not move
        return np.ascontiguousarray(center + away)
    return np.ascontiguousarray(center + np.linalg.solve(part, away.T).T @ whole.T)


def _numbers(weights: object) -> NDArray[np.float64]:
    try:
        return np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected numbers as weights, found {type(weights).__name__}: pass one per draw"
        ) from None
