"""Joint-distribution invariance: (theta, y) from the joint stays in the joint.

theta from the prior, y from the likelihood, then a few iterations of the production
transition given y. Afterwards theta must still be a draw from the prior, jointly with
y; the smallest likelihood power that a quarter of a million pairs catch is about 1.02.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba import types
from pointers import pointer

from streammc.likelihood.blocks import (
    BLOCK_TYPE,
    ROWS_TYPE,
    ExpansionPoint,
    allocate_block,
    allocate_rows,
    expand,
)
from streammc.likelihood.target import BASE_TYPE, Base, allocate_point, allocate_work, evaluate
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
from streammc.samplers.common.statistics import SIGNED_STATISTICS
from streammc.samplers.common.tuning import start
from streammc.samplers.hamiltonian.transition import (
    AHEAD_TYPE,
    BUFFERS_TYPE,
    DYNAMICS_TYPE,
    Ahead,
    Buffers,
    Dynamics,
    allocate_proposal,
    allocate_tree,
    run,
    run_nuts,
)

PAIRS = 250_000
STEPS = 3
JITTERED = Dynamics(1.2, 0.2, 0.8, 1.5, 0)
NUTS = Dynamics(1.2, 0.0, 0.8, 1.5, 0)
TRAJECTORIES = {"jittered": (run, JITTERED), "nuts": (run_nuts, NUTS)}


@jit(LINK_SIGNATURE)
def gaussian_link(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        residual = y[i] - eta[0, i]
        out[0, i] = -0.5 * residual * residual - 0.5 * np.log(2 * np.pi)
        if order >= 1:
            out[1, i] = residual
        if order >= 2:
            out[2, i] = -1.0


@jit(LINK_SIGNATURE)
def sharpened_link(eta, X, y, constants, order, out):
    gaussian_link(eta, X, y, constants, order, out)
    for i in range(y.shape[0]):
        out[0, i] *= 1.05
        out[1, i] *= 1.05


SHARED = (LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE, AHEAD_TYPE, DYNAMICS_TYPE)


@jit(types.void(pointer(run), pointer(evaluate), *SHARED, GENERATOR_TYPE, matrix, matrix))
def hmc_pairs(run, evaluate, link, sums, base, certain, buffers, ahead, dynamics, rng, X, out):
    """Draw pairs by full-data HMC."""
    point, d = buffers.point, X.shape[1]
    theta = np.empty((STEPS, d))
    statistics = np.empty((STEPS, len(SIGNED_STATISTICS)))
    for pair in range(out.shape[0]):
        for j in range(d):
            point.z[j] = rng.standard_normal()  # the prior is standard normal, S = identity
        for i in range(X.shape[0]):
            eta = 0.0
            for j in range(d):
                eta += X[i, j] * point.z[j]
            certain.y[i] = 1.0 if rng.random() < 1.0 / (1.0 + np.exp(-eta)) else 0.0
        evaluate(link, sums, base, certain, buffers.sub, point, buffers.work)
        run(link, sums, base, certain, buffers, ahead, 0, dynamics, rng, (theta, statistics))
        dot = 0.0
        for j in range(d):
            out[pair, j] = theta[STEPS - 1, j]
            for i in range(X.shape[0]):
                dot += (certain.y[i] - 0.5) * X[i, j] * theta[STEPS - 1, j]
        out[pair, d] = dot


@jit(
    types.void(
        pointer(run), pointer(evaluate), pointer(expand), *SHARED, GENERATOR_TYPE, matrix,
        ROWS_TYPE, matrix,
    )
)  # fmt: skip
def ecs_pairs(
    run, evaluate, expand, link, sums, known, certain, buffers, ahead, dynamics, rng, X, rows, out
):
    """Draw pairs by HMC-ECS: a Gaussian mean with known variance, whose remainders are zero."""
    n, k = X.shape[0], rows.y.shape[0]
    sub, point, work = buffers.sub, buffers.point, buffers.work
    units, theta_star, gradient = buffers.proposal.units, known.theta_star, known.gradient
    y = np.empty(n)
    theta = np.empty((STEPS, 1))
    statistics = np.empty((STEPS, len(SIGNED_STATISTICS)))
    for pair in range(out.shape[0]):
        truth = rng.standard_normal()
        log_lik = 0.0
        gradient[0] = 0.0
        for i in range(n):
            y[i] = X[i, 0] * truth + rng.standard_normal()
            residual = y[i] - X[i, 0] * theta_star[0]
            log_lik += -0.5 * residual * residual - 0.5 * np.log(2 * np.pi)
            gradient[0] += X[i, 0] * residual
        base = Base(
            theta_star, log_lik, gradient, known.hessian, known.factor, known.prior,
            known.constants, known.n_linear, known.order, known.unit_rows, known.estimate_factor,
            known.variance_factor, known.factor_units, known.intensity, known.soft_bound,
            known.bound_growth, known.edge, known.walls, known.levels, known.centre, known.noise,
            known.lines, known.spreads, known.mode, known.mode_factor, known.whitening,
            known.diagonal,
        )  # fmt: skip
        for u in range(k):
            units[u] = rng.integers(0, n)
            rows.X[u, 0] = X[units[u], 0]
            rows.y[u] = y[units[u]]
        at = ExpansionPoint(theta_star, known.constants, known.n_linear, known.order)
        expand(link, at, rows, 0, k, sub, 0, work.scratch)
        for s in range(STEPS):
            ahead.units[s] = rng.integers(0, n)
            ahead.rows.X[s, 0] = X[ahead.units[s], 0]
            ahead.rows.y[s] = y[ahead.units[s]]
        point.z[0] = (truth - theta_star[0]) / known.factor[0, 0]
        evaluate(link, sums, base, certain, sub, point, work)
        run(link, sums, base, certain, buffers, ahead, 0, dynamics, rng, (theta, statistics))
        out[pair, 0] = theta[STEPS - 1, 0]
        out[pair, 1] = theta[STEPS - 1, 0] * (y.sum() - X[:, 0].sum() * theta[STEPS - 1, 0])


def z_scores(values, exact):
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (values.mean(axis=0) - exact) / error


def hmc_case(link, seed, trajectory):
    rng = np.random.default_rng(seed)
    n, d = 5, 2
    X = np.random.default_rng(1).normal(size=(n, d)) * 1.5
    certain = allocate_block(n, d, 1)
    certain.design[:] = X.T
    certain.weight[:] = 1.0
    prior = normal(scale=1.0).table([str(j) for j in range(d)])
    nought, flat, none = np.zeros(d), np.zeros((d, d)), np.zeros(0)
    base = Base(nought, 0.0, nought, flat, np.eye(d), prior, none, 1, -1, 1, 0.0, 0.0)
    nothing = np.zeros(0, np.int64)
    proposal = allocate_proposal(d, 1, 1, np.zeros(1, np.int64), nothing)
    out = np.empty((PAIRS, d + 1))
    sub = allocate_block(0, d, 1)
    point, trial = (allocate_point(d, 0, 0, 1) for _ in range(2))
    work, tree = allocate_work(d, 0, 1, n), allocate_tree(d, 0, 0, 1)
    buffers = Buffers(sub, point, trial, proposal, work, tree, start(0.9))
    ahead = Ahead(allocate_rows(0, d), nothing)
    transitions, dynamics = TRAJECTORIES[trajectory]
    hmc_pairs(
        transitions, evaluate, link, taylor, base, certain, buffers, ahead, dynamics, rng, X, out
    )
    # Exact: E theta = 0, E theta^2 = 1; the data-dependent quantity by fresh joint draws.
    theta = rng.standard_normal((PAIRS, d))
    y = rng.random((PAIRS, n)) < 1 / (1 + np.exp(-theta @ X.T))
    dot = ((y - 0.5) * (theta @ X.T)).sum(axis=1)
    first = z_scores(np.c_[out[:, :d], out[:, :d] ** 2], np.r_[np.zeros(d), np.ones(d)])
    spread = np.sqrt((out[:, d].var() + dot.var()) / PAIRS)
    return np.r_[first, (out[:, d].mean() - dot.mean()) / spread]


def ecs_case(link, seed, trajectory):
    rng = np.random.default_rng(seed)
    n, k = 6, 3
    X = np.random.default_rng(2).uniform(0.5, 1.5, size=(n, 1))
    hessian = -(X.T @ X)
    factor = np.array([[1.0 / np.sqrt(1.0 - hessian[0, 0])]])
    rows, ahead = allocate_rows(k, 1), allocate_rows(STEPS, 1)
    rows.weight[:] = 1.0
    ahead.weight[:] = 1.0
    proposal = allocate_proposal(1, 1, 1, np.arange(k + 1), np.zeros(k, np.int64))
    out = np.empty((PAIRS, 2))
    known = Base(
        np.array([0.3]), 0.0, np.zeros(1), hessian, factor, normal(scale=1.0).table([""]),
        np.zeros(0), 1, 2, 1, n / k, n**2 / (k * (k - 1)),
    )  # fmt: skip
    point, trial = (allocate_point(1, k, k, 1) for _ in range(2))
    work, tree = allocate_work(1, k, 1, 0), allocate_tree(1, k, k, 1)
    sub = allocate_block(k, 1, 1)
    buffers = Buffers(sub, point, trial, proposal, work, tree, start(0.9))
    ahead = Ahead(ahead, np.zeros(STEPS, np.int64))
    transitions, dynamics = TRAJECTORIES[trajectory]
    ecs_pairs(
        transitions, evaluate, expand, link, taylor, known, allocate_block(0, 1, 1), buffers,
        ahead, dynamics, rng, X, rows, out,
    )  # fmt: skip
    # E[theta (sum y - theta sum x)] = E[theta sum noise] = 0.
    return z_scores(np.c_[out[:, 0], out[:, 0] ** 2, out[:, 1]], np.array([0.0, 1.0, 0.0]))


@pytest.mark.parametrize("kind", TRAJECTORIES)
def test_hmc_keeps_the_joint_distribution(kind):
    assert np.abs(hmc_case(logistic().link, 1, kind)).max() < 4.5


@pytest.mark.parametrize("kind", TRAJECTORIES)
def test_hmc_ecs_keeps_the_joint_distribution_without_remainders(kind):
    assert np.abs(ecs_case(gaussian_link, 2, kind)).max() < 4.5


@pytest.mark.parametrize("kind", TRAJECTORIES)
def test_a_likelihood_to_the_power_1_05_is_caught(kind):
    z = ecs_case(sharpened_link, 2, kind)
    assert np.abs(z).max() > 4.5
