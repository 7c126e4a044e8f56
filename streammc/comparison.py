"""Leave-one-out scores in the words of ArviZ, and comparisons of several runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from streammc.checks.ranking import Candidate, ranked
from streammc.checks.scoring import (
    DRAWS,
    MOST_EXACT,
    Scored,
    ScoreRequest,
    Scoring,
    score,
    score_together,
    target_of_run,
)
from streammc.control_variates.bound import PASS_OPTIONS, check_progress
from streammc.diagnostics.cost import relative
from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError, IdentityError, SamplingWarning
from streammc.frames import data_set, positions_of
from streammc.likelihood.temperature import temperature_of
from streammc.likelihood.unit_words import unit_of_model
from streammc.prediction.predict import model_of, opened_run, predict
from streammc.protocols import Model, Vector
from streammc.runs.run_summary import mean_statistics, run_cost
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray
    from arviz_stats.utils import ELPDData
    from numpy.typing import NDArray

Run: TypeAlias = "str | os.PathLike[str] | xarray.DataTree"


@documented(PASS_OPTIONS, score, predict)
def loo(
    run: Run,
    table: Any = None,
    *,
    rows: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    model: Model | None = None,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> ELPDData:
    """Score a model by leave-one-out on the rows it was fitted to, for ArviZ.

    The numbers are those of ``streammc.score``. ``arviz_stats.compare({"a": loo_a, "b": loo_b})``
    takes the result: the difference is paired by row, and so is its standard error. Of a table of
    more than 2e8 / draws rows a sample is evaluated at every draw. ``elpd_i`` then has surrogates
    of the others, moved by the mean difference that the sample shows, so that it sums to ``elpd``;
    their ``pareto_k`` is NaN. ArviZ takes the errors of two samples of rows, ``subsampling_dse``,
    for independent; ``streammc.compare(..., loo=True)`` evaluates the same rows and pairs them.

    Parameters
    ----------
    table : data set, path, table, or None
        The rows that the run was fitted to: their store or its path, or the table that was given to
        ``streammc.fit``. ``None``: the store of the run.

    Returns
    -------
    arviz_stats.ELPDData
        ``elpd``, ``se``, ``p``, ``pareto_k`` and ``elpd_i`` (row), in nats; of a mixed model
        (group). Above 16,777,216 rows ``elpd_i`` and ``pareto_k`` are ``None``, so that memory
        does not grow; then compare by ``streammc.compare``.

    Raises
    ------
    ConfigError
        If arviz-stats is not installed, or an option is out of range.
    IdentityError
        If the table is not that of the run.
    DataError
        If the run is unfinished or has fewer than 100 draws, or a log-likelihood is not finite.

    Warns
    -----
    SamplingWarning
        For each warning of the score.
    """
    if find_spec("arviz_stats") is None:
        raise ConfigError(
            "expected the package arviz-stats for its ELPDData, found none: pip install "
            "'streammc[plots]', or use streammc.score"
        )
    check_progress(progress)
    opened = opened_run(run)
    request = ScoreRequest(
        draws=draws, rows=rows, seed=seed, scheduler=scheduler, progress=progress
    )
    rows_of_run = data_set(opened, table, fitted=True)
    scoring = Scoring(opened, model_of(opened, model), rows_of_run, request)
    (scored,) = score_together([scoring], request)
    for line in scored.facts["warnings"]:
        warnings.warn(line, SamplingWarning, stacklevel=2)
    if scored.facts["left_out"] == "observation":
        warnings.warn(
            "rows have weights, or are cells: ArviZ takes each for one observation, and its error "
            "of a difference is not that of the observations; use streammc.compare(..., loo=True)",
            SamplingWarning,
            stacklevel=2,
        )
    pointwise = scoring.pointwise(scored) if scored.sample.n <= MOST_EXACT else None
    positions = None
    # A table is known by its own order, a data set by that of its rows.
    if pointwise is not None and scoring.unit == "row" and rows_of_run is not table:
        positions = positions_of(rows_of_run)
    return _elpd_data(scored, scoring.unit, pointwise, positions)


def _elpd_data(
    scored: Scored, unit: str, pointwise: Vector | None, positions: NDArray[Any] | None
) -> ELPDData:
    """Return scores as ArviZ has them.

    ``pointwise`` (n,) are the terms of all rows, which are put in the order of their ``positions``.
    """
    import numpy as np
    import xarray as xr
    from arviz_stats.utils import ELPDData

    facts, sample = scored.facts, scored.sample
    arrays: dict[str, Any] = {}
    if pointwise is not None:
        shape = np.full(sample.n, np.nan)
        shape[sample.rows] = scored.terms.shape
        at = np.arange(sample.n) if positions is None else positions
        order = np.argsort(at)
        arrays = {
            name: xr.DataArray(values[order], {unit: at[order]}, (unit,), name)
            for name, values in (("elpd_i", pointwise), ("pareto_k", shape))
        }
    if not sample.exact:
        arrays["subsampling_se"] = facts["elpd_loo"]["sampling_se"]
        arrays["subsample_size"] = len(sample.rows)
    pareto = facts["pareto_k"]
    return ELPDData(
        kind="loo",
        elpd=facts["elpd_loo"]["estimate"],
        se=facts["elpd_loo"]["se"],
        p=facts["p_loo"]["estimate"],
        n_samples=facts["draws"],
        n_data_points=sample.n,
        scale="log",
        warning=bool(pareto["bad"] + pareto["very_bad"]),
        good_k=pareto["good_below"],
        **arrays,
    )


@documented(PASS_OPTIONS)
def compare(
    runs: Mapping[str, Run] | Sequence[Run],
    table: Any = None,
    *,
    loo: bool = False,
    rows: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Compare runs of one posterior by cost, or with ``loo`` models of the same rows by score.

    Parameters
    ----------
    runs : mapping from names to runs, or sequence of runs
        Finished runs: paths, or trees opened from them. Without names those are their paths.
    table : data set, path, table, or None
        The rows of all runs, as of ``streammc.loo``; ``None``: the store of each.
    loo
        Rank models by their leave-one-out scores, with paired standard errors of the differences.
    rows, draws, seed
        As of ``streammc.score``.

    Returns
    -------
    dict
        What ``streammc compare --json`` prints: ``runs``, of which each has ``run`` and its cost,
        relative to that of the first, ``base``; with ``loo`` its score and the ``difference``
        from the ``best``, the best first.

    Raises
    ------
    ConfigError
        If there are no runs, or an option is out of range.
    IdentityError
        If the runs are of other rows, or without ``loo`` of other models.
    """
    check_progress(progress)
    if isinstance(runs, str | os.PathLike) or not runs:
        raise ConfigError(f"expected several runs to compare, found {runs!r}: give a list of them")
    named = runs.items() if isinstance(runs, Mapping) else [(None, run) for run in runs]
    opened = [(name, opened_run(run)) for name, run in named]
    pairs = [(run.place if name is None else name, run) for name, run in opened]
    if not loo:
        return costs(pairs)
    request = ScoreRequest(
        draws=draws, rows=rows, seed=seed, scheduler=scheduler, progress=progress
    )
    candidates = [
        Candidate(name, run, model_of(run, None), data_set(run, table, fitted=True))
        for name, run in pairs
    ]
    found = ranked(candidates, request)
    for each in found:
        for line in each["warnings"]:
            warnings.warn(f"{each['run']}: {line}", SamplingWarning, stacklevel=2)
    return {"best": found[0]["run"], "runs": found}


