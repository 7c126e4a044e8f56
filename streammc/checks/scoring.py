"""The scoring of runs: the pass over surrogates, the rows that are evaluated, the totals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc import registry
from streammc.checks.difference_estimate import (
    Estimate,
    Sample,
    difference_total,
    exact_total,
)
from streammc.checks.leave_one_out import LeaveOneOut, RowTerms, joined, weight_kinds
from streammc.checks.posterior_predictive import sampled_rows
from streammc.checks.row_densities import RowDensities
from streammc.checks.run_draws import RunDraws, rows_of_run, run_draws
from streammc.checks.score_request import FEWEST_DRAWS, ScoreRequest
from streammc.checks.score_warnings import pareto_facts, score_warnings, weight_warnings
from streammc.checks.surrogate import Surrogate, SurrogateSums
from streammc.diagnostics.effective_size import ess_mean
from streammc.errors import DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.grouped import Grouped, by_group
from streammc.likelihood.unit_words import ROW, unit_name
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction import designs
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector
from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a run, and the terms of the rows that were evaluated."""

    facts: dict[str, Any]
    """JSON; see ``streammc.score``."""
    sample: Sample
    terms: RowTerms
    surrogate: Matrix | None
    """(m, 3) surrogates of these rows; ``None`` where all rows were evaluated."""
    sums: SurrogateSums | None

    def pointwise(self) -> dict[str, Any]:
        """Return the terms by row as JSON."""
        kept = {"elpd_loo": self.terms.elpd, "lpd": self.terms.lpd, "pareto_k": self.terms.shape}
        found: dict[str, Any] = {name: each.tolist() for name, each in kept.items()}
        if self.surrogate is not None:
            found["always"] = self.sample.always.tolist()
            found["surrogate"] = self.surrogate[:, 0].tolist()
        return {"row": self.sample.rows.tolist(), **found}


class Scoring:
    """The scoring of a run in two steps: the pass over surrogates, and the rows evaluated.

    Parameters
    ----------
    run, model, store
        A finished run, its model, and its store.
    request
        Settings.
    """

    def __init__(self, run: RunDirectory, model: Model, store: Any, request: ScoreRequest) -> None:
        self._began = time.perf_counter()
        self._run, self._model, self._request = run, model, request
        self._table = rows_of_run(run, store)
        self._draws = run_draws(run, model, request.draws, self._table)
        if len(self._draws.theta) < FEWEST_DRAWS:
            raise DataError(
                f"expected at least {FEWEST_DRAWS} draws in {str(run.path)!r}, found "
                f"{len(self._draws.theta)}: sample more; importance weights need a tail"
            )
        self.units, self._bound = by_group(self._table, model)
        self.unit = unit_name(self.units)
        # Trials are weights, but the trials of a row are not equal observations.
        trials = self._table.attributes.get("trials") or hasattr(self._bound, "simulate_trials")
        self._whole_rows = self.unit == ROW and bool(trials)
        self.evaluated = request.evaluated(self.units.n_rows, unit_cost(self.units, self._bound))
        self._where = (
            f"store {self._table.address!r} ({self.unit}s counted from 1 in its own order)"
        )
        self._surrogate: Surrogate | None = None
        self._sums: SurrogateSums | None = None

    def sum_surrogates(self, always: int) -> Index:
        """Sum the surrogates of all rows; return the ``always`` most influential rows."""
        mean, covariance = _moments(self._draws.theta)
        self._surrogate = Surrogate(
            self._bound, mean, covariance, self._where, always, self._whole_rows
        )
        self._sums = self.units.reduce(
            self._surrogate, scheduler=self._request.scheduler, progress=self._request.progress
        )
        return self._sums.place

    def scored(self, sample: Sample) -> Scored:
        """Return the scores from the rows of a sample, or from all."""
        relative = relative_size(self._run, self._draws)
        draws, request = self._draws, self._request
        coefficients = designs.on_table(self._bound, draws.theta, None, draws.design, draws.design)
        densities = RowDensities(self._bound, coefficients, self._where)
        task = LeaveOneOut(densities, relative, self._whole_rows)
        surrogate = None
        if self._surrogate is None:
            terms = self.units.reduce(task, scheduler=request.scheduler, progress=request.progress)
        else:
            terms, surrogate = sampled_terms(self.units, sample.rows, task, self._surrogate)
        found = totals(terms, surrogate, self._sums, sample)
        sums = self._sums
        weight, uneven, fractions = weight_kinds(terms.weight) if sums is None else sums.weights
        facts = {
            **self._facts(sample, relative),
            "weight": float(weight),
            **{name: each.to_json() for name, each in found.items()},
            "pareto_k": pareto_facts(terms, sample.rows, len(draws.theta)),
        }
        if uneven and not self._whole_rows:
            facts["left_out"] = "observation"
        facts["warnings"] = [
            *weight_warnings(self._table.attributes, self._whole_rows, int(fractions)),
            *score_warnings(facts, terms, self.unit, trials=self._whole_rows),
        ]
        facts["seconds"] = time.perf_counter() - self._began
        return Scored(facts, sample, terms, surrogate, self._sums)

    def _facts(self, sample: Sample, relative: float) -> dict[str, Any]:
        model = self._model
        return {
            "run": self._run.place,
            "store": self._table.address,
            "store_fingerprint": self._run.identity["store"],
            "left_out": self.unit,
            "group": model.column if isinstance(model, MixedModel) else None,
            "model": model.inner.name if isinstance(model, MixedModel) else model.name,
            "target": target_of_run(self._run),
            "n": sample.n,
            "evaluated": len(sample.rows),
            "always_evaluated": 0 if sample.exact else int(sample.always.sum()),
            "share": len(sample.rows) / sample.n,
            "method": "exact" if sample.exact else "subsampled",
            "seed": self._request.seed,
            "draws": len(self._draws.theta),
            "relative_effective_size": relative,
        }


