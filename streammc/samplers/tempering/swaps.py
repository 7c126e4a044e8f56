"""Swaps of two levels: a statistic, then a decision; replicas exchange levels, never states.

Of the pair ``(m - 1, m)``, replica a at level m - 1 and b at level m, the statistic is

    log h_{m-1}(theta_b) h_m(theta_a) - log h_{m-1}(theta_a) h_m(theta_b)

(van de Meent et al. 2014, eq. 2). With powers of one likelihood it is made of what both
replicas know. Rows of their own must be evaluated: where every subset is the first part of
one order of all rows, only those that level m - 1 has and level m has not.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from streammc.likelihood.density import log_likelihood
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit, vector
from streammc.numerics.records import record_type
from streammc.protocols import Index
from streammc.samplers.common.explorers import probability
from streammc.samplers.common.ladder import (
    EVALUATED,
    GRADIENT_STALE,
    LOG_LIK,
    LOG_PRIOR,
    STALE,
    at_prior,
)
from streammc.samplers.tempering.ensemble import ENSEMBLE_TYPE, rows_of

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
    # Levels alike in a power do not look: infinity times 0 is not a number.
    if ladder.power[m - 1] != ladder.power[m]:
        # A level of power 0 may be where the likelihood is 0.
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
