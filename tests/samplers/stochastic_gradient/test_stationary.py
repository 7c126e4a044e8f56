"""The closed forms of the stationary covariance against iterating the chain's moments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streammc.control_variates.certify import compute
from streammc.control_variates.coordinates import covering_draws
from streammc.control_variates.plan.gradient_noise import gradient_noise
from streammc.errors import ConfigError
from streammc.likelihood.blocks import TILE
from streammc.models import gaussian_mean, logistic
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import sghmc, sgld
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.stochastic_gradient.stationary import (
    LARGEST_BIAS,
    Approximation,
    fewest_steps,
    hamiltonian_covariance,
    langevin_covariance,
    longest_step,
    three_digits,
)
from streammc.stores import from_arrays


def approximation(whitened=False):
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    curvature, axes = np.linalg.eigh(root @ root.T + np.eye(3))
    if whitened:
        curvature, axes = np.ones(3), np.eye(3)
    noise = rng.normal(size=(3, 3))
    return Approximation(curvature, axes, noise @ noise.T)


def hessian(at):
    return at.axes @ np.diag(at.curvature) @ at.axes.T


def iterated(at, step, n_steps=0, friction=0.0, estimated=False):
    """The covariance after many iterations, step by step, in the sampler's coordinates."""
    h, d = hessian(at), len(at.curvature)
    covariance = np.eye(2 * d)
    z, q = slice(0, d), slice(d, 2 * d)
    known = np.diag(np.diag(at.noise)) if estimated else np.zeros((d, d))
    for _ in range(3000):
        if not n_steps:
            keep = np.eye(d) - 0.5 * step * h
            more = step * np.eye(d) + 0.25 * step**2 * at.noise
            covariance[z, z] = keep @ covariance[z, z] @ keep.T + more
            continue
        covariance[q], covariance[:, q] = 0.0, 0.0
        covariance[q, q] = np.eye(d)
        for _ in range(n_steps):
            drift, kick = np.eye(2 * d), np.eye(2 * d)
            drift[z, q] = step * np.eye(d)
            kick[q, z], kick[q, q] = -step * h, (1.0 - step * friction) * np.eye(d)
            covariance = kick @ drift @ covariance @ drift.T @ kick.T
            covariance[q, q] += step**2 * (at.noise - known) + 2.0 * step * friction * np.eye(d)
    return at.axes.T @ covariance[z, z] @ at.axes


@pytest.mark.parametrize("whitened", [True, False])
def test_sgld_in_closed_form(whitened):
    at = approximation(whitened)
    found = langevin_covariance(0.3, at)
    np.testing.assert_allclose(iterated(at, 0.3), found, rtol=1e-10)
    if whitened:  # (1 + h v / 4) / (1 - h / 4)
        expected = (1.0 + 0.3 * np.diag(at.noise) / 4.0) / (1.0 - 0.3 / 4.0)
        np.testing.assert_allclose(expected, np.diag(found), rtol=1e-12)


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize(
    ("friction", "estimated"), [(0.0, False), (1.0, False), (1.0, True), (2.0, True)]
)
def test_sghmc_in_closed_form(whitened, friction, estimated):
    at = approximation(whitened)
    assert not estimated or 2.0 * friction > 0.12 * np.diag(at.noise).max()
    found = hamiltonian_covariance(0.12, 7, friction, estimated, at)
    expected = iterated(at, 0.12, 7, friction, estimated)
    np.testing.assert_allclose(expected, found, rtol=1e-9, atol=1e-12)


def test_no_covariance_where_the_steps_are_unstable():
    at = approximation()
    assert math.isinf(at.bias(langevin_covariance(4.0 / at.curvature.max(), at)))
    assert math.isinf(at.bias(hamiltonian_covariance(2.1, 5, 0.0, False, at)))
    assert math.isinf(at.bias(hamiltonian_covariance(0.1, 1, 0.0, False, at)))  # a random walk


def test_bias_is_the_largest_of_any_combination():
    at = approximation()
    covariance = langevin_covariance(0.1, at)
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(20_000, 3))
    chain = np.einsum("ni,ij,nj->n", directions, covariance, directions)
    posterior = (directions**2 / at.curvature).sum(axis=1)
    seen = np.abs(chain / posterior - 1.0).max()
    assert 0.97 * at.bias(covariance) < seen <= at.bias(covariance)


