"""The compiled loop of ``mintee``: steps and jumps of all levels, the hottest first."""

from __future__ import annotations

import math

from numba import types

from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    jit,
    matrix,
    vector,
)
from streammc.samplers.common import tuning
from streammc.samplers.common.explorers import TRIAL_TYPE
from streammc.samplers.equi_energy.energies import (
    EVALUATED,
    LEVELS_TYPE,
    PRIOR,
    STARTED,
    STATES_TYPE,
    VALUE,
)
from streammc.samplers.equi_energy.moves import COUNTS_TYPE, jump, refresh, step
from streammc.samplers.equi_energy.rings import RINGS_TYPE, add, ring_of


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, vector, index_vector, LEVELS_TYPE,
        STATES_TYPE, RINGS_TYPE, TRIAL_TYPE, COUNTS_TYPE, GENERATOR_TYPE, i8, matrix, f8, i8,
        matrix, matrix, types.Array(f8, 3, "C"), matrix,
    ),
    borrow=True,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    link, joint, base, full, own, terms, chosen, levels, states, rings, trial, counts, rng,
    iteration, adapt, target, count, theta, stats, path, energies,
):  # fmt: skip
    """Make an iteration of every level for each row of ``theta``.

    ``target`` 0 adapts nothing; ``count`` 1 counts. ``path`` (n, K, d) and ``energies`` (n, K)
    receive every level's state, where they have room for it.
    """
    K, d = levels.rows.shape[0], theta.shape[1]
    for t in range(theta.shape[0]):
        looked = states.scalars[:, EVALUATED].sum()
        rate = 0.0
        proposed = 0.0
        accepted = 0.0
        for k in range(K - 1, -1, -1):
            if iteration + t < levels.begin[k]:
                rate = 1.0
                continue
            if states.scalars[k, STARTED] == 0.0:
                states.scalars[k, STARTED] = 1.0
                if k < K - 1:  # begin where the level above is
                    for j in range(d):
                        states.z[k, j] = states.z[k + 1, j]
                    if target > 0.0:  # with its step, at this temperature
                        cooler = levels.temperature[k] / levels.temperature[k + 1]
                        log_step = adapt[k + 1, tuning.LOG_AVERAGE] + 0.5 * math.log(cooler)
                        adapt[k, tuning.LOG_STEP] = log_step
                        adapt[k, tuning.LOG_AVERAGE] = log_step
                        adapt[k, tuning.SHRINK_TO] = log_step
                        levels.step[k] = math.exp(log_step)
                refresh(
                    link, joint, base, full, own, terms, chosen, levels, k, states, trial, counts,
                    rng,
                )  # fmt: skip
            rate = 0.0
            for _ in range(levels.inner_steps):
                a = -1.0
                if k < K - 1 and rng.random() < levels.jump_probability:
                    a = jump(
                        link, joint, base, full, own, terms, chosen, levels, k, states, rings,
                        trial, counts, rng,
                    )  # fmt: skip
                if a >= 0.0:
                    if count == 1:
                        counts.moves[k, 2] += 1.0
                        counts.moves[k, 3] += a
                    if k == 0:
                        proposed += 1.0
                        accepted += a
                else:
                    a = step(
                        link, joint, base, full, own, terms, chosen, levels, k, states, trial,
                        counts, rng,
                    )  # fmt: skip
                    if count == 1:
                        counts.moves[k, 0] += 1.0
                        counts.moves[k, 1] += a
                    if target > 0.0:
                        tuning.update(adapt[k], a, target, 1e300)
                        levels.step[k] = math.exp(adapt[k, tuning.LOG_STEP])
                rate += a / levels.inner_steps
            energy = levels.scale[k] * states.scalars[k, VALUE]
            ring = ring_of(levels.bounds, energy)
            if count == 1:
                counts.rings[k, ring] += 1.0
            if k > 0 and iteration + t >= levels.opened[k]:
                value = states.scalars[k, VALUE]
                add(rings, k, ring, states.z[k], value, rng.random())
            if path.shape[0] > 0:
                energies[t, k] = energy
                for j in range(d):
                    path[t, k, j] = states.theta[k, j]
        for j in range(d):
            theta[t, j] = states.theta[0, j]
        value = levels.reference[0] - states.scalars[0, VALUE]
        row = stats[t]
        row[0] = value + states.scalars[0, PRIOR]
        row[1] = rate
        row[2] = 0.0
        row[3] = -row[0]
        row[4] = levels.step[0]
        row[5] = 1.0
        row[6] = 0.0
        row[7] = 1.0
        row[8] = states.scalars[:, EVALUATED].sum() - looked
        row[9] = value
        row[10] = proposed
        row[11] = accepted
        row[12] = float(ring_of(levels.bounds, states.scalars[0, VALUE]))
