"""The scoring of runs: the pass over surrogates, the rows that are evaluated, the totals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streammc import registry
from streammc.checks.difference_estimate import Estimate, Sample, difference_total, exact_total
from streammc.checks.leave_one_out import (
    LeaveOneOut,
    RowSurrogates,
    RowTerms,
    Surrogate,
    SurrogateSums,
    joined,
    weight_kinds,
)
from streammc.checks.posterior_predictive import sampled_rows
from streammc.checks.run_draws import RowDensities, run_draws
from streammc.control_variates.bound import PASS_OPTIONS, check_kinds, check_progress
from streammc.diagnostics.convergence import ess_mean
from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.data_views import by_group
from streammc.likelihood.unit_words import ROW
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction import predictors
from streammc.prediction.predict import model_of, opened_run, predict
from streammc.prediction.predictors import Draws, rows_of_run
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray


DRAWS: Final = 1000
FEWEST_DRAWS: Final = 100
"""Fewest draws: the tail of importance weights has a fifth of them."""
FEWEST_ROWS: Final = 100
SAMPLED_ROWS: Final = 10_000
EVALUATIONS: Final = 2e8
"""Log-likelihoods of rows, draws and nodes up to which every row is evaluated: 10 s or so."""
MOST_EXACT: Final = 2**24
"""Most rows that are evaluated, at 40 bytes of memory each."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """The settings of ``streammc.score``, checked when they are made: ConfigError."""

    draws: int = DRAWS
    rows: int | None = None
    seed: int = 0
    scheduler: Any = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("draws", self.draws, FEWEST_DRAWS),
            ("rows", FEWEST_ROWS if self.rows is None else self.rows, FEWEST_ROWS),
            ("seed", self.seed, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"expected {name} of at least {least}, found {value!r}: give such a whole "
                    "number, or leave it out"
                )

    def evaluated(self, units: int, cost: float) -> int:
        """Return how many of ``units`` rows or groups are evaluated at every draw.

        ``cost`` is the evaluations of a unit at one draw: its rows times its quadrature nodes.
        ConfigError if the number that is asked for does not fit into memory.
        """
        each = cost * self.draws
        if self.rows is None:
            if units * each <= EVALUATIONS:
                return units
            return min(units, SAMPLED_ROWS, max(int(EVALUATIONS / each), FEWEST_ROWS))
        wanted = min(self.rows, units)
        if wanted > MOST_EXACT:
            raise ConfigError(
                f"expected at most {MOST_EXACT:,} rows to evaluate at every draw, found "
                f"{wanted:,}: give fewer; the others are estimated from them"
            )
        return wanted


_WORST: Final = 10
_MOST_VARIANCE: Final = 0.4
"""Variance of a row's log-likelihood above which WAIC is not accurate (Vehtari et al. 2017)."""
_MOST_SAMPLING: Final = 0.5
_NOT_THE_POSTERIOR: Final = ("approximate", "biased", "tempered")


def pareto_facts(terms: RowTerms, at: Index, draws: int) -> dict[str, Any]:
    """Return the counts of rows by Pareto k, and the rows with the largest, as JSON."""
    # A term is reliable below it (Vehtari et al. 2024, section 3.2.4).
    k, limit = terms.shape, min(1.0 - 1.0 / float(np.log10(draws)), 0.7)
    used = terms.observations > 0.0
    order = np.argsort(-k, kind="stable")[:_WORST]
    return {
        "good_below": limit,
        "good": int((used & (k <= limit)).sum()),
        "bad": int((used & (k > limit) & (k <= 1.0)).sum()),
        "very_bad": int((used & (k > 1.0)).sum()),
        "largest": [
            {"row": int(at[i]), "k": float(k[i])} for i in order.tolist() if k[i] > -np.inf
        ],
    }


