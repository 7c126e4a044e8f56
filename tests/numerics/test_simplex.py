"""Weights from broken sticks, and their Dirichlet prior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

from streammc.models.base import dirichlet_rows, log_odds_of, weights_of
from streammc.numerics.prior import inside, log_prior, outside, prior_curvature, smooth


def density(table, u):
    gradient = np.zeros(len(u))
    return log_prior(np.array(u), table, gradient), gradient


def test_weights_are_pieces_of_a_stick():
    u = np.array([0.3, -1.0, 2.0])
    v = expit(u)
    expected = [v[0], v[1] * (1 - v[0]), v[2] * (1 - v[0]) * (1 - v[1])]
    np.testing.assert_allclose(expected, weights_of(u), rtol=1e-14)
    np.testing.assert_allclose(u, log_odds_of(weights_of(u)), rtol=1e-13)
    assert np.isfinite(weights_of(np.array([1e4, -1e4]))).all()
    assert np.isfinite(log_odds_of(np.array([1.0, 0.0]))).all()


def test_prior_of_log_odds_is_that_of_dirichlet_weights():
    a, u = [1.5, 2.0, 0.7, 5.0], np.array([0.3, -1.0, 2.0])
    h = 1e-6
    jacobian = np.array(
        [(weights_of(u + h * e) - weights_of(u - h * e)) / (2 * h) for e in np.eye(3)]
    )
    w = weights_of(u)
    expected = stats.dirichlet(a).logpdf(np.append(w, 1 - w.sum()))
    expected += np.linalg.slogdet(jacobian)[1]
    assert density(dirichlet_rows(a), u)[0] == pytest.approx(expected, abs=1e-8)
    assert density(dirichlet_rows(a[::-1]), u)[0] != pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("u", [-800.0, -3.0, 0.0, 0.4, 5.0, 800.0])
def test_beta_density_and_its_derivatives(u):
    table = dirichlet_rows([5.0, 2.0])
    value, gradient = density(table, [u])
    curvature = np.full(1, np.nan)
    prior_curvature(np.array([u]), table, curvature)
    assert np.isfinite([value, gradient[0], curvature[0]]).all()
    h = 2.0**-10
    (above, up), (below, down) = density(table, [u + h]), density(table, [u - h])
    assert gradient[0] == pytest.approx((above - below) / (2 * h), abs=1e-5)
    assert -curvature[0] == pytest.approx((up[0] - down[0]) / (2 * h), abs=1e-5)
    assert not outside(np.array([u]), table)
    np.testing.assert_array_equal(table, smooth(table))
    np.testing.assert_array_equal([u], inside(np.array([u]), table))


def test_beta_density_of_the_log_odds_integrates_to_one():
    table = dirichlet_rows([5.0, 2.0])
    total, _ = integrate.quad(lambda u: np.exp(density(table, [u])[0]), -60.0, 60.0, limit=200)
    assert total == pytest.approx(1.0, abs=1e-9)
    assert density(table, [0.7])[0] == pytest.approx(
        stats.beta(5.0, 2.0).logpdf(expit(0.7)) + stats.logistic.logpdf(0.7), abs=1e-12
    )
