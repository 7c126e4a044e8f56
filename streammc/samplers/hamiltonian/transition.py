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

from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE
from streammc.likelihood.target import (
    BASE_TYPE,
    CERTAIN,
    DENSITY,
    ESTIMATE,
    POINT_TYPE,
    ROWS,
    SIGN,
    UNITS,
    VARIANCE,
    WORK_TYPE,
    displace,
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
from streammc.samplers.common.tuning import LOG_AVERAGE, LOG_STEP, frequency, observe, update
from streammc.samplers.hamiltonian.factors import accept_factors, propose_factors
from streammc.samplers.hamiltonian.integrator import walled
from streammc.samplers.hamiltonian.jittered import jittered
from streammc.samplers.hamiltonian.nuts import TREE_TYPE, nuts
from streammc.samplers.hamiltonian.subsample import (
    PROPOSAL_TYPE,
    accept_subsample,
    propose_subsample,
)


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
    nuts: int
    """1 if each trajectory ends where it turns back (NUTS), without a given length."""


DYNAMICS_TYPE: Any = types.NamedTuple((f8, f8, f8, f8, i8, i8), Dynamics)


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
    """Run ``theta.shape[0]`` iterations; write positions and ``option_checks.STATISTICS``.

    ``point`` is the current state, and holds the new state on return; ``units_ahead`` and
    ``ahead`` are the proposed units, in order, and their rows; ``iteration`` is the number of
    iterations made by the chain, which determines the block to update.
    """
    d = point.z.shape[0]
    n_blocks = proposal.bounds.shape[0] - 1
    n_certain = certain.y.shape[0]
    product = base.factor_units > 0
    momentum = work.momentum
    used = 0
    displace(base.factor, point.z, work.delta)
    for t in range(theta.shape[0]):
        subsample_accepted = 0
        rows = 0
        if n_blocks > 0:
            block = (iteration + t) % n_blocks
            if product:
                count = proposal.counts[t]
                log_ratio = propose_factors(
                    link, base, ahead, used, count, block, point, proposal, work
                )
            else:
                count = proposal.bounds[block + 1] - proposal.bounds[block]
                log_ratio = propose_subsample(link, base, ahead, used, block, point, proposal, work)
            if math.log(rng.random()) < log_ratio:  # a NaN ratio is a rejection
                if product:
                    accept_factors(
                        base, sub, units_ahead, used, count, block, point, proposal, work
                    )
                else:
                    accept_subsample(base, sub, units_ahead, used, block, point, proposal, work)
                subsample_accepted = 1
            trial.used[UNITS], trial.used[ROWS] = point.used[UNITS], point.used[ROWS]
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
        rows += int(made) * (n_certain + point.used[ROWS])
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
        row[2] = 1.0 if diverged == 1.0 and not wall else 0.0
        row[3] = energy
        row[4] = step
        row[5] = made
        row[6] = point.scalars[VARIANCE]
        row[7] = subsample_accepted
        row[8] = rows
        row[9] = point.scalars[ESTIMATE] + point.scalars[CERTAIN]
        if product:
            row[10] = point.scalars[SIGN]
        elif row.shape[0] > 10:
            row[10] = 1.0 if diverged == 2.0 else 0.0
