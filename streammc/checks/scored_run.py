"""``streammc.score``: in-sample, WAIC and leave-one-out scores of a run on its own rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streammc.checks.run_draws import model_of
from streammc.checks.score_request import DRAWS, ScoreRequest
from streammc.checks.scoring import score_run
from streammc.control_variates.kinds import PASS_OPTIONS, check_kinds, check_progress
from streammc.docstrings import documented
from streammc.prediction.predict import opened_run
from streammc.protocols import Dataset, Model

if TYPE_CHECKING:
    import xarray


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
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    store
        The store of the run.
    rows
        Number of rows, or groups, to evaluate at every draw; those of a larger table are drawn by
        their number. ``None``: all, or 10,000 of a table of more than 2e8 / draws rows.
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
