"""The problem of the samplers with a ladder of levels."""

from __future__ import annotations

from typing import Final, cast

from streammc.control_variates.expansion import ControlVariates
from streammc.likelihood.contiguous_rows import Held
from streammc.likelihood.density import pointers
from streammc.likelihood.expanded_rows import memory_limit
from streammc.likelihood.tempered import split_fingerprint
from streammc.numerics.prior_draws import improper
from streammc.protocols import Dataset, Model
from streammc.samplers.common.all_rows import ground
from streammc.samplers.common.explorers import EXPLORERS
from streammc.samplers.tempering.last_level import ended
from streammc.samplers.tempering.options import HMC, TemperedOptions
from streammc.samplers.tempering.parallel_kernel import ParallelKernel
from streammc.samplers.tempering.shared import TemperedProblem
from streammc.samplers.tempering.tempered_transitions import TransitionOptions
from streammc.samplers.tempering.transition_kernel import TransitionKernel

ACCEPTANCE: Final = {HMC: 0.8}
"""Target acceptance rate of warm-up; of a random walk 0.44 in one dimension, else 0.234
(Roberts and Rosenthal 2001)."""


def tempering(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: TemperedOptions
) -> TemperedProblem:
    """Return the problem of a sampler with a ladder; see :func:`ground`.

    The ladder has a number of levels: ``ladder.settle`` finds one.
    """
    sampler = ended(model, cv.labels, sampler)
    base, full, first, spread = ground(dataset, model, cv, sampler)
    target = sampler.target_acceptance
    if target is None:
        target = ACCEPTANCE.get(sampler.explorer, 0.44 if cv.dim == 1 else 0.234)
    link, joint = pointers(model)
    transitions = isinstance(sampler, TransitionOptions)
    return TemperedProblem(
        kernel_class=TransitionKernel if transitions else ParallelKernel,
        link=link,
        joint=joint,
        explore=EXPLORERS[sampler.explorer],
        base=base,
        full=full,
        source=dataset.rows(),
        constrain=model.constrain,
        options=sampler,
        target_acceptance=float(target),
        first=first,
        spread=spread,
        proper=not improper(base.prior).any(),
        log_constant=_log_constant(dataset, model, full),
        memory=memory_limit,
    )


def _log_constant(dataset: Dataset, model: Model, full: Held) -> float | None:
    """Return the constant that the log-likelihood omits; ``None``: it depends on hidden trials."""
    left_out = getattr(model, "log_constant", None)
    if left_out is None:
        return 0.0
    attributes = dataset.attributes
    if split_fingerprint(dataset.fingerprint)[1] != 1.0:
        return None
    if attributes.get("trials") and attributes.get("weight"):
        return None
    return cast(float | None, left_out(full.y, full.weight))
