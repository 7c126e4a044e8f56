"""The compiled loop of parallel tempering: inner kernels, swaps, what is counted and recorded.

The density of level m is ``h_m = p(X_m|theta)^power_m p(theta)^prior_power_m`` (``ladder.Ladder``),
with ``X_m`` its rows. They are rows ``ladder.lo[m]`` to ``ladder.hi[m]`` of ``Ensemble.full``, all
rows, or of ``Ensemble.own``, where levels above 0 have rows of their own.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import (
    Held,
    allocate_held,
    copy_held,
    log_likelihood,
    terms,
)
from streammc.numerics.jit import (
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    record_type,
    vector,
)
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common import statistics as column
from streammc.samplers.common.proposals import probability
from streammc.samplers.common.statistics import REPLICA, SWAP_ACCEPTED
from streammc.samplers.tempering.ladder import (
    ENSEMBLE_TYPE,
    EVALUATED,
    EXPLORER_TYPE,
    GRADIENT_STALE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    STALE,
    Ensemble,
    at_prior,
    explore_level,
    rows_of,
)

# Swaps of two levels: a statistic, then a decision; replicas exchange levels, never states.
#
# Of the pair ``(m - 1, m)``, replica a at level m - 1 and b at level m, the statistic is
#
#     log h_{m-1}(theta_b) h_m(theta_a) - log h_{m-1}(theta_a) h_m(theta_b)
#
# (van de Meent et al. 2014, eq. 2). With powers of one likelihood it follows from the
# log-likelihoods that both replicas have. Rows of their own must be evaluated: where every subset
# is the first part of one order of all rows, only those that level m - 1 has and level m has not.


SAME_ROWS, SEPARATE, PREFIXES = range(3)
"""Rows of the levels: all rows and a power; rows gathered for every level by itself; the
first of one order of all rows, which is held as a whole."""


class Places(NamedTuple):
    """Which replica is at which level, and where it has been."""

    replica_at: Index
    """(L,) number of the replica."""
    level_of: Index
    """(R,) the inverse."""
    last_end: Index
    """(R,) 0: none of them, 1: level 0, 2: level M, after level 0."""
    round_trips: Index
    """(R,) from level 0 to M and back; where level M is the prior, every arrival at level 0 of a
    state that comes from there, a restart."""


PLACES_TYPE: Any = record_type(Places)
NEITHER, COLD, HOT = range(3)


def allocate_places(n: int) -> Places:
    """Return ``n`` replicas, each at the level of its number."""
    zeros = np.zeros((2, n), dtype=np.int64)
    return Places(np.arange(n), np.arange(n), *zeros)


@inline
def _of_powers(ladder, m, scalars, a, b):  # type: ignore[no-untyped-def]
    """Return the log ratio where both levels are powers of one likelihood."""
    total = 0.0
    # A difference of 0 is left out: times an infinite change it would be no number.
    if ladder.power[m - 1] != ladder.power[m]:
        # The log-likelihood of a replica at a level of power 0 may be -inf.
        change = scalars[b, LOG_LIK] - scalars[a, LOG_LIK]
        total += (ladder.power[m - 1] - ladder.power[m]) * change
    if ladder.prior_power[m - 1] != ladder.prior_power[m]:
        change = scalars[b, LOG_PRIOR] - scalars[a, LOG_PRIOR]
        total += (ladder.prior_power[m - 1] - ladder.prior_power[m]) * change
    return total


@inline
def _evaluated(link, joint, ensemble, held, lo, hi, r):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of the rows ``lo`` to ``hi`` at replica ``r``, and count them."""
    replicas, trial = ensemble.replicas, ensemble.trial
    replicas.scalars[r, EVALUATED] += hi - lo
    return log_likelihood(
        link, joint, ensemble.base, held, lo, hi, replicas.theta[r], 0, trial.slope, trial.scratch
    )