def costs(runs: Sequence[tuple[str, RunDirectory]]) -> dict[str, Any]:
    """Return cost and acceptance rates of every run by name, and its RCT relative to the first run.

    Raises
    ------
    IdentityError
        If a run is of another store or model than the first.
    DataError
        If a run has no draws yet.
    """
    found: list[dict[str, Any]] = []
    base, first = runs[0]
    for path, run in runs:
        for key in ("store", "model"):
            if run.identity[key] != first.identity[key]:
                raise IdentityError(
                    f"expected runs of one store and model, found another {key} in {path!r} than "
                    f"in {base!r}: compare runs of the same posterior, or rank models of the "
                    "same rows with --loo"
                )
        own, other = (temperature_of(each.identity, each.attributes) for each in (first, run))
        if own != other:
            raise IdentityError(
                f"expected runs at one temperature, found {other:g} in {path!r} and {own:g} "
                f"in {base!r}: compare runs of the same posterior"
            )
        if not run.committed_draws:
            raise DataError(f"expected draws in {path!r}, found a run in its warm-up: resume it")
        means = mean_statistics(run)
        entry = {
            "run": path,
            "sampler": run.attributes.get("sampler", {}).get("name"),
            "target": target_of_run(run),
            "unit": unit_of_model(run.identity["model"]["name"]),
            "chains": run.chains,
            "draws": run.committed_draws,
            "acceptance_rate": means["acceptance_rate"],
            "n_steps": means["n_steps"],
            **run_cost(run),
            "subsample_acceptance_rate": means["subsample_acceptance_rate"],
            "rows_per_iteration": means["rows_per_iteration"],
        }
        found.append(entry)
    for entry in found:
        entry["rct"] = relative(found[0], entry)
        entry["rct_draws"] = relative(found[0], entry, "ct_draws")
    return {"base": base, "runs": found}
