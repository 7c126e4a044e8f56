"""Decisions of ``hmc``, ``hmc-ecs`` and ``hmc-ecs-signed`` before the first draw."""

from __future__ import annotations

from streammc.control_variates.certify import require_rows
from streammc.errors import RefusedError
from streammc.likelihood.expanded_rows import require_memory
from streammc.samplers.common.planning import control_variates, planned
from streammc.samplers.common.request import RunRequest, Setup
from streammc.samplers.common.sampler import NAMED, Sampler
from streammc.samplers.common.targets import PERTURBED
from streammc.samplers.hamiltonian.energy_conserving import FEWEST_UNITS
from streammc.samplers.hamiltonian.options import SubsampleOptions
from streammc.samplers.hamiltonian.recalibrate import recalibrate


def prepare_full_data(sampler: Sampler, request: RunRequest, reason: str) -> Setup:
    """Return the setup of ``hmc``; all rows must fit in memory unless sums are sufficient."""
    dataset, model = request.dataset, request.model
    require_rows(model)
    if model.exact_sums is None:
        require_memory(dataset, model, dataset.n_rows, -1)  # before the pass
    return Setup(sampler, control_variates(request), None, reason or NAMED)


def prepare_subsampled(sampler: SubsampleOptions, request: RunRequest, reason: str) -> Setup:
    """Return the setup of ``hmc-ecs`` or ``hmc-ecs-signed``: control variates and plan.

    Raises
    ------
    RefusedError
        If the plan refuses the subsample, or it has too few units for a variance.
    """
    require_rows(request.model)
    if sampler.recalibrate is None:
        cv = control_variates(request, sampler.order)
    else:
        first = None
        if request.control_variates is not None:
            first = control_variates(request, sampler.order)
        cv = recalibrate(request, sampler, first)
    perturbed = sampler.target == PERTURBED
    plan = planned(
        request,
        cv,
        sampler,
        subsample_size=sampler.subsample_size,
        certainty=sampler.certainty,
        perturbed=perturbed,
    )
    if plan.refused is not None and not sampler.forced:
        raise RefusedError(plan.refused)
    if perturbed and plan.k < FEWEST_UNITS:
        raise RefusedError(
            f"expected a subsample of at least {FEWEST_UNITS} units, found {plan.k} of "
            f"{plan.unit_rows} rows in a table of {request.dataset.n_rows}: no variance can be "
            "estimated from one; use a smaller --unit-rows, a larger --subsample-size, or hmc"
        )
    return Setup(sampler, cv, plan, "; ".join([reason] * bool(reason) + [*plan.reasons]))