def score_together(scorings: list[Scoring], request: ScoreRequest) -> list[Scored]:
    """Return the scores of runs on rows of the same number, evaluated in the same rows."""
    n = int(scorings[0].units.n_rows)
    m = min(each.evaluated for each in scorings)
    if m == n:
        everything = Sample(np.arange(n), np.ones(n, np.bool_), n)
        return [each.scored(everything) for each in scorings]
    always = m // ALWAYS
    chosen = np.unique(np.concatenate([each.sum_surrogates(always) for each in scorings]))
    drawn = sampled_rows(n - len(chosen), m - always, request.seed)
    # The rank of a row among those that are not chosen, turned into its number.
    others = drawn + np.searchsorted(chosen - np.arange(len(chosen)), drawn, side="right")
    rows = np.sort(np.concatenate([chosen, others]))
    sample = Sample(rows, np.isin(rows, chosen), n)
    return [each.scored(sample) for each in scorings]


ALWAYS = 5
"""One in so many of the rows that are evaluated is one of the most influential."""


_PANEL_NODES = 150
"""Nodes of a group on panels, about."""


def score_run(run: RunDirectory, model: Model, store: Any, request: ScoreRequest) -> Scored:
    """Return the scores of a run on its rows; see ``streammc.score``."""
    return score_together([Scoring(run, model, store, request)], request)[0]


def target_of_run(run: RunDirectory) -> str | None:
    """Return what the sampler of a run targets; ``None`` if it is not recorded."""
    name = run.attributes.get("sampler", {}).get("name")
    return str(registry.sampler(name)().target) if name in registry.SAMPLERS else None


def unit_cost(units: Any, model: Any) -> float:
    """Return the evaluations of a row or group at one draw: its rows times its nodes."""
    if not isinstance(units, Grouped):
        return 1.0
    effects = 1 if model.slope is None else 2
    nodes = 1 if model.inner.name == "gaussian" else int(model.nodes or _PANEL_NODES) ** effects
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
        parts.append(task.of_rows(rows, some))
        made.append(surrogate.of_rows(rows, some))
    return joined(parts), np.concatenate(made)


def totals(
    terms: RowTerms, surrogate: Matrix | None, sums: SurrogateSums | None, sample: Sample
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
        return {name: exact_total(each, terms.observations) for name, (each, _) in values.items()}
    return {
        name: difference_total(
            each,
            surrogate[:, of],
            terms.observations,
            (float(sums.total[of]), float(sums.square[of]), sums.observations),
            sample,
        )
        for name, (each, of) in values.items()
    }


def _moments(theta: Matrix) -> tuple[Vector, Matrix]:
    """Return mean (d,) and covariance (d, d) of draws (S, d).

    Those of the draws at which rows are evaluated: their Monte Carlo error is then common to
    terms and surrogates.
    """
    return theta.mean(axis=0), np.cov(theta.T).reshape(theta.shape[1], theta.shape[1])
