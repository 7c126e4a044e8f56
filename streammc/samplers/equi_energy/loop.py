"""The compiled loop of ``mintee``: steps and jumps of all levels, the hottest first."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import GENERATOR_TYPE, JOINT_TYPE, LINK_TYPE, inline, jit
from streammc.numerics.records import record_type
from streammc.protocols import Matrix
from streammc.samplers.common import statistics as column
from streammc.samplers.common import tuning
from streammc.samplers.equi_energy.chain_state import (
    ENSEMBLE_TYPE,
    EVALUATED,
    JUMP_ACCEPTANCE,
    JUMPS,
    PRIOR,
    STARTED,
    STEP_ACCEPTANCE,
    STEPS,
    VALUE,
)
from streammc.samplers.equi_energy.moves import jump, refresh, step
from streammc.samplers.equi_energy.options import JUMP_ACCEPTED, JUMP_PROPOSED, RING
from streammc.samplers.equi_energy.rings import add, ring_of

LONGEST = 1e300


class Batch(NamedTuple):
    """Settings and results of the iterations that are handed to the loop at once."""

    iteration: int
    """Number of the first iteration."""
    target: float
    """Mean acceptance probability to which step sizes are tuned; 0: they stay."""
    counting: int
    """1 after warm-up: moves and visits are counted."""
    adapt: Matrix
    """(K, 7) state of ``common.tuning`` of every level."""
    theta: Matrix
    """(n, d) draws."""
    statistics: Matrix
    """(n, 13) columns of ``EQUI_ENERGY_STATISTICS``."""
    path: Annotated[NDArray[np.float64], 3]
    """(n, K, d) states of all levels; (0, K, d): they are not kept."""
    energies: Matrix
    """(n, K) their energies, or (0, K)."""


BATCH_TYPE: Any = record_type(Batch)


@inline
def _evaluated(states):  # type: ignore[no-untyped-def]
    """Return the terms evaluated so far, by all levels."""
    return states.scalars[:, EVALUATED].sum()


@inline
def _start(link, joint, ensemble, batch, k, rng):  # type: ignore[no-untyped-def]
    """Start level ``k`` at the state of the level above, with its step at this temperature."""
    levels, states, adapt = ensemble.levels, ensemble.states, batch.adapt
    states.scalars[k, STARTED] = 1.0
    if k < levels.rows.shape[0] - 1:
        for j in range(states.z.shape[1]):
            states.z[k, j] = states.z[k + 1, j]
        if batch.target > 0.0:
            cooler = levels.temperature[k] / levels.temperature[k + 1]
            log_step = adapt[k + 1, tuning.LOG_AVERAGE] + 0.5 * math.log(cooler)
            adapt[k, tuning.LOG_STEP] = log_step
            adapt[k, tuning.LOG_AVERAGE] = log_step
            adapt[k, tuning.SHRINK_TO] = log_step
            levels.step[k] = math.exp(log_step)
    refresh(link, joint, ensemble, k, rng)


@inline
def _step(link, joint, ensemble, batch, k, rng):  # type: ignore[no-untyped-def]
    """Make a step of level ``k``, count it and tune its size; return its acceptance."""
    moves, adapt = ensemble.counts.moves, batch.adapt
    a = step(link, joint, ensemble, k, rng)
    if batch.counting == 1:
        moves[k, STEPS] += 1.0
        moves[k, STEP_ACCEPTANCE] += a
    if batch.target > 0.0:
        tuning.update(adapt[k], a, batch.target, LONGEST)
        ensemble.levels.step[k] = math.exp(adapt[k, tuning.LOG_STEP])
    return a


@inline
def _move(link, joint, ensemble, batch, k, row, rng):  # type: ignore[no-untyped-def]
    """Make the steps and jumps of level ``k``; return their mean acceptance.

    ``row`` gets the jumps of level 0.
    """
    levels, moves = ensemble.levels, ensemble.counts.moves
    rate = 0.0
    for _ in range(levels.inner_steps):
        a = -1.0
        if k < levels.rows.shape[0] - 1 and rng.random() < levels.jump_probability:
            a = jump(link, joint, ensemble, k, rng)
        if a >= 0.0:
            if batch.counting == 1:
                moves[k, JUMPS] += 1.0
                moves[k, JUMP_ACCEPTANCE] += a
            if k == 0:
                row[JUMP_PROPOSED] += 1.0
                row[JUMP_ACCEPTED] += a
        else:
            a = _step(link, joint, ensemble, batch, k, rng)
        rate += a / levels.inner_steps
    return rate


@inline
def _keep(ensemble, batch, k, t, rng):  # type: ignore[no-untyped-def]
    """Add the state of level ``k`` to its ring, and to the path in iteration ``t``."""
    levels, states = ensemble.levels, ensemble.states
    value = states.scalars[k, VALUE]
    energy = levels.scale[k] * value
    ring = ring_of(levels.bounds, energy)
    if batch.counting == 1:
        ensemble.counts.rings[k, ring] += 1.0
    if k > 0 and batch.iteration + t >= levels.opened[k]:
        add(ensemble.rings, k, ring, states.z[k], value, rng.random())
    if batch.path.shape[0] > 0:
        batch.energies[t, k] = energy
        for j in range(states.theta.shape[1]):
            batch.path[t, k, j] = states.theta[k, j]


@inline
def _record(ensemble, rate, evaluations, theta, row):  # type: ignore[no-untyped-def]
    """Write the state of level 0 and the statistics of an iteration, but for its jumps."""
    levels, states = ensemble.levels, ensemble.states
    for j in range(theta.shape[0]):
        theta[j] = states.theta[0, j]
    value = levels.reference[0] - states.scalars[0, VALUE]
    lp = value + states.scalars[0, PRIOR]
    row[column.LP] = lp
    row[column.ACCEPTANCE_RATE] = rate
    row[column.DIVERGING] = 0.0
    row[column.ENERGY] = -lp
    row[column.STEP_SIZE] = levels.step[0]
    row[column.N_STEPS] = 1.0
    row[column.LOG_LIK_VARIANCE] = 0.0
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = evaluations
    row[column.LOG_LIK_REMAINDER] = value
    row[RING] = float(ring_of(levels.bounds, states.scalars[0, VALUE]))


@jit(
    types.void(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, BATCH_TYPE, GENERATOR_TYPE), borrow=True
)  # fmt: skip
def run(link, joint, ensemble, batch, rng):  # type: ignore[no-untyped-def]
    """Make an iteration of every level for each row of ``batch.theta``."""
    levels, states = ensemble.levels, ensemble.states
    for t in range(batch.theta.shape[0]):
        row = batch.statistics[t]
        row[JUMP_PROPOSED] = row[JUMP_ACCEPTED] = 0.0
        before = _evaluated(states)
        rate = 0.0
        for k in range(levels.rows.shape[0] - 1, -1, -1):
            if batch.iteration + t < levels.begin[k]:
                rate = 1.0
                continue
            if states.scalars[k, STARTED] == 0.0:
                _start(link, joint, ensemble, batch, k, rng)
            rate = _move(link, joint, ensemble, batch, k, row, rng)
            _keep(ensemble, batch, k, t, rng)
        _record(ensemble, rate, _evaluated(states) - before, batch.theta[t], row)