@pytest.mark.parametrize("value", [1.0, 0.0396039, 1.16e-5, 999.9, 0.0020001])
def test_three_digits_are_rounded_down(value):
    rounded = three_digits(value)
    assert rounded <= value < rounded * 1.01
    assert rounded == float(f"{rounded:.3g}")


@pytest.mark.parametrize("n", [301, 2 * TILE + 177])  # one tile of rows, and three
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("unit_rows", [1, 3])
def test_noise_of_a_gradient_is_that_of_all_units(unit_rows, unequal, n):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.3], [0.0, 0.5]])
    data, model = from_arrays(X, np.zeros(n)), gaussian_mean(prior=normal(scale=5.0), dim=2)
    cv = compute(data, model)
    certain, units = np.array([7, 100]), -(-n // unit_rows)
    share = rng.uniform(0.5, 2.0, size=units) if unequal else np.ones(units)
    share = (share / share.mean()).astype(np.float32)
    options = {"unit_rows": unit_rows, "k": 20, "relative": share if unequal else None}
    found = gradient_noise(cv, data, model, order=0, certainty_rows=certain, **options)
    # The gradient of a row is x - mu*; constants do not count, but in the last short unit.
    rows = np.zeros((units * unit_rows, 2))
    expected = np.zeros((2, 2))
    for shift in covering_draws(16, 2, 6) @ cv.factor.T:
        rows[:n] = X - cv.theta_star - shift
        rows[certain] = 0.0
        totals = rows.reshape(-1, unit_rows, 2).sum(axis=1)
        estimates = totals * units / share[:, None]  # of the sum of all, from one unit
        omega = share / units
        centred = estimates * np.sqrt(omega)[:, None]
        mean = totals.sum(axis=0)
        expected += (centred.T @ centred - np.outer(mean, mean)) / 20 / 16
    expected = cv.factor.T @ expected @ cv.factor
    np.testing.assert_allclose(expected, found.covariance, rtol=1e-6)
    assert found.log_lik_variance.min() > 0.1
    nothing = gradient_noise(cv, data, model, order=2, certainty_rows=certain, **options)
    assert np.abs(nothing.covariance).max() < 1e-20 * found.covariance.max()
    assert nothing.log_lik_variance.max() < 1e-20


def decided(sampler, rows=20_000):
    rng = np.random.default_rng(6)
    X = np.c_[np.ones(rows), rng.normal(size=(rows, 2))]
    y = rng.random(rows) < 1 / (1 + np.exp(-X @ [-0.5, 0.6, 0.2]))
    return decide(RunRequest(from_arrays(X, y), logistic(), sampler, None)).plan.predicted


@pytest.mark.parametrize("build", [sgld, sghmc])
@pytest.mark.parametrize("options", [{}, {"control_variate": 1}, {"preconditioner": "none"}])
def test_automatic_steps_have_at_most_one_percent_of_bias(build, options):
    predicted = decided(build(**options))
    assert 0.005 < predicted["variance_bias"] <= 0.01
    ratio = np.array(predicted["variance_ratio"])
    assert np.abs(ratio - 1.0).max() <= predicted["variance_bias"]
    if build is sgld and not options:  # hardly any noise: the same in all directions
        np.testing.assert_allclose(ratio, 1.0 + predicted["variance_bias"], rtol=1e-3)
    worse = {"step_size": 3.0 * predicted["step_size"], **options}
    assert decided(build(**worse))["variance_bias"] > 0.015


@pytest.mark.parametrize("sd", [0.1, 1000.0])
def test_without_a_preconditioner_steps_are_as_long_as_the_posterior_is_wide(sd):
    """In units of its variance they are those with the preconditioner."""
    X = np.random.default_rng(3).normal(size=(60, 1))
    step = {}
    for preconditioner in ("laplace", "none"):
        sampler = sgld(preconditioner=preconditioner, subsample_size=30)
        data, model = from_arrays(sd * X, np.zeros(60)), gaussian_mean([sd], prior=normal(1e4))
        setup = decide(RunRequest(data, model, sampler, None))
        step[preconditioner] = setup.plan.predicted["step_size"]
    variance = setup.cv.posterior_sd()[0] ** 2
    assert step["laplace"] == pytest.approx(step["none"] / variance, rel=0.02)


def test_predicted_variance_of_the_estimate_is_that_of_what_is_subtracted():
    by_order = [decided(sgld(control_variate=order))["variance"] for order in (2, 1, 0, "none")]
    assert by_order == sorted(by_order)
    assert by_order[0] < 0.1 < by_order[1] < 10.0 < by_order[2] < 0.01 * by_order[3]


def test_steps_of_a_trajectory_follow_from_its_length_and_step_size():
    predicted = decided(sghmc(step_size=0.06, trajectory_length=1.2, friction=0.0))
    assert (0.06, 20) == (predicted["step_size"], predicted["n_steps"])
    assert 0.02 < predicted["variance_bias"] < 0.03
    predicted = decided(sghmc(n_steps=6, trajectory_length=1.2))
    assert (pytest.approx(0.2, rel=1e-12), 6) == (predicted["step_size"], predicted["n_steps"])
    assert 7 == decided(sghmc(step_size=0.02, n_steps=7))["n_steps"]


def test_too_many_steps_and_a_noise_estimate_from_one_unit_are_refused():
    with pytest.raises(ConfigError, match="at most 65536 steps"):
        decided(sghmc(step_size=1e-6), rows=500)
    with pytest.raises(ConfigError, match="two units or more"):
        decided(sghmc(noise_estimate="estimated", subsample_size=1), rows=500)


@pytest.mark.parametrize(
    ("step", "n_steps", "variance"), [(0.06, 20, 1.026), (0.02, 60, 1.008), (0.02, 7, 1.166)]
)
def test_variances_that_the_docs_give_for_exact_gradients(step, n_steps, variance):
    at = Approximation(np.ones(1), np.eye(1), np.zeros((1, 1)))
    found = hamiltonian_covariance(step, n_steps, 0.0, False, at)[0, 0]
    assert variance == round(found, 3)
    angle = math.acos(1.0 - 0.5 * step**2)
    exact = math.sin(n_steps * angle) / math.sin((n_steps - 1) * angle)
    assert abs(found / exact - 1.0) < 1e-10


def test_a_quarter_of_a_period_needs_the_fewest_steps():
    at = Approximation(np.ones(1), np.eye(1), np.zeros((1, 1)))

    def needed(length):
        return fewest_steps(
            lambda n: at.bias(hamiltonian_covariance(length / n, n, 0.0, False, at))
        )

    assert (51, 12) == (needed(1.2), needed(math.pi / 2))


def test_the_fewest_steps_are_those_that_no_larger_number_fails():
    beyond = fewest_steps(lambda n: 1.0 if 10 <= n <= 50 else 0.0)
    assert 50 < beyond < 60  # numbers below 10 would do, and 20 would not
    assert 2 == fewest_steps(lambda n: 0.0)


def test_where_no_number_of_steps_will_do_the_best_is_taken():
    assert 28 <= fewest_steps(lambda n: 1.0 + abs(n - 30)) <= 32


def test_steps_do_not_decay_unless_asked_to():
    assert 0.0 == sgld().decay == sghmc().decay


@pytest.mark.parametrize(("bias", "kept"), [(0.0, True), (None, False), (10.0, False)])
def test_a_bias_without_bound_fails_its_check(bias, kept):
    facts = {"predicted_variance_bias": bias, "noise_clipped": None}  # None: without bound
    facts |= {"sampler": "sgld", "decay": 0.0}
    (found,) = (check for check in sgld().checks({"sampling": facts}) if check.meaning)
    assert kept == found.passed == (not found.warning)
    assert [] == sgld().checks({"sampling": {}})


@pytest.mark.parametrize(("longest", "expected"), [(1e3, LARGEST_BIAS), (1e-3, 1e-3)])
def test_the_longest_step_is_that_of_the_largest_bias_or_of_the_bound(longest, expected):
    assert expected == pytest.approx(longest_step(lambda step: step, longest), rel=0.01)
