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
from streammc.samplers.common.explorers import EXPLORER_TYPE, refresh
from streammc.samplers.common.ladder import (
    GRADIENT_STALE,
    LADDER_TYPE,
    REPLICAS_TYPE,
    STALE,
    at_prior,
)
from streammc.samplers.tempering.ensemble import ENSEMBLE_TYPE, rows_of

LONGEST = 1e300
RATES: Any = types.UniTuple(f8, 2)


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


@inline
def learn(ensemble, m, acceptance, target):  # type: ignore[no-untyped-def]
    """Let the step size of level ``m`` follow the acceptance of its kernel, in warm-up."""
    if target > 0.0:
        tuning.update(ensemble.adapt[m], acceptance, target, LONGEST)
        ensemble.ladder.step[m] = math.exp(ensemble.adapt[m, tuning.LOG_STEP])


@jit(
    RATES(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, i8, i8, matrix, vector, f8
    ),
    borrow=True,
)  # fmt: skip
def explore_level(link, joint, explore, ensemble, r, m, draws, fresh, target):  # type: ignore[no-untyped-def]
    """Run the inner kernel of replica ``r`` at level ``m``, once for every row of ``draws``.

    Where the level is the prior, the replica takes ``fresh`` (d,) instead. ``target`` above 0
    tunes the step size. Returns the mean acceptance probability, and 1 where a transition
    diverged, else 0. Touches the rows of that replica and that level only, so that levels may
    run in threads.
    """
    base, ladder, replicas, trial = (
        ensemble.base, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    held = rows_of(ensemble, m)
    if at_prior(ladder, m):
        restart(link, joint, base, held, ladder, m, replicas, r, fresh, trial.scratch)
        return 1.0, 0.0
    n = draws.shape[0]
    rate = diverged = 0.0
    for i in range(n):
        a = explore(link, joint, base, held, ladder, m, replicas, r, draws[i], trial)
        if a != a:
            a = 0.0
            diverged = 1.0
        rate += a
        learn(ensemble, m, a, target)
    return rate / n, diverged