def weight_warnings(attributes: Mapping[str, Any], trials: bool, fractions: int) -> list[str]:
    """Return the warnings about weights that are not numbers of observations.

    ``attributes`` are those of the store, ``trials``: a row is left out with all its weight,
    ``fractions`` is the number of rows whose weight is no whole number.
    """
    if trials and attributes.get("trials") and attributes.get("weight"):
        return [
            f"the store has the product of the trials {attributes['trials']!r} and the weights "
            f"{attributes['weight']!r}: a row is left out with all of it, not one of its weight"
        ]
    if trials or not fractions:
        return []
    have = "rows have weights that are" if fractions > 1 else "row has a weight that is"
    return [
        f"{fractions:,} {have} not whole: a row of weight w counts as w observations, one of which "
        "is left out (all of a weight below 1), and p_loo and se are those of as many observations "
        "as the weights sum to; compare models on the same weights alone"
    ]


def score_warnings(
    facts: Mapping[str, Any], terms: RowTerms, unit: str, *, trials: bool
) -> list[str]:
    """Return the warnings about a score, each a sentence with its remedy.

    ``unit`` is ``row`` or ``group``; with ``trials`` a row is left out with all its weight.
    """
    warnings = []
    pareto = facts["pareto_k"]
    if facts["target"] in _NOT_THE_POSTERIOR:
        warnings.append(
            f"the draws of this run are {facts['target']}, not those of the posterior, and so are "
            "its scores; sample with hmc or hmc-ecs"
        )
    wrong = pareto["bad"] + pareto["very_bad"]
    if wrong:
        advice = f"look at these {unit}s, use more draws, or a model with longer tails"
        if trials and terms.weight.max() > 1.0:
            advice = (
                "a row is left out with all its trials: score a table of more rows with fewer "
                "trials each, or use more draws"
            )
        warnings.append(
            f"{wrong:,} of {facts['evaluated']:,} {unit}s have a Pareto k above "
            f"{pareto['good_below']:.2f}: their leave-one-out terms are not reliable, and neither "
            f"is elpd_loo if they matter; {advice}"
        )
    spread = int((terms.lpd - terms.waic > _MOST_VARIANCE * terms.observations).sum())
    if spread:
        warnings.append(
            f"the log-likelihood of {spread:,} of {facts['evaluated']:,} {unit}s has a variance "
            f"above {_MOST_VARIANCE}: WAIC is not accurate; use elpd_loo"
        )
    loo = facts["elpd_loo"]
    if loo["sampling_se"] > _MOST_SAMPLING * max(loo["se"], 1e-300):
        warnings.append(
            f"the sample of {unit}s adds a standard error of {loo['sampling_se']:.3g} to one of "
            f"{loo['se']:.3g}: evaluate more {unit}s"
        )
    return warnings


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
        terms = {"elpd_loo": self.terms.elpd, "lpd": self.terms.lpd, "pareto_k": self.terms.shape}
        columns: dict[str, Any] = {name: each.tolist() for name, each in terms.items()}
        if self.surrogate is not None:
            columns["always"] = self.sample.always.tolist()
            columns["surrogate"] = self.surrogate[:, 0].tolist()
        return {"row": self.sample.rows.tolist(), **columns}


