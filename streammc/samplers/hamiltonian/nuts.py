"""Trajectory of the No-U-Turn sampler, without recursion.

Algorithm: Hoffman and Gelman 2014; Betancourt 2017. The trajectory doubles, forward or
backward in time with equal probability, until it turns back: until its summed momentum
points against the momentum at either end. The next state is drawn with weight ``exp(-H)``:
within a new half multinomially, and the new half in place of the old with probability
``min(1, w_new / w_old)``. A half that contains a turn or a divergence is rejected, and ends
the trajectory. Every pair of adjacent subtrees is also checked across its seam, from one
subtree to the first momentum of the other: otherwise turns of trajectories of nearly one
period would be missed.

The subsample is fixed within a trajectory, so the algorithm is valid for hmc-ecs unchanged.
"""

from __future__ import annotations

import math

from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE
from streammc.likelihood.positions import beyond_edge
from streammc.likelihood.target import BASE_TYPE, copy_point
from streammc.numerics.jit import GENERATOR_TYPE, LINK_TYPE, SUMS_TYPE, f8, i8, jit
from streammc.samplers.hamiltonian.buffers import BUFFERS_TYPE, MAX_DEPTH, TREE_TYPE
from streammc.samplers.hamiltonian.integrator import MAX_ENERGY_ERROR, move

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
    types.UniTuple(f8, 4)(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE, f8, f8, f8, GENERATOR_TYPE
    ),
    reassociate=True,
    borrow=True,
)
def nuts(link, sums, base, certain, buffers, energy_start, step, w, rng):  # type: ignore[no-untyped-def]
    """Replace ``buffers.point`` by a state drawn from a trajectory that starts at it.

    The first momentum is ``work.momentum``, and ``w`` the frequency of the integrator. Returns
    the mean Metropolis probability of the states, their number, the energy of the drawn state,
    and an outcome: 1 if the trajectory diverged, at ``trial``; 2 if it went beyond the edge,
    where states have no weight; else 0.
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
                return probability / made, float(made), energy, 1.0
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
                    return probability / made, float(made), energy, outcome
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
    return probability / made, float(made), energy, outcome
