"""``tt`` and ``stt`` keep the joint distribution of theta and y.

theta from the prior, y from the likelihood, then some iterations of the production loop given
y: theta must still be a draw from the prior, jointly with y. The partner counts the prior twice
in the density of level 0.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import types
from pointers import pointer

from streammc.likelihood.contiguous_rows import _no_joint, allocate_held
from streammc.likelihood.target import Base
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_SIGNATURE,
    LINK_TYPE,
    jit,
    matrix,
)
from streammc.priors import normal
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.common.statistics import SWAP_ACCEPTED, TEMPERED_STATISTICS
from streammc.samplers.common.tuning import start
from streammc.samplers.tempering.ladder import (
    ENSEMBLE_TYPE,
    EXPLORER_TYPE,
    EXPLORERS,
    STALE,
    Ensemble,
    Ladder,
    allocate_replicas,
    hmc,
)
from streammc.samplers.tempering.transition_loop import (
    BATCH_TYPE,
    HOME,
    N_MOVES,
    N_TALLIES,
    TRANSITION_TYPE,
    Batch,
    Transition,
    n_keys,
    run,
)

PAIRS, STEPS, LIMIT = 50_000, 3, 4.5
X = np.array([0.6, 1.4, -0.9, 1.1, 0.3, -1.3])
CENTRE, SCALE = 0.3, 0.8
BETA = np.array([1.0, 0.3, 0.02])


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        residual = y[i] - eta[0, i]
        out[0, i] = -0.5 * residual * residual - 0.5 * math.log(2.0 * math.pi)
        if order >= 1:
            out[1, i] = residual


def ladder(kind, prior_power=1.0):
    own = kind not in {"tt", "posterior"}
    n = len(X)
    sizes = np.array([n, 3, 1])
    power = np.ones(3) if own else BETA.copy()
    prior = BETA.copy() if kind == "posterior" else np.ones(3)
    prior[0] = prior_power
    step = np.array([0.9, 1.2, 1.4])
    lo = np.array([0, 0, 3 if kind == "independent" else 0])
    return Ladder(BETA, power, prior, lo, lo + (sizes if own else n), step, 3, 0.2, int(own))


def base():
    nought = np.zeros(1)
    return Base(
        np.array([CENTRE]), 0.0, nought, np.zeros((1, 1)), np.array([[SCALE]]),
        normal(scale=1.0).table([""]), np.zeros(0), 1, -1, 1, 0.0, 0.0,
    )  # fmt: skip


def held(n):
    found = allocate_held(n, 1)
    found.weight[:] = 1.0
    return found


@jit(
    types.void(
        pointer(run), LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, TRANSITION_TYPE,
        BATCH_TYPE, GENERATOR_TYPE, matrix,
    )
)  # fmt: skip
def pairs(run, link, joint, explore, ensemble, transition, batch, rng, out):
    base, full, replicas = ensemble.base, ensemble.full, ensemble.replicas
    home, away, uniforms, keys = batch.home, batch.away, batch.uniforms, batch.keys
    n = full.y.shape[0]
    for pair in range(out.shape[0]):
        truth = rng.standard_normal()
        for i in range(n):
            full.y[i] = full.design[0, i] * truth + rng.standard_normal()
        replicas.z[HOME, 0] = (truth - base.theta_star[0]) / base.factor[0, 0]
        replicas.scalars[HOME, STALE] = 1.0
        for draws in (home, away):
            for t in range(draws.shape[0]):
                for i in range(draws.shape[1]):
                    draws[t, i, 0] = rng.standard_normal()
                    draws[t, i, 1] = 1.0 - rng.random()
                    draws[t, i, 2] = 1.0 - rng.random()
        for t in range(uniforms.shape[0]):
            uniforms[t, 0] = 1.0 - rng.random()
            for i in range(keys.shape[1]):
                keys[t, i] = rng.random()
        run(link, joint, explore, ensemble, transition, batch)
        last = batch.theta[-1, 0]
        score = 0.0
        for i in range(n):
            score += full.design[0, i] * (full.y[i] - full.design[0, i] * last)
        out[pair, 0] = last
        out[pair, 1] = last * last - 1.0
        out[pair, 2] = last * score
        out[pair, 3] = batch.statistics[:, SWAP_ACCEPTED].mean()


def z_scores(kind, explore, seed, *, prior_power=1.0, explorer="hmc"):
    levels = ladder(kind, prior_power)
    full, own = held(len(X)), held(int(levels.hi[1:].max()) if levels.own else 0)
    full.design[0] = X
    top, out = len(BETA) - 1, np.empty((PAIRS, 4))
    ensemble = Ensemble(
        base(), full, own, levels, allocate_replicas(2, 1), allocate_trial(1, 1),
        np.array([start(1.0)] * 3),
    )  # fmt: skip
    transition = Transition(
        int(explorer == "hmc"), np.zeros(3, dtype=np.int64), np.zeros(len(own.y), dtype=np.int64),
        np.zeros((N_MOVES, 3)), np.zeros((N_TALLIES, 3, 2)),
    )  # fmt: skip
    batch = Batch(
        0.0, np.zeros((STEPS, 1, 3)), np.zeros((STEPS, 2 * top, 3)), np.zeros((STEPS, 1)),
        np.zeros((STEPS, 1)), np.zeros((STEPS, n_keys(levels, len(X)))), np.zeros((STEPS, 1)),
        np.zeros((STEPS, len(TEMPERED_STATISTICS))),
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    pairs(run, link, _no_joint, explore, ensemble, transition, batch, rng, out)
    accepted = out[:, 3].mean()
    assert min(accepted, 1.0 - accepted) > 0.05
    return out[:, :3].mean(axis=0) / (out[:, :3].std(axis=0, ddof=1) / math.sqrt(PAIRS))


KINDS = ["tt", "posterior", "nested", "independent"]


@pytest.mark.parametrize("explorer", EXPLORERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_joint_distribution_is_left_invariant(kind, explorer):
    z = z_scores(kind, EXPLORERS[explorer], 21, explorer=explorer)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.parametrize("kind", ["tt", "nested"])
def test_a_prior_counted_twice_is_caught(kind):
    assert np.abs(z_scores(kind, hmc, 22, prior_power=2.0)).max() > 2.0 * LIMIT
