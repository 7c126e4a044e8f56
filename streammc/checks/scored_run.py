"""Scores of a run on the rows it was fitted to: in-sample, WAIC and leave-one-out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streammc.checks.difference_estimate import Estimate, difference_total, exact_total
from streammc.checks.leave_one_out import LeaveOneOut, RowTerms, joined
from streammc.checks.posterior_predictive import sampled_rows
from streammc.checks.row_densities import RowDensities
from streammc.checks.run_draws import RunDraws, model_of, rows_of_run, run_draws
from streammc.checks.score_request import DRAWS, FEWEST_DRAWS, ScoreRequest
from streammc.checks.score_warnings import pareto_facts, score_warnings
from streammc.checks.surrogate import Surrogate, SurrogateSums
from streammc.control_variates.kinds import PASS_OPTIONS, check_kinds, check_progress
from streammc.diagnostics.effective_size import ess_mean
from streammc.docstrings import documented
from streammc.errors import DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.grouped import Grouped, by_group
from streammc.likelihood.unit_words import unit_name
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction import designs
from streammc.prediction.predict import opened_run
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a run, and the terms of the rows that were evaluated."""

    facts: dict[str, Any]
    """JSON; see :func:`score`."""
    rows: Index
    """(m,) numbers of the rows, or groups, that were evaluated."""
    terms: RowTerms
    surrogate: Matrix | None
    """(m, 3) their surrogates; ``None`` where all rows were evaluated."""
    sums: SurrogateSums | None

    def pointwise(self) -> dict[str, Any]:
        """Return the terms by row as JSON."""
        kept = {"elpd_loo": self.terms.elpd, "lpd": self.terms.lpd, "pareto_k": self.terms.shape}
        return {"row": self.rows.tolist(), **{name: each.tolist() for name, each in kept.items()}}


def score_run(run: RunDirectory, model: Model, store: Any, request: ScoreRequest) -> Scored:
    """Return the scores of a run on its rows; see :func:`score`."""
    began = time.perf_counter()
    table = rows_of_run(run, store)
    draws = run_draws(run, model, request.draws)
    if len(draws.theta) < FEWEST_DRAWS:
        raise DataError(
            f"expected at least {FEWEST_DRAWS} draws in {str(run.path)!r}, found "
            f"{len(draws.theta)}: sample more; importance weights need a tail"
        )
    units, bound = by_group(table, model)
    m = request.evaluated(units.n_rows, unit_cost(units, bound))
    relative = relative_size(run, draws)
    where = f"store {table.address!r} ({unit_name(units)}s counted from 1 in its own order)"
    coefficients = designs.on_table(bound, draws.theta, None, draws.design, draws.design)
    task = LeaveOneOut(RowDensities(bound, coefficients, where), relative)
    passes: dict[str, Any] = {"scheduler": request.scheduler, "progress": request.progress}
    surrogate = sums = None
    if m == units.n_rows:
        at, terms = np.arange(m), units.reduce(task, **passes)
    else:
        made = Surrogate(bound, *_moments(draws.theta), where)
        sums = units.reduce(made, **passes)
        at = sampled_rows(units.n_rows, m, request.seed)
        terms, surrogate = sampled_terms(units, at, task, made)
    found = totals(terms, surrogate, sums, units.n_rows)
    unit = unit_name(units)
    facts: dict[str, Any] = {
        "run": os.path.abspath(run.path),
        "store": table.address,
        "store_fingerprint": run.identity["store"],
        "left_out": unit,
        "group": model.column if isinstance(model, MixedModel) else None,
        "model": model.name if not isinstance(model, MixedModel) else model.inner.name,
        "n": units.n_rows,
        "evaluated": m,
        "share": m / units.n_rows,
        "method": "exact" if sums is None else "subsampled",
        "seed": request.seed,
        "draws": len(draws.theta),
        "relative_effective_size": relative,
        **{name: each.to_json() for name, each in found.items()},
        "pareto_k": pareto_facts(terms, at, len(draws.theta)),
    }
    facts["warnings"] = score_warnings(facts, terms)
    facts["seconds"] = time.perf_counter() - began
    return Scored(facts, at, terms, surrogate, sums)


def unit_cost(units: Any, model: Any) -> float:
    """Return the evaluations of a row or group at one draw: its rows times its nodes."""
    if not isinstance(units, Grouped):
        return 1.0
    effects = 1 if model.slope is None else 2
    nodes = 1 if model.inner.name == "gaussian" else int(model.nodes) ** effects
    return float(max(units.dataset.n_rows / units.n_rows, 1.0) * nodes)


