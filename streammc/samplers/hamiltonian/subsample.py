"""Pseudo-marginal update of the subsample: new units for one block, accepted or rejected.

Dang et al. 2019, eq. (5); the current estimate is carried and never refreshed. The blocks of
``hmc-ecs`` have fixed positions in the subsample. Those of the block-Poisson product have
random numbers of factors, stored in any order
(:mod:`streammc.samplers.hamiltonian.factors`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammc.likelihood.blocks import (
    ROWS_TYPE,
    TILE,
    Block,
    ExpansionPoint,
    allocate_block,
    copy_rows,
    expand_inline,
)
from streammc.likelihood.difference import unit_totals
from streammc.likelihood.target import BASE_TYPE, MEAN, POINT_TYPE, UNITS, WORK_TYPE, finish
from streammc.likelihood.whitened import remainders_of, whiten_rows
from streammc.numerics.jit import LINK_TYPE, f8, i8, inline, jit
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix, Vector


class Proposal(NamedTuple):
    """Buffers of a proposed block of units, and the bookkeeping of the subsample."""

    totals: Vector
    """Unit totals of the new block."""
    rows: Block
    """Rows of the new block; r is the number of rows of the largest block."""
    value: Vector
    """(r,) remainders of these rows."""
    slope: Matrix
    """(p, r) derivatives of the remainders in the predictors."""
    bounds: Index
    """(G + 1,) block bounds in units."""
    units: Index
    """(k,) units of the subsample."""
    owner: Index
    """Block of each factor of a block-Poisson product."""
    counts: Index
    """Number of units proposed in each iteration of a batch, for a block-Poisson product."""
    crowded: Index
    """(1,) number of proposals rejected because they did not fit into the arrays."""


PROPOSAL_TYPE: Any = record_type(Proposal)


def allocate_proposal(
    q: int, p: int, unit_rows: int, bounds: Index, units: Index, largest: int = 0, order: int = 2
) -> Proposal:
    """Return buffers for blocks of units with these ``bounds``; ``units`` (k,) is not copied.

    ``order`` is that of the expansions, ``largest`` the units of the largest block if blocks
    have no fixed size.
    """
    largest_units = largest or int(np.diff(bounds).max(initial=0))
    rows = largest_units * unit_rows
    return Proposal(
        np.zeros(largest_units),
        allocate_block(rows, q, p, order),
        np.zeros(rows),
        np.zeros((p, rows)),
        bounds,
        units,
        np.zeros(len(units), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@inline
def evaluate_proposal(link, base, ahead, position, n_units, proposal, work):  # type: ignore[no-untyped-def]
    """Write the totals of ``n_units`` proposed units, from ``position`` on, at the current theta.

    ``work.delta`` is the displacement of the current position.
    """
    b = base.unit_rows
    count = n_units * b
    rows, value, scratch = proposal.rows, proposal.value, work.scratch
    n_linear, constants = base.n_linear, base.constants
    centre = base.centre if base.centre.shape[0] > 0 else base.theta_star
    star = ExpansionPoint(centre, constants, n_linear, base.order)
    expand_inline(link, star, ahead, position * b, count, rows, 0, scratch)
    if base.whitening.shape[0] > 0:
        whiten_rows(base.whitening, ahead, position * b, count, rows, 0, work.gradient)
    for lo in range(0, count, TILE):
        hi = min(lo + TILE, count)
        remainders_of(link, base, rows, work.delta, lo, hi, scratch, value, proposal.slope)
    unit_totals(value, b, 0, n_units, proposal.totals)


@inline(reassociate=True, composition=True)
def log_ratio_of_proposal(link, base, ahead, position, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Evaluate new units for one block; return the log acceptance ratio.

    ``ahead`` holds the rows of units drawn ahead, ``position`` counts those used.
    ``work.delta`` is the displacement of ``point.z``. The ratio of estimated
    likelihoods is ``(U/k) (sum D' - sum D) - (s'^2 - s^2) / 2`` at the current theta:
    all other terms cancel, and the current totals are carried. With ``M`` the mean of the
    current totals, stored by the last evaluation, only the block is summed:
    ``sum (D' - mean D')^2 - sum (D - M)^2`` is ``sum_block [(D' - M)^2 - (D - M)^2]``
    less ``(sum_block [D' - D])^2 / k``.
    """
    first, last = proposal.bounds[block], proposal.bounds[block + 1]
    evaluate_proposal(link, base, ahead, position, last - first, proposal, work)
    totals, proposed = point.totals, proposal.totals
    mean = point.scalars[MEAN]
    change = scatter = 0.0
    for u in range(last - first):
        old, new = totals[first + u] - mean, proposed[u] - mean
        change += new - old
        scatter += new * new - old * old
    scatter -= change * change / point.used[UNITS]
    return base.estimate_factor * change - 0.5 * base.variance_factor * scatter


@jit(
    f8(LINK_TYPE, BASE_TYPE, ROWS_TYPE, i8, i8, POINT_TYPE, PROPOSAL_TYPE, WORK_TYPE),
    reassociate=True,
    borrow=True,
)
def propose_subsample(link, base, ahead, position, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Return :func:`log_ratio_of_proposal`, from one proposal outside a chain."""
    return log_ratio_of_proposal(link, base, ahead, position, block, point, proposal, work)


@inline(reassociate=True)
def accept_subsample(base, sub, units_ahead, position, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Replace the units of ``block`` by those of :func:`log_ratio_of_proposal`."""
    b = base.unit_rows
    first, last = proposal.bounds[block], proposal.bounds[block + 1]
    if first < 0 or b < 0:
        return
    row, count = first * b, (last - first) * b
    copy_rows(proposal.rows, 0, sub, row, count)
    for u in range(last - first):
        point.totals[first + u] = proposal.totals[u]
    for i in range(count):
        point.value[row + i] = proposal.value[i]
        for a in range(point.slope.shape[0]):
            point.slope[a, row + i] = proposal.slope[a, i]
    for u in range(last - first):
        proposal.units[first + u] = units_ahead[position + u]
    finish(base, sub, point, work)
