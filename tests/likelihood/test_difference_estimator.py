"""The difference estimator, enumerated over every subsample it can draw."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import SEVERAL, Small
from scipy import stats

from streammc.likelihood.drawn_units import UnitDesign
from streammc.likelihood.target import CERTAIN, DENSITY, REST, VARIANCE

THETA = np.array([0.7, -0.9])
SHARED = np.array([0.4, 1.1])
"""Logarithms of shared parameters."""


def theta_of(problem):
    return np.append(THETA, SHARED)[: problem.dim]


def estimates(problem, theta=THETA):
    """Estimate and variance for every subsample of k units, from the production code."""
    out = []
    for units in itertools.product(range(problem.n_units), repeat=problem.k):
        point, _, _ = problem.point_at(theta, np.array(units))
        s = point.scalars
        out.append((s[DENSITY] + 0.5 * s[VARIANCE], s[VARIANCE]))
    return np.array(out)


def chances(problem):
    """The probability of each of those subsamples."""
    return np.array(
        [
            np.prod(problem.omega[list(units)])
            for units in itertools.product(range(problem.n_units), repeat=problem.k)
        ]
    )


def log_prior(problem, theta=THETA):
    """Normal(0, 10); half-Student-t(3, 10) on sigma and phi, Gamma(2, 0.1) on nu."""
    total = stats.norm(0, 10).logpdf(theta[: problem.d]).sum()
    for label, x in zip(problem.labels[problem.d :], theta[problem.d :], strict=True):
        prior = stats.gamma(2, scale=10) if label == "nu" else stats.t(3, 0, 10)
        total += prior.logpdf(np.exp(x)) + x + (0.0 if label == "nu" else np.log(2))
    return float(total)


@pytest.mark.parametrize("model", ["logistic", "poisson"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (1, (2, 5)), (3, ()), (3, (0, 6))])
def test_estimate_is_unbiased_over_all_subsamples(model, order, unit_rows, certain):
    # 7 rows in runs of 3: the last run has one row only.
    problem = Small(model=model, order=order, unit_rows=unit_rows, certain=certain)
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    assert estimates(problem)[:, 0].mean() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("model", [*SEVERAL, "probit", "binomial"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, (2, 5)), (3, (0, 6))])
def test_estimate_of_every_family_is_unbiased(model, order, unit_rows, certain):
    problem = Small(model=model, order=order, unit_rows=unit_rows, certain=certain)
    theta = theta_of(problem)
    exact = problem.log_lik_rows(theta).sum() + log_prior(problem, theta)
    assert estimates(problem, theta)[:, 0].mean() == pytest.approx(exact, rel=1e-12)


OMEGA = {1: [0.2, 3.0, 0.2, 0.2, 1.0, 0.4, 2.0], 3: [0.3, 2.2, 0.5]}
"""By rows of a unit: probabilities over the uniform one."""


@pytest.mark.parametrize("model", ["logistic", "poisson", "gaussian", "binomial"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (1, (2, 5)), (3, ()), (3, (0, 6))])
def test_estimate_and_variance_are_unbiased_under_unequal_probabilities(
    model, order, unit_rows, certain
):
    options = {"order": order, "unit_rows": unit_rows, "certain": certain}
    problem = Small(model=model, relative=OMEGA[unit_rows], **options)
    theta = theta_of(problem)
    exact = problem.log_lik_rows(theta).sum() + log_prior(problem, theta)
    found, p = estimates(problem, theta), chances(problem)
    assert p.sum() == pytest.approx(1.0, rel=1e-12)
    assert p @ found[:, 0] == pytest.approx(exact, rel=1e-12)
    variance = p @ (found[:, 0] - exact) ** 2
    assert p @ found[:, 1] == pytest.approx(variance, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("unit_rows", [1, 3])
def test_estimate_is_biased_if_unequal_probabilities_are_forgotten(unit_rows):
    problem = Small(order=1, unit_rows=unit_rows, relative=OMEGA[unit_rows])
    problem.design = UnitDesign(problem.n, unit_rows, problem.k, problem.k)
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    found = estimates(problem)
    assert abs(chances(problem) @ found[:, 0] - exact) > 0.1
    assert (
        abs(chances(problem) @ found[:, 1] / np.cov(found[:, 0], aweights=chances(problem)) - 1)
        > 0.05
    )


def test_gradient_under_unequal_probabilities_matches_central_differences():
    problem = Small(unit_rows=3, certain=(0, 6), order=1, relative=OMEGA[3])
    units = np.array([0, 2])
    point, _, _ = problem.point_at(THETA, units)
    gradient = np.linalg.solve(problem.base.factor.T, point.gradient)
    for j in range(2):
        step = np.eye(2)[j] * 1e-5
        up = problem.point_at(THETA + step, units)[0].scalars[DENSITY]
        down = problem.point_at(THETA - step, units)[0].scalars[DENSITY]
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-6)


def test_estimate_is_biased_if_the_mixed_derivative_is_left_out():
    problem = Small(model="gaussian", order=2)
    wrong = problem.base.hessian.copy()
    wrong[:2, 2] = wrong[2, :2] = 0.0
    problem.base = problem.base._replace(hessian=wrong)
    theta = theta_of(problem)
    exact = problem.log_lik_rows(theta).sum() + log_prior(problem, theta)
    assert abs(estimates(problem, theta)[:, 0].mean() - exact) > 1e-3


def test_estimate_is_unbiased_in_any_row_order():
    problem = Small(unit_rows=3, certain=(1,))
    order = np.random.default_rng(0).permutation(problem.n)
    for name in ("X", "y", "offset", "weight"):
        setattr(problem, name, getattr(problem, name)[order].copy())
    problem.certain = problem.expanded(problem.rows(problem.certain_rows), problem.order)
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    assert estimates(problem)[:, 0].mean() == pytest.approx(exact, rel=1e-12)


def test_estimate_is_biased_if_certainty_rows_are_sampled_as_well():
    problem = Small(certain=(2, 5))
    problem.unit_rows_of = lambda units: problem.rows(problem.unit_index(units))
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    assert abs(estimates(problem)[:, 0].mean() - exact) > 1e-3


@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (3, (0, 6))])
def test_variance_estimate_is_unbiased_for_the_variance(unit_rows, certain):
    problem = Small(unit_rows=unit_rows, certain=certain, k=2, order=1)
    values = estimates(problem)
    assert values[:, 1].mean() == pytest.approx(values[:, 0].var(), rel=1e-10)


def test_variance_as_if_rows_were_independent_is_wrong_for_runs():
    problem = Small(unit_rows=3, order=1)
    values = estimates(problem)
    rows = problem.remainder_rows(THETA)
    independent = problem.n**2 * rows.var() / (problem.k * problem.unit_rows)
    assert abs(independent / values[:, 0].var() - 1) > 0.05


@pytest.mark.parametrize("model", ["logistic", "poisson"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_unit_totals_match_remainders_computed_in_numpy(model, order):
    problem = Small(model=model, order=order, unit_rows=2, certain=(3,))
    units = np.array([1, 3])
    point, _, _ = problem.point_at(THETA, units)
    rows = np.append(problem.remainder_rows(THETA), 0.0)
    rows[3] = 0.0
    expected = rows[problem.unit_index(units).clip(max=7)].reshape(2, 2).sum(axis=1)
    np.testing.assert_allclose(point.totals, expected, rtol=1e-10, atol=1e-13)
    assert point.scalars[CERTAIN] == pytest.approx(problem.remainder_rows(THETA)[3], rel=1e-10)


@pytest.mark.parametrize("model", ["logistic", "poisson"])
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (3, (0, 6))])
def test_gradient_matches_central_differences(model, unit_rows, certain):
    problem = Small(model=model, unit_rows=unit_rows, certain=certain, order=1)
    units = np.array([0, 2])
    point, _, _ = problem.point_at(THETA, units)
    gradient = np.linalg.solve(problem.base.factor.T, point.gradient)
    for j in range(2):
        step = np.eye(2)[j] * 1e-5
        up = problem.point_at(THETA + step, units)[0].scalars[DENSITY]
        down = problem.point_at(THETA - step, units)[0].scalars[DENSITY]
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("model", [*SEVERAL, "probit", "binomial"])
def test_gradient_of_every_family_matches_central_differences(model):
    problem = Small(model=model, unit_rows=3, certain=(0, 6), order=1)
    theta, units = theta_of(problem), np.array([0, 2])
    point, _, _ = problem.point_at(theta, units)
    gradient = np.linalg.solve(problem.base.factor.T, point.gradient)
    for j in range(problem.dim):
        step = np.eye(problem.dim)[j] * 1e-5
        up = problem.point_at(theta + step, units)[0].scalars[DENSITY]
        down = problem.point_at(theta - step, units)[0].scalars[DENSITY]
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_gradient_of_more_columns_than_are_summed_in_one_sweep_matches_central_differences():
    problem = Small(d=5, n=9, order=1)
    theta, units = problem.theta_star + 0.1, np.array([0, 2, 7])
    gradient = np.linalg.solve(problem.base.factor.T, problem.point_at(theta, units)[0].gradient)
    for j, step in enumerate(np.eye(5) * 1e-5):
        up, down = (problem.point_at(theta + s, units)[0].scalars[DENSITY] for s in (step, -step))
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_gradient_goes_through_the_variance():
    problem = Small(order=1)
    units = np.array([0, 2])
    full = problem.point_at(THETA, units)[0]
    without = problem.point_at(THETA, units, problem.base._replace(variance_factor=0.0))[0]
    assert full.scalars[VARIANCE] > 0.1
    assert np.abs(full.gradient - without.gradient).max() > 1e-2


def test_all_rows_certain_is_the_full_likelihood():
    problem = Small(order=2, certain=range(7))
    point, _, _ = problem.point_at(THETA, np.array([1, 4]))
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    assert point.scalars[REST] == pytest.approx(exact, rel=1e-12)
    assert point.scalars[VARIANCE] == 0.0
