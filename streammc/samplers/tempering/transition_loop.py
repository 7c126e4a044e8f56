"""The compiled loop of ``tt`` and ``stt``: transitions at level 0, and tempered transitions."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import copy_held
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, inline, jit
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix
from streammc.samplers.common import statistics as column
from streammc.samplers.common.explorers import EXPLORER_TYPE
from streammc.samplers.common.ladder import EVALUATED, LOG_LIK, LOG_PRIOR, at_prior
from streammc.samplers.tempering.ensemble import ENSEMBLE_TYPE
from streammc.samplers.tempering.excursion import (
    AWAY,
    DOWN,
    DOWN_STEP,
    HOME,
    NOT_VISITED,
    UP,
    UP_STEP,
    decide,
    rise_and_fall,
)
from streammc.samplers.tempering.options import REPLICA, SWAP_ACCEPTED
from streammc.samplers.tempering.subsets import choose
from streammc.samplers.tempering.visits import learn

GOING_UP, GOING_DOWN, INCREMENT, EXCHANGE, DIVERGED = range(5)
"""Tallies of a level: acceptance of its kernel on the way up (of level 0 before it) and down;
the mean of its two terms of the log ratio, and the probability of the exchange that they are;
whether a trajectory diverged. The third and the fourth of level 0 are the log ratio and the
acceptance of the whole transition."""
N_TALLIES: Final = 5
_CUBE: Any = types.Array(f8, 3, "C")


class Transition(NamedTuple):
    """Scratch and tallies of tempered transitions; written in place."""

    order: int
    """1 where the inner kernel needs gradients, else 0."""
    next_places: Index
    """(L,) scratch of :func:`streammc.samplers.tempering.subsets.choose`."""
    rows: Index
    """Rows of the subsets, level by level."""
    moves: Matrix
    """(4, L) acceptances and terms of the log ratio of the last transition."""
    tally: Annotated[NDArray[np.float64], 3]
    """(5, L, 2) sums of what is counted, and their numbers of terms."""


TRANSITION_TYPE: Any = record_type(Transition)


class Batch(NamedTuple):
    """Random numbers and results of the iterations that are handed to the loop at once."""

    target: float
    """Mean acceptance probability to which step sizes are tuned; 0: they stay."""
    home: Annotated[NDArray[np.float64], 3]
    """(n, steps, d + 2) random numbers of the transitions at level 0."""
    away: Annotated[NDArray[np.float64], 3]
    """(n, 2 M k, d + 2) those of the transitions at the other levels."""
    fresh: Matrix
    """(n, d) draws of the prior."""
    uniforms: Matrix
    """(n, 1) in (0, 1], which accept."""
    keys: Matrix
    """(n, ...) uniforms that choose the rows of subsets."""
    theta: Matrix
    """(n, d) draws."""
    statistics: Matrix
    """(n, 12) columns of ``TEMPERED_STATISTICS``."""


BATCH_TYPE: Any = record_type(Batch)


@inline
def _count(tally, which, m, value):  # type: ignore[no-untyped-def]
    """Add a finite value to a sum and to its number of terms."""
    if math.isfinite(value):
        tally[which, m, 0] += value
        tally[which, m, 1] += 1.0


@inline
def _count_levels(ensemble, moves, tally, target):  # type: ignore[no-untyped-def]
    """Count the moves of one tempered transition, and tune the step sizes by them."""
    ladder = ensemble.ladder
    for m in range(1, ladder.beta.shape[0]):
        both = moves[UP_STEP, m] + moves[DOWN_STEP, m]
        _count(tally, INCREMENT, m, both)
        _count(tally, EXCHANGE, m, math.exp(min(both, 0.0)) if both == both else both)
        for way in (UP, DOWN):
            acceptance = moves[way, m]
            if acceptance == NOT_VISITED:
                continue
            _count(tally, DIVERGED, m, 1.0 if acceptance != acceptance else 0.0)
            acceptance = acceptance if acceptance == acceptance else 0.0
            _count(tally, GOING_UP if way == UP else GOING_DOWN, m, acceptance)
            if not at_prior(ladder, m):
                learn(ensemble, m, acceptance, target)


@inline
def _stay_home(link, joint, explore, ensemble, draws, tally, target):  # type: ignore[no-untyped-def]
    """Run the kernel of level 0; return its mean acceptance, and 1 where it diverged, else 0."""
    base, ladder, replicas, trial = (
        ensemble.base, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    steps = draws.shape[0]
    rate = any_diverged = 0.0
    for i in range(steps):
        a = explore(link, joint, base, ensemble.full, ladder, 0, replicas, HOME, draws[i], trial)
        diverged = 1.0 if a != a else 0.0
        a = a if a == a else 0.0
        any_diverged = max(any_diverged, diverged)
        rate += a / steps
        _count(tally, GOING_UP, 0, a)
        _count(tally, DIVERGED, 0, diverged)
        learn(ensemble, 0, a, target)
    return rate, any_diverged


@inline
def _transition(link, joint, explore, ensemble, transition, batch, t):  # type: ignore[no-untyped-def]
    """Make one tempered transition; return 1 where it was accepted, and its probability."""
    if ensemble.ladder.own == 1:
        choose(ensemble.ladder, batch.keys[t], transition.next_places, transition.rows)
        copy_held(ensemble.full, transition.rows, 0, transition.rows.shape[0], ensemble.own, 0)
    ratio = rise_and_fall(
        link, joint, explore, ensemble, batch.away[t], batch.fresh[t], transition.order,
        transition.moves,
    )  # fmt: skip
    accepted = float(decide(ensemble.replicas, ratio, batch.uniforms[t, 0]))
    probability = math.exp(min(ratio, 0.0))
    _count(transition.tally, EXCHANGE, 0, probability)
    _count(transition.tally, INCREMENT, 0, ratio)
    _count_levels(ensemble, transition.moves, transition.tally, batch.target)
    return accepted, probability


@inline
def _evaluated(replicas):  # type: ignore[no-untyped-def]
    """Return the log-likelihoods of rows evaluated so far."""
    return replicas.scalars[HOME, EVALUATED] + replicas.scalars[AWAY, EVALUATED]


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, TRANSITION_TYPE, BATCH_TYPE
    ),
    borrow=True,
)  # fmt: skip
def run(link, joint, explore, ensemble, transition, batch):  # type: ignore[no-untyped-def]
    """Run as many iterations as ``batch.theta`` has rows."""
    ladder, replicas, target = ensemble.ladder, ensemble.replicas, batch.target
    for t in range(batch.theta.shape[0]):
        before = _evaluated(replicas)
        rate, diverged = _stay_home(
            link, joint, explore, ensemble, batch.home[t], transition.tally, target
        )
        accepted = 0.0
        if ladder.beta.shape[0] > 1:
            accepted, probability = _transition(
                link, joint, explore, ensemble, transition, batch, t
            )
            if batch.home.shape[1] == 0:
                rate = probability
        for j in range(batch.theta.shape[1]):
            batch.theta[t, j] = replicas.theta[HOME, j]
        log_lik = replicas.scalars[HOME, LOG_LIK]
        lp = log_lik + replicas.scalars[HOME, LOG_PRIOR]
        row = batch.statistics[t]
        row[column.LP] = lp
        row[column.ACCEPTANCE_RATE] = rate
        row[column.DIVERGING] = diverged
        row[column.ENERGY] = -lp
        row[column.STEP_SIZE] = ladder.step[0]
        row[column.N_STEPS] = ladder.n_steps
        row[column.LOG_LIK_VARIANCE] = 0.0
        row[column.SUBSAMPLE_ACCEPTED] = 1.0
        row[column.N_ROWS] = _evaluated(replicas) - before
        row[column.LOG_LIK_REMAINDER] = log_lik
        row[SWAP_ACCEPTED] = accepted
        row[REPLICA] = 0.0
