"""Compiled transition of a chain: a pseudo-marginal update of the subsample, then HMC.

Algorithm 1 of Dang et al. 2019. The subsample proposal replaces one block of units
and is accepted with the ratio of estimated likelihoods at the current position; the
current estimate is carried and never refreshed. Then the position moves by Hamiltonian
dynamics with the subsample fixed, so that trajectory and acceptance use the same rows.
Without units the first update does nothing, and the transition is full-data HMC.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE
from streammc.likelihood.positions import place
from streammc.likelihood.target import (
    BASE_TYPE,
    CERTAIN,
    DENSITY,
    ESTIMATE,
    ROWS,
    SIGN,
    UNITS,
    VARIANCE,
)
from streammc.numerics.compile_ahead import make_ready
from streammc.numerics.jit import GENERATOR_TYPE, LINK_TYPE, SUMS_TYPE, i8, inline, jit, matrix
from streammc.numerics.records import record_type
from streammc.samplers.common import statistics as column
from streammc.samplers.common.tuning import LOG_AVERAGE, LOG_STEP, frequency, observe, update
from streammc.samplers.hamiltonian.buffers import AHEAD_TYPE, BUFFERS_TYPE
from streammc.samplers.hamiltonian.factors import accept_factors, propose_factors
from streammc.samplers.hamiltonian.integrator import walled
from streammc.samplers.hamiltonian.jittered import jittered
from streammc.samplers.hamiltonian.nuts import nuts
from streammc.samplers.hamiltonian.options import BEYOND_EDGE_COLUMN, SIGN_COLUMN
from streammc.samplers.hamiltonian.subsample import accept_subsample, log_ratio_of_proposal


class Dynamics(NamedTuple):
    """Settings of the trajectories of a batch."""

    trajectory_length: float
    """Mean of ``step_size * n_steps``, in posterior standard deviations."""
    jitter: float
    """Half-width of the uniform factor on the step size; 0 for a fixed length."""
    target_acceptance: float
    longest_step: float
    """Largest step size of dual averaging."""
    adapt: int
    """1 if warm-up tunes the frequency, 2 if it also tunes the step size, 0 after warm-up."""


DYNAMICS_TYPE: Any = record_type(Dynamics)


@inline(composition=True)
def renew_subsample(link, base, buffers, ahead, used, t, block, rng):  # type: ignore[no-untyped-def]
    """Propose units for ``block`` in iteration ``t``; return their number, and 1 if accepted."""
    sub, point, trial = buffers.sub, buffers.point, buffers.trial
    proposal, work = buffers.proposal, buffers.work
    count = proposal.bounds[block + 1] - proposal.bounds[block]
    log_ratio = log_ratio_of_proposal(link, base, ahead.rows, used, block, point, proposal, work)
    accepted = 0
    if math.log(rng.random()) < log_ratio:  # a NaN ratio is a rejection
        accept_subsample(base, sub, ahead.units, used, block, point, proposal, work)
        accepted = 1
    trial.used[UNITS], trial.used[ROWS] = point.used[UNITS], point.used[ROWS]
    return count, accepted


@inline(composition=True)
def renew_factors(link, base, buffers, ahead, used, t, block, rng):  # type: ignore[no-untyped-def]
    """Do as :func:`renew_subsample`, for the factors of a block-Poisson product."""
    sub, point, trial = buffers.sub, buffers.point, buffers.trial
    proposal, work = buffers.proposal, buffers.work
    count = proposal.counts[t]
    log_ratio = propose_factors(link, base, ahead.rows, used, count, block, point, proposal, work)
    accepted = 0
    if math.log(rng.random()) < log_ratio:
        accept_factors(base, sub, ahead.units, used, count, block, point, proposal, work)
        accepted = 1
    trial.used[UNITS], trial.used[ROWS] = point.used[UNITS], point.used[ROWS]
    return count, accepted


@inline
def start_trajectory(buffers, dynamics, rng):  # type: ignore[no-untyped-def]
    """Draw a momentum; return the energy at its start, the step size and the frequency."""
    momentum, tuning = buffers.work.momentum, buffers.tuning
    kinetic = 0.0
    for j in range(momentum.shape[0]):
        momentum[j] = rng.standard_normal()
        kinetic += 0.5 * momentum[j] * momentum[j]
    energy_start = kinetic - buffers.point.scalars[DENSITY]
    step = math.exp(tuning[LOG_STEP] if dynamics.adapt == 2 else tuning[LOG_AVERAGE])
    return energy_start, step, frequency(tuning)


@inline
def finish_iteration(base, n_certain, buffers, dynamics, counts, trajectory, t, draws):  # type: ignore[no-untyped-def]
    """Tune the step size, and write position and statistics of iteration ``t`` to ``draws``.

    ``counts``: proposed units, and 1 if they were accepted. ``trajectory``: acceptance
    probability, steps, energy, outcome and step size.
    """
    theta, statistics = draws
    point, trial, work, tuning = buffers.point, buffers.trial, buffers.work, buffers.tuning
    proposed, subsample_accepted = counts
    acceptance, made, energy, diverged, step = trajectory
    rows = proposed * base.unit_rows + int(made) * (n_certain + point.used[ROWS])
    wall = diverged == 1.0 and walled(base, trial, work) == 1
    if dynamics.adapt >= 1:
        observe(tuning, point.z)
    if dynamics.adapt == 2 and not wall:
        update(tuning, acceptance, dynamics.target_acceptance, dynamics.longest_step)

    log_jacobian = place(base, point.z, work)
    for j in range(theta.shape[1]):
        theta[t, j] = work.theta[j]
    row = statistics[t]
    row[column.LP] = point.scalars[DENSITY] - log_jacobian
    row[column.ACCEPTANCE_RATE] = acceptance
    row[column.DIVERGING] = 1.0 if diverged == 1.0 and not wall else 0.0
    row[column.ENERGY] = energy
    row[column.STEP_SIZE] = step
    row[column.N_STEPS] = made
    row[column.LOG_LIK_VARIANCE] = point.scalars[VARIANCE]
    row[column.SUBSAMPLE_ACCEPTED] = subsample_accepted
    row[column.N_ROWS] = rows
    row[column.LOG_LIK_REMAINDER] = point.scalars[ESTIMATE] + point.scalars[CERTAIN]
    if base.factor_units > 0:
        row[SIGN_COLUMN] = point.scalars[SIGN]
    elif row.shape[0] > BEYOND_EDGE_COLUMN:
        row[BEYOND_EDGE_COLUMN] = 1.0 if diverged == 2.0 else 0.0


_RUN: Any = types.void(
    LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE, AHEAD_TYPE, i8, DYNAMICS_TYPE,
    GENERATOR_TYPE, types.UniTuple(matrix, 2),
)  # fmt: skip


@jit(_RUN, reassociate=True, borrow=True)
def run(link, sums, base, certain, buffers, ahead, iteration, dynamics, rng, draws):  # type: ignore[no-untyped-def]
    """Run iterations; write their positions and statistics, a row each, to ``draws``.

    ``buffers.point`` is the current state, and holds the new state on return; ``iteration`` is
    the number of iterations made by the chain, which determines the block to update. The
    trajectories are ``jittered``, the estimate is that of differences. The functions below are
    the same with another trajectory or estimate: a run compiles the one that it needs, and the
    four in one took twice as long.
    """
    n_blocks = buffers.proposal.bounds.shape[0] - 1
    used = buffers.proposal.bounds[0]  # 0: with a literal, a callee would be compiled twice
    place(base, buffers.point.z, buffers.work)
    for t in range(draws[0].shape[0]):
        count = accepted = 0
        if n_blocks > 0:
            block = (iteration + t) % n_blocks
            count, accepted = renew_subsample(link, base, buffers, ahead, used, t, block, rng)
            used += count
        energy, step, w = start_trajectory(buffers, dynamics, rng)
        made = jittered(link, sums, base, certain, buffers, energy, dynamics, step, w, rng)
        n_certain = certain.y.shape[0]
        finish_iteration(base, n_certain, buffers, dynamics, (count, accepted), made, t, draws)


@jit(_RUN, reassociate=True, borrow=True)
def run_nuts(link, sums, base, certain, buffers, ahead, iteration, dynamics, rng, draws):  # type: ignore[no-untyped-def]
    """Do as :func:`run`, with the trajectories of ``nuts``."""
    n_blocks = buffers.proposal.bounds.shape[0] - 1
    used = buffers.proposal.bounds[0]
    place(base, buffers.point.z, buffers.work)
    for t in range(draws[0].shape[0]):
        count = accepted = 0
        if n_blocks > 0:
            block = (iteration + t) % n_blocks
            count, accepted = renew_subsample(link, base, buffers, ahead, used, t, block, rng)
            used += count
        start, step, w = start_trajectory(buffers, dynamics, rng)
        acceptance, n_steps, energy, diverged = nuts(
            link, sums, base, certain, buffers, start, step, w, rng
        )
        made = (acceptance, n_steps, energy, diverged, step)
        n_certain = certain.y.shape[0]
        finish_iteration(base, n_certain, buffers, dynamics, (count, accepted), made, t, draws)


@jit(_RUN, reassociate=True, borrow=True)
def run_product(link, sums, base, certain, buffers, ahead, iteration, dynamics, rng, draws):  # type: ignore[no-untyped-def]
    """Do as :func:`run`, with the estimate of the block-Poisson product."""
    n_blocks = buffers.proposal.bounds.shape[0] - 1
    used = buffers.proposal.bounds[0]
    place(base, buffers.point.z, buffers.work)
    for t in range(draws[0].shape[0]):
        block = (iteration + t) % n_blocks
        counts = renew_factors(link, base, buffers, ahead, used, t, block, rng)
        used += counts[0]
        energy, step, w = start_trajectory(buffers, dynamics, rng)
        made = jittered(link, sums, base, certain, buffers, energy, dynamics, step, w, rng)
        finish_iteration(base, certain.y.shape[0], buffers, dynamics, counts, made, t, draws)


@jit(_RUN, reassociate=True, borrow=True)
def run_product_nuts(link, sums, base, certain, buffers, ahead, iteration, dynamics, rng, draws):  # type: ignore[no-untyped-def]
    """Do as :func:`run_product`, with the trajectories of ``nuts``."""
    n_blocks = buffers.proposal.bounds.shape[0] - 1
    used = buffers.proposal.bounds[0]
    place(base, buffers.point.z, buffers.work)
    for t in range(draws[0].shape[0]):
        block = (iteration + t) % n_blocks
        counts = renew_factors(link, base, buffers, ahead, used, t, block, rng)
        used += counts[0]
        start, step, w = start_trajectory(buffers, dynamics, rng)
        acceptance, n_steps, energy, diverged = nuts(
            link, sums, base, certain, buffers, start, step, w, rng
        )
        made = (acceptance, n_steps, energy, diverged, step)
        finish_iteration(base, certain.y.shape[0], buffers, dynamics, counts, made, t, draws)


def transition(nuts: bool, product: bool) -> Any:
    """Return the iterations with a trajectory and an estimate, compiled or loaded."""
    by_trajectory = (run_product, run_product_nuts) if product else (run, run_nuts)
    chosen = by_trajectory[nuts]
    make_ready(chosen)
    return chosen
