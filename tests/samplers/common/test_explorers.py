"""The inner kernels against the same transitions in NumPy, random numbers given."""

from __future__ import annotations

import numpy as np
import pytest
from ladders import problem
from problems import Small
from scipy import stats

from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import f8, jit, vector
from streammc.priors import normal
from streammc.samplers import pt
from streammc.samplers.common.proposals import allocate_trial, prior_at
from streammc.samplers.tempering.ladder import (
    EVALUATED,
    EXPLORERS,
    LOG_LIK,
    LOG_PRIOR,
    STALE,
    allocate_replicas,
)
from streammc.samplers.tempering.parallel_kernel import ParallelKernel

D, N, SCALE = 3, 25, 1.7
FACTOR = np.array([[0.5, 0.0, 0.0], [0.2, 0.4, 0.0], [-0.1, 0.3, 0.6]])
STAR = np.array([0.1, -0.2, 0.3])


class Written:
    """A linear regression of unit variance at one level, in NumPy."""

    def __init__(self, power, prior_power):
        rng = np.random.default_rng(4)
        self.X = rng.normal(size=(N, D))
        self.y = self.X @ [0.5, -0.5, 0.2] + rng.normal(size=N)
        self.power, self.prior_power = power, prior_power

    def parts(self, z):
        theta = STAR + FACTOR @ z
        residual = self.y - self.X @ theta
        log_lik = -0.5 * residual @ residual - 0.5 * N * np.log(2.0 * np.pi)
        prior = -0.5 * theta @ theta / SCALE**2 - D * np.log(SCALE * np.sqrt(2.0 * np.pi))
        slope = self.power * self.X.T @ residual - self.prior_power * theta / SCALE**2
        return log_lik, prior, FACTOR.T @ slope

    def density(self, z):
        log_lik, prior, _ = self.parts(z)
        return self.power * log_lik + self.prior_power * prior

    def random_walk(self, z, draws, step):
        new = z + step * draws[:D]
        return new, min(1.0, np.exp(self.density(new) - self.density(z)))

    def hmc(self, z, draws, step, n_steps, jitter):
        step = step * (1.0 + jitter * (2.0 * draws[D + 1] - 1.0))
        position, momentum = z.copy(), draws[:D].copy()
        energy = 0.5 * momentum @ momentum - self.density(position)
        for _ in range(n_steps):
            momentum = momentum + 0.5 * step * self.parts(position)[2]
            position = position + step * momentum
            momentum = momentum + 0.5 * step * self.parts(position)[2]
        new = 0.5 * momentum @ momentum - self.density(position)
        return position, min(1.0, np.exp(energy - new))


@pytest.mark.parametrize(("power", "prior_power"), [(1.0, 1.0), (0.3, 1.0), (0.3, 0.6)])
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_transition_equals_the_numpy_reference(explorer, power, prior_power):
    written = Written(power, prior_power)
    options = pt(n_levels=1, explorer=explorer, step_size=0.35, n_steps=5, jitter=0.2)
    given = problem(options, written.X, written.y, prior=normal(SCALE))
    base = given.base._replace(theta_star=STAR, factor=FACTOR)
    kernel = ParallelKernel(given, 1, 0)
    ladder = kernel.ladder
    ladder.power[0], ladder.prior_power[0] = power, prior_power
    replicas, trial = allocate_replicas(1, D), allocate_trial(D, given.n_predictors)
    rng = np.random.default_rng(7)
    moved, partial = 0, 0
    for _ in range(40):
        before = replicas.z[0].copy()
        draws = np.r_[rng.standard_normal(D), 1.0 - rng.random(2)]
        found = EXPLORERS[explorer](
            given.link, given.joint, base, given.full, ladder, 0, replicas, 0, draws, trial
        )
        if explorer == "hmc":
            new, expected = written.hmc(before, draws, 0.35, 5, 0.2)
        else:
            new, expected = written.random_walk(before, draws, 0.35)
        assert found == pytest.approx(expected, abs=1e-10)
        accepted = draws[D] <= expected
        np.testing.assert_allclose(replicas.z[0], new if accepted else before, atol=1e-12)
        log_lik, prior, _ = written.parts(replicas.z[0])
        known = replicas.scalars[0, [LOG_LIK, LOG_PRIOR, STALE]]
        np.testing.assert_allclose(known, [log_lik, prior, 0.0], atol=1e-10)
        moved += accepted
        partial += 0.01 < expected < 0.99
    assert 5 < moved < 40
    assert partial > 5
    looks = 40 * (5 if explorer == "hmc" else 1) + 1
    assert looks * N == replicas.scalars[0, EVALUATED]


@pytest.mark.parametrize("explorer", EXPLORERS)
def test_trajectory_that_overflows_is_rejected(explorer):
    written = Written(1.0, 1.0)
    options = pt(n_levels=1, explorer=explorer, step_size=1e200, n_steps=3, jitter=0.0)
    given = problem(options, written.X, written.y, prior=normal(SCALE))
    ladder = ParallelKernel(given, 1, 0).ladder
    replicas, trial = allocate_replicas(1, D), allocate_trial(D, given.n_predictors)
    draws = np.r_[np.ones(D), 1e-300, 0.5]
    found = EXPLORERS[explorer](
        given.link, given.joint, given.base, given.full, ladder, 0, replicas, 0, draws, trial
    )
    assert found == 0.0 if explorer == "random-walk" else np.isnan(found)
    np.testing.assert_array_equal(0.0, replicas.z[0])


@pytest.mark.parametrize("factor", [np.array([[2.0, 0.0], [0.5, 1.0]]), np.zeros((0, 0))])
def test_the_prior_has_its_gradient_in_the_coordinates_of_the_position(factor):
    base = Small(n=4).base._replace(factor=factor)
    z, (theta, gradient, slope) = np.array([0.3, -0.8]), np.full((3, 2), np.nan)
    value = at_prior(base, z, theta, gradient, slope)
    shape = factor if len(factor) else np.eye(2)
    expected = base.theta_star + shape @ z
    np.testing.assert_allclose(expected, theta, rtol=1e-14)
    assert stats.norm(scale=10.0).logpdf(expected).sum() == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(shape.T @ (-expected / 100.0), slope, rtol=1e-13)


@jit(f8(BASE_TYPE, vector, vector, vector, vector))
def at_prior(base, z, theta, gradient, slope):
    return prior_at(base, z, theta, gradient, slope)
