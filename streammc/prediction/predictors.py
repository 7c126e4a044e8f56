"""Draws of a run as linear predictors of the rows of a table: thinned, moved to its design."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    ConfigError,
    DataError,
    IdentityError,
    RefusedError,
    StoreError,
)
from streammc.models.base import wide
from streammc.protocols import Dataset, Index, Matrix, Model, Vector
from streammc.runs import record
from streammc.runs.audit import thin
from streammc.trace.run_directory import RunDirectory

_TILE_ENTRIES = 2**16  # rows times draws: 512 KB each for predictors and means
_LEAST_TILE = 64
_CURVE_DRAWS = 100
"""Draws with a ROC curve, enough for its band: a count costs as much as a prediction."""


class Coefficients(NamedTuple):
    """Draws as coefficients of the linear predictors of a table, on the table's scale."""

    slopes: NDArray[np.float64]
    """(n_linear, S, q) slopes."""
    shifts: Matrix
    """(n_linear, S) added to each predictor, for the difference of two standardisations."""
    scalars: Matrix
    """(n_scalar, S) parameters without a column."""
    weights: Vector | None
    """(S,) weights of the draws; ``None``: all 1."""

    @property
    def draws(self) -> int:
        """Number of draws, S."""
        return int(self.shifts.shape[1])

    def predictors(
        self, X: NDArray[Any], offset: Vector, eta: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the predictors (p, m, S) of rows ``X`` (m, q), in ``eta`` if it is given.

        The draws of a row are contiguous, because quantiles sort them.
        """
        design = np.asarray(X, dtype=np.float64)
        n_linear, draws = self.shifts.shape
        if eta is None:
            eta = np.empty((n_linear + len(self.scalars), len(X), draws))
        for a in range(n_linear):
            np.matmul(design, self.slopes[a].T, out=eta[a])
            if self.shifts[a].any():
                eta[a] += self.shifts[a]
        if offset.any():
            eta[0] += offset[:, None]
        eta[n_linear:] = self.scalars[:, None, :]
        return eta

    def tile_rows(self) -> int:
        """Return the rows of a tile, so that it fits into a cache."""
        return max(_TILE_ENTRIES // self.draws // _LEAST_TILE, 1) * _LEAST_TILE

    @property
    def curve_step(self) -> int:
        """Step between draws with a ROC curve; 1 if the draws have weights."""
        return 1 if self.weights is not None else -(-self.draws // _CURVE_DRAWS)

    @property
    def curve_draws(self) -> int:
        """Number of draws with a ROC curve, C."""
        return -(-self.draws // self.curve_step)

    def thinned(self, most: int) -> Coefficients:
        """Return at most ``most`` evenly spaced draws, without their weights."""
        at = np.arange(self.draws)[:: max(-(-self.draws // most), 1)]
        slopes, shifts, scalars = self.slopes[:, at], self.shifts[:, at], self.scalars[:, at]
        return Coefficients(slopes, shifts, scalars, None)


_LIKE: Final = "ingest the table with --like the store of the run"
_UNNAMED: Final = "offset"
"""Name of an offset that was given as an array of Dask or xarray."""
_TERMS: Final = re.compile(r" \+ (?=offset\()")
"""What joins the offsets of a formula in the name of its offset."""


def require_rows(table: Dataset, purpose: str) -> None:
    """Raise DataError for a table of cells: its rows stand for several of a table."""
    cells = table.attributes.get("cells")
    if cells:
        raise DataError(
            f"expected rows to {purpose}, found {table.n_rows:,} cells of {cells['rows']:,} rows "
            f"at {table.address!r}: make a data set of the rows, with --like (in Python like=)"
        )


def check(run: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """Refuse a table whose columns are not those of the run; return warnings.

    ``run`` and ``table`` are results of ``runs.record.describe_design``. Their standardisations may
    differ: :func:`on_table` transforms the draws. Warnings name what differs where the quantities
    may be the same. IdentityError: the message names the first difference.
    """
    ours, theirs = list(run["features"]), list(table["features"])
    if ours != theirs:
        pairs = zip(ours, theirs, strict=False)
        wrong = next((pair for pair in pairs if pair[0] != pair[1]), None)
        expected = (
            f"the features of the run, such as {wrong[0]!r}, found {wrong[1]!r}"
            if wrong
            else f"the {len(ours)} features of the run, found {len(theirs)}"
        )
        raise IdentityError(f"expected {expected} in the store: {_LIKE}")
    warnings = _compared_names(run, table)
    mine, other = run["formula"] or {}, table["formula"] or {}
    for key in ("states", "columns", "missing"):
        if mine.get(key, {}) != other.get(key, {}):
            raise IdentityError(
                f"expected the knots, levels and kinds that the run's formula "
                f"{mine.get('text')!r} was fitted with, found others in the store: {_LIKE}"
            )
    if run.get("designs") != table.get("designs"):
        raise IdentityError(
            f"expected a store with {_driven(run)}, as the run, found one with {_driven(table)}: "
            f"{_LIKE}"
        )
    # Trials and censoring belong to the response, which a table to predict may lack.
    of_response = ("trials", "censored") if table.get("response") is not None else ()
    for key in ("offset", *of_response):
        if (run.get(key) is None) != (table.get(key) is None):
            raise IdentityError(
                f"expected {'no ' * (run.get(key) is None)}{key} as in the store of the run, found "
                f"{table[key] or 'none'}: {_LIKE}"
            )
    return warnings


def _driven(design: Mapping[str, Any]) -> str:
    """Return which parameters have formulas of their own."""
    driven = [each["parameter"] for each in (design.get("designs") or ())[1:]]
    return f"--formula-for {', '.join(driven)}" if driven else "one formula"


def _compared_names(run: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """Refuse another offset, and another expression of the response; return warnings.

    A run of an earlier version has no name of its response, and a table to predict may have none.
    """
    warnings = []
    for key, effect in (("offset", "the predictions"), ("response", "the scores")):
        mine, other = run.get(key), table.get(key)
        if mine is None or other is None or _same(run, table, key):
            continue
        plain = not (run["formula"] or table["formula"])
        if not (plain and (key == "response" or _UNNAMED in (mine, other))):
            raise IdentityError(
                f"expected the {key} {mine!r} of the run, found {other!r} in the store: {_LIKE}"
            )
        warnings.append(
            f"the {key} of the table is {other!r}, that of the run {mine!r}: {effect} hold only "
            "if both are the same quantity"
        )
    return warnings


def _same(run: Mapping[str, Any], table: Mapping[str, Any], key: str) -> bool:
    """Return whether two designs have the same response, or the same offsets in any order."""
    mine, other = (_TERMS.split(each[key]) for each in (run, table))
    texts = [(each["formula"] or {}).get("text") for each in (run, table)]
    stated = key == "response" or all(name[0].startswith("offset(") for name in (mine, other))
    same_formula = texts[0] is not None and texts[0] == texts[1]
    return sorted(mine) == sorted(other) or (same_formula and stated)


def on_table(
    model: Model,
    theta: NDArray[np.float64],
    weights: Vector | None,
    run: Mapping[str, Any],
    table: Mapping[str, Any],
) -> Coefficients:
    """Return the coefficients of draws ``theta`` (S, d) for the standardisation of a table.

    The predictor of the run is ``sum_j b_j z_j`` with ``z = (x - mean) / scale``. For a table
    with ``z' = (x - mean') / scale'`` the slopes are ``b_j scale'_j / scale_j`` and the shift
    is ``sum_j b_j (mean'_j - mean_j) / scale_j``.
    """
    q = len(run["features"])
    mean, scale = standardization(run, q)
    other_mean, other_scale = standardization(table, q)
    theta = wide(model, theta, q)
    linear = theta[:, : model.n_linear * q].reshape(len(theta), model.n_linear, q)
    slopes = np.ascontiguousarray(linear.transpose(1, 0, 2))
    shifts = slopes @ ((other_mean - mean) / scale)
    return Coefficients(
        np.ascontiguousarray(slopes * (other_scale / scale)),
        shifts,
        np.ascontiguousarray(theta[:, model.n_linear * q :].T),
        weights,
    )


def standardization(design: Mapping[str, Any], q: int) -> tuple[Vector, Vector]:
    """Return mean and scale (q,) of the columns of a design; 0 and 1 if it has none."""
    table = design["standardization"]
    if table is None:
        return np.zeros(q), np.ones(q)
    mean, scale = (np.asarray(table[key], dtype=np.float64) for key in ("mean", "scale"))
    good = mean.shape == scale.shape == (q,) and np.isfinite([mean, scale]).all()
    if not good or not (scale > 0).all():
        raise StoreError(
            f"expected a mean and a positive scale for each of {q} features, found others: "
            "verify the store"
        )
    return mean, scale


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
    numbers: Index
    """(D,) numbers of the draws in each chain, S = chains D."""


def rows_of_run(run: RunDirectory, table: Dataset) -> Dataset:
    """Return the rows that a run was fitted to: a table, or its rows before others were appended.

    IdentityError if the table is not that of the run.
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


def load_draws(
    run: RunDirectory,
    model: Model,
    wanted: int,
    trained_on: Dataset | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Draws:
    """Return evenly spaced draws of a finished run, about ``wanted`` of all chains together.

    ``trained_on`` is the data set of the run, needed if the run has no description of its design.
    ``weights`` (chain, draw), such as signs; ``None`` takes the run's own signs, if it has any.
    DataError if the run is unfinished, or its design is unknown; RefusedError if the mean sign is
    below 0.2.
    """
    if not run.finished():
        raise DataError(
            f"expected a finished run at {str(run.path)!r}, found {run.committed_draws} of "
            f"{run.draws} draws: resume it"
        )
    numbers = thin(run.chains, run.committed_draws, wanted)
    reported = run.draws_matrix()[:, numbers]
    theta = model.unconstrain(reported).reshape(-1, reported.shape[-1])
    if weights is None:
        weights = run.statistics("sign").get("sign")
    chosen, mean_sign = None, 1.0
    if weights is not None:
        everywhere = _numbers(weights)
        if everywhere.shape != (run.chains, run.committed_draws):
            raise ConfigError(
                f"expected weights of shape {(run.chains, run.committed_draws)}, found "
                f"{everywhere.shape}: pass one weight per draw"
            )
        chosen = np.ascontiguousarray(everywhere[:, numbers].ravel())
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
        described = record.describe_design(trained_on.attributes)
    if described is None:
        raise DataError(
            f"expected the run {str(run.path)!r} to describe its store, found one of an earlier "
            "version: give the store it was sampled on"
        )
    return Draws(theta, chosen, mean_sign, described, numbers)


def matched(draws: Matrix, everything: Matrix) -> Matrix:
    """Return draws (S, d), moved so that their mean and covariance are those of all draws (N, d).

    Means and variances of linear functions then have no Monte Carlo error of their own.
    """
    center, away = everything.mean(axis=0), draws - draws.mean(axis=0)
    size, d = draws.shape
    if size < DRAWS_PER_DIMENSION * d:
        return np.ascontiguousarray(center + away)
    try:
        whole = np.linalg.cholesky(np.cov(everything.T, bias=True).reshape(d, d))
        part = np.linalg.cholesky(np.cov(draws.T, bias=True).reshape(d, d))
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