@jit(
    f8(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, i8, i8, i8, i8, vector), borrow=True
)  # fmt: skip
def statistic(link, joint, ensemble, kind, m, a, b, known):  # type: ignore[no-untyped-def]
    """Return the log ratio of exchanging replica ``a`` at level ``m - 1`` and ``b`` at ``m``.

    ``kind`` is ``SAME_ROWS``, ``SEPARATE`` or ``PREFIXES``. ``known`` (2,) gets the
    log-likelihoods of a at level m and of b at level m - 1.
    """
    ladder, scalars, own = ensemble.ladder, ensemble.replicas.scalars, ensemble.own
    ll_a, ll_b = scalars[a, LOG_LIK], scalars[b, LOG_LIK]
    known[0], known[1] = ll_a, ll_b
    if kind == SAME_ROWS:
        return _of_powers(ladder, m, scalars, a, b)
    if kind == PREFIXES:
        lo, hi = ladder.hi[m], ladder.hi[m - 1]
        more_a = _evaluated(link, joint, ensemble, own, lo, hi, a)
        more_b = _evaluated(link, joint, ensemble, own, lo, hi, b)
        known[0] = ll_a - more_a
        known[1] = ll_b + more_b
        return more_b - more_a
    known[0] = _evaluated(link, joint, ensemble, own, ladder.lo[m], ladder.hi[m], a)
    below = rows_of(ensemble, m - 1)
    known[1] = _evaluated(link, joint, ensemble, below, ladder.lo[m - 1], ladder.hi[m - 1], b)
    return (known[1] - ll_a) + (known[0] - ll_b)


@inline
def exchange(kind, m, replicas, places, known):  # type: ignore[no-untyped-def]
    """Give the replicas at levels ``m - 1`` and ``m`` each other's level."""
    a, b = places.replica_at[m - 1], places.replica_at[m]
    places.replica_at[m - 1], places.replica_at[m] = b, a
    places.level_of[a], places.level_of[b] = m, m - 1
    if kind != SAME_ROWS:
        replicas.scalars[a, LOG_LIK] = known[0]
        replicas.scalars[b, LOG_LIK] = known[1]
        replicas.scalars[a, STALE] = replicas.scalars[b, STALE] = GRADIENT_STALE


@jit(
    f8(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, PLACES_TYPE, i8, i8, f8, vector), borrow=True
)  # fmt: skip
def swap(link, joint, ensemble, places, kind, m, u, known):  # type: ignore[no-untyped-def]
    """Exchange the replicas at levels ``m - 1`` and ``m`` where ``u``, in (0, 1], accepts.

    Returns the probability with which it was accepted; for ``kind`` and ``known`` see
    :func:`statistic`.
    """
    a, b = places.replica_at[m - 1], places.replica_at[m]
    accepted = probability(statistic(link, joint, ensemble, kind, m, a, b, known))
    if u <= accepted and accepted > 0.0:
        exchange(kind, m, ensemble.replicas, places, known)
    return accepted


@inline
def travel(ladder, places):  # type: ignore[no-untyped-def]
    """Note which replicas are at the ends, and count round trips or restarts."""
    last = places.replica_at.shape[0] - 1
    if last == 0:
        return
    r = places.replica_at[0]
    if places.last_end[r] == HOT:
        places.round_trips[r] += 1
    places.last_end[r] = COLD
    r = places.replica_at[last]
    # A state at the prior is drawn anew before it leaves, wherever it has been.
    if places.last_end[r] == COLD or at_prior(ladder, last):
        places.last_end[r] = HOT


EVEN_ODD, SWEEP = range(2)
SCHEDULES: Final = {"even-odd": EVEN_ODD, "sweep": SWEEP}


@inline
def due(schedule, levels, m, iteration):  # type: ignore[no-untyped-def]
    """Return whether the pair ``(m - 1, m)`` is proposed in that iteration."""
    if schedule == SWEEP or levels == 2:  # one pair has no turns
        return True
    return (m - 1 + iteration) % 2 == 0


