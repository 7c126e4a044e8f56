"""Exchange rows of the subsets while the chain runs: a Metropolis step, level 0 stays exact.

With the subsets as part of the state, the target is ``prod_m p(X_m|theta_m) p(theta_m)``, of
which level 0 is the posterior. A proposal exchanges one row of ``X_m`` with one that may take
its place, of nested subsets a row of ``X_m`` outside ``X_{m+1}`` with one of ``X_{m-1}`` outside
``X_m``, so that no other level changes. It is accepted with probability
``min(1, p(X'_m|theta_m) / p(X_m|theta_m))``. Drawing subsets anew without looking at that is
biased.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import Held, allocate_held, copy_held
from streammc.likelihood.density import log_likelihood, terms
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, i8, inline, jit, vector
from streammc.numerics.records import record_type
from streammc.protocols import Vector
from streammc.samplers.common.explorers import probability
from streammc.samplers.common.ladder import EVALUATED, GRADIENT_STALE, LOG_LIK, STALE
from streammc.samplers.tempering.ensemble import ENSEMBLE_TYPE
from streammc.samplers.tempering.swaps import PREFIXES

order_matrix: Any = types.Array(i8, 2, "C")
OFFSETS = 2
"""Uniform numbers of a level before those that accept."""


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
    """``swaps.SAME_ROWS``, ``SEPARATE`` or ``PREFIXES``."""
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
    """Let the rows of a level follow an exchange of the places ``i`` and ``j`` of ``order``.

    ``place`` is that of the row in the table of the levels.
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