class Scoring:
    """The scoring of a finished run in two steps: the pass over surrogates, and the rows."""

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
        self.unit = self.units.unit_name
        # Trials are weights, but the trials of a row are not equal observations.
        trials = self._table.attributes.get("trials") or self._bound.takes_trials
        self._whole_rows = self.unit == ROW and bool(trials)
        if self._whole_rows:
            predictors.require_rows(self._table, "leave out one by one, each with its trials")
        elif self.unit == ROW and self._table.attributes.get("weight"):
            predictors.require_rows(self._table, "leave out one by one, each with its weight")
        self.evaluated = request.evaluated(self.units.n_rows, unit_cost(self.units, self._bound))
        self._where = (
            f"store {self._table.address!r} ({self.unit}s counted from 1 in its own order)"
        )
        self._surrogate: Surrogate | None = None
        self._sums: SurrogateSums | None = None

    def sum_surrogates(self, always: int) -> Index:
        """Sum the surrogates of all rows; return the ``always`` most influential rows."""
        # Of the draws at which rows are evaluated: terms and surrogates share their error.
        theta = self._draws.theta
        mean, covariance = theta.mean(axis=0), np.atleast_2d(np.cov(theta.T))
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
        coefficients = predictors.on_table(
            self._bound, draws.theta, None, draws.design, draws.design
        )
        densities = RowDensities(self._bound, coefficients, self._where)
        task = LeaveOneOut(densities, relative, self._whole_rows)
        surrogate = None
        if self._surrogate is None:
            terms = self.units.reduce(task, scheduler=request.scheduler, progress=request.progress)
        else:
            terms, surrogate = sampled_terms(self.units, sample.rows, task, self._surrogate)
        by_name = totals(terms, surrogate, self._sums, sample)
        sums = self._sums
        weight, uneven, fractions = weight_kinds(terms.weight) if sums is None else sums.weights
        facts = {
            **self._facts(sample, relative),
            "weight": float(weight),
            **{name: each.to_json() for name, each in by_name.items()},
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

    def pointwise(self, scored: Scored) -> Vector:
        """Return the leave-one-out terms of all rows (n,), which sum to ``elpd_loo``.

        Rows that were not evaluated have their surrogate, from one more pass, and the mean
        difference from it of those that were drawn.
        """
        if scored.surrogate is None or self._surrogate is None:
            return scored.terms.elpd
        task, request, sample = RowSurrogates(self._surrogate), self._request, scored.sample
        values = self.units.reduce(task, scheduler=request.scheduler, progress=request.progress)
        away = (scored.terms.elpd - scored.surrogate[:, 0])[~sample.always]
        values += away.mean() if len(away) else 0.0
        values[sample.rows] = scored.terms.elpd
        return values

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
    if units.unit_offset is None:
        return 1.0
    effects = 1 if model.slope is None else 2
    nodes = 1 if model.inner.name == "gaussian" else int(model.nodes or _PANEL_NODES) ** effects
    return float(max(units.table.n_rows / units.n_rows, 1.0) * nodes)


def relative_size(run: RunDirectory, draws: Draws) -> float:
    """Return the mean effective sample size of the parameters over the number of draws.

    1 for a single chain, and for fewer than 4 draws a chain, as in ArviZ.
    """
    theta = run.draws_matrix()[:, draws.numbers]
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


@documented(PASS_OPTIONS, predict)
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

    Every row is evaluated at every draw where that is at most 2e8 evaluations. Of a larger table
    a sample of rows is, and the rows that one pass over all finds most influential; the pass sums
    a surrogate of every row, from which the evaluated rows measure the difference (Magnusson et
    al. 2020). Memory then does not grow with the table.

    A row of weight w counts as w observations, one of which is left out; a row of binomial trials
    is left out with all of them.

    Of a mixed model a group is left out, with the density of all its rows together, its effects
    integrated out: the score is of rows of new groups.

    Parameters
    ----------
    store : data set, path, table, or None
        The rows that the run was fitted to: their store or its path, or the table that was given to
        ``streammc.fit``; ``None``: the store of the run.
    rows
        Number of rows, or groups, to evaluate at every draw; those of a larger table are drawn by
        their number. ``None``: all, or 10,000 of a table of more than 2e8 / draws rows.
    draws
        Number of draws, thinned from all chains together; at least 100.
    seed
        Seed of the sample of rows.

    Returns
    -------
    dict
        JSON: ``elpd_loo``, ``p_loo``, ``elpd_waic``, ``p_waic`` and ``lpd`` (in-sample log
        score), each with ``estimate``, ``se`` (for new rows) and ``sampling_se`` (from the
        sampling of rows), sums over rows in nats; ``pareto_k``, ``method``, ``n``,
        ``weight`` (sum of the weights of the rows), ``evaluated``, ``share``, ``left_out``,
        ``warnings`` and others.

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
