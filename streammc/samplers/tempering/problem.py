"""Problem of the samplers with a ladder: last level, number of levels by a pilot run, rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from streammc import rng as streams
from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import without_pass
from streammc.control_variates.expansion import ControlVariates
from streammc.errors import ConfigError, OutOfMemoryError
from streammc.likelihood.blocks import memory_limit
from streammc.likelihood.contiguous_rows import Held, held_bytes, pointers
from streammc.likelihood.pass_cost import FORECAST
from streammc.numerics.prior import improper
from streammc.protocols import Dataset, Model
from streammc.samplers.common.preparation import announce_rows, control_variates, ground, size_text
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup
from streammc.samplers.tempering.kernel import TemperedProblem, subset_bounds
from streammc.samplers.tempering.ladder import EXPLORERS, geometric
from streammc.samplers.tempering.parallel_kernel import ParallelKernel
from streammc.samplers.tempering.transition_kernel import TransitionKernel

if TYPE_CHECKING:
    from streammc.samplers.tempering.options import ParallelOptions, TemperedOptions

WARM: Final = 0.125
"""Inverse temperature of the last level of a ladder that cannot end at the prior."""


def ended(model: Model, labels: tuple[str, ...], sampler: TemperedOptions) -> TemperedOptions:
    """Return the options with a last level: the prior, where it can be sampled.

    Raises
    ------
    ConfigError
        If the last level was asked to be the prior and that is no density.
    """
    flat = improper(model.prior_table(labels))
    if sampler.n_levels != 1 and sampler.beta_min == 0.0 and flat.any():
        raise ConfigError(
            "expected a prior that can be sampled, as beta_min=0 asks for, found a flat one on "
            f"{labels[int(np.argmax(flat))]}; set another prior or a beta_min above 0"
        )
    if sampler.beta_min is None:
        above = flat.any() or sampler.powers_of_prior
        sampler = replace(sampler, beta_min=WARM if above else 0.0)
    return sampler


ACCEPTANCE: Final = {"hmc": 0.8}
"""Target acceptance rate of warm-up; of a random walk 0.44 in one dimension, else 0.234
(Roberts and Rosenthal 2001)."""


def tempering(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: TemperedOptions
) -> TemperedProblem:
    """Return the problem of a sampler with a ladder; see :func:`ground`.

    The ladder has a number of levels: :func:`settle` finds one.
    """
    sampler = ended(model, cv.labels, sampler)
    base, full, first, spread = ground(dataset, model, cv, sampler)
    target = sampler.target_acceptance
    if target is None:
        target = ACCEPTANCE.get(sampler.explorer, 0.44 if cv.dim == 1 else 0.234)
    link, joint = pointers(model)
    return TemperedProblem(
        kernel_class=ParallelKernel if sampler.parallel else TransitionKernel,
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
    """Return the constant that the log-likelihood omits; ``None``: it depends on hidden numbers."""
    attributes = dataset.attributes
    if (attributes.get("cells") or {}).get("statistics") == "counts":
        return None  # the factorials are those of the rows
    if not (model.takes_trials or model.sees_trials):
        return 0.0
    if dataset.temperature != 1.0:
        return None
    if attributes.get("trials") and (attributes.get("weight") or attributes.get("cells")):
        return None
    return model.log_constant(full.y, full.weight)


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
        cv = without_pass(Bound(dataset, model), sampler.start)
    settled, levels = settle(
        dataset, model, cv, sampler, seed=request.stream_seed, stop=request.interrupted
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
    if sampler.parallel:
        nested = sampler.nested
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
    if not sampler.parallel:
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
    if not sampler.parallel:
        return sampler, reason
    parallel = cast("ParallelOptions", sampler)
    if parallel.iterations_per_draw is None:
        parallel = _with_iterations(dataset, model, parallel, barrier)
        if (parallel.iterations_per_draw or 1) > 1:
            reason += f"; {parallel.iterations_per_draw} iterations a draw"
    return parallel, reason


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
        work = visits * (steps if sampler.explorer == "hmc" else 1)
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
        options = replace(sampler.in_parallel(), n_levels=n_levels)
        kernel = tempering(dataset, model, cv, options).kernel(pilot_seed, 0)
        kernel.initialise()
        kernel.advance(PILOT_WARMUP, True, stop)
        kernel.advance(PILOT_DRAWS, False, stop)
        barrier = float(np.nansum(1.0 - kernel.tallies()["swap_rate"]))
        if barrier < CROWDED * (n_levels - 1):
            break
    return barrier
