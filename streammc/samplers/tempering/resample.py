"""Exchange rows of the subsets while the chain runs: a Metropolis step, level 0 stays exact.

With the subsets as part of the state, the target is ``prod_m p(X_m|theta_m) p(theta_m)``, of
which level 0 is the posterior. A proposal exchanges one row of ``X_m`` with one that may take
its place, of nested subsets a row of ``X_m`` outside ``X_{m+1}`` with one of ``X_{m-1}`` outside
``X_m``, so that no other level changes. It is accepted with probability
``min(1, p(X'_m|theta_m) / p(X_m|theta_m))``. Drawing subsets anew without looking at that is
biased.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.blocks import SCRATCH_TYPE
from streammc.likelihood.contiguous_rows import HELD_TYPE, Held, allocate_held, copy_held
from streammc.likelihood.density import log_likelihood, terms
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    JOINT_TYPE,
    LINK_TYPE,
    i8,
    inline,
    jit,
    matrix,
    vector,
)
from streammc.protocols import Vector
from streammc.samplers.common.explorers import probability
from streammc.samplers.common.ladder import (
    EVALUATED,
    GRADIENT_STALE,
    LADDER_TYPE,
    LOG_LIK,
    REPLICAS_TYPE,
    STALE,
)
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


CANDIDATES_TYPE: Any = types.NamedTuple((HELD_TYPE, vector, vector), Candidates)


class Subsets(NamedTuple):
    """The rows of the levels above 0 of one chain."""

    kind: int
    """``swaps.SAME_ROWS``, ``SEPARATE`` or ``PREFIXES``."""
    nested: int
    own: Held
    """Rows of the levels: ``ladder.lo[m]`` to ``ladder.hi[m]``."""
    orders: NDArray[np.int64]
    """(1, N) if nested, or (M, N): orders of the rows, whose first are the subsets."""
    candidates: Candidates


SUBSETS_TYPE: Any = types.NamedTuple((i8, i8, HELD_TYPE, order_matrix, CANDIDATES_TYPE), Subsets)


def allocate_candidates(n: int, q: int) -> Candidates:
    """Return room for ``n`` proposals a level."""
    return Candidates(allocate_held(n, q), np.zeros(n), np.zeros(n))


@inline
def _evaluate(link, base, held, first, size, start, count, theta, scratch, values):  # type: ignore[no-untyped-def]
    """Write the terms of ``count`` rows, the ones at ``first + (start + k) % size``."""
    until_end = min(count, size - start)
    terms(link, base, held, first + start, first + start + until_end, theta, scratch, values, 0)
    terms(link, base, held, first, first + count - until_end, theta, scratch, values, until_end)


@inline
def _exchange_rows(held, i, j):  # type: ignore[no-untyped-def]
    for a in range(held.design.shape[0]):
        held.design[a, i], held.design[a, j] = held.design[a, j], held.design[a, i]
    held.y[i], held.y[j] = held.y[j], held.y[i]
    held.offset[i], held.offset[j] = held.offset[j], held.offset[i]
    held.weight[i], held.weight[j] = held.weight[j], held.weight[i]


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, SUBSETS_TYPE, LADDER_TYPE, i8,
        REPLICAS_TYPE, i8, vector, vector, SCRATCH_TYPE, matrix, i8,
    ),
    borrow=True,
)  # fmt: skip
def resample(  # type: ignore[no-untyped-def]
    link, joint, base, full, subsets, ladder, m, replicas, r, uniforms, slope, scratch, tallies,
    column,
):  # fmt: skip
    """Propose ``K`` exchanges of rows of level ``m``, where replica ``r`` is.

    ``uniforms`` (2 + K,) in [0, 1): where the runs of rows inside and outside
    begin, and one for every pair, whose proposals are accepted one by one. Terms are known
    beforehand, since the position stays, but for a joint likelihood. ``tallies[m]`` counts
    from ``column``: proposals, and how many were accepted.
    """
    scalars, theta = replicas.scalars, replicas.theta[r]
    kind, nested, own, orders, candidates = subsets
    order = orders[0 if nested == 1 else m - 1]
    first = 0
    if nested == 1 and m + 1 < ladder.hi.shape[0]:
        first = ladder.hi[m + 1]
    size = ladder.hi[m] - ladder.lo[m]
    n_inside = size - first
    n_outside = (ladder.hi[m - 1] if nested == 1 else order.shape[0]) - size
    count = min(uniforms.shape[0] - OFFSETS, n_inside, n_outside)
    if count < 1:
        return
    i0, j0 = int(uniforms[0] * n_inside), int(uniforms[1] * n_outside)
    place = ladder.lo[m] + first
    whole = own.joint == 1
    if not whole:
        _evaluate(link, base, own, place, n_inside, i0, count, theta, scratch, candidates.inside)
        if kind == PREFIXES:
            _evaluate(
                link, base, own, size, n_outside, j0, count, theta, scratch, candidates.outside
            )
        else:
            until_end = min(count, n_outside - j0)
            rows = candidates.rows
            copy_held(full, order, size + j0, until_end, rows, 0)
            copy_held(full, order, size, count - until_end, rows, until_end)
            terms(link, base, rows, 0, count, theta, scratch, candidates.outside, 0)
        scalars[r, EVALUATED] += 2 * count
    lo, hi = ladder.lo[m], ladder.hi[m]
    for k in range(count):
        i, j = (i0 + k) % n_inside, size + (j0 + k) % n_outside
        order[first + i], order[j] = order[j], order[first + i]
        if whole:
            copy_held(full, order, first + i, 1, own, place + i)
            value = log_likelihood(link, joint, base, own, lo, hi, theta, 0, slope, scratch)
            scalars[r, EVALUATED] += size
        else:
            value = scalars[r, LOG_LIK] + (candidates.outside[k] - candidates.inside[k])
        accepted = probability(value - scalars[r, LOG_LIK])
        tallies[m, column] += 1.0
        if uniforms[OFFSETS + k] < accepted:
            tallies[m, column + 1] += 1.0
            scalars[r, LOG_LIK] = value
            if scalars[r, STALE] == 0.0:
                scalars[r, STALE] = GRADIENT_STALE
            if whole:
                if nested == 1 and j < own.y.shape[0]:
                    copy_held(full, order, j, 1, own, j)
            elif kind == PREFIXES:
                _exchange_rows(own, place + i, j)
            else:
                copy_held(full, order, first + i, 1, own, place + i)
        else:
            order[first + i], order[j] = order[j], order[first + i]
            if whole:
                copy_held(full, order, first + i, 1, own, place + i)
