"""The compiled loop of parallel tempering: inner kernels, swaps, what is counted and recorded."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, index_vector, inline, jit
from streammc.numerics.records import record_type
from streammc.protocols import Matrix, Vector
from streammc.samplers.common import statistics as column
from streammc.samplers.common.explorers import EXPLORER_TYPE
from streammc.samplers.common.ladder import EVALUATED, LOG_LIK, LOG_PRIOR, REPLICAS_TYPE
from streammc.samplers.tempering.ensemble import Ensemble
from streammc.samplers.tempering.options import REPLICA, SWAP_ACCEPTED
from streammc.samplers.tempering.resample import OFFSETS, Subsets, resample
from streammc.samplers.tempering.swaps import SAME_ROWS, Places, due, swap, travel
from streammc.samplers.tempering.visits import explore_level

ACCEPTANCE, DIVERGED, PROPOSED, SWAPPED, REJECTION, WARMER, COLDER, ITERATIONS, EXCHANGES = range(9)
N_TALLIES = 10
"""Tallies of level m: sums of the inner acceptance and of divergences; of the pair
``(m - 1, m)``: swaps proposed and accepted, sum of the rejection probability, and the logarithms
of the sums of ``(h_{m-1} / h_m)(theta_m)`` and ``(h_m / h_{m-1})(theta_{m-1})``; iterations; of
level m: exchanges of rows, proposed and accepted."""


class Parallel(NamedTuple):
    """State, scratch and tallies of parallel tempering; written in place."""

    ensemble: Ensemble
    places: Places
    subsets: Subsets
    rates: Matrix
    """(L, 2) of the last iteration: mean acceptance, and whether a transition diverged."""
    tallies: Matrix
    """(L, 10) see above."""
    known: Vector
    """(2,) scratch of a swap."""


PARALLEL_TYPE: Any = record_type(Parallel)


class Batch(NamedTuple):
    """Random numbers and results of the iterations that are handed to the loop at once."""

    iteration: int
    """Number of the first iteration."""
    schedule: int
    """Which pairs are proposed in turn: ``swaps.SCHEDULES``."""
    target: float
    """Mean acceptance probability to which step sizes are tuned; 0: they stay."""
    draws: Annotated[NDArray[np.float64], 4]
    """(n, R, transitions, d + 2) random numbers of the inner kernels."""
    fresh: Matrix
    """(n, d) draws of the prior."""
    uniforms: Matrix
    """(n, M) in (0, 1], which accept swaps."""
    exchanges: Annotated[NDArray[np.float64], 3]
    """(n, M, 2 + K) those of ``resample.resample``."""
    theta: Matrix
    """(n, d) draws."""
    statistics: Matrix
    """(n, 12) columns of ``TEMPERED_STATISTICS``."""


BATCH_TYPE: Any = record_type(Batch)


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


@inline
def _explore(link, joint, explore, chain, batch, m, t):  # type: ignore[no-untyped-def]
    """Run the inner kernel of level ``m`` in iteration ``t`` of the batch."""
    r = chain.places.replica_at[m]
    chain.rates[m, 0], chain.rates[m, 1] = explore_level(
        link, joint, explore, chain.ensemble, r, m, batch.draws[t, r], batch.fresh[t], batch.target
    )


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, PARALLEL_TYPE, BATCH_TYPE, index_vector, i8
    ),
    borrow=True,
)  # fmt: skip
def explore_levels(link, joint, explore, chain, batch, levels, t):  # type: ignore[no-untyped-def]
    """Run the inner kernels of some levels: the part of one thread in iteration ``t``."""
    for m in levels:
        _explore(link, joint, explore, chain, batch, m, t)


@inline
def _count(chain):  # type: ignore[no-untyped-def]
    """Count an iteration."""
    ladder, replicas = chain.ensemble.ladder, chain.ensemble.replicas
    places, rates, tallies = chain.places, chain.rates, chain.tallies
    for m in range(rates.shape[0]):
        tallies[m, ACCEPTANCE] += rates[m, 0]
        tallies[m, DIVERGED] += rates[m, 1]
        tallies[m, ITERATIONS] += 1.0
        if m == 0 or chain.subsets.kind != SAME_ROWS:
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


@inline
def _swap(link, joint, chain, batch, t):  # type: ignore[no-untyped-def]
    """Propose the swaps of iteration ``t``; return the share of them that were accepted."""
    places, tallies = chain.places, chain.tallies
    levels, kind = places.replica_at.shape[0], chain.subsets.kind
    proposed = swapped = 0.0
    for m in range(levels - 1, 0, -1):
        if not due(batch.schedule, levels, m, batch.iteration + t):
            continue
        a = places.replica_at[m]
        u = batch.uniforms[t, m - 1]
        accepted = swap(link, joint, chain.ensemble, places, kind, m, u, chain.known)
        moved = 1.0 if places.replica_at[m] != a else 0.0
        proposed += 1.0
        swapped += moved
        tallies[m, PROPOSED] += 1.0
        tallies[m, SWAPPED] += moved
        tallies[m, REJECTION] += 1.0 - accepted
    return swapped / proposed if proposed > 0.0 else 0.0


@inline
def _record(chain, swapped, evaluations, theta, row):  # type: ignore[no-untyped-def]
    """Write the state of level 0 and the statistics of an iteration."""
    ladder, replicas, rates = chain.ensemble.ladder, chain.ensemble.replicas, chain.rates
    r = chain.places.replica_at[0]
    for j in range(theta.shape[0]):
        theta[j] = replicas.theta[r, j]
    log_lik = replicas.scalars[r, LOG_LIK]
    lp = log_lik + replicas.scalars[r, LOG_PRIOR]
    row[column.LP] = lp
    row[column.ACCEPTANCE_RATE] = rates[0, 0]
    row[column.DIVERGING] = rates[0, 1]
    row[column.ENERGY] = -lp
    row[column.STEP_SIZE] = ladder.step[0]
    row[column.N_STEPS] = ladder.n_steps
    row[column.LOG_LIK_VARIANCE] = 0.0
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = evaluations
    row[column.LOG_LIK_REMAINDER] = log_lik
    row[SWAP_ACCEPTED] = swapped
    row[REPLICA] = r


@jit(
    types.void(LINK_TYPE, JOINT_TYPE, PARALLEL_TYPE, BATCH_TYPE, i8, f8), borrow=True
)  # fmt: skip
def finish(link, joint, chain, batch, t, before):  # type: ignore[no-untyped-def]
    """Propose the swaps of iteration ``t`` of the batch, count, and record level 0.

    ``before`` are the log-likelihoods of rows evaluated until this iteration.
    """
    ensemble, places = chain.ensemble, chain.places
    swapped = _swap(link, joint, chain, batch, t)
    travel(ensemble.ladder, places)
    _count(chain)
    if batch.exchanges.shape[2] > OFFSETS:
        for m in range(1, places.replica_at.shape[0]):
            resample(
                link, joint, ensemble, chain.subsets, m, places.replica_at[m],
                batch.exchanges[t, m - 1], chain.tallies[m, EXCHANGES:],
            )  # fmt: skip
    evaluations = evaluated(ensemble.replicas) - before
    _record(chain, swapped, evaluations, batch.theta[t], batch.statistics[t])


@jit(
    types.void(LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, PARALLEL_TYPE, BATCH_TYPE), borrow=True
)  # fmt: skip
def run(link, joint, explore, chain, batch):  # type: ignore[no-untyped-def]
    """Run as many iterations as ``batch.theta`` has rows, one replica after another."""
    for t in range(batch.theta.shape[0]):
        before = evaluated(chain.ensemble.replicas)
        for m in range(chain.rates.shape[0]):
            _explore(link, joint, explore, chain, batch, m, t)
        finish(link, joint, chain, batch, t, before)
