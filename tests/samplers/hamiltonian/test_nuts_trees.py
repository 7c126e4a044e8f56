"""Trajectories of NUTS are those of a plain one, which keeps every momentum and adds up anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from problems import Small

from streammc.likelihood.blocks import BLOCK_TYPE, allocate_block
from streammc.likelihood.target import BASE_TYPE, DENSITY, allocate_point, allocate_work, evaluate
from streammc.numerics.jit import LINK_TYPE, SUMS_TYPE, f8, jit
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.samplers.common import tuning
from streammc.samplers.hamiltonian.transition import (
    BUFFERS_TYPE,
    MAX_DEPTH,
    Buffers,
    allocate_proposal,
    allocate_tree,
    move,
    nuts,
)

FREQUENCY = 0.7
MODEL = (LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE)


def start(link, sums, base, certain, buffers):
    evaluate(link, sums, base, certain, buffers.sub, buffers.point, buffers.work)
    return -buffers.point.scalars[DENSITY]


@jit(f8(*MODEL, f8))
def one_step(link, sums, base, certain, buffers, step):
    trial = buffers.trial
    return move(link, sums, base, certain, buffers.sub, trial, buffers.work, step, FREQUENCY)


def allocated(small: Small) -> Buffers:
    d = small.base.theta_star.shape[0]
    none = np.zeros(0, dtype=np.int64)
    return Buffers(
        sub=allocate_block(0, d, 1),
        point=allocate_point(d, 0, 0, 1),
        trial=allocate_point(d, 0, 0, 1),
        proposal=allocate_proposal(d, 1, 1, np.zeros(1, dtype=np.int64), none),
        work=allocate_work(d, 0, 1, small.n),
        tree=allocate_tree(d, 0, 0, 1),
        tuning=tuning.start(1.0),
    )


def turn_back(one: list[Any], two: list[Any]) -> bool:
    """Return whether two adjacent stretches of momenta turn back, together or at their seam."""
    for stretch in (one + two, [*one, two[0]], [one[-1], *two]):
        rho = np.sum(stretch, axis=0)
        if not (rho @ stretch[0] > 0.0 and rho @ stretch[-1] > 0.0):
            return True
    return False


def plain(small: Small, buffers: Buffers, energy: float, step: float, rng: Any) -> tuple[Any, int]:
    """Return the state drawn and the number of steps of Hoffman and Gelman's sampler."""
    trial, work = buffers.trial, buffers.work
    state = tuple(each.copy() for each in (buffers.point.z, buffers.point.gradient, work.momentum))
    ends, momenta, point = [state, state], [state[2]], state[0]
    log_weight, made = 0.0, 0
    for depth in range(MAX_DEPTH):
        forward = rng.random() < 0.5
        trial.z[:], trial.gradient[:], work.momentum[:] = ends[forward]
        new: list[Any] = []
        log_new, candidate = -np.inf, point
        for leaf in range(1, 2**depth + 1):
            signed = step if forward else -step
            model = small.model.link, taylor, small.base, small.certain
            error = one_step(*model, buffers, signed) - energy
            made += 1
            log_new = np.logaddexp(log_new, -error)
            if np.log(rng.random()) < -error - log_new:
                candidate = trial.z.copy()
            new.append(work.momentum.copy())
            size = 1
            while leaf % (2 * size) == 0:
                if turn_back(new[-2 * size : -size], new[-size:]):
                    return point, made
                size *= 2
        if np.log(rng.random()) < log_new - log_weight:
            point = candidate
        log_weight = np.logaddexp(log_weight, log_new)
        momenta = momenta if forward else momenta[::-1]
        if turn_back(momenta, new):
            break
        ends[forward] = trial.z.copy(), trial.gradient.copy(), work.momentum.copy()
        momenta = [*momenta, *new] if forward else [*momenta, *new][::-1]
    return point, made


def test_trajectories_are_those_of_a_sampler_that_keeps_every_momentum() -> None:
    small = Small(n=8, d=2, certain=range(8), order=-1, seed=4, prior=normal(scale=2.0))
    buffers, model = allocated(small), (small.model.link, taylor, small.base, small.certain)
    steps, rng = [], np.random.default_rng(3)
    for step in np.tile([0.15, 0.4, 0.9], 60):
        energy = start(*model, buffers)
        momentum = rng.standard_normal(2)
        energy += 0.5 * momentum @ momentum
        buffers.work.momentum[:] = momentum
        before = buffers.point.z.copy()
        seed = int(rng.integers(2**60))
        expected, made = plain(small, buffers, energy, step, np.random.default_rng(seed))
        buffers.point.z[:], buffers.work.momentum[:] = before, momentum
        energy = start(*model, buffers) + 0.5 * momentum @ momentum
        found = nuts(*model, buffers, energy, step, FREQUENCY, np.random.default_rng(seed))
        assert (made, 0.0) == (found[1], found[3])
        assert np.allclose(expected, buffers.point.z, rtol=1e-12, atol=1e-12)
        steps.append(made)
    assert {1, 3, 7, 15, 31} <= set(steps)
