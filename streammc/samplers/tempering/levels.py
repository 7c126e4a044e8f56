"""The ends and the number of levels of a ladder, decided before the first chain starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Final

import numpy as np

from streammc import rng as streams
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.forecast import FORECAST
from streammc.control_variates.unexpanded import without_pass
from streammc.errors import OutOfMemoryError
from streammc.likelihood.contiguous_rows import held_bytes
from streammc.likelihood.expanded_rows import memory_limit
from streammc.protocols import Dataset, Model
from streammc.samplers.common.all_rows import announce_rows, size_text
from streammc.samplers.common.ladder import geometric
from streammc.samplers.common.planning import control_variates
from streammc.samplers.common.request import RunRequest, Setup
from streammc.samplers.common.sampler import NAMED
from streammc.samplers.tempering.last_level import ended
from streammc.samplers.tempering.options import HMC, NESTED, TemperedOptions
from streammc.samplers.tempering.parallel_tempering import (
    ParallelOptions,
    ParallelTempering,
    SubsampledParallelTempering,
)
from streammc.samplers.tempering.problem import tempering
from streammc.samplers.tempering.shared import subset_bounds
from streammc.samplers.tempering.tempered_transitions import (
    SubsampledTransitions,
    TransitionOptions,
)

PILOT_LEVELS: Final = (13, 25, 40)
"""Levels of a pilot run; the next number where the barrier is above ``CROWDED`` of their pairs."""
CROWDED: Final = 0.75
PILOT_WARMUP: Final = 75
PILOT_DRAWS: Final = 75
FEWEST_LEVELS: Final = 3
MOST_LEVELS: Final = 40
"""Largest number of levels of parallel tempering, which has a replica at each."""
MOST_VISITED: Final = 100
"""Largest number of levels of tempered transitions, which visit each twice for a proposal."""
SHORT_STEPS: Final = 3
"""The same between two swaps of many: 14 restarts a second for 4.6 with 10, on four components
in three dimensions (``bench/mixture_modes.py``)."""
WORK: Final = 6_000_000
"""Gradients of rows times parameters that a draw may take by default."""
RESTART_DRAWS: Final = 40
"""Draws for one expected restart, which no work is too much for: 25 in 1,000 draws."""


def prepare(sampler: TemperedOptions, request: RunRequest, reason: str) -> Setup:
    """Return control variates and a ladder: its last level, and as many as a pilot asks for."""
    dataset, model = request.dataset, request.model
    ended(model, model.labels(dataset.feature_names), sampler)
    announce_rows(request, sampler.name)
    if sampler.needs_pass(model):
        cv = control_variates(request)
    else:
        cv = without_pass(dataset, model, sampler.start)
    settled, levels = settle(
        dataset, model, cv, sampler, seed=request.stream_seed, stop=request.stop
    )
    if settled.subsets_of_rows:
        _announce_subsets(request, settled)
    return Setup(settled, cv, None, "; ".join(filter(None, [reason or NAMED, levels])))


def _announce_subsets(request: RunRequest, sampler: TemperedOptions) -> None:
    """Report the bytes of the subsets of all chains, before a chain allocates them.

    A ladder that adapts in warm-up starts from this one.

    Raises
    ------
    OutOfMemoryError
        If they need more than half of the memory that is available.
    """
    assert sampler.n_levels is not None
    dataset, chains, n = request.dataset, request.chains, request.dataset.n_rows
    beta = geometric(sampler.n_levels, sampler.beta_min or 0.0)
    rows = int(subset_bounds(sampler, beta, n)[1][1:].max(initial=0))
    orders = 0
    if isinstance(sampler, ParallelOptions):
        nested = getattr(sampler, "subsets", None) == NESTED
        rows = n if nested and request.model.joint is None else rows
        orders = min(len(beta) - 1, 1) if nested else len(beta) - 1
    needed = chains * (held_bytes(rows, dataset.n_features) + 8 * n * orders)
    if needed > memory_limit():
        raise OutOfMemoryError(
            f"expected subsets that fit into half of the available memory, found {rows:,} rows "
            f"in each of {chains} chains, {size_text(needed)}; use fewer chains, or a sampler "
            "without subsets: pt or tt"
        )
    text = f"each of {chains} chains keeps {rows:,} rows of its subsets: {size_text(needed)}"
    request.notify(FORECAST, 0, None, {"text": text, "rows": rows, "memory_bytes": needed})


def settle(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    sampler: TemperedOptions,
    *,
    seed: int,
    stop: Callable[[], bool] | None = None,
) -> tuple[TemperedOptions, str]:
    """Return the options with every level decided, and the reason in words.

    The number of levels comes from the global barrier ``Lambda`` that a pilot of one chain
    finds (Syed et al. 2021, section 4): about ``2 Lambda + 1`` for parallel tempering. A
    tempered transition is accepted with ``2 Phi(-s / 2)``, ``s^2`` about ``pi Lambda^2 / M``
    for fresh states at ``M`` levels: ``M`` is such that this is 0.3 or more.

    Raises
    ------
    ConfigError
        If the ladder was asked to end at a prior that is no density.
    StoppedError
        If ``stop()`` became true in the pilot.
    """
    labels = cv.labels
    given = sampler
    sampler = ended(model, labels, sampler)
    if sampler.n_levels is not None:
        return sampler, ""
    barrier = _barrier(dataset, model, cv, sampler, seed, stop)
    n_levels = math.ceil(2.0 * barrier) + 1
    most = MOST_LEVELS
    if isinstance(sampler, TransitionOptions):
        n_levels = max(n_levels, math.ceil(0.73 * barrier**2) + 1)
        most = MOST_VISITED
    most = sampler.max_levels or most
    words = f"global barrier {barrier:.1f} in a pilot run"
    if n_levels > most:
        words += f", which asks for {n_levels}"
    n_levels = min(max(n_levels, FEWEST_LEVELS), most)
    sampler = replace(sampler, n_levels=n_levels)
    reason = f"{n_levels} levels: {words}"
    if given.beta_min is None:
        at = "the prior" if sampler.beta_min == 0.0 else f"beta {sampler.beta_min:g}"
        reason += f"; the last level is {at}"
        if sampler.beta_min:
            why = "the prior has the power too" if sampler.powers_of_prior else "the prior is flat"
            reason += f", since {why}"
    if isinstance(sampler, ParallelOptions) and sampler.iterations_per_draw is None:
        sampler = _with_iterations(dataset, model, sampler, barrier)
        if (sampler.iterations_per_draw or 1) > 1:
            reason += f"; {sampler.iterations_per_draw} iterations a draw"
    return sampler, reason


def _with_iterations(
    dataset: Dataset, model: Model, sampler: ParallelOptions, barrier: float
) -> ParallelOptions:
    """Return the options with the iterations of one draw.

    A ladder restarts once in ``2 + 4 Lambda`` iterations at best (Syed et al. 2021, with
    ``2 Lambda + 1`` levels). An independent draw of a mode takes two to four times as many
    iterations (three components, ``bench/mixture_modes.py``).
    """
    restart = math.ceil(2.0 + 4.0 * barrier)
    every = -(-restart // RESTART_DRAWS)
    steps = sampler.n_steps or SHORT_STEPS
    if model.joint is None and sampler.n_levels is not None:
        visits = sampler.n_levels * sampler.inner_steps
        work = visits * (steps if sampler.explorer == HMC else 1)
        work *= dataset.n_rows * model.dim(dataset.n_features)
        every = max(every, min(WORK // work, 2 * restart))
    if every == 1:
        return replace(sampler, iterations_per_draw=1)
    return replace(sampler, iterations_per_draw=every, n_steps=steps)


def _barrier(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    sampler: TemperedOptions,
    seed: int,
    stop: Callable[[], bool] | None,
) -> float:
    """Return the sum of the rejection probabilities of the neighbours of a short run."""
    pilot_seed = int(streams.stream(seed, 0, streams.Role.LADDER).integers(2**63))
    barrier = 0.0
    for n_levels in PILOT_LEVELS:
        options = replace(_parallel(sampler), n_levels=n_levels)
        kernel = tempering(dataset, model, cv, options).kernel(pilot_seed, 0)
        kernel.initialise()
        kernel.advance(PILOT_WARMUP, True, stop)
        kernel.advance(PILOT_DRAWS, False, stop)
        barrier = float(np.nansum(1.0 - kernel.tallies()["swap_rate"]))
        if barrier < CROWDED * (n_levels - 1):
            break
    return barrier


def _parallel(sampler: TemperedOptions) -> ParallelOptions:
    """Return parallel tempering with the levels of any sampler."""
    if isinstance(sampler, ParallelOptions):
        return replace(sampler, iterations_per_draw=1)
    subsets = isinstance(sampler, SubsampledTransitions)
    kind = SubsampledParallelTempering if subsets else ParallelTempering
    shared = {f.name for f in fields(kind)} & {f.name for f in fields(sampler)}
    return kind(**{name: getattr(sampler, name) for name in shared})
