"""The audit: exact importance weights from the sampled target to the posterior.

A run of ``hmc-ecs`` leaves ``exp(l^ - s^2/2) p(theta) p(u)`` invariant, so

    w = exp(l(theta) - l^(theta, u) + s^2(theta, u) / 2)

is an exact importance weight of a draw ``(theta, u)`` to the posterior. One pass
evaluates ``l`` at some hundred thinned draws at once, as the sum of the remainders
``l_i - q_i``: the Taylor sums cancel, and the precision survives a billion rows. Remainders are
those of the run's expansions, which mixed models have in coordinates other than theta
(``control_variates.coordinates``).
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.likelihood.blocks import TILE, allocate_rows
from streammc.likelihood.remainder_pass import remainder_sums, remainder_task
from streammc.numerics.process_limits import available_threads, single_threaded
from streammc.protocols import Dataset, Model, RowBlock
from streammc.trace.addresses import named
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    from streammc.samplers.common.chains import Chains
    from streammc.samplers.common.sampler import RunRequest, Setup


AUDIT_DRAWS = 400
FEWEST_DRAWS = 40
_EVALUATIONS = 4e10
"""Log-likelihoods of rows, over all draws, above which fewer draws are audited."""
_TIMED_SECONDS = 0.02
"""Least processor time of the timed rows."""
_CHEAP_SECONDS = 10.0
"""An audit that takes less is always made."""


def audit_draws(n_rows: int) -> int:
    """Return the number of draws to audit: 400 up to 1e8 rows, fewer for more rows."""
    return max(FEWEST_DRAWS, min(AUDIT_DRAWS, int(_EVALUATIONS / max(n_rows, 1))))


def thin(chains: int, draws: int, wanted: int) -> NDArray[np.int64]:
    """Return the indices of the evenly spaced draws that are audited in every chain."""
    per_chain = min(draws, max(1, -(-wanted // chains)))
    return np.unique(np.linspace(0, draws - 1, per_chain).round().astype(np.int64))


def log_weights(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    theta: NDArray[np.float64],
    log_lik_remainder: NDArray[np.float64],
    log_lik_variance: NDArray[np.float64],
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Return the log importance weights of draws, in the shape of ``log_lik_variance``.

    Parameters
    ----------
    dataset, model, cv
        Data, model and control variates of the run.
    theta
        (..., d) draws.
    log_lik_remainder
        (...) estimate of ``sum_i (l_i - q_i)`` recorded with each draw: ``l^`` without Taylor sums.
    log_lik_variance
        (...) ``s^2`` recorded with each draw.
    """
    expansions = coordinates(model, cv.theta_star, cv.noise)
    sums = remainder_sums(
        dataset,
        expansions.model,
        expansions.centre,
        cv.order,
        expansions.positions(theta),
        scheduler=scheduler,
        progress=progress,
    )
    exact = sums.reshape(log_lik_variance.shape)
    weights: NDArray[np.float64] = exact - log_lik_remainder + 0.5 * log_lik_variance
    return weights


def audit_seconds(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    theta: NDArray[np.float64],
    scheduler: Any = None,
) -> float:
    """Return the predicted seconds of :func:`log_weights`, from timing it on some rows.

    Processor time is measured, so that other work on the machine does not matter: with wall
    time, a short interruption of the thread would make it seem a hundred times slower.
    Reading is not counted.

    Parameters
    ----------
    dataset, model, cv
        Data, model and control variates of the run.
    theta
        (..., d) draws.
    scheduler
        As for ``Dataset.reduce``; a cluster counts as the threads of this machine.
    """
    expansions = coordinates(model, cv.theta_star, cv.noise)
    positions = expansions.positions(theta)
    task = remainder_task(dataset, expansions.model, expansions.centre, cv.order, positions)
    task.make_ready()
    source, m = dataset.rows(), TILE
    while True:
        m = min(m, dataset.n_rows)
        rows = allocate_rows(m, source.n_features)
        source.gather(np.array([(dataset.n_rows - m) // 2]), m, rows)
        with single_threaded():
            began = thread_time()
            task.map(RowBlock(0, 0, *rows))
            seconds = thread_time() - began
        if seconds >= _TIMED_SECONDS or m == dataset.n_rows:
            break
        m *= 4
    blocks = -(-dataset.n_rows // dataset.block_rows())
    threads = 1 if scheduler == "sync" else scheduler
    if type(threads) is not int:
        threads = available_threads()
    return seconds / m * dataset.n_rows / min(threads, blocks)


def audit_due(
    request: RunRequest, run: RunDirectory, setup: Setup, team: Chains
) -> tuple[bool, str | None]:
    """Return whether to audit, and the reason if the default is not to.

    A sampler that needs no audit gets none. By default a run is audited if this takes less
    time than passes, warm-up and draws together; some rows are timed with the audit's kernel.
    """
    if not setup.sampler.audited or request.audit is False:
        return False, None
    if request.audit is True:
        return True, None
    dataset, model = request.dataset, request.model
    _, theta = audited_draws(run, dataset, model)
    expected = audit_seconds(dataset, model, setup.cv, theta, request.scheduler)
    spent = pass_seconds(setup) + team.clock["warmup"] + team.clock["draws"]
    if expected < max(spent, _CHEAP_SECONDS):
        return True, None
    return False, (
        f"not audited: it would take {expected:.0f} s, the sampling took {spent:.0f} s; "
        f"`streammc audit {named(str(run.path))}`"
    )


def audited_draws(
    run: RunDirectory, dataset: Dataset, model: Model, draws: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the indices of the audited draws, and theta at these draws (chain, draw, d)."""
    kept = thin(run.chains, run.committed_draws, draws or audit_draws(dataset.n_rows))
    return kept, model.unconstrain(run.draws_matrix()[:, kept])


def pass_seconds(setup: Setup) -> float:
    """Return the seconds of the full passes of a run, those of the plan included."""
    plan = setup.plan
    return float(setup.cv.certificate.seconds) + (plan.score_seconds if plan else 0.0)
