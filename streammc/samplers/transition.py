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

import numba
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
from streammc.estimators.difference import mean_and_scatter, remainders, unit_totals
from streammc.estimators.target import (
    BASE_TYPE,
    CERTAIN,
    DENSITY,
    POINT_TYPE,
    REST,
    VARIANCE,
    WORK_TYPE,
    displace,
    evaluate,
    finish,
)
from streammc.numerics.jit import LINK_TYPE, SUMS_TYPE, f8, i8, index_vector, jit, matrix, vector
from streammc.numerics.prior import outside
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.dual_averaging import LOG_AVERAGE, LOG_STEP, update

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

MAX_ENERGY_ERROR = 1000.0
MAX_STEPS = 1024


class Proposal(NamedTuple):
    """Buffers of the subsample proposal."""

    totals: Vector
    """(k,) unit totals with one block replaced."""
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
    largest = int(np.diff(bounds).max(initial=0)) * unit_rows
    return Proposal(
        np.zeros(len(units)),
        allocate_block(largest, q, p),
        np.zeros(largest),
        np.zeros((p, largest)),
        bounds,
        units,
    )


class Dynamics(NamedTuple):
    """Settings of the trajectory."""

    trajectory_length: float
    """In posterior standard deviations, ``step_size * n_steps``."""
    jitter: float
    """Half-width of the uniform factor on the length; 0 for a fixed length."""
    target_acceptance: float
    adapt: int
    """1 while dual averaging moves the step size."""


DYNAMICS_TYPE: Any = types.NamedTuple((f8, f8, f8, i8), Dynamics)
GENERATOR_TYPE: Any = numba.typeof(np.random.Generator(np.random.PCG64(0)))


@jit(types.void(POINT_TYPE, POINT_TYPE), borrow=True)
def copy_point(source, target):  # type: ignore[no-untyped-def]
    """Copy one point onto another; loops, since slice assignment costs three times as much."""
    for j in range(source.z.shape[0]):
        target.z[j] = source.z[j]
        target.gradient[j] = source.gradient[j]
        target.rest[j] = source.rest[j]
    for j in range(source.totals.shape[0]):
        target.totals[j] = source.totals[j]
    for a in range(source.slope.shape[0]):
        for i in range(source.value.shape[0]):
            target.slope[a, i] = source.slope[a, i]
    for i in range(source.value.shape[0]):
        target.value[i] = source.value[i]
    for j in range(source.scalars.shape[0]):
        target.scalars[j] = source.scalars[j]


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
    all else cancels, and the current totals are those that were accepted.
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
    for j in range(totals.shape[0]):
        proposed[j] = totals[j]
    unit_totals(value, b, first, last - first, proposed)
    mean_old, scatter_old = mean_and_scatter(totals)
    mean_new, scatter_new = mean_and_scatter(proposed)
    shift = base.estimate_factor * totals.shape[0] * (mean_new - mean_old)
    return shift - 0.5 * base.variance_factor * (scatter_new - scatter_old)


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
    for j in range(point.totals.shape[0]):
        point.totals[j] = proposal.totals[j]
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
        length = dynamics.trajectory_length
        if dynamics.jitter > 0.0:
            length *= 1.0 + dynamics.jitter * (2.0 * rng.random() - 1.0)
        log_step = tuning[LOG_STEP] if dynamics.adapt == 1 else tuning[LOG_AVERAGE]
        # The tuned step is an upper bound: the length is kept, the step shrinks to fit.
        n_steps = math.ceil(length / math.exp(log_step) - 1e-9)
        n_steps = min(max(n_steps, 1), MAX_STEPS)
        step = min(length / n_steps, math.exp(log_step) * (1.0 + 1e-9))
        for j in range(d):
            trial.z[j] = point.z[j]
            trial.gradient[j] = point.gradient[j]
        diverged = False
        made = 0
        for _ in range(n_steps):
            for j in range(d):
                momentum[j] += 0.5 * step * trial.gradient[j]
                trial.z[j] += step * momentum[j]
            evaluate(link, sums, base, certain, sub, trial, work)
            made += 1
            kinetic = 0.0
            for j in range(d):
                momentum[j] += 0.5 * step * trial.gradient[j]
                kinetic += 0.5 * momentum[j] * momentum[j]
            error = kinetic - trial.scalars[DENSITY] - energy_start
            if not error < MAX_ENERGY_ERROR:  # also where it is NaN
                diverged = True
                break
        walled = False
        if diverged:  # a wall of the prior rejects as well, but no smaller step mends it
            displace(base.factor, trial.z, work.delta)
            for j in range(d):
                work.delta[j] += base.theta_star[j]
            walled = outside(work.delta, base.prior)
        rows += made * rows_per_evaluation
        acceptance = 0.0
        energy = energy_start
        if not diverged:
            change = energy_start - (kinetic - trial.scalars[DENSITY])
            acceptance = math.exp(min(0.0, change))
            if rng.random() < acceptance:
                copy_point(trial, point)
                energy = energy_start - change
        if dynamics.adapt == 1 and not walled:
            update(tuning, acceptance, dynamics.target_acceptance, dynamics.trajectory_length)

        displace(base.factor, point.z, work.delta)
        for j in range(d):
            theta[t, j] = base.theta_star[j] + work.delta[j]
        row = statistics[t]
        row[0] = point.scalars[DENSITY]
        row[1] = acceptance
        row[2] = 1.0 if diverged and not walled else 0.0
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
