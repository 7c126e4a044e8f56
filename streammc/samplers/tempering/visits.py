"""One visit of a replica to a level: the inner kernel, or a new draw where the level is the prior.

Independent draws at the prior are what makes a ladder forget: a state that comes down from there
to level 0 owes nothing to any earlier state of the chain, a restart (Syed et al. 2021).
"""

from __future__ import annotations

import math
from typing import Any

from numba import types

from streammc.likelihood.blocks import SCRATCH_TYPE
from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit, matrix, vector
from streammc.samplers.common import tuning
from streammc.samplers.common.explorers import EXPLORER_TYPE, TRIAL_TYPE, refresh
from streammc.samplers.common.ladder import (
    GRADIENT_STALE,
    LADDER_TYPE,
    REPLICAS_TYPE,
    STALE,
    at_prior,
)

LONGEST = 1e300
DRAWS: Any = types.Array(f8, 4, "C")
"""Random numbers: iteration, replica, transition, number."""


@inline
def whiten(base, theta, z):  # type: ignore[no-untyped-def]
    """Write ``z = S^-1 (theta - theta_star)``, one row of the triangle after the other."""
    for i in range(z.shape[0]):
        total = theta[i] - base.theta_star[i]
        for j in range(i):
            total -= base.factor[i, j] * z[j]
        z[i] = total / base.factor[i, i]


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, i8, REPLICAS_TYPE, i8, vector,
        SCRATCH_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def restart(link, joint, base, held, ladder, m, replicas, r, theta, scratch):  # type: ignore[no-untyped-def]
    """Put replica ``r`` at ``theta`` (d,), a draw from the prior; its gradient is not known yet."""
    whiten(base, theta, replicas.z[r])
    replicas.scalars[r, STALE] = 1.0
    refresh(link, joint, base, held, ladder, m, replicas, r, 0, scratch)
    replicas.scalars[r, STALE] = GRADIENT_STALE


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, LADDER_TYPE,
        REPLICAS_TYPE, i8, i8, DRAWS, matrix, i8, TRIAL_TYPE, matrix, f8, matrix,
    ),
    borrow=True,
)  # fmt: skip
def explore_level(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, own, ladder, replicas, r, m, draws, fresh, t, trial, adapt,
    target, rates,
):  # fmt: skip
    """Run the inner kernel of replica ``r`` at level ``m`` in iteration ``t`` of the batch.

    Where the level is the prior, the replica takes ``fresh[t]`` (d,) instead.
    ``rates[m]`` becomes the mean acceptance probability and whether a transition diverged.
    Touches the rows of that replica and that level only, so that levels may run in threads.
    """
    held = own if ladder.own != 0 and m > 0 else full
    rates[m, 1] = 0.0
    if at_prior(ladder, m):
        restart(link, joint, base, held, ladder, m, replicas, r, fresh[t], trial.scratch)
        rates[m, 0] = 1.0
        return
    n = draws.shape[2]
    rate = 0.0
    for i in range(n):
        a = explore(link, joint, base, held, ladder, m, replicas, r, draws[t, r, i], trial)
        if a != a:
            a = 0.0
            rates[m, 1] = 1.0
        rate += a
        if target > 0.0:
            tuning.update(adapt[m], a, target, LONGEST)
            ladder.step[m] = math.exp(adapt[m, tuning.LOG_STEP])
    rates[m, 0] = rate / n
