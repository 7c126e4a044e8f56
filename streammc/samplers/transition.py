"""The compiled transition: a pseudo-marginal step for the subsample, then HMC.

Algorithm 1 of Dang et al. 2019. The subsample proposal replaces one block of units
and is accepted with the ratio of estimated likelihoods at the current position, the
current estimate being carried and never refreshed; then the position moves by
Hamiltonian dynamics with the subsample fixed, so that trajectory and acceptance see
the same rows. Without units the first step is empty and this is full-data HMC.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.estimators.blocks import (
    BLOCK_TYPE,
    ROWS_TYPE,
    TILE,
    Block,
    allocate_block,
    copy_rows,
    expand,
)
from streammc.estimators.difference import remainders, unit_totals
from streammc.estimators.target import (
    BASE_TYPE,
    CERTAIN,
    DENSITY,
    MEAN,
    POINT_TYPE,
    REST,
    VARIANCE,
    WORK_TYPE,
    displace,
    finish,
)
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    SUMS_TYPE,
    f8,
    i8,
    index_vector,
    jit,
    matrix,
    vector,
)
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.integrator import walled
from streammc.samplers.jittered import jittered
from streammc.samplers.nuts import TREE_TYPE, nuts
from streammc.samplers.tuning import LOG_AVERAGE, LOG_STEP, frequency, observe, update

STATISTICS = (
    "lp",
    "acceptance_rate",
    "diverging",
    "energy",
    "step_size",
    "n_steps",
    "log_lik_variance",
    "subsample_accepted",
    "n_rows",
    "log_lik_remainder",
)
"""Columns of the statistics that :func:`run` writes, in order."""


class Proposal(NamedTuple):
    """Buffers of the subsample proposal."""

    totals: Vector
    """Unit totals of the new block."""
    rows: Block
    """The rows of the new block, as many as the largest block has."""
    value: Vector
    """(r,) their remainders."""
    slope: Matrix
    """(p, r) the derivatives of those in the predictors."""
    bounds: Index
    """(G + 1,) block bounds in units."""
    units: Index
    """(k,) the units in the subsample."""


PROPOSAL_TYPE: Any = types.NamedTuple(
    (vector, BLOCK_TYPE, vector, matrix, index_vector, index_vector), Proposal
)


def allocate_proposal(q: int, p: int, unit_rows: int, bounds: Index, units: Index) -> Proposal:
    """Return buffers for blocks of units cut at ``bounds``; ``units`` (k,) is kept."""
    largest_units = int(np.diff(bounds).max(initial=0))
    largest = largest_units * unit_rows
    return Proposal(
        np.zeros(largest_units),
        allocate_block(largest, q, p),
        np.zeros(largest),
        np.zeros((p, largest)),
        bounds,
        units,
    )


class Dynamics(NamedTuple):
    """Settings of the trajectory."""

    trajectory_length: float
    """In posterior standard deviations, the mean of ``step_size * n_steps``."""
    jitter: float
    """Half-width of the uniform factor on the step size; 0 for a fixed length."""
    target_acceptance: float
    longest_step: float
    """Bound of the step size that dual averaging may reach."""
    adapt: int
    """1 while warm-up tunes the frequency, 2 while it tunes the step size as well."""
    nuts: int
    """1 where each trajectory ends as it turns back; it then has no length."""


DYNAMICS_TYPE: Any = types.NamedTuple((f8, f8, f8, f8, i8, i8), Dynamics)


@jit(
    f8(LINK_TYPE, BASE_TYPE, ROWS_TYPE, i8, i8, POINT_TYPE, PROPOSAL_TYPE, WORK_TYPE),
    reassociate=True,
    borrow=True,
)
def propose_subsample(link, base, ahead, position, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Replace one block of units by fresh ones; return the log acceptance ratio.

    ``ahead`` holds the rows of units drawn ahead, ``position`` counts those used.
    ``work.delta`` is the displacement of ``point.z``. The ratio of estimated
    likelihoods is ``(U/k) (sum D' - sum D) - (s'^2 - s^2) / 2`` at the current theta:
    all else cancels, and the current totals are those that were accepted. With ``M``
    their mean, which the last evaluation left, only the block is summed over:
    ``sum (D' - mean D')^2 - sum (D - M)^2`` is ``sum_block [(D' - M)^2 - (D - M)^2]``
    less ``(sum_block [D' - D])^2 / k``.
    """
    b = base.unit_rows
    first, last = proposal.bounds[block], proposal.bounds[block + 1]
    count = (last - first) * b
    rows, value, scratch = proposal.rows, proposal.value, work.scratch
    order, n_linear = base.order, base.n_linear
    star, constants = base.theta_star, base.constants
    start = position * b
    expand(link, constants, star, n_linear, order, ahead, start, count, rows, 0, scratch)
    for lo in range(0, count, TILE):
        hi = min(lo + TILE, count)
        remainders(
            link,
            constants,
            rows,
            work.delta,
            n_linear,
            lo,
            hi,
            scratch,
            value,
            proposal.slope,
        )
    totals, proposed = point.totals, proposal.totals
    unit_totals(value, b, 0, last - first, proposed)
    mean = point.scalars[MEAN]
    change = scatter = 0.0
    for u in range(last - first):
        old, new = totals[first + u] - mean, proposed[u] - mean
        change += new - old
        scatter += new * new - old * old
    scatter -= change * change / totals.shape[0]
    return base.estimate_factor * change - 0.5 * base.variance_factor * scatter


