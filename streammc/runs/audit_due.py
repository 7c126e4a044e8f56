"""Whether a finished run is audited without being asked, and at which draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Dataset, Model
from streammc.runs.audit import audit_draws, audit_seconds, thin
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    from streammc.samplers.common.chains import Chains
    from streammc.samplers.common.request import RunRequest, Setup

_CHEAP_SECONDS = 10.0


def audit_due(
    request: RunRequest, run: RunDirectory, setup: Setup, team: Chains
) -> tuple[bool, str | None]:
    """Whether to audit, and why not where the default decides against it.

    Never what needs none; by default where it takes less time than the passes, the
    warm-up and the draws together. Some rows are timed with the audit's own kernel.
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
        f"`streammc audit {run.path}`"
    )


def audited_draws(
    run: RunDirectory, dataset: Dataset, model: Model, draws: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which draws of every chain the audit looks at, and theta there (chain, draw, d)."""
    kept = thin(run.chains, run.committed_draws, draws or audit_draws(dataset.n_rows))
    return kept, model.unconstrain(run.draws_matrix()[:, kept])


def pass_seconds(setup: Setup) -> float:
    """Return the seconds of the full passes."""
    plan = setup.plan
    return float(setup.cv.certificate.seconds) + (plan.score_seconds if plan else 0.0)
