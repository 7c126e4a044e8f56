"""Runs on posteriors with several modes, or with a prior far from the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from problem_of import problem_of
from scipy import stats

from streammc import registry
from streammc import rng as streams
from streammc.control_variates import compute
from streammc.errors import ModelError
from streammc.models import gaussian, gaussian_mixture, logistic, network
from streammc.priors import half_student_t, normal, uniform
from streammc.runs.job import run_job
from streammc.runs.run_summary import mode_warnings
from streammc.samplers import hmc, hmc_ecs, mh, pt
from streammc.samplers.common.chains import Chains, first_position
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays

NARROW = gaussian({"*": normal(scale=10.0), "sigma": half_student_t(3, 10.0)})


def summary(store, model, sampler=None, **options):
    options = {"draws": 500, "warmup": 500, "seed": 1, **options}
    return run_job(RunRequest(store, model, sampler, **options)).summary


def grid_mean(y):
    """Mean of beta and of sigma under Normal(0, 10) and half-Student-t(3, 10)."""
    beta = np.linspace(-60.0, 200.0, 2601)[:, None]
    log_sigma = np.linspace(0.5, 7.0, 1301)[None]
    s = np.exp(log_sigma)
    square = len(y) * (beta - y.mean()) ** 2 + ((y - y.mean()) ** 2).sum()
    density = -len(y) * log_sigma - 0.5 * square / s**2 - beta**2 / 200.0
    density = density + stats.t.logpdf(s / 10.0, 3) + log_sigma
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    return [(mass * value).sum() for value in (beta, s)]


def test_a_response_far_from_its_prior_gives_the_posterior_and_a_warning():
    y = 170.0 + 7.0 * np.random.default_rng(0).normal(size=30)
    found = summary(from_arrays(np.ones((30, 1)), y), NARROW)
    for entry, mean in zip(found["parameters"].values(), grid_mean(y), strict=True):
        assert abs(entry["mean"] - mean) < 4.5 * entry["mcse_mean"]
        # The mode at the likelihood, near 170 and 7, is a hundred standard deviations away.
        assert entry["mcse_mean"] < 0.1 * entry["sd"]
    assert "in conflict with the likelihood" in found["warnings"][0]


def test_a_large_response_is_drawn_around_its_prior():
    y = 1e5 + np.random.default_rng(0).normal(size=100)
    found = summary(from_arrays(np.ones((100, 1)), y), NARROW)["parameters"]
    sigma = found["sigma"]
    assert abs(found["beta[x0]"]["mean"] - 0.1) < 4.5 * found["beta[x0]"]["mcse_mean"]
    # y - beta is 1e5 in every row: n log sigma + n (1e5 / sigma)^2 / 2, sigma^-3 of the prior.
    log_sigma = np.linspace(11.0, 12.2, 2001)
    density = -103.0 * log_sigma - 50.0 * np.exp(2.0 * (np.log(1e5) - log_sigma))
    mass = np.exp(density - density.max())
    assert abs(sigma["mean"] - mass @ np.exp(log_sigma) / mass.sum()) < 4.5 * sigma["mcse_mean"]


def test_more_columns_than_rows_give_the_posterior():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 4)), np.array([4.0, -20.0, 9.0])
    prior = {"*": normal(scale=10.0), "sigma": half_student_t(3, 2.0)}
    found = summary(from_arrays(X, y), gaussian(prior), hmc(), draws=2000)["parameters"]
    log_sigma = np.linspace(-9.0, 6.0, 1501)
    density, beta = [], []
    for s in np.exp(log_sigma):
        covariance = 100.0 * X @ X.T + s * s * np.eye(3)
        density.append(stats.multivariate_normal.logpdf(y, np.zeros(3), covariance))
        density[-1] += stats.t.logpdf(s / 2.0, 3) + np.log(s)
        beta.append(100.0 * X.T @ np.linalg.solve(covariance, y))
    mass = np.exp(np.array(density) - max(density))
    mass /= mass.sum()
    expected = [*(mass @ np.array(beta)), mass @ np.exp(log_sigma)]
    for entry, mean in zip(found.values(), expected, strict=True):
        assert abs(entry["mean"] - mean) < 4.5 * entry["mcse_mean"]
        assert entry["mcse_mean"] < 0.1 * entry["sd"]


@pytest.mark.parametrize("y", [[3.0], [1e5], [-1e-3]])
def test_one_row_is_drawn_or_warned_about(y):
    found = summary(from_arrays(np.ones((1, 1)), np.array(y)), NARROW)
    assert any("fit the response without error" in line for line in found["warnings"])
    assert np.isfinite([entry["mean"] for entry in found["parameters"].values()]).all()


def test_a_constant_response_is_refused_before_the_run(tmp_path):
    with pytest.raises(ModelError, match="inverse_gamma"):
        summary(from_arrays(np.ones((9, 1)), np.full(9, 3.0)), NARROW, path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def two_components():
    rng = np.random.default_rng(0)
    x = np.concatenate([centre + rng.normal(size=40) for centre in (-3.0, 3.0)])[:, None]
    prior = {"mu[0, x0]": normal(location=-0.1, scale=3.0), "mu[1, x0]": normal(scale=3.0)}
    return from_arrays(x), gaussian_mixture(prior=prior)


@pytest.mark.parametrize("sampler", [hmc(), mh()])
def test_chains_start_in_every_mode_so_that_r_hat_shows_them(sampler):
    found = summary(*two_components(), sampler)
    assert max(entry["r_hat"] for entry in found["parameters"].values()) > 1.5
    assert any("another mode of comparable evidence" in line for line in found["warnings"])
    assert any("a gaussian-mixture may have several modes" in line for line in found["warnings"])


def starts(sampler, model, store, chains=64):
    cv = compute(store, model)
    team = Chains(problem_of(store, model, cv, None, sampler), seed=1, chains=chains)
    try:
        team.initialise()
        z = [kernel.get_state()[0] for kernel in team.kernels]
    finally:
        team.close()
    return np.array([state.get("point_z", state.get("z")) for state in z])


@pytest.mark.parametrize(("sampler", "spread"), [(hmc(), 2.0), (mh(), 2.0), (hmc(spread=0.5), 0.5)])
def test_chains_that_evaluate_every_row_start_dispersed(sampler, spread):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    store = from_arrays(X, (rng.random(300) < 0.5).astype(float))
    z = starts(sampler, logistic(), store)
    sd = np.sqrt(np.mean(z**2))
    assert abs(sd - spread) < 4.5 * spread / np.sqrt(2.0 * z.size)
    # Walls that the data push against are no reason to give up.
    walled = logistic(uniform(-0.01, 0.01))
    assert np.isfinite(starts(sampler, walled, store)).all()


def test_chains_start_at_the_other_modes_in_turn():
    store, model = two_components()
    z = starts(hmc(), model, store, chains=4)
    other = compute(store, model).other_modes()
    np.testing.assert_array_equal(z[1], other[0])
    np.testing.assert_array_equal(z[3], other[0])
    assert np.abs(z[[0, 2]]).max() < 10.0 < np.abs(z[[1, 3]]).max()


def test_first_position_of_a_subsampling_chain_is_a_laplace_draw():
    drawn = first_position(streams.stream(1, 0, streams.Role.KERNEL), 3, 0)
    expected = streams.stream(1, 0, streams.Role.KERNEL).standard_normal(3)
    np.testing.assert_array_equal(drawn, expected)


def test_models_with_components_have_a_line_unless_the_sampler_crosses():
    for model in (gaussian_mixture(), network([2])):
        for sampler in (hmc(), mh(), hmc_ecs()):
            (line,) = mode_warnings(model, sampler)
            assert "--sampler pt" in line
        assert [] == mode_warnings(model, pt())
    assert [] == mode_warnings(logistic(), hmc())
    assert registry.sampler("pt")().crosses_modes
