"""Trajectory of random length: equal steps, then one Metropolis decision."""

from __future__ import annotations

import math

from streammc.likelihood.positions import beyond_edge
from streammc.likelihood.target import copy_point
from streammc.numerics.jit import inline
from streammc.samplers.hamiltonian.integrator import MAX_ENERGY_ERROR, move

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
