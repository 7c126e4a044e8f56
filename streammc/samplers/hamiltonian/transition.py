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

import numpy as np
from numba import types

from streammc.likelihood.blocks import (
    BLOCK_TYPE,
    ROWS_TYPE,
    TILE,
    Block,
    ExpansionPoint,
    allocate_block,
    copy_rows,
    expand_inline,
)
from streammc.likelihood.estimators import log_factors, unit_totals
from streammc.likelihood.target import (
    BASE_TYPE,
    BOUND,
    CERTAIN,
    DENSITY,
    ESTIMATE,
    MEAN,
    POINT_TYPE,
    ROWS,
    SIGN,
    UNITS,
    VARIANCE,
    WORK_TYPE,
    Point,
    Work,
    allocate_point,
    beyond_edge,
    copy_point,
    evaluate_inline,
    finish,
    place,
    remainders_of,
    whiten_rows,
)
from streammc.numerics.dispatchers import make_ready
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    SUMS_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    record_type,
)
from streammc.numerics.prior import outside
from streammc.protocols import Index, Matrix, Rows, Vector
from streammc.samplers.common import statistics as column
from streammc.samplers.common.statistics import BEYOND_EDGE_COLUMN, SIGN_COLUMN
from streammc.samplers.common.tuning import LOG_AVERAGE, LOG_STEP, frequency, observe, update

# Pseudo-marginal update of the subsample: new units for one block, accepted or rejected.
#
# Dang et al. 2019, eq. (5); the current estimate is carried and never refreshed. The blocks of
# ``hmc-ecs`` have fixed positions in the subsample. Those of the block-Poisson product have
# random numbers of factors, stored in any order
# (:mod:`streammc.samplers.hamiltonian.transition`).


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


MAX_DEPTH = 10


class Tree(NamedTuple):
    """Buffers of one trajectory; row 0 is the trajectory, rows 1 and up its new half."""

    first: Matrix
    """(MAX_DEPTH + 2, d) first momentum of each subtree, in the order it was built."""
    last: Matrix
    """(MAX_DEPTH + 2, d) last momentum of each subtree."""
    total: Matrix
    """(MAX_DEPTH + 2, d) summed momenta of each subtree."""
    z: Matrix
    """(2, d) position of the earliest and the latest state."""
    momentum: Matrix
    """(2, d) momentum of these states."""
    gradient: Matrix
    """(2, d) gradient at these states."""
    candidate: Point
    """State drawn from the new half."""


TREE_TYPE: Any = record_type(Tree)


def allocate_tree(
    d: int, k: int, m: int, p: int, wide: int | None = None, *, used: bool = True
) -> Tree:
    """Return buffers for points of this shape; empty buffers if they are not ``used``."""
    if not used:
        d, k, m, p, wide = 0, 0, 0, 0, 0
    size = MAX_DEPTH + 2
    subtrees = (np.zeros((size, d)), np.zeros((size, d)), np.zeros((size, d)))
    ends = (np.zeros((2, d)), np.zeros((2, d)), np.zeros((2, d)))
    return Tree(*subtrees, *ends, allocate_point(d, k, m, p, wide))


class Buffers(NamedTuple):
    """State and scratch of one chain; written in place."""

    sub: Block
    """Rows of the subsample."""
    point: Point
    """Current state."""
    trial: Point
    """Current end of a trajectory."""
    proposal: Proposal
    work: Work
    tree: Tree
    tuning: Vector
    """State of the tuning; see :mod:`streammc.samplers.common.tuning`."""


BUFFERS_TYPE: Any = record_type(Buffers)


class Ahead(NamedTuple):
    """Units drawn ahead, in the order in which they are proposed."""

    rows: Rows
    units: Index


AHEAD_TYPE: Any = record_type(Ahead)


# Pseudo-marginal update of a block-Poisson product, whose number of factors varies.
#
# The ``lambda`` products of the estimator, each with Poisson(1) factors, are split into
# ``G`` blocks; iteration ``t`` refreshes the ``kappa`` products of block ``t mod G``. Their
# factors are Poisson(kappa) in number, drawn ahead with their units. The proposal comes
# from the distribution of the auxiliary variables, so the acceptance ratio is that of
# ``|L^|`` alone, and all but the factors of the block cancel. Factors are stored in no
# particular order: the last ones fill the places of removed ones.


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


