"""Decisions of the samplers with an acceptance test before the first draw."""

from __future__ import annotations

import time
from dataclasses import replace

from streammc.control_variates.certify import require_rows
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.row_norms import term_bound
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.control_variates.unexpanded import without_pass
from streammc.samplers.common.option_checks import NONE
from streammc.samplers.common.planning import control_variates, planned_or_few
from streammc.samplers.common.request import RunRequest, Setup
from streammc.samplers.common.sampler import NAMED
from streammc.samplers.metropolis.options import MetropolisOptions
from streammc.trace.finite import finite_or_none


def prepare(sampler: MetropolisOptions, request: RunRequest, reason: str) -> Setup:
    """Return control variates, and the plan of the rows that a decision asks for first."""
    require_rows(request.model)
    if not sampler.needs_pass(request.model):
        cv = without_pass(request.dataset, request.model, sampler.start)
        return Setup(sampler, _bounded(cv, request, sampler, None), None, reason or NAMED)
    if not sampler.subsampled:
        return Setup(sampler, control_variates(request), None, reason or NAMED)
    cv = control_variates(request, 2)
    plan = planned_or_few(
        request,
        cv,
        sampler,
        subsample_size=sampler.rows_of(request.dataset.n_rows),
        certainty=sampler.certainty,
    )
    plan = replace(plan, n_blocks=1)  # every decision draws anew
    cv = _bounded(cv, request, sampler, plan)
    return Setup(sampler, cv, plan, "; ".join([reason] * bool(reason) + [*plan.reasons]))


def _bounded(
    cv: ControlVariates, request: RunRequest, sampler: MetropolisOptions, plan: Plan | None
) -> ControlVariates:
    """Return ``cv`` with the model's bound on a term, where the sampler asks for it: one pass."""
    if not sampler.takes_bound:
        return cv
    dataset = request.dataset
    order = 0 if sampler.control_variate in (NONE, None) else int(sampler.control_variate)
    b = plan.unit_rows if plan is not None else sampler.unit_rows or 1
    begun = time.perf_counter()
    bound = term_bound(dataset, request.model, order, b, scheduler=request.scheduler)
    certificate = cv.certificate
    if certificate.term_bound is None:
        certificate = replace(certificate, term_bound=bound)
    if finite_or_none(certificate.term_bound) is not None:
        certificate = certificate.plus(
            rows_read=dataset.n_rows,
            bytes_read=dataset.n_rows * dataset.rows().row_bytes,
            seconds=time.perf_counter() - begun,
        )
    return replace(cv, certificate=certificate)
