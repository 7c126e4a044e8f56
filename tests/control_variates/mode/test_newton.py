from __future__ import annotations

import numpy as np
import pytest
from passes import table
from scipy.optimize import minimize

from streammc import from_arrays, models
from streammc.control_variates import compute
from streammc.control_variates.mode.newton import (
    NotPositiveDefiniteError,
    in_memory,
    maximise,
    posterior_factor,
)
from streammc.errors import ModelError
from streammc.likelihood.data_views import gather
from streammc.priors import flat, laplace, normal, student_t, uniform


def solve(rows, start=None):
    store = rows.store
    labels = rows.model.labels(store.feature_names)
    prior = rows.model.prior.table(labels)
    everything = gather(store, np.arange(len(rows.y), dtype=np.int64))
    theta = rows.model.start(everything) if start is None else start
    return maximise(in_memory(rows.model, everything, 1.0), theta, prior)


@pytest.mark.parametrize("kind", ["logistic", "poisson", "gaussian", "gaussian-2"])
def test_mode_is_the_one_scipy_finds(kind):
    rows = table(kind, n=600, prior=normal(scale=0.5, location=0.2))
    point = solve(rows)

    def minus(theta):
        return -rows.log_lik(theta).sum() + 0.5 * np.sum(((theta - 0.2) / 0.5) ** 2)

    found = minimize(minus, np.zeros(len(point.theta)), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(point.theta, found.x, atol=2e-5)
    assert point.decrement < 1e-5


def test_a_poor_start_is_damped_to_the_same_mode():
    rows = table("poisson", n=500)
    np.testing.assert_allclose(
        solve(rows, np.array([6.0, -3.0, 3.0, 2.0])).theta, solve(rows).theta, atol=1e-6
    )


def test_factor_is_lower_triangular_and_inverts_the_precision():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(9, 6)) * 10.0 ** np.arange(-6, 6, 2)
    precision = A.T @ A
    factor = posterior_factor(precision)
    np.testing.assert_array_equal(factor, np.tril(factor))
    scale = np.sqrt(np.diag(precision))
    identity = factor.T @ precision @ factor
    np.testing.assert_allclose(identity, np.eye(6), atol=1e-9)
    assert np.all(scale > 0)


@pytest.mark.parametrize("broken", [np.diag([1.0, 0.0]), np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_a_singular_precision_is_refused(broken):
    with pytest.raises(NotPositiveDefiniteError):
        posterior_factor(broken)


def test_collinear_columns_are_refused_under_a_flat_prior_only():
    rows = table(n=300)
    rows.X[:, 3] = 2.0 * rows.X[:, 2]
    assert solve(rows).decrement < 1e-5
    rows.model = table(prior=flat()).model
    with pytest.raises(ModelError, match="flat prior"):
        solve(rows)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_rows_than_parameters_work_under_a_proper_prior(n):
    rows = table(n=n, q=5)
    rows.weight[:] = 1.0
    assert solve(rows).decrement < 1e-5


def test_mode_is_found_with_columns_of_very_different_scales():
    rows = table(n=800, prior=flat())
    plain = solve(rows).theta
    scale = np.array([1.0, 1e-7, 1e7, 1.0])
    rows.X = rows.X * scale
    np.testing.assert_allclose(solve(rows).theta * scale, plain, rtol=1e-6)


def test_a_kinked_prior_has_a_mode_where_the_gradient_is_not_zero():
    # The data hardly move the second coefficient: the density has its kink at its mode.
    rows = table(n=40, q=3, prior=laplace(scale=0.05))
    point = solve(rows)
    assert point.decrement < 1e-5
    assert np.abs(point.theta).max() < 0.05


@pytest.mark.parametrize("end", [(0.0, 0.001), (-9.0, -2.0), (3.0, 4.0)])
def test_a_mode_under_a_uniform_prior_is_inside_its_walls(end):
    point = solve(table(n=400, prior=uniform(*end)))
    assert point.decrement < 1e-5
    assert (point.theta > end[0]).all()
    assert (point.theta < end[1]).all()


def test_centre_at_a_wall_of_the_prior_is_the_posterior_mean():
    # exp(g theta) below the wall: the mean is 1 / g before it and so is the sd.
    slope = 50.0

    def objective(theta):
        return slope * theta[0], np.array([slope]), np.zeros((1, 1))

    point = maximise(objective, np.array([5.0]), uniform(-10.0, 1.0).table(["b"]))
    assert point.theta[0] == pytest.approx(1.0 - 1.0 / slope, rel=4e-3)
    assert point.factor[0, 0] == pytest.approx(1.0 / slope, rel=4e-3)


def test_collinear_columns_work_under_every_proper_prior():
    for prior in (laplace(scale=1.0), student_t(3.0, scale=1.0), uniform(-5.0, 5.0)):
        rows = table(n=500, q=3, prior=prior)
        rows.X[:, 2] = rows.X[:, 1]
        assert solve(rows).decrement < 1e-5


def test_derivatives_with_a_small_error_do_not_make_the_search_crawl():
    seen = []

    def objective(theta):  # as of a quadrature with too few nodes: not quite the gradient
        seen.append(theta)
        slope = -1000.0 * theta + 0.05 * np.sin(3.0 * theta + 1.0) + 0.3
        return -500.0 * float(theta @ theta), slope, -1000.0 * np.eye(1)

    point = maximise(objective, np.array([2.0]), normal(scale=10.0).table(("a",)))
    assert len(seen) < 80
    assert abs(point.theta[0]) * np.sqrt(1000.0) < 0.1


@pytest.mark.parametrize(("n", "outlier"), [(100, 1e6), (200, 1e6), (500, 1e9)])
def test_far_outliers_of_the_response_do_not_end_the_search(n, outlier):
    """Newton's step from there may leave for a scale of e^-12, where no curvature is left."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    y = X @ [1.0, 2.0] + rng.standard_t(4, size=n)
    y[:5] = outlier
    store, model = from_arrays(X, y), models.student_t()
    found = compute(store, model)
    near = compute(store, model, theta_star=[1.0, 2.0, 0.0, 0.0])
    np.testing.assert_allclose(found.theta_star, near.theta_star, atol=1e-4)
    sd = np.sqrt(np.diag(found.factor @ found.factor.T))
    assert (np.abs(found.theta_star - [1.0, 2.0, 0.0, 0.0])[:2] < 4.5 * sd[:2]).all()