# Integrator: one step of the Hamiltonian dynamics.
#
# Positions are whitened: the posterior is nearly a standard normal, and the kinetic
# energy of a momentum ``p`` is ``p'p / 2``. The Gaussian part of the energy,
# ``w^2 z'z / 2``, is integrated exactly: a rotation of ``(w z, p)`` by the angle
# ``w step``. The gradient of the remaining energy changes the momentum, half before and half
# after the rotation (split Hamiltonian dynamics, Shahbaba et al. 2014). The error is that of
# the remaining energy alone, so one step can span a quarter of a period if the posterior is
# close to its Gaussian approximation. For every ``w`` a step conserves volume and is
# reversible; ``w = 0`` is the leapfrog.


MAX_ENERGY_ERROR = 1000.0


@inline(composition=True)
def move(link, sums, base, certain, sub, point, work, step, frequency):  # type: ignore[no-untyped-def]
    """Move ``point`` and ``work.momentum`` by one step; return the energy after it."""
    momentum = work.momentum
    d = momentum.shape[0]
    stiffness = frequency * frequency
    cosine, sine = math.cos(frequency * step), math.sin(frequency * step)
    drift = sine / frequency if frequency > 0.0 else step
    for j in range(d):
        z = point.z[j]
        p = momentum[j] + 0.5 * step * (point.gradient[j] + stiffness * z)
        point.z[j] = cosine * z + drift * p
        momentum[j] = cosine * p - frequency * sine * z
    evaluate_inline(link, sums, base, certain, sub, point, work)
    kinetic = 0.0
    for j in range(d):
        momentum[j] += 0.5 * step * (point.gradient[j] + stiffness * point.z[j])
        kinetic += 0.5 * momentum[j] * momentum[j]
    return kinetic - point.scalars[DENSITY]


@jit(i8(BASE_TYPE, POINT_TYPE, WORK_TYPE), borrow=True)
def walled(base, point, work):  # type: ignore[no-untyped-def]
    """Return 1 if ``point`` is outside the bounds of the prior: a smaller step would not help."""
    place(base, point.z, work)
    return 1 if base.prior.shape[0] > 0 and outside(work.theta, base.prior) else 0


MAX_STEPS = 1024


@inline(composition=True)
def jittered(link, sums, base, certain, buffers, energy_start, dynamics, longest, w, rng):  # type: ignore[no-untyped-def]
    """Move ``buffers.point`` along a trajectory, in the fewest steps of at most ``longest``.

    The number of steps is that of the mean length; the drawn length changes their size.
    ``w`` is the frequency of the integrator. Returns the acceptance probability, the
    number of steps made, the energy of the new state, an outcome (1 if the trajectory diverged,
    at ``trial``; 2 if it ended beyond the edge; else 0), and the step size.

    Beyond the edge nothing is accepted. The acceptance probability, which tunes the step, does
    not include this: a smaller step would not help.
    """
    sub, point, trial, work = buffers.sub, buffers.point, buffers.trial, buffers.work
    length = dynamics.trajectory_length
    n_steps = min(max(math.ceil(length / longest - 1e-9), 1), MAX_STEPS)
    step = min(length / n_steps, longest * (1.0 + 1e-9))
    if dynamics.jitter > 0.0:
        step *= 1.0 + dynamics.jitter * (2.0 * rng.random() - 1.0)
    for j in range(point.z.shape[0]):
        trial.z[j] = point.z[j]
        trial.gradient[j] = point.gradient[j]
    energy = energy_start
    made = 0
    diverged = 0.0
    for _ in range(n_steps):
        energy = move(link, sums, base, certain, sub, trial, work, step, w)
        made += 1
        if not energy - energy_start < MAX_ENERGY_ERROR:  # also where it is NaN
            diverged = 1.0
            break
    acceptance = 0.0 if diverged == 1.0 else math.exp(min(0.0, energy_start - energy))
    if diverged == 0.0 and beyond_edge(base, trial.z, work) == 1:
        diverged = 2.0
    if diverged == 0.0 and rng.random() < acceptance:
        copy_point(trial, point)
    else:
        energy = energy_start
    return acceptance, float(made), energy, diverged, step


