"""Rows of the levels: all subsets drawn at once, in one walk through the rows."""

from __future__ import annotations

from numba import types

from streammc.numerics.jit import index_vector, inline, jit, vector
from streammc.samplers.common.ladder import LADDER_TYPE, Ladder


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
