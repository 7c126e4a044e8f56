"""The problem that all chains share, from the control variates and the plan."""

from __future__ import annotations

from typing import cast

from streammc.control_variates.default_priors import resolved
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.likelihood.temperature import Schedule
from streammc.protocols import Dataset, Model, Sampler
from streammc.samplers.common.chain import SharedProblem
from streammc.samplers.common.targets import (
    BIASED,
)
from streammc.samplers.equi_energy.options import EquiEnergy
from streammc.samplers.hamiltonian.energy_conserving import HmcEcs
from streammc.samplers.hamiltonian.full_data import Hmc
from streammc.samplers.hamiltonian.problem import full_data, subsampled
from streammc.samplers.hamiltonian.signed import HmcEcsSigned
from streammc.samplers.metropolis.options import MetropolisOptions
from streammc.samplers.stochastic_gradient.options import StochasticGradient
from streammc.samplers.tempering.options import TemperedOptions


def problem(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    plan: Plan | None,
    sampler: Sampler,
    *,
    schedule: Schedule | None = None,
    warmup: int = 0,
) -> SharedProblem:
    """Return what the chains of ``sampler`` share.

    ``dataset`` is at the temperature that ``schedule`` ends at; samplers with an acceptance
    test take from it by how much more an iteration is tempered. ``warmup`` iterations is how
    long levels have that start one after the other.
    """
    model = resolved(model, dataset)
    if isinstance(sampler, MetropolisOptions):
        from streammc.samplers.metropolis.problem import metropolis

        return metropolis(dataset, model, cv, plan, sampler, schedule or Schedule())
    if isinstance(sampler, EquiEnergy):
        from streammc.samplers.equi_energy.problem import equi_energy

        return equi_energy(dataset, model, cv, sampler, warmup)
    if isinstance(sampler, TemperedOptions):
        from streammc.samplers.tempering.problem import tempering

        return tempering(dataset, model, cv, sampler)
    if sampler.target == BIASED:
        # Imported where it is used: loading its compiled loop takes time.
        from streammc.samplers.stochastic_gradient.problem import stochastic

        assert plan is not None
        return stochastic(dataset, model, cv, plan, cast(StochasticGradient, sampler))
    if plan is None:
        return full_data(dataset, model, cv, cast(Hmc, sampler))
    return subsampled(dataset, model, cv, plan, cast(HmcEcs | HmcEcsSigned, sampler))