# Trajectory of the No-U-Turn sampler, without recursion.
#
# Algorithm: Hoffman and Gelman 2014; Betancourt 2017. The trajectory doubles, forward or
# backward in time with equal probability, until it turns back: until its summed momentum
# points against the momentum at either end. The next state is drawn with weight ``exp(-H)``:
# within a new half multinomially, and the new half in place of the old with probability
# ``min(1, w_new / w_old)``. A half that contains a turn or a divergence is rejected, and ends
# the trajectory. Every pair of adjacent subtrees is also checked across its seam, from one
# subtree to the first momentum of the other: otherwise turns of trajectories of nearly one
# period would be missed.
#
# The subsample is fixed within a trajectory, so the algorithm is valid for hmc-ecs unchanged.


LONGEST_STEP = 1.2
"""Largest step in posterior sd; with longer steps two states span the whole trajectory."""


@jit(i8(TREE_TYPE, i8, i8), reassociate=True, borrow=True)
def turned(tree, one, two):  # type: ignore[no-untyped-def]
    """Return 1 if two adjacent subtrees turn back, together or across their seam, else 0.

    The summed momentum must have ``rho'p > 0`` at both ends of three stretches: both subtrees,
    ``one`` with the first state of ``two``, and the last state of ``one`` with ``two``.
    """
    if one < 0 or two < 0:
        return 1
    first, last, total = tree.first, tree.last, tree.total
    a = b = c = d = e = f = 0.0
    for j in range(first.shape[1]):
        both = total[one, j] + total[two, j]
        a += both * first[one, j]
        b += both * last[two, j]
        left = total[one, j] + first[two, j]
        c += left * first[one, j]
        d += left * first[two, j]
        right = last[one, j] + total[two, j]
        e += right * last[one, j]
        f += right * last[two, j]
    straight = a > 0.0 and b > 0.0 and c > 0.0 and d > 0.0 and e > 0.0 and f > 0.0
    return 0 if straight else 1


@jit(f8(f8, f8), borrow=True)
def log_add(a, b):  # type: ignore[no-untyped-def]
    """Return ``log(exp(a) + exp(b))``."""
    top = max(a, b)
    if top == -math.inf:
        return top
    return top + math.log1p(math.exp(min(a, b) - top))


