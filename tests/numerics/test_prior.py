"""Log prior densities and curvatures of a whole table, against single rows and differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc import priors
from streammc.models.base import dirichlet_rows
from streammc.numerics.prior import (
    COLUMNS,
    EFFECT,
    LOCATION,
    SHAPE,
    draw_prior,
    joint_normal,
    log_prior,
    outside,
    part_of,
    prior_curvature,
    prior_precision,
    put,
    smooth,
)
from streammc.priors.densities import JointNormal

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


@pytest.mark.parametrize("name", ["uniform", "positive uniform"])
def test_a_smooth_uniform_prior_falls_to_0_at_its_ends(name):
    table, theta = row_of(name), PRIORS[name][2]
    fall = np.log(theta - table[0, LOCATION]) + np.log(table[0, SHAPE] - theta)
    found = at(smooth(table), [theta])[0]
    assert at(table, [theta])[0] + fall == pytest.approx(found, rel=1e-13)


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


def joint_table():
    """Return a table of two jointly normal components around one that is not, and their density."""
    covariance = np.array([[4.0, 1.5], [1.5, 1.0]])
    labels = ["a", "tau", "b"]
    table = np.hstack([np.zeros((3, COLUMNS)), np.zeros((3, 3))])
    table[1, :COLUMNS] = priors.half_normal(3.0).rows(["tau"], [True])[0]
    JointNormal(("a", "b"), np.array([1.0, -2.0]), covariance).write(table, labels)
    return table, stats.multivariate_normal([1.0, -2.0], covariance)


@pytest.mark.parametrize("beyond", [-2.1, 5.1])
def test_a_uniform_prior_has_no_density_beyond_its_ends(beyond):
    assert -np.inf == at(row_of("uniform"), [beyond])[0]


def test_jointly_normal_components_have_the_density_of_their_covariance():
    table, exact = joint_table()
    theta = np.array([0.3, 0.8, 0.5])
    alone = at(row_of("half_normal"), theta[1:2])
    value, gradient = at(table, theta)
    assert exact.logpdf(theta[[0, 2]]) + alone[0] == pytest.approx(value, rel=1e-13)
    slope = -np.linalg.solve(exact.cov, theta[[0, 2]] - exact.mean)
    np.testing.assert_allclose([slope[0], alone[1][0], slope[1]], gradient, rtol=1e-13)
    precision = prior_precision(theta, table)
    np.testing.assert_allclose(np.linalg.inv(exact.cov), precision[np.ix_([0, 2], [0, 2])])
    assert curvature(row_of("half_normal"), theta[1:2])[0] == precision[1, 1]
    assert 0 == np.count_nonzero(precision[1, [0, 2]])


def test_part_of_a_table_is_the_density_given_the_locations_of_the_rest():
    table, exact = joint_table()
    part = part_of(table, np.array([1, 2]))
    theta = np.array([0.8, 0.5])
    given = stats.norm(-2.0, np.linalg.inv(np.linalg.inv(exact.cov)[1:, 1:])[0, 0] ** 0.5)
    values = [at(part, [theta[0], b])[0] for b in (theta[1], -2.0)]
    assert given.logpdf(theta[1]) - given.logpdf(-2.0) == pytest.approx(values[0] - values[1])


def test_a_row_that_is_put_into_a_table_is_independent_of_the_others():
    table, _ = joint_table()
    put(table, np.array([0]), priors.normal(0.5).rows(["a"], [False]))
    low, high = (at(table, [a, 0.8, 0.5])[0] - at(table, [a, 0.8, 0.0])[0] for a in (0.0, 9.0))
    assert low == pytest.approx(high, rel=1e-12)


def test_draws_of_jointly_normal_components_have_their_covariance():
    table, exact = joint_table()
    streams = [np.random.default_rng(seed) for seed in range(3)]
    n = 40_000
    drawn = draw_prior(table, n, streams)[:, [0, 2]]
    z = np.linalg.solve(np.linalg.cholesky(exact.cov), (drawn - exact.mean).T)
    for moment, se in ((z.mean(axis=1), 1.0), ((z**2).mean(axis=1) - 1.0, 2**0.5)):
        assert (np.abs(moment) < 4.5 * se / n**0.5).all()
    assert abs((z[0] * z[1]).mean()) < 4.5 / n**0.5
    raw = (drawn - exact.mean) / np.sqrt(np.diag(exact.cov))  # as if they were independent
    assert abs((raw[:, 0] * raw[:, 1]).mean()) > 4.5 / n**0.5


@pytest.mark.parametrize("d", [2, 3, 7, 20, 65])
def test_draws_of_jointly_normal_components_do_not_depend_on_how_many_are_asked_for(d):
    """Chains ask for batches by the time that these take; a draw must not depend on it."""
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d)) + 3.0 * np.eye(d)
    labels = tuple(f"b{j}" for j in range(d))
    table = np.zeros((d, COLUMNS + d))
    JointNormal(labels, rng.normal(size=d), root @ root.T).write(table, labels)
    z = rng.normal(size=(64, d))
    _, whole = joint_normal(table, z)
    parts = np.concatenate([joint_normal(table, part)[1] for part in np.split(z, [1, 4, 9, 40])])
    np.testing.assert_array_equal(whole, parts)
