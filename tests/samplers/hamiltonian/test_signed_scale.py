"""Group effects of little variation: positions on the real line of tau, down to 0."""

from __future__ import annotations

import numpy as np
import pytest
from problems import batch_z

import streammc
from streammc import from_arrays
from streammc.control_variates import compute
from streammc.control_variates.plan.subsample_plan import plan
from streammc.likelihood.data_views import by_group
from streammc.likelihood.remainder_pass import remainder_sums
from streammc.models import logistic
from streammc.numerics.prior import log_prior
from streammc.priors import half_normal, normal
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.hamiltonian.problem import full_data, subsampled

PRIOR = {"beta[Intercept]": normal(scale=2.5), "tau[group]": half_normal(1.0)}


def table(tau):
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(300), 40)
    eta = -0.5 + (tau * rng.normal(size=300))[group]
    y = (rng.random(len(group)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    X = np.ones((len(group), 1))
    return from_arrays(X, y, groups=group, feature_names=["Intercept"])


def exact(data, cv):
    """The posterior on a grid of intercept and tau: the grid (2, ...) and its mass."""
    groups, model = by_group(data, logistic(prior=PRIOR))
    beta = cv.theta_star[0] + np.linspace(-4.5, 4.5, 13) * cv.posterior_sd()[0]
    tau = np.linspace(1e-3, 0.4, 200)
    grid = np.stack(np.meshgrid(beta, tau, indexing="ij")).reshape(2, -1)
    theta = np.column_stack([grid[0], np.log(grid[1])])
    prior = model.prior_table(cv.labels)
    log = remainder_sums(groups, model, cv.theta_star, -1, theta) - theta[:, 1]
    log += [log_prior(each, prior, np.zeros(2)) for each in theta]
    mass = np.exp(log - log.max())
    return grid, mass / mass.sum()


@pytest.mark.parametrize("sampler", [hmc_ecs(), pytest.param(hmc(), marks=pytest.mark.slow)])
def test_draws_of_a_small_deviation_are_those_of_the_posterior(sampler):
    data, model = table(0.08), logistic(prior=PRIOR)
    cv = compute(data, model)
    (beta, tau), mass = exact(data, cv)
    run = streammc.sample(
        data, model, sampler=sampler, control_variates=cv, draws=4000, chains=2, seed=1, audit=False
    )
    draws = run["posterior"]
    found = draws["tau"].values.ravel(), draws["beta"].values.ravel()
    assert found[0].min() < 0.005 < 0.02 < mass[tau < 0.03].sum()
    pairs = [
        (found[0], tau), (found[0] ** 2, tau**2), (found[0] < 0.03, tau < 0.03), (found[1], beta),
    ]  # fmt: skip
    for mine, theirs in pairs:
        assert abs(batch_z(mine.astype(float), float(mass @ theirs))) < 4.5
    # Broken partner: the density of log tau taken for that of tau.
    wrong = mass * tau / (mass @ tau)
    assert abs(batch_z(found[0], float(wrong @ tau))) > 4.5


@pytest.mark.parametrize(("tau", "line"), [(0.08, True), (1.0, False)])
def test_real_line_is_for_deviations_that_may_be_zero(tau, line):
    data, model = table(tau), logistic(prior=PRIOR)
    cv = compute(data, model)
    groups, model = by_group(data, model)
    sampled = subsampled(groups, model, cv, plan(cv, groups, model), hmc_ecs())
    for problem in (sampled, full_data(groups, model, cv, hmc())):
        assert len(problem.base.lines) == line
        assert (len(problem.base.mode) > 0) == line
