"""The compiled loop of ``tt`` and ``stt``: transitions at level 0, and tempered transitions."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import copy_held, log_likelihood
from streammc.numerics.jit import (
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    record_type,
    vector,
)
from streammc.protocols import Index, Matrix
from streammc.samplers.common import statistics as column
from streammc.samplers.common.statistics import REPLICA, SWAP_ACCEPTED
from streammc.samplers.tempering.ladder import (
    ENSEMBLE_TYPE,
    EVALUATED,
    EXPLORER_TYPE,
    LADDER_TYPE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    STALE,
    Ladder,
    at_prior,
    learn,
    log_density,
    refresh,
    restart,
    rows_of,
)


def n_keys(ladder: Ladder, n_rows: int) -> int:
    """Return the uniform numbers that :func:`choose` takes."""
    levels = len(ladder.hi)
    if not ladder.own or levels == 1:
        return 0
    return n_rows * (1 if _is_nested(ladder) else levels - 1)


def _is_nested(ladder: Ladder) -> bool:
    return len(ladder.lo) < 3 or ladder.lo[1] == ladder.lo[2]


@inline
def _walk(n, keys, first, lo, hi, low, high, nested, at, order):  # type: ignore[no-untyped-def]
    """Deal the ``n`` rows to the levels from ``high`` down to ``low``, or to none.

    Row ``i`` goes to a level with the probability of the places that are left there among
    the ``n - i`` rows that are left (selection sampling), so that every choice is equally
    likely and the rows of a level stay in their order.
    """
    for m in range(low, high + 1):
        at[m] = hi[m + 1] if nested and m < high else lo[m]
    for i in range(n):
        ticket = keys[first + i] * (n - i)
        m = high
        while m >= low:
            ticket -= hi[m] - at[m]
            if ticket < 0.0:
                order[at[m]] = i
                at[m] += 1
                break
            m -= 1


@jit(types.void(LADDER_TYPE, vector, index_vector, index_vector), borrow=True)
def choose(ladder, keys, at, order):  # type: ignore[no-untyped-def]
    """Draw the subsets of a ladder: ``order[lo[m] : hi[m]]`` are the rows of level ``m``.

    ``keys`` are uniform in [0, 1), as many as :func:`n_keys` says; ``at`` (L,) is scratch.
    Nested subsets are each a uniform choice of the rows of the one before, independent ones
    of all rows.
    """
    lo, hi = ladder.lo, ladder.hi
    last = hi.shape[0] - 1
    if last < 1:
        return
    n = hi[0]
    if last == 1 or lo[1] == lo[2]:
        _walk(n, keys, 0, lo, hi, 1, last, True, at, order)
        return
    for m in range(1, last + 1):
        _walk(n, keys, (m - 1) * n, lo, hi, m, m, False, at, order)


# A tempered transition: up through the levels and down again, then one decision.
#
# From ``u_0``, the state of level 0, the kernel of level m makes ``u_m`` of ``u_{m-1}`` for
# m = 1, ..., M, and then ``v_{m-1}`` of ``v_m`` for m = M, ..., 1, with ``v_M = u_M``: that of
# level M runs twice in a row, and none targets level 0. With reversible kernels ``v_0`` is
# accepted with probability ``min(1, exp(r))``,
#
#     r = sum_m log h_m(u_{m-1}) - log h_{m-1}(u_{m-1}) + log h_{m-1}(v_{m-1}) - log h_m(v_{m-1})
#
# (Neal 1996, eq. 8; van de Meent et al. 2014, eq. 3). Level m appears in it as the exchange of
# ``u_{m-1}`` and ``v_{m-1}`` between the levels m - 1 and m would.


HOME, AWAY = range(2)
"""Replicas: the state of level 0, and the one that rises and falls."""

UP, DOWN, UP_STEP, DOWN_STEP = range(4)
"""Moves of a level: acceptance of the inner kernel on either way, and the two terms of ``r``."""
N_MOVES: Final = 4
NOT_VISITED: Final = -1.0


@inline
def _follow(replicas, source, target):  # type: ignore[no-untyped-def]
    """Copy a state with its densities and gradients; counts of evaluations stay as they are."""
    for j in range(replicas.z.shape[1]):
        replicas.z[target, j] = replicas.z[source, j]
        replicas.theta[target, j] = replicas.theta[source, j]
        replicas.slope[target, j] = replicas.slope[source, j]
        replicas.prior_slope[target, j] = replicas.prior_slope[source, j]
    for k in (LOG_LIK, LOG_PRIOR, STALE):
        replicas.scalars[target, k] = replicas.scalars[source, k]


@inline
def _change_rows(link, joint, ensemble, a, b, r, order):  # type: ignore[no-untyped-def]
    """Take replica ``r`` from the rows of level ``a`` to those of its neighbour ``b``.

    Where one subset holds the other, the rows between the two are enough.
    """
    base, own, ladder, replicas, trial = (
        ensemble.base, ensemble.own, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    scalars = replicas.scalars
    nested = min(a, b) > 0 and ladder.lo[a] == ladder.lo[b] and own.joint == 0
    lo, hi = min(ladder.hi[a], ladder.hi[b]), max(ladder.hi[a], ladder.hi[b])
    if nested and scalars[r, STALE] == 0.0 and hi - lo < ladder.hi[b]:
        rest = log_likelihood(
            link, joint, base, own, lo, hi, replicas.theta[r], order, trial.slope, trial.scratch
        )
        scalars[r, EVALUATED] += hi - lo
        sign = 1.0 if b < a else -1.0
        changed = scalars[r, LOG_LIK] + sign * rest
        if math.isfinite(changed):
            scalars[r, LOG_LIK] = changed
            if order >= 1:
                for j in range(replicas.z.shape[1]):
                    replicas.slope[r, j] += sign * trial.slope[j]
            return
    scalars[r, STALE] = 1.0
    held = rows_of(ensemble, b)
    refresh(link, joint, base, held, ladder, b, replicas, r, order, trial.scratch)


@inline
def _cross(link, joint, ensemble, a, b, r, order):  # type: ignore[no-untyped-def]
    """Return ``log h_b - log h_a`` at replica ``r``, which goes from level ``a`` to ``b``."""
    ladder, scalars = ensemble.ladder, ensemble.replicas.scalars
    before = log_density(ladder, a, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR])
    if ladder.own == 1:
        _change_rows(link, joint, ensemble, a, b, r, order)
    step = log_density(ladder, b, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR]) - before
    return step if step == step else -math.inf


@inline
def _explore(link, joint, explore, ensemble, m, draws, first, n):  # type: ignore[no-untyped-def]
    """Run the kernel of level ``m``; return its mean acceptance, NaN where it diverged."""
    base, ladder, replicas, trial = (
        ensemble.base, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    held = rows_of(ensemble, m)
    rate = 0.0
    for i in range(first, first + n):
        rate += explore(link, joint, base, held, ladder, m, replicas, AWAY, draws[i], trial)
    return rate / n


@inline
def _not_visited(moves):  # type: ignore[no-untyped-def]
    """Forget the moves of the last transition."""
    for m in range(moves.shape[1]):
        moves[UP, m] = moves[DOWN, m] = NOT_VISITED
        moves[UP_STEP, m] = moves[DOWN_STEP, m] = math.nan


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, matrix, vector, i8, matrix
    ),
    borrow=True,
)  # fmt: skip
def rise_and_fall(link, joint, explore, ensemble, draws, fresh, order, moves):  # type: ignore[no-untyped-def]
    """Return ``r``, minus infinity where a density is 0; ``v_0`` is then in replica ``AWAY``.

    ``draws`` (2 M k, d + 2) are those of the ``k`` transitions of every visit of a level; where
    level M is the prior, its kernel is one independent draw, ``fresh`` (d,). ``order`` is 1
    where the kernel needs gradients. Acceptances and terms of ``r`` are written into ``moves``
    (4, L): an acceptance is NaN where a trajectory diverged; past a density of 0 it is
    ``NOT_VISITED``, and the terms of ``r`` are NaN.
    """
    ladder, replicas = ensemble.ladder, ensemble.replicas
    _follow(replicas, HOME, AWAY)
    _not_visited(moves)
    top = ladder.beta.shape[0] - 1
    k = draws.shape[0] // (2 * top)
    ratio = 0.0
    for m in range(1, top + 1):
        step = _cross(link, joint, ensemble, m - 1, m, AWAY, order)
        moves[UP_STEP, m] = step
        if step == -math.inf:
            return -math.inf
        ratio += step
        if at_prior(ladder, m):
            restart(
                link, joint, ensemble.base, rows_of(ensemble, m), ladder, m, replicas, AWAY, fresh,
                ensemble.trial.scratch,
            )  # fmt: skip
            moves[UP, m] = 1.0
            break
        moves[UP, m] = _explore(link, joint, explore, ensemble, m, draws, (m - 1) * k, k)
    for m in range(top, 0, -1):
        if not at_prior(ladder, m):  # a second independent draw would change nothing
            first = (2 * top - m) * k
            moves[DOWN, m] = _explore(link, joint, explore, ensemble, m, draws, first, k)
        step = _cross(link, joint, ensemble, m, m - 1, AWAY, order)
        moves[DOWN_STEP, m] = step
        if step == -math.inf:
            return -math.inf
        ratio += step
    return ratio


@jit(i8(REPLICAS_TYPE, f8, f8), borrow=True)
def decide(replicas, ratio, uniform):  # type: ignore[no-untyped-def]
    """Accept the descending state where ``log uniform <= ratio``, ``uniform`` in (0, 1]."""
    if not math.log(uniform) <= ratio:
        return 0
    _follow(replicas, AWAY, HOME)
    return 1


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
    """(L,) scratch of :func:`streammc.samplers.tempering.transition_loop.choose`."""
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