# Exchange rows of the subsets while the chain runs: a Metropolis step, level 0 stays exact.
#
# With the subsets as part of the state, the target is ``prod_m p(X_m|theta_m) p(theta_m)``, of
# which level 0 is the posterior. A proposal exchanges one row of ``X_m`` with one that may take
# its place, of nested subsets a row of ``X_m`` outside ``X_{m+1}`` with one of ``X_{m-1}`` outside
# ``X_m``, so that no other level changes. It is accepted with probability
# ``min(1, p(X'_m|theta_m) / p(X_m|theta_m))``. Drawing subsets anew without looking at that is
# biased.


order_matrix: Any = types.Array(i8, 2, "C")
OFFSETS = 2
"""Uniform numbers of a level that say where its runs of rows begin, before those that accept."""


class Candidates(NamedTuple):
    """Scratch for the proposals of one level."""

    rows: Held
    """(K) rows from elsewhere."""
    inside: Vector
    """(K,) log-likelihoods of rows of the subset."""
    outside: Vector
    """(K,) of those that may take their places."""


CANDIDATES_TYPE: Any = record_type(Candidates)


class Subsets(NamedTuple):
    """Rows of the levels above 0 of one chain, in the order of all rows.

    They are copied to ``Ensemble.own``: ``ladder.lo[m]`` to ``ladder.hi[m]`` for level m.
    """

    kind: int
    """``SAME_ROWS``, ``SEPARATE`` or ``PREFIXES``."""
    nested: int
    """Whether every subset is the first part of one order of all rows."""
    orders: Annotated[NDArray[np.int64], 2]
    """(1, N) if nested, or (M, N): orders of the rows, whose first are the subsets."""
    candidates: Candidates


SUBSETS_TYPE: Any = record_type(Subsets)


def allocate_candidates(n: int, q: int) -> Candidates:
    """Return room for ``n`` proposals a level."""
    return Candidates(allocate_held(n, q), np.zeros(n), np.zeros(n))


@inline
def _evaluate(link, ensemble, r, first, size, start, count, values):  # type: ignore[no-untyped-def]
    """Write the terms of ``count`` rows at replica ``r``: those at ``first + (start + k) % size``.

    Rows are those of the levels.
    """
    base, own, scratch = ensemble.base, ensemble.own, ensemble.trial.scratch
    theta, until_end = ensemble.replicas.theta[r], min(count, size - start)
    terms(link, base, own, first + start, first + start + until_end, theta, scratch, values, 0)
    terms(link, base, own, first, first + count - until_end, theta, scratch, values, until_end)


@inline
def _evaluate_copies(link, ensemble, candidates, r, order, first, size, start, count):  # type: ignore[no-untyped-def]
    """Write the terms of ``count`` rows at replica ``r``: ``order[first + (start + k) % size]``.

    Rows are copied from those of all levels.
    """
    rows, until_end = candidates.rows, min(count, size - start)
    copy_held(ensemble.full, order, first + start, until_end, rows, 0)
    copy_held(ensemble.full, order, first, count - until_end, rows, until_end)
    theta, scratch = ensemble.replicas.theta[r], ensemble.trial.scratch
    terms(link, ensemble.base, rows, 0, count, theta, scratch, candidates.outside, 0)


@inline
def _exchange_rows(held, i, j):  # type: ignore[no-untyped-def]
    for a in range(held.design.shape[0]):
        held.design[a, i], held.design[a, j] = held.design[a, j], held.design[a, i]
    held.y[i], held.y[j] = held.y[j], held.y[i]
    held.offset[i], held.offset[j] = held.offset[j], held.offset[i]
    held.weight[i], held.weight[j] = held.weight[j], held.weight[i]


@inline
def _take_rows(ensemble, subsets, order, place, i, j):  # type: ignore[no-untyped-def]
    """Exchange rows of ``ensemble.own`` after the entries ``i`` and ``j`` of ``order`` were.

    ``i`` is in the subset, ``j`` outside; the row of entry ``i`` stands at ``place`` of the table.
    """
    full, own = ensemble.full, ensemble.own
    if own.joint == 1:
        if subsets.nested == 1 and j < own.y.shape[0]:
            copy_held(full, order, j, 1, own, j)
    elif subsets.kind == PREFIXES:
        _exchange_rows(own, place, j)
    else:
        copy_held(full, order, i, 1, own, place)