@jit(
    types.void(BASE_TYPE, BLOCK_TYPE, index_vector, i8, i8, POINT_TYPE, PROPOSAL_TYPE, WORK_TYPE),
    reassociate=True,
    borrow=True,
)
def accept_subsample(base, sub, units_ahead, position, block, point, proposal, work):  # type: ignore[no-untyped-def]
    """Make the proposal of :func:`propose_subsample` the current subsample."""
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


@jit(
    types.void(
        LINK_TYPE,
        SUMS_TYPE,
        BASE_TYPE,
        BLOCK_TYPE,
        BLOCK_TYPE,
        ROWS_TYPE,
        index_vector,
        i8,
        POINT_TYPE,
        POINT_TYPE,
        PROPOSAL_TYPE,
        WORK_TYPE,
        TREE_TYPE,
        DYNAMICS_TYPE,
        vector,
        GENERATOR_TYPE,
        matrix,
        matrix,
    ),
    reassociate=True,
    borrow=True,
)
def run(  # type: ignore[no-untyped-def]
    link,
    sums,
    base,
    certain,
    sub,
    ahead,
    units_ahead,
    iteration,
    point,
    trial,
    proposal,
    work,
    tree,
    dynamics,
    tuning,
    rng,
    theta,
    statistics,
):
    """Run ``theta.shape[0]`` iterations, writing positions and statistics.

    ``point`` is the current state and holds the new one on return; ``ahead`` and
    ``units_ahead`` are the units proposed, in order, and their rows; ``iteration`` is
    the number of iterations the chain has made, which fixes the block to update.
    """
    d = point.z.shape[0]
    n_blocks = proposal.bounds.shape[0] - 1
    rows_per_evaluation = certain.y.shape[0] + sub.y.shape[0]
    momentum = work.momentum
    used = 0
    displace(base.factor, point.z, work.delta)
    for t in range(theta.shape[0]):
        subsample_accepted = 0
        rows = 0
        if n_blocks > 0:
            block = (iteration + t) % n_blocks
            log_ratio = propose_subsample(link, base, ahead, used, block, point, proposal, work)
            if math.log(rng.random()) < log_ratio:  # a NaN ratio is a rejection
                accept_subsample(base, sub, units_ahead, used, block, point, proposal, work)
                subsample_accepted = 1
            count = proposal.bounds[block + 1] - proposal.bounds[block]
            used += count
            rows += count * base.unit_rows

        kinetic = 0.0
        for j in range(d):
            momentum[j] = rng.standard_normal()
            kinetic += 0.5 * momentum[j] * momentum[j]
        energy_start = kinetic - point.scalars[DENSITY]
        step = math.exp(tuning[LOG_STEP] if dynamics.adapt == 2 else tuning[LOG_AVERAGE])
        w = frequency(tuning)
        if dynamics.nuts == 1:
            acceptance, made, energy, diverged = nuts(
                link, sums, base, certain, sub, point, trial, work, tree, energy_start, step, w, rng
            )
        else:
            acceptance, made, energy, diverged, step = jittered(
                link,
                sums,
                base,
                certain,
                sub,
                point,
                trial,
                work,
                energy_start,
                dynamics,
                step,
                w,
                rng,
            )
        rows += int(made) * rows_per_evaluation
        wall = diverged == 1.0 and walled(base, trial, work) == 1
        if dynamics.adapt >= 1:
            observe(tuning, point.z)
        if dynamics.adapt == 2 and not wall:
            update(tuning, acceptance, dynamics.target_acceptance, dynamics.longest_step)

        displace(base.factor, point.z, work.delta)
        for j in range(d):
            theta[t, j] = base.theta_star[j] + work.delta[j]
        row = statistics[t]
        row[0] = point.scalars[DENSITY]
        row[1] = acceptance
        row[2] = 0.0 if wall else diverged
        row[3] = energy
        row[4] = step
        row[5] = made
        row[6] = point.scalars[VARIANCE]
        row[7] = subsample_accepted
        row[8] = rows
        row[9] = (
            point.scalars[DENSITY]
            + 0.5 * point.scalars[VARIANCE]
            - point.scalars[REST]
            + point.scalars[CERTAIN]
        )
