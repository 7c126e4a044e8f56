"""Decision whether a finished run is audited by default, and the draws of its audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Dataset, Model
from streammc.runs.audit import audit_draws, audit_seconds, thin
from streammc.trace.address_names import named
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    from streammc.samplers.common.chains import Chains
    from streammc.samplers.common.sampler import RunRequest, Setup

_CHEAP_SECONDS = 10.0


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