@inline
def _kept_rows(ladder, subsets, m):  # type: ignore[no-untyped-def]
    """Return how many rows of level ``m`` the next level has: those stay."""
    if subsets.nested == 1 and m + 1 < ladder.hi.shape[0]:
        return ladder.hi[m + 1]
    return 0


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, SUBSETS_TYPE, i8, i8, vector, vector
    ),
    borrow=True,
)  # fmt: skip
def resample(link, joint, ensemble, subsets, m, r, uniforms, counts):  # type: ignore[no-untyped-def]
    """Propose ``K`` exchanges of rows of level ``m``, where replica ``r`` is.

    ``uniforms`` (2 + K,) in [0, 1): where the runs of rows inside and outside
    begin, and one for every pair, whose proposals are accepted one by one. Terms are known
    beforehand, since the position stays, but for a joint likelihood. ``counts`` (2,): proposals,
    and how many were accepted, are added to.
    """
    ladder, own, trial = ensemble.ladder, ensemble.own, ensemble.trial
    scalars, theta = ensemble.replicas.scalars, ensemble.replicas.theta[r]
    nested, candidates = subsets.nested, subsets.candidates
    order = subsets.orders[0 if nested == 1 else m - 1]
    first = _kept_rows(ladder, subsets, m)
    lo, hi = ladder.lo[m], ladder.hi[m]
    size = hi - lo
    n_inside = size - first
    n_outside = (ladder.hi[m - 1] if nested == 1 else order.shape[0]) - size
    count = min(uniforms.shape[0] - OFFSETS, n_inside, n_outside)
    if count < 1:
        return
    i0, j0 = int(uniforms[0] * n_inside), int(uniforms[1] * n_outside)
    place = lo + first
    whole = own.joint == 1
    if not whole:
        _evaluate(link, ensemble, r, place, n_inside, i0, count, candidates.inside)
        if subsets.kind == PREFIXES:
            _evaluate(link, ensemble, r, size, n_outside, j0, count, candidates.outside)
        else:
            _evaluate_copies(link, ensemble, candidates, r, order, size, n_outside, j0, count)
        scalars[r, EVALUATED] += 2 * count
    for k in range(count):
        i, j = (i0 + k) % n_inside, size + (j0 + k) % n_outside
        order[first + i], order[j] = order[j], order[first + i]
        if whole:
            copy_held(ensemble.full, order, first + i, 1, own, place + i)
            value = log_likelihood(
                link, joint, ensemble.base, own, lo, hi, theta, 0, trial.slope, trial.scratch
            )
            scalars[r, EVALUATED] += size
        else:
            value = scalars[r, LOG_LIK] + (candidates.outside[k] - candidates.inside[k])
        accepted = probability(value - scalars[r, LOG_LIK])
        counts[0] += 1.0
        if uniforms[OFFSETS + k] < accepted:
            counts[1] += 1.0
            scalars[r, LOG_LIK] = value
            if scalars[r, STALE] == 0.0:
                scalars[r, STALE] = GRADIENT_STALE
            _take_rows(ensemble, subsets, order, place + i, first + i, j)
        else:
            order[first + i], order[j] = order[j], order[first + i]
            if whole:
                copy_held(ensemble.full, order, first + i, 1, own, place + i)


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
    """Which pairs are proposed in turn: ``SCHEDULES``."""
    target: float
    """Mean acceptance probability to which step sizes are tuned; 0: they stay."""
    draws: Annotated[NDArray[np.float64], 4]
    """(n, R, transitions, d + 2) random numbers of the inner kernels."""
    fresh: Matrix
    """(n, d) draws of the prior."""
    uniforms: Matrix
    """(n, M) in (0, 1], which accept swaps."""
    exchanges: Annotated[NDArray[np.float64], 3]
    """(n, M, 2 + K) those of ``resample``."""
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