@jit(
    types.UniTuple(f8, 5)(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE, f8, f8, f8, GENERATOR_TYPE
    ),
    reassociate=True,
    borrow=True,
)
def nuts(link, sums, base, certain, buffers, energy_start, step, w, rng):  # type: ignore[no-untyped-def]
    """Replace ``buffers.point`` by a state drawn from a trajectory that starts at it.

    The first momentum is ``work.momentum``, and ``w`` the frequency of the integrator. Returns
    the mean Metropolis probability of the states, their number, the energy of the drawn state,
    an outcome (1 if the trajectory diverged, at ``trial``; 2 if it went beyond the edge, where
    states have no weight; else 0), and the step size.
    """
    sub, point, trial = buffers.sub, buffers.point, buffers.trial
    work, tree = buffers.work, buffers.tree
    momentum, candidate = work.momentum, tree.candidate
    first, last, total = tree.first, tree.last, tree.total
    d = momentum.shape[0]
    for j in range(d):
        total[0, j] = momentum[j]
        for end in range(2):
            tree.z[end, j] = point.z[j]
            tree.gradient[end, j] = point.gradient[j]
            tree.momentum[end, j] = momentum[j]
    energy = energy_start
    log_weight = 0.0
    probability = 0.0
    made = 0
    leaves = 1
    outcome = 0.0
    for _ in range(MAX_DEPTH):
        forward = 1 if rng.random() < 0.5 else 0
        signed = step if forward == 1 else -step
        for j in range(d):
            first[0, j] = tree.momentum[1 - forward, j]
            last[0, j] = tree.momentum[forward, j]
            trial.z[j] = tree.z[forward, j]
            trial.gradient[j] = tree.gradient[forward, j]
            momentum[j] = tree.momentum[forward, j]
        top = 0
        log_weight_new = -math.inf
        energy_new = 0.0
        for leaf in range(leaves):
            energy_here = move(link, sums, base, certain, sub, trial, work, signed, w)
            made += 1
            error = energy_here - energy_start
            if not error < MAX_ENERGY_ERROR:  # also where it is NaN
                return probability / made, float(made), energy, 1.0, step
            probability += math.exp(min(0.0, -error))
            if beyond_edge(base, trial.z, work) == 1:
                outcome = 2.0
            else:
                log_weight_new = log_add(log_weight_new, -error)
                if math.log(rng.random()) < -error - log_weight_new:
                    copy_point(trial, candidate)
                    energy_new = energy_here
            top += 1
            for j in range(d):
                first[top, j] = last[top, j] = total[top, j] = momentum[j]
            # Merge finished subtrees of equal size, like the carry of a binary counter.
            count = leaf + 1
            while count % 2 == 0:
                if turned(tree, top - 1, top) == 1:
                    return probability / made, float(made), energy, outcome, step
                for j in range(d):
                    last[top - 1, j] = last[top, j]
                    total[top - 1, j] += total[top, j]
                top -= 1
                count //= 2
        if math.log(rng.random()) < log_weight_new - log_weight:
            copy_point(candidate, point)
            energy = energy_new
        log_weight = log_add(log_weight, log_weight_new)
        if turned(tree, 0, 1) == 1:
            break
        for j in range(d):
            total[0, j] += total[1, j]
            tree.z[forward, j] = trial.z[j]
            tree.gradient[forward, j] = trial.gradient[j]
            tree.momentum[forward, j] = momentum[j]
        leaves *= 2
    return probability / made, float(made), energy, outcome, step


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
def renew_subsample(link, base, buffers, ahead, used, block, rng):  # type: ignore[no-untyped-def]
    """Propose units for ``block``; return their number, and 1 if they were accepted."""
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


def _loop(name: str, by_nuts: bool, by_product: bool) -> Any:
    """Return the iterations with one trajectory and one estimate.

    The two flags are constants of the compiled function, so that the branches of the others are
    dropped before they are compiled: one function for all four took twice as long. With a name of
    its own each has its own files in the cache: of two processes that compile different ones at
    once, neither can write its machine code where the other's is looked for.
    """

    def run(link, sums, base, certain, buffers, ahead, iteration, dynamics, rng, draws):  # type: ignore[no-untyped-def]
        """Run iterations; write their positions and statistics, a row each, to ``draws``.

        ``buffers.point`` is the current state, and holds the new state on return; ``iteration``
        is the number of iterations made by the chain, which determines the block to update.
        """
        n_blocks = buffers.proposal.bounds.shape[0] - 1
        used = buffers.proposal.bounds[0]  # 0: with a literal, a callee would be compiled twice
        n_certain = certain.y.shape[0]
        place(base, buffers.point.z, buffers.work)
        for t in range(draws[0].shape[0]):
            count = accepted = 0
            if n_blocks > 0:
                block = (iteration + t) % n_blocks
                if by_product:
                    count, accepted = renew_factors(link, base, buffers, ahead, used, t, block, rng)
                else:
                    count, accepted = renew_subsample(link, base, buffers, ahead, used, block, rng)
                used += count
            energy, step, w = start_trajectory(buffers, dynamics, rng)
            if by_nuts:
                made = nuts(link, sums, base, certain, buffers, energy, step, w, rng)
            else:
                made = jittered(link, sums, base, certain, buffers, energy, dynamics, step, w, rng)
            finish_iteration(base, n_certain, buffers, dynamics, (count, accepted), made, t, draws)

    run.__name__ = run.__qualname__ = name
    return jit(_RUN, reassociate=True, borrow=True)(run)


run, run_nuts = _loop("run", False, False), _loop("run_nuts", True, False)
run_product = _loop("run_product", False, True)
run_product_nuts = _loop("run_product_nuts", True, True)


def transition(nuts: bool, product: bool) -> Any:
    """Return the iterations with a trajectory and an estimate, compiled or loaded."""
    by_trajectory = (run_product, run_product_nuts) if product else (run, run_nuts)
    chosen = by_trajectory[nuts]
    make_ready(chosen)
    return chosen
