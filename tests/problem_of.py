"""The problem that the chains of a sampler share, from its parts."""

from __future__ import annotations

from streammc.control_variates.bound import resolved
from streammc.samplers.common.sampler import RunRequest, Setup


def problem_of(dataset, model, cv, plan, sampler, **settings):
    """Return the problem of ``sampler``; settings are those of ``RunRequest``."""
    request = RunRequest(dataset, resolved(model, dataset), sampler, **settings)
    return sampler.problem(request, Setup(sampler, cv, plan, ""))