def relative_size(run: RunDirectory, draws: RunDraws) -> float:
    """Return the mean effective sample size of the parameters over the number of draws.

    1 for a single chain, and for fewer than 4 draws a chain, as in ArviZ.
    """
    theta = run.draws_matrix()[:, draws.kept]
    chains, each, d = theta.shape
    if chains == 1 or each < 4:
        return 1.0
    return float(np.mean([ess_mean(theta[:, :, j]) for j in range(d)]) / (chains * each))


def sampled_terms(
    units: Dataset, at: Index, task: LeaveOneOut, surrogate: Surrogate
) -> tuple[RowTerms, Matrix]:
    """Return terms and surrogates (m, 3) of the rows or groups ``at`` (m,), gathered in tiles."""
    source = units.rows()
    step = task.densities.tile_rows()
    parts, made = [], []
    for low in range(0, len(at), step):
        some = at[low : low + step]
        rows: Rows = allocate_rows(len(some), source.n_features)
        source.gather(some, 1, rows)
        parts.append(task.of_rows(rows, int(some[0])))
        made.append(surrogate.of_rows(rows, int(some[0])))
    return joined(parts), np.concatenate(made)


def totals(
    terms: RowTerms, surrogate: Matrix | None, sums: SurrogateSums | None, n: int
) -> dict[str, Estimate]:
    """Return the totals by name: ``elpd_loo``, ``p_loo``, ``elpd_waic``, ``p_waic`` and ``lpd``."""
    values = {
        "elpd_loo": (terms.elpd, 0),
        "p_loo": (terms.lpd - terms.elpd, 2),
        "elpd_waic": (terms.waic, 0),
        "p_waic": (terms.lpd - terms.waic, 2),
        "lpd": (terms.lpd, 1),
    }
    if surrogate is None or sums is None:
        return {name: exact_total(each, terms.used) for name, (each, _) in values.items()}
    return {
        name: difference_total(
            each, surrogate[:, of], float(sums.total[of]), float(sums.square[of]), n, sums.rows
        )
        for name, (each, of) in values.items()
    }


def _moments(theta: Matrix) -> tuple[Vector, Matrix]:
    """Return mean (d,) and covariance (d, d) of draws (S, d).

    Those of the draws at which rows are evaluated: their Monte Carlo error is then common to
    terms and surrogates.
    """
    return theta.mean(axis=0), np.cov(theta.T).reshape(theta.shape[1], theta.shape[1])


@documented(PASS_OPTIONS)
def score(
    run: str | os.PathLike[str] | xarray.DataTree,
    store: Dataset,
    *,
    rows: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    model: Model | None = None,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Score a model on the rows it was fitted to: leave-one-out, WAIC and in-sample.

    Every row is evaluated at every draw where that is at most 1e8 evaluations. Of a larger table
    a sample of rows is, in memory that does not grow with the table, and one pass over all rows
    sums a surrogate, from which the sample measures the difference (Magnusson et al. 2020).

    Of a mixed model a group is left out, with the density of all its rows together, its effects
    integrated out: the score is of rows of new groups.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    store
        The store of the run.
    rows
        Number of rows, or groups, to evaluate at every draw; those of a larger table are drawn by
        their number. ``None``: all, or 10,000 of a table of more than 1e8 / draws rows.
    draws
        Number of draws, thinned from all chains together; at least 100.
    seed
        Seed of the sample of rows.
    model
        The model of the run; needed for a model of your own.

    Returns
    -------
    dict
        JSON: ``elpd_loo``, ``p_loo``, ``elpd_waic``, ``p_waic`` and ``lpd`` (in-sample log
        score), each with ``estimate``, ``se`` (for new rows) and ``sampling_se`` (from the
        sampling of rows), sums over rows in nats; ``pareto_k``, ``method``, ``n``,
        ``evaluated``, ``share``, ``left_out``, ``warnings`` and others.

    Raises
    ------
    ConfigError
        If an option is out of range, or ``model`` is not that of the run.
    IdentityError
        If the store is not that of the run.
    DataError
        If the run is unfinished or has fewer than 100 draws, or a log-likelihood is not finite.
    ModelError
        If the likelihood of the model is not a product over rows.
    RefusedError
        If the run has signs, or a temperature other than 1.
    """
    check_kinds(store, *(() if model is None else (model,)))
    check_progress(progress)
    request = ScoreRequest(
        draws=draws, rows=rows, seed=seed, scheduler=scheduler, progress=progress
    )
    opened = opened_run(run)
    return score_run(opened, model_of(opened, model), store, request).facts
