"""Log prior densities and curvatures of a whole table, against single rows and differences."""

from __future__ import annotations

import numpy as np
import pytest

from streammc import priors
from streammc.numerics.prior import EFFECT, log_prior, outside, prior_curvature, smooth
from streammc.numerics.simplex import dirichlet_rows

PRIORS = {
    "normal": (priors.normal(2.0, location=-1.0), False, 0.4),
    "student_t": (priors.student_t(3.0, 1.0, 0.5), False, 1.3),
    "laplace": (priors.laplace(1.0, 0.7), False, 0.6),
    "uniform": (priors.uniform(-2.0, 5.0), False, 1.2),
    "half_normal": (priors.half_normal(3.0), True, 0.8),
    "half_student_t": (priors.half_student_t(3.0, 10.0), True, 2.9),
    "half_student_t, far below": (priors.half_student_t(3.0, 10.0), True, 0.1),
    "gamma": (priors.gamma(2.0, 0.1), True, 2.0),
    "inverse_gamma": (priors.inverse_gamma(1.5, 4.0), True, 0.9),
    "lognormal": (priors.lognormal(0.5, 1.0), True, 0.2),
    "positive uniform": (priors.uniform(0.5, 4.0), True, 0.3),
    "lkj": (priors.lkj(2.0), 2, 0.4),
}


def row_of(name):
    prior, kind, _ = PRIORS[name]
    return prior.rows(["a"], [kind])


def at(table, theta):
    gradient = np.zeros(len(theta))
    return log_prior(np.asarray(theta, dtype=np.float64), table, gradient), gradient


def test_a_table_has_the_sum_of_its_rows_and_their_derivatives():
    names = [*PRIORS, *PRIORS]  # the same kind twice: no row takes the place of another
    table = np.vstack([row_of(name) for name in names])
    theta = np.array([PRIORS[name][2] for name in names])
    alone = [at(row_of(name), [PRIORS[name][2]]) for name in names]
    total, gradient = at(table, theta)
    assert sum(value for value, _ in alone) == pytest.approx(total, rel=1e-13)
    np.testing.assert_allclose([slope[0] for _, slope in alone], gradient, rtol=1e-13)


@pytest.mark.parametrize("name", PRIORS)
def test_derivatives_are_those_of_the_density(name):
    table, theta = row_of(name), PRIORS[name][2]
    up, down = (at(table, [theta + step])[0] for step in (1e-6, -1e-6))
    assert (up - down) / 2e-6 == pytest.approx(at(table, [theta])[1][0], rel=1e-7, abs=1e-8)


def curvature(table, theta):
    out = np.full(len(theta), np.nan)
    prior_curvature(np.asarray(theta, dtype=np.float64), table, out)
    return out


@pytest.mark.parametrize("name", PRIORS)
def test_the_curvature_is_minus_the_second_derivative(name):
    table, theta = smooth(row_of(name)), PRIORS[name][2]
    up, down = (at(table, [theta + step])[1][0] for step in (1e-6, -1e-6))
    expected = -(up - down) / 2e-6
    assert 0.0 < expected == pytest.approx(curvature(table, [theta])[0], rel=1e-7)


@pytest.mark.parametrize("at", [-800.0, 800.0])
def test_the_curvature_of_a_half_student_t_is_zero_far_away(at):
    assert 0.0 <= curvature(row_of("half_student_t"), [at])[0] < 1e-300


def test_the_curvature_of_log_odds_is_minus_the_second_derivative():
    table = dirichlet_rows([0.5, 2.0])
    theta = np.full(len(table), 0.7)
    for j in range(len(theta)):
        step = np.eye(len(theta))[j] * 1e-6
        up, down = (at(table, theta + s)[1][j] for s in (step, -step))
        assert -(up - down) / 2e-6 == pytest.approx(curvature(table, theta)[j], rel=1e-7)


def test_the_curvature_of_a_student_t_beyond_its_shoulders_is_a_tenth_of_its_mixture():
    df, scale = 3.0, 2.0
    table = priors.student_t(df, 0.0, scale).rows(["a"], [False])
    z = 6.0 / scale
    weight = (df + 1.0) / (scale**2 * (df + z**2))
    assert 0.1 * weight == pytest.approx(curvature(table, [6.0])[0], rel=1e-14)
    up, down = (at(table, [6.0 + step])[1][0] for step in (1e-6, -1e-6))
    assert (up - down) > 0.0  # the density itself is not log-concave there


def test_the_curvature_of_an_effect_is_its_precision_given_its_scale():
    table = np.vstack([np.zeros(5), np.zeros(5)])
    table[0, :2] = EFFECT, 1.0
    table[1] = priors.normal(1.0).rows(["log tau"], [False])[0]
    theta = [0.3, -0.8]
    assert np.exp(1.6) == pytest.approx(curvature(table, theta)[0], rel=1e-14)
    for j in range(2):
        step = np.eye(2)[j] * 1e-6
        up, down = (at(table, theta + s)[0] for s in (step, -step))
        assert (up - down) / 2e-6 == pytest.approx(at(table, theta)[1][j], rel=1e-7)


def test_only_uniform_priors_have_an_outside():
    table = np.vstack([row_of("normal"), row_of("uniform")])
    inside = [(50.0, 1.0), (50.0, -2.0), (50.0, 5.0)]
    assert [False] * 3 == [outside(np.array(theta), table) for theta in inside]
    assert [True] * 2 == [outside(np.array([0.0, end]), table) for end in (-2.001, 5.001)]
