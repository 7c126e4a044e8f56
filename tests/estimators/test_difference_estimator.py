"""The difference estimator, enumerated over every subsample it can draw."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import Small

from streammc.estimators.target import CERTAIN, DENSITY, REST, VARIANCE

THETA = np.array([0.7, -0.9])


def estimates(problem, theta=THETA):
    """Estimate and variance for every subsample of k units, from the production code."""
    out = []
    for units in itertools.product(range(problem.n_units), repeat=problem.k):
        point, _, _ = problem.point_at(theta, np.array(units))
        s = point.scalars
        out.append((s[DENSITY] + 0.5 * s[VARIANCE], s[VARIANCE]))
    return np.array(out)


def log_prior(problem, theta=THETA):
    scale = problem.base.prior[:, 2]
    return float(-0.5 * np.sum((theta / scale) ** 2 + np.log(2 * np.pi * scale**2)))


@pytest.mark.parametrize("model", ["logistic", "poisson"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (1, (2, 5)), (3, ()), (3, (0, 6))])
def test_estimate_is_unbiased_over_all_subsamples(model, order, unit_rows, certain):
    # 7 rows in runs of 3: the last run has one row only.
    problem = Small(model=model, order=order, unit_rows=unit_rows, certain=certain)
    exact = problem.log_lik_rows(THETA).sum() + log_prior(problem)
    assert estimates(problem)[:, 0].mean() == pytest.approx(exact, rel=1e-12)


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
