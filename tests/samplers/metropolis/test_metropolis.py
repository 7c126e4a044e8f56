"""Metropolis-Hastings on all rows leaves the posterior invariant, with every proposal.

Joint-distribution invariance: theta from the prior, y from the likelihood, a few iterations
of the production loop given y; theta must still be a draw from the prior, jointly with y.
Gradients come from rows that are drawn for them, so that they are as noisy as they get. The
partner is a likelihood to the power 1.1.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import types
from pointers import pointer
from quick import quick

from streammc.likelihood.blocks import allocate_block, allocate_rows
from streammc.likelihood.target import Base, allocate_point, allocate_work
from streammc.models import logistic
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_SIGNATURE,
    LINK_TYPE,
    SUMS_TYPE,
    jit,
    matrix,
)
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.samplers.common.proposals import LANGEVIN, RANDOM_WALK, SGHMC
from streammc.samplers.common.statistics import METROPOLIS_STATISTICS
from streammc.samplers.metropolis.acceptance import BARKER, METROPOLIS, TEST_TYPE
from streammc.samplers.metropolis.loop import (
    BATCH_TYPE,
    GATHERED_TYPE,
    SHARED_TYPE,
    WORKSPACE_TYPE,
    Batch,
    Gathered,
    Moves,
    Shared,
    Workspace,
    allocate_decision,
    look_at_start,
    run,
)
from streammc.samplers.metropolis.mh import decide

PAIRS = 100_000
STEPS = 3
N, D, GRADIENT = 5, 2, 3
LIMIT = 4.5
PROPOSALS = {
    "random walk": (RANDOM_WALK, 1, 0.1, 1.2),
    "langevin": (LANGEVIN, 1, 0.1, 0.9),
    "sghmc, one step": (SGHMC, 1, 0.3, 0.7),
    "sghmc, three steps": (SGHMC, 3, 0.6, 0.5),
}


@jit(LINK_SIGNATURE)
def sharpened(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        a = (1.0 - 2.0 * y[i]) * eta[0, i]
        out[0, i] = -1.15 * np.log1p(np.exp(a))
        if order >= 1:
            out[1, i] = 1.15 * (2.0 * y[i] - 1.0) / (1.0 + np.exp(-a))
        if order >= 2:
            out[2, i] = 0.0


@jit(
    types.void(
        pointer(run), pointer(look_at_start), LINK_TYPE, SUMS_TYPE, TEST_TYPE, SHARED_TYPE,
        WORKSPACE_TYPE, GATHERED_TYPE, BATCH_TYPE, GENERATOR_TYPE, matrix, matrix,
    )
)  # fmt: skip
def pairs(run, look, link, sums, test, shared, space, gathered, batch, rng, X, out):
    d = X.shape[1]
    now, at, held, ahead = space.now, space.decision, shared.held, gathered.ahead
    theta, statistics = batch.theta, batch.statistics
    for pair in range(out.shape[0]):
        for j in range(d):
            now.z[j] = rng.standard_normal()
            at.momentum[j] = rng.standard_normal()
        for i in range(X.shape[0]):
            eta = 0.0
            for j in range(d):
                eta += X[i, j] * now.z[j]
            held.y[i] = 1.0 if rng.random() < 1.0 / (1.0 + np.exp(-eta)) else 0.0
        for i in range(ahead.y.shape[0]):
            k = rng.integers(0, X.shape[0])
            ahead.y[i] = held.y[k]
            for j in range(d):
                ahead.X[i, j] = X[k, j]
        at.values[0].prior = look(link, sums, shared, space)
        at.counts[0].iteration = 0
        run(link, sums, test, shared, space, gathered, batch, rng)
        dot = 0.0
        for j in range(d):
            out[pair, j] = theta[STEPS - 1, j]
            for i in range(X.shape[0]):
                dot += (held.y[i] - 0.5) * X[i, j] * theta[STEPS - 1, j]
        out[pair, d] = dot
        out[pair, d + 1] = statistics[:, 1].mean()


def case(link, kind, n_steps, friction, step, *, barker, seed, learnt=False, n=PAIRS):
    rng = np.random.default_rng(seed)
    X = np.random.default_rng(1).normal(size=(N, D)) * 1.5
    held = allocate_block(N, D, 1)
    held.design[:] = X.T
    held.weight[:] = 1.0
    prior = normal(scale=1.0).table([str(j) for j in range(D)])
    nought, flat, none = np.zeros(D), np.zeros((D, D)), np.zeros(0)
    base = Base(nought, 0.0, nought, flat, np.eye(D), prior, none, 1, -1, 1, N / GRADIENT, 0.0)
    units = 0 if kind == RANDOM_WALK else GRADIENT
    moves = Moves(kind, n_steps, friction, units, 0, N, np.inf, int(learnt), 1)
    ahead = allocate_rows(STEPS * moves.decision_units, D)
    ahead.weight[:] = 1.0
    at = allocate_decision(D, 512, learnt=learnt)
    at.values["step"] = step
    if learnt:
        at.shape[...] = [[0.8, 0.0], [0.5, 1.3]]
    out = np.empty((n, D + 2))
    now, new = (allocate_point(D, units, units, 1) for _ in range(2))
    settings = np.array([float(BARKER if barker else METROPOLIS)])
    statistics = np.empty((STEPS, len(METROPOLIS_STATISTICS)))
    pairs(
        run, look_at_start, link, taylor, decide,
        Shared(base, allocate_block(0, D, 1), held, moves, np.zeros((0, 0))),
        Workspace(allocate_block(512, D, 1), now, new, allocate_work(D, units, 1), at),
        Gathered(ahead, allocate_rows(0, D), 0),
        Batch(settings, np.ones(STEPS), 1.0, 0.0, np.zeros(7), np.empty((STEPS, D)), statistics),
        rng, X, out,
    )  # fmt: skip
    theta = rng.standard_normal((n, D))
    y = rng.random((n, N)) < 1 / (1 + np.exp(-theta @ X.T))
    dot = ((y - 0.5) * (theta @ X.T)).sum(axis=1)
    found = np.c_[out[:, :D], out[:, :D] ** 2, out[:, 0] * out[:, 1]]
    exact = np.r_[np.zeros(D), np.ones(D), 0.0]
    z = (found.mean(axis=0) - exact) / (found.std(axis=0, ddof=1) / np.sqrt(n))
    spread = np.sqrt((out[:, D].var() + dot.var()) / n)
    return np.r_[z, (out[:, D].mean() - dot.mean()) / spread], out[:, D + 1].mean()


@pytest.mark.parametrize("barker", [False, True])
@pytest.mark.parametrize("kind", quick(PROPOSALS, "langevin"))
def test_the_joint_distribution_is_left_invariant(kind: str, barker: bool) -> None:
    z, accepted = case(logistic().link, *PROPOSALS[kind], barker=barker, seed=11)
    assert np.abs(z).max() < LIMIT, z
    assert min(accepted, 1.0 - accepted) > 0.05


@pytest.mark.parametrize(
    "kind", quick(["random walk", "langevin", "sghmc, three steps"], "langevin")
)
def test_learnt_step_shape_leaves_the_joint_distribution_invariant(kind: str) -> None:
    z, _ = case(logistic().link, *PROPOSALS[kind], barker=False, seed=12, learnt=True)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROPOSALS)
def test_a_sharpened_likelihood_is_caught(kind: str) -> None:
    z, _ = case(sharpened, *PROPOSALS[kind], barker=False, seed=13, n=3 * PAIRS)
    assert np.abs(z).max() > 2.0 * LIMIT, z
