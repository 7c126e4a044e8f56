"""Every family with shared parameters: posteriors by quadrature, joint invariance, own target."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import BUILDERS, LOG_LIK, SEVERAL, Small, batch_z, kernel_problem
from scipy import stats

from streammc import priors
from streammc.likelihood.blocks import allocate_block, allocate_rows
from streammc.likelihood.target import Base, allocate_point, allocate_work, evaluate
from streammc.numerics.summation import taylor
from streammc.samplers.common.statistics import SIGNED_STATISTICS
from streammc.samplers.common.tuning import start
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.transition import (
    Ahead,
    Buffers,
    Dynamics,
    allocate_proposal,
    allocate_tree,
    run,
)

TIGHT = {"*": priors.normal(scale=1.0), "sigma": priors.lognormal(0.0, 0.5)}
"""Away from the mode a first-order expansion needs a prior with light tails."""
DRAWS = 200_000


def log_prior(small, theta):
    """Normal(0, 10); half-Student-t(3, 10) on sigma and phi, Gamma(2, 0.1) on nu; sampled logs."""
    total = stats.norm(0, 10).logpdf(theta[0])
    for label, x in zip(small.labels[1:], theta[1:], strict=True):
        prior = stats.gamma(2, scale=10) if label == "nu" else stats.t(3, 0, 10)
        total = total + prior.logpdf(np.exp(x)) + x
    return total


def grid_of(small, draws):
    """A grid that covers the draws and then some: axes (dim) of points."""
    count = {1: 4001, 2: 400, 3: 140}[small.dim]
    low, high = draws.min(axis=0), draws.max(axis=0)
    pad = 0.25 * (high - low)
    return [np.linspace(a - p, b + p, count) for a, b, p in zip(low, high, pad, strict=True)]


def quadrature(small, axes):
    """First and second moments of the posterior by SciPy on a grid."""
    theta = np.meshgrid(*axes, indexing="ij")
    log = log_prior(small, theta)
    for i in range(small.n):
        eta = small.X[i, 0] * theta[0] + small.offset[i]
        log = log + small.weight[i] * LOG_LIK[small.kind](small.y[i], eta, *theta[1:])
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    return [((mass * t).sum(), (mass * t**2).sum()) for t in theta]


def sampled(small, base=None, draws=DRAWS):
    kernel = HamiltonianKernel(kernel_problem(small, base=base), seed=5, chain=0)
    kernel.initialise()
    kernel.advance(2000, True)
    return kernel.advance(draws, False)


@pytest.mark.slow
@pytest.mark.parametrize("model", BUILDERS)
def test_hmc_has_the_posterior_of_quadrature(model):
    small = Small(model=model, n=12, d=1, certain=range(12), order=-1, seed=2)
    theta = sampled(small)["theta"]
    for j, (mean, square) in enumerate(quadrature(small, grid_of(small, theta))):
        assert abs(batch_z(theta[:, j], mean)) < 4.5, (small.labels[j], mean)
        assert abs(batch_z(theta[:, j] ** 2, square)) < 4.5, (small.labels[j], square)


@pytest.mark.slow
def test_a_prior_without_its_jacobian_is_caught():
    small = Small(model="gaussian", n=12, d=1, certain=range(12), order=-1, seed=2)
    table = small.base.prior.copy()
    table[1] = priors.normal(scale=10.0).table(["x"])[0]  # on the logarithm
    theta = sampled(small, small.base._replace(prior=table))["theta"]
    mean, _ = quadrature(small, grid_of(small, theta))[1]
    assert abs(batch_z(theta[:, 1], mean)) > 10


def own_target(small, axes):
    """Moments under exp(l^ - s^2/2) p, all subsamples enumerated, by SciPy and differences."""
    theta = np.meshgrid(*axes, indexing="ij")
    star, h = small.theta_star, 1e-5

    def row(i, at):
        eta = small.X[i, 0] * at[0] + small.offset[i]
        return small.weight[i] * LOG_LIK[small.kind](small.y[i], eta, *at[1:])

    remainders, expansion = [0.0] * small.n_units, 0.0
    for i in range(small.n):
        q = row(i, star)
        for j in range(small.dim):
            step = np.eye(small.dim)[j] * h
            q = q + (row(i, star + step) - row(i, star - step)) / (2 * h) * (theta[j] - star[j])
        expansion = expansion + q
        unit = i // small.unit_rows
        remainders[unit] = remainders[unit] + row(i, theta) - q
    total, moments = 0.0, np.zeros((small.dim, 2))
    base = expansion - 0.5 * theta[0] ** 2 - 2.0 * theta[1] ** 2
    n, k = small.n_units, small.k
    logs = []
    for u in itertools.product(range(n), repeat=k):
        d = np.array([remainders[i] for i in u])
        s2 = n**2 / (k * (k - 1)) * ((d - d.mean(axis=0)) ** 2).sum(axis=0)
        logs.append(base + n / k * d.sum(axis=0) - 0.5 * s2)
    top = max(log.max() for log in logs)
    for log in logs:
        mass = np.exp(log - top)
        total += mass.sum()
        moments += [[(mass * t).sum(), (mass * t**2).sum()] for t in theta]
    return moments / total


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gaussian", "student-t, 4 df"])
def test_hmc_ecs_has_its_own_target_with_a_scale(model):
    # Units of ten rows: of single rows, two the same would pull the target far from the data.
    small = Small(
        model=model, n=60, d=1, k=2, order=1, unit_rows=10, seed=2, prior=TIGHT, near_mode=True
    )
    found = sampled(small)
    theta = found["theta"]
    assert found["log_lik_variance"].mean() > 0.03
    moments = own_target(small, grid_of(small, theta))
    for j, (mean, square) in enumerate(moments):
        assert abs(batch_z(theta[:, j], mean)) < 4.5, (small.labels[j], mean)
        assert abs(batch_z(theta[:, j] ** 2, square)) < 4.5, (small.labels[j], square)


PAIRS = 20_000
ROWS = 10


def joint(model, stretch=1.0):
    """z of moments and scores after HMC from (theta, y) of the joint; y stretched if broken."""
    built = BUILDERS[model]()
    shared = {name: priors.lognormal(0.0, 0.5) for name in built.scales}
    built = BUILDERS[model](prior={"*": priors.normal(scale=1.0), **shared})
    rng = np.random.default_rng(7)
    labels = built.labels(["x0"])
    d, p = len(labels), 1 + built.n_scalar
    X = rng.uniform(0.5, 1.5, size=(ROWS, 1))
    certain = allocate_block(ROWS, 1, p)
    certain.design[:] = X.T
    certain.weight[:] = 1.0
    nought, flat = np.zeros(d), np.zeros((d, d))
    table = built.prior_table(labels)
    base = Base(nought, 0.0, nought, flat, np.eye(d), table, built.constants, 1, -1, 1, 0.0, 0.0)
    sub, ahead = allocate_block(0, 1, p), allocate_rows(0, 1)
    none = np.zeros(0, np.int64)
    proposal = allocate_proposal(1, p, 1, np.zeros(1, np.int64), none)
    point, trial = allocate_point(d, 0, 0, p), allocate_point(d, 0, 0, p)
    work, tree = allocate_work(d, 0, p, ROWS), allocate_tree(d, 0, 0, p)
    spread = np.array([1.0] + [0.5] * (d - 1))
    theta, statistics = np.empty((3, d)), np.empty((3, len(SIGNED_STATISTICS)))
    out = np.empty((PAIRS, 3 * d))
    z = spread * rng.standard_normal((PAIRS, d))
    eta = np.empty((p, PAIRS, ROWS))
    eta[0] = z[:, :1] * X[:, 0]
    eta[1:] = z.T[1:, :, None]
    # One call for the rows of all pairs: calls would be half of the time.
    y = built.simulate(eta.reshape(p, -1), rng).reshape(PAIRS, ROWS)
    if stretch != 1.0:
        y = eta[0] + stretch * (y - eta[0])
    for pair in range(PAIRS):
        point.z[:], certain.y[:] = z[pair], y[pair]
        evaluate(built.link, taylor, base, certain, sub, point, work)
        run(
            built.link,
            taylor,
            base,
            certain,
            Buffers(sub, point, trial, proposal, work, tree, start(0.3)),
            Ahead(ahead, none),
            0,
            Dynamics(0.6, 0.2, 0.8, 0.75, 0),
            rng,
            (theta, statistics),
        )
        out[pair] = np.concatenate([theta[-1], theta[-1] ** 2, point.gradient])
    # The gradient of the log joint density in theta has mean zero.
    exact = np.concatenate([nought, spread**2, nought])
    return (out.mean(axis=0) - exact) / (out.std(axis=0, ddof=1) / np.sqrt(PAIRS))


@pytest.mark.slow
@pytest.mark.parametrize("model", [*SEVERAL, "probit"])
def test_hmc_keeps_the_joint_distribution(model):
    assert np.abs(joint(model)).max() < 4.5


@pytest.mark.slow
def test_a_response_with_five_per_cent_more_spread_is_caught():
    assert np.abs(joint("gaussian", stretch=1.05)).max() > 4.5


@pytest.mark.slow
def test_dropping_the_variance_with_a_scale_is_caught():
    small = Small(
        model="gaussian",
        n=60,
        d=1,
        k=2,
        order=1,
        unit_rows=10,
        seed=2,
        prior=TIGHT,
        near_mode=True,
    )
    theta = sampled(small, small.base._replace(variance_factor=0.0))["theta"]
    moments = own_target(small, grid_of(small, theta))
    z = [batch_z(theta[:, j] ** 2, square) for j, (_, square) in enumerate(moments)]
    assert np.abs(z).max() > 4.5
