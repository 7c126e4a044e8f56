"""Pseudo-marginal update of a block-Poisson product, whose number of factors varies.

The ``lambda`` products of the estimator, each with Poisson(1) factors, are split into
``G`` blocks; iteration ``t`` refreshes the ``kappa`` products of block ``t mod G``. Their
factors are Poisson(kappa) in number, drawn ahead with their units. The proposal comes
from the distribution of the auxiliary variables, so the acceptance ratio is that of
``|L^|`` alone, and all but the factors of the block cancel. Factors are stored in no
particular order: the last ones fill the places of removed ones.
"""

from __future__ import annotations

import math

from numba import types

from streammc.likelihood.block_poisson import log_factors
from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE, copy_rows
from streammc.likelihood.target import BASE_TYPE, BOUND, POINT_TYPE, ROWS, UNITS, WORK_TYPE, finish
from streammc.numerics.jit import LINK_TYPE, f8, i8, index_vector, jit
from streammc.samplers.hamiltonian.subsample import PROPOSAL_TYPE, evaluate_proposal


@jit(
    f8(LINK_TYPE, BASE_TYPE, ROWS_TYPE, i8, i8, i8, POINT_TYPE, PROPOSAL_TYPE, WORK_TYPE),
    reassociate=True,
    borrow=True,
)
def propose_factors(link, base, ahead, position, n_units, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Evaluate new factors for ``block``; return the log ratio ``log |L^'| - log |L^|``."""
    units, scale = base.factor_units, base.estimate_factor
    intensity, bound = base.intensity, point.scalars[BOUND]
    totals, owner = point.totals, proposal.owner
    n_factors = point.used[UNITS] // units
    leaving = 0
    old = 0.0
    for f in range(n_factors):
        if owner[f] == block:
            leaving += 1
            old += log_factors(totals, f * units, 1, units, scale, intensity, bound)
    if point.used[UNITS] - leaving * units + n_units > totals.shape[0]:
        proposal.crowded[0] += 1
        return -math.inf
    evaluate_proposal(link, base, ahead, position, n_units, proposal, work)
    new = n_units // units
    return log_factors(proposal.totals, 0, new, units, scale, intensity, bound) - old


@jit(
    types.void(
        BASE_TYPE, BLOCK_TYPE, index_vector, i8, i8, i8, POINT_TYPE, PROPOSAL_TYPE, WORK_TYPE
    ),
    reassociate=True,
    borrow=True,
)
def accept_factors(  # type: ignore[no-untyped-def]
    base, sub, units_ahead, position, n_units, block, point, proposal, work
):
    """Replace the factors of ``block`` by those of :func:`propose_factors`."""
    b, size = base.unit_rows, base.factor_units
    totals, value, slope = point.totals, point.value, point.slope
    units, owner = proposal.units, proposal.owner
    if b < 0 or size < 1 or position < 0:
        return
    n_factors = point.used[UNITS] // size
    f = 0
    while f < n_factors:
        if owner[f] != block:
            f += 1
            continue
        n_factors -= 1
        if f == n_factors:
            break
        owner[f] = owner[n_factors]
        for j in range(size):
            units[f * size + j] = units[n_factors * size + j]
            totals[f * size + j] = totals[n_factors * size + j]
        to, last, count = f * size * b, n_factors * size * b, size * b
        copy_rows(sub, last, sub, to, count)
        for i in range(count):
            value[to + i] = value[last + i]
            for a in range(slope.shape[0]):
                slope[a, to + i] = slope[a, last + i]
    first = n_factors * size
    row = first * b
    copy_rows(proposal.rows, 0, sub, row, n_units * b)
    for u in range(n_units):
        totals[first + u] = proposal.totals[u]
        units[first + u] = units_ahead[position + u]
    for g in range(n_units // size):
        owner[n_factors + g] = block
    for i in range(n_units * b):
        value[row + i] = proposal.value[i]
        for a in range(slope.shape[0]):
            slope[a, row + i] = proposal.slope[a, i]
    point.used[UNITS] = first + n_units
    point.used[ROWS] = (first + n_units) * b
    finish(base, sub, point, work)
