"""The compiled loop of parallel tempering: inner kernels, swaps, what is counted and recorded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    vector,
)
from streammc.samplers.common.explorers import EXPLORER_TYPE, TRIAL_TYPE
from streammc.samplers.common.ladder import (
    EVALUATED,
    LADDER_TYPE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
)
from streammc.samplers.tempering.resample import OFFSETS, SUBSETS_TYPE, resample
from streammc.samplers.tempering.swaps import PLACES_TYPE, SAME_ROWS, due, swap, travel
from streammc.samplers.tempering.visits import DRAWS, explore_level

ACCEPTANCE, DIVERGED, PROPOSED, SWAPPED, REJECTION, WARMER, COLDER, ITERATIONS, EXCHANGES = range(9)
N_TALLIES = 10
"""Of level m: sums of the inner acceptance and of divergences; of the pair ``(m - 1, m)``: swaps
proposed and accepted, sum of the rejection probability, and the logarithms of the sums of
``(h_{m-1} / h_m)(theta_m)`` and ``(h_m / h_{m-1})(theta_{m-1})``; iterations; of level m:
exchanges of rows, proposed and accepted."""
cube: Any = types.Array(f8, 3, "C")


def start_tallies(levels: int) -> np.ndarray[Any, Any]:
    """Return (L, 10) counts of nothing."""
    tallies = np.zeros((levels, N_TALLIES))
    tallies[:, [WARMER, COLDER]] = -np.inf
    return tallies


@inline
def _add(a, b):  # type: ignore[no-untyped-def]
    """Return ``log(exp(a) + exp(b))``."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a)) if b > -math.inf else a


@jit(f8(REPLICAS_TYPE), borrow=True)
def evaluated(replicas):  # type: ignore[no-untyped-def]
    """Return the log-likelihoods of rows evaluated so far, by all replicas."""
    total = 0.0
    for r in range(replicas.scalars.shape[0]):
        total += replicas.scalars[r, EVALUATED]
    return total


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, LADDER_TYPE,
        REPLICAS_TYPE, PLACES_TYPE, index_vector, DRAWS, matrix, i8, TRIAL_TYPE, matrix, f8, matrix,
    ),
    borrow=True,
)  # fmt: skip
def explore_levels(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, own, ladder, replicas, places, levels, draws, fresh, t,
    trial, adapt, target, rates,
):  # fmt: skip
    """Run the inner kernels of some levels: what one thread does of an iteration."""
    for m in levels:
        explore_level(
            link, joint, explore, base, full, own, ladder, replicas, places.replica_at[m], m,
            draws, fresh, t, trial, adapt, target, rates,
        )  # fmt: skip


@inline
def _count(ladder, replicas, places, rates, tallies, kind):  # type: ignore[no-untyped-def]
    """Count an iteration."""
    for m in range(rates.shape[0]):
        tallies[m, ACCEPTANCE] += rates[m, 0]
        tallies[m, DIVERGED] += rates[m, 1]
        tallies[m, ITERATIONS] += 1.0
        if m == 0 or kind != SAME_ROWS:
            continue
        a, b = places.replica_at[m - 1], places.replica_at[m]
        gap = ladder.power[m - 1] - ladder.power[m]
        prior_gap = ladder.prior_power[m - 1] - ladder.prior_power[m]
        warm = gap * replicas.scalars[b, LOG_LIK]
        cold = -gap * replicas.scalars[a, LOG_LIK]
        if prior_gap != 0.0:
            warm += prior_gap * replicas.scalars[b, LOG_PRIOR]
            cold -= prior_gap * replicas.scalars[a, LOG_PRIOR]
        if warm == warm:  # where the prior goes the likelihood may be no number: 0 there
            tallies[m, WARMER] = _add(tallies[m, WARMER], warm)
        tallies[m, COLDER] = _add(tallies[m, COLDER], cold)


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, SUBSETS_TYPE, LADDER_TYPE, REPLICAS_TYPE,
        PLACES_TYPE, i8, i8, matrix, cube, i8, TRIAL_TYPE, vector, matrix, matrix, f8, matrix,
        matrix,
    ),
    borrow=True,
)  # fmt: skip
def finish(  # type: ignore[no-untyped-def]
    link, joint, base, full, subsets, ladder, replicas, places, schedule, iteration, uniforms,
    exchanges, t, trial, known, rates, tallies, before, theta, stats,
):  # fmt: skip
    """Propose the swaps of iteration ``t`` of the batch, count, and record level 0.

    ``iteration`` is that of the batch's first; ``uniforms`` (n, M) in (0, 1] accept swaps,
    ``exchanges`` (n, M, 2 + K) are those of :func:`streammc.samplers.tempering.resample.resample`;
    ``before`` are the log-likelihoods of rows evaluated until this iteration.
    """
    levels = places.replica_at.shape[0]
    kind, own = subsets.kind, subsets.own
    proposed = swapped = 0.0
    for m in range(levels - 1, 0, -1):
        if not due(schedule, levels, m, iteration + t):
            continue
        a = places.replica_at[m]
        accepted = swap(
            link, joint, base, full, own, kind, ladder, m, replicas, places, uniforms[t, m - 1],
            known, trial.slope, trial.scratch,
        )  # fmt: skip
        moved = 1.0 if places.replica_at[m] != a else 0.0
        proposed += 1.0
        swapped += moved
        tallies[m, PROPOSED] += 1.0
        tallies[m, SWAPPED] += moved
        tallies[m, REJECTION] += 1.0 - accepted
    travel(ladder, places)
    _count(ladder, replicas, places, rates, tallies, kind)
    if exchanges.shape[2] > OFFSETS:
        for m in range(1, levels):
            resample(
                link, joint, base, full, subsets, ladder, m, replicas, places.replica_at[m],
                exchanges[t, m - 1], trial.slope, trial.scratch, tallies, EXCHANGES,
            )  # fmt: skip
    r = places.replica_at[0]
    for j in range(theta.shape[1]):
        theta[t, j] = replicas.theta[r, j]
    log_lik = replicas.scalars[r, LOG_LIK]
    lp = log_lik + replicas.scalars[r, LOG_PRIOR]
    row = stats[t]
    row[0] = lp
    row[1] = rates[0, 0]
    row[2] = rates[0, 1]
    row[3] = -lp
    row[4] = ladder.step[0]
    row[5] = ladder.n_steps
    row[6] = 0.0
    row[7] = 1.0
    row[8] = evaluated(replicas) - before
    row[9] = log_lik
    row[10] = swapped / proposed if proposed > 0.0 else 0.0
    row[11] = r


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, SUBSETS_TYPE, LADDER_TYPE,
        REPLICAS_TYPE, PLACES_TYPE, i8, i8, DRAWS, matrix, matrix, cube, TRIAL_TYPE, vector, matrix,
        matrix, matrix, f8, matrix, matrix,
    ),
    borrow=True,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, subsets, ladder, replicas, places, schedule, iteration,
    draws, fresh, uniforms, exchanges, trial, known, rates, tallies, adapt, target, theta, stats,
):  # fmt: skip
    """Run as many iterations as ``theta`` has rows, one replica after another."""
    for t in range(theta.shape[0]):
        before = evaluated(replicas)
        for m in range(rates.shape[0]):
            explore_level(
                link, joint, explore, base, full, subsets.own, ladder, replicas,
                places.replica_at[m], m, draws, fresh, t, trial, adapt, target, rates,
            )  # fmt: skip
        finish(
            link, joint, base, full, subsets, ladder, replicas, places, schedule, iteration,
            uniforms, exchanges, t, trial, known, rates, tallies, before, theta, stats,
        )  # fmt: skip
