"""Every family against scipy.stats, its derivatives by differences, its support."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from streammc import priors
from streammc.errors import ConfigError
from streammc.numerics.prior import KIND, inside, log_prior, outside, prior_curvature, smooth
from streammc.priors import FamilyPrior
from streammc.protocols import Matrix

COEFFICIENT: dict[str, tuple[FamilyPrior, Any]] = {
    "normal": (priors.normal(2.5, location=-1.0), stats.norm(-1.0, 2.5)),
    "student_t": (priors.student_t(3.0, 0.5, 2.0), stats.t(3.0, 0.5, 2.0)),
    "student_t of many": (priors.student_t(1e9, 0.5, 2.0), stats.norm(0.5, 2.0)),
    "cauchy": (priors.student_t(1.0, 0.5, 0.2), stats.cauchy(0.5, 0.2)),
    "laplace": (priors.laplace(0.3, 0.7), stats.laplace(0.3, 0.7)),
    "uniform": (priors.uniform(-4.0, 9.0), stats.uniform(-4.0, 13.0)),
}
POSITIVE: dict[str, tuple[FamilyPrior, Any]] = {
    "half_normal": (priors.half_normal(2.5), stats.halfnorm(scale=2.5)),
    "half_cauchy": (priors.half_cauchy(2.5), stats.halfcauchy(scale=2.5)),
    "half_student_t": (priors.half_student_t(4.0, 0.3), None),
    "gamma": (priors.gamma(2.0, 0.1), stats.gamma(2.0, scale=10.0)),
    "inverse_gamma": (priors.inverse_gamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0)),
    "lognormal": (priors.lognormal(0.4, 0.9), stats.lognorm(0.9, scale=math.exp(0.4))),
    "exponential": (priors.exponential(0.5), stats.expon(scale=2.0)),
    "uniform": (priors.uniform(0.01, 30.0), stats.uniform(0.01, 29.99)),
    "uniform from 0": (priors.uniform(0.0, 30.0), stats.uniform(0.0, 30.0)),
}
POINTS = [-3.0, -0.7, 0.1, 1.3, 3.2]
CASES = [
    *((f"{name} on theta", prior.table(["beta[x]"])) for name, (prior, _) in COEFFICIENT.items()),
    *((f"{name} on log v", prior.rows(["sigma"], [True])) for name, (prior, _) in POSITIVE.items()),
    ("lkj on artanh v", priors.lkj(2.5).rows(["rho"], [2])),
]
families = pytest.mark.parametrize("table", [each for _, each in CASES], ids=[n for n, _ in CASES])


def value(table: Matrix, theta: float) -> tuple[float, float, float]:
    """Return log density, derivative and curvature of one parameter."""
    at, gradient, curvature = np.array([theta]), np.zeros(1), np.full(1, np.nan)
    density = log_prior(at, table, gradient)
    prior_curvature(at, table, curvature)
    return density, gradient[0], curvature[0]


@pytest.mark.parametrize("theta", POINTS)
@pytest.mark.parametrize("name", COEFFICIENT)
def test_density_of_a_coefficient_equals_scipy(name: str, theta: float) -> None:
    prior, reference = COEFFICIENT[name]
    expected = reference.logpdf(theta)
    assert value(prior.table(["beta[x]"]), theta)[0] == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("theta", POINTS)
@pytest.mark.parametrize("name", POSITIVE)
def test_density_of_a_log_has_the_jacobian(name: str, theta: float) -> None:
    prior, reference = POSITIVE[name]
    v = math.exp(theta)
    if reference is None:
        expected = math.log(2.0) + stats.t(4.0, scale=0.3).logpdf(v) + theta
    else:
        expected = reference.logpdf(v) + theta
    assert value(prior.rows(["sigma"], [True]), theta)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", POSITIVE)
def test_density_of_a_log_integrates_to_one(name: str) -> None:
    table = POSITIVE[name][0].rows(["sigma"], [True])
    grid = np.linspace(-60.0, 40.0, 400_001)
    density = np.exp([value(table, theta)[0] for theta in grid[::20]])
    assert integrate.trapezoid(density, grid[::20]) == pytest.approx(1.0, abs=3e-3)


def test_flat_on_a_scale_is_flat_in_its_value() -> None:
    table = priors.flat().rows(["sigma"], [True])
    assert value(table, 1.7) == (1.7, 1.0, 0.0)


@families
def test_gradient_is_the_derivative(table: Matrix) -> None:
    h = 1e-5
    for each in (table, smooth(table)):
        for theta in POINTS:
            up, down = value(each, theta + h)[0], value(each, theta - h)[0]
            assert value(each, theta)[1] == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-7)


@families
def test_curvature_is_that_of_the_smooth_density(table: Matrix) -> None:
    h = 1e-5
    soft = smooth(table)
    for theta in POINTS:
        found = value(table, theta)[2]
        assert found >= 0.0
        assert found == value(soft, theta)[2]
        expected = -(value(soft, theta + h)[1] - value(soft, theta - h)[1]) / (2 * h)
        if expected > 0.02:  # a Student t is raised below
            assert found == pytest.approx(expected, rel=2e-6)


def test_student_t_is_never_flatter_than_a_tenth_of_its_mixture() -> None:
    table = priors.student_t(3.0, 0.0, 2.0).table(["b"])
    for theta in (5.0, 40.0, 1e6):
        z = theta / 2.0
        weight = 4.0 / (4.0 * (3.0 + z * z))
        assert value(table, theta)[2] == pytest.approx(0.1 * weight, rel=1e-12)


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("theta", [-700.0, 700.0])
def test_densities_are_not_nan_far_out(name: str, theta: float) -> None:
    density, gradient, _ = value(POSITIVE[name][0].rows(["sigma"], [True]), theta)
    assert not math.isnan(density)
    assert not math.isnan(gradient)


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        (priors.uniform(-4.0, 9.0).table(["b"]), -4.0, 9.0),
        (priors.uniform(0.5, 3.0).rows(["s"], [True]), math.log(0.5), math.log(3.0)),
    ],
    ids=["theta", "log v"],
)
def test_outside_a_uniform_the_density_is_zero(table: Matrix, low: float, high: float) -> None:
    for edge, out in ((low, -np.inf), (high, np.inf)):
        assert math.isfinite(value(table, edge)[0])
        density, gradient, _ = value(table, np.nextafter(edge, out))
        assert -math.inf == density
        assert 0.0 == gradient
        assert -math.inf == value(smooth(table), edge)[0]
    assert math.isnan(value(table, math.nan)[0])
    for theta in (low - 1e6, high + 1.0, 0.0):
        moved = inside(np.array([theta]), table)[0]
        assert low < moved < high


def test_point_inside_the_support_is_not_moved() -> None:
    table = np.vstack([priors.uniform(-1.0, 1.0).table(["b"]), priors.normal().table(["c"])])
    theta = np.array([0.3, 500.0])
    np.testing.assert_array_equal(theta, inside(theta, table))
    below = priors.uniform(0.0, 1.0).rows(["s"], [True])
    np.testing.assert_array_equal([-1.0], inside(np.array([2.0]), below))


def test_the_smooth_table_leaves_the_others_alone() -> None:
    table = np.vstack([each for _, each in CASES])
    changed = np.flatnonzero((smooth(table) != table).any(axis=1))
    assert {name.split()[0] for name in np.array([n for n, _ in CASES])[changed]} == {
        "laplace",
        "uniform",
    }
    assert (smooth(table)[:, KIND + 1 :] == table[:, KIND + 1 :]).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: priors.student_t(0.0, scale=1.0), "prior df must be .* above 0, found 0"),
        (lambda: priors.student_t(3.0), "prior scale must be"),
        (lambda: priors.laplace(2.0), "prior scale must be"),
        (lambda: priors.half_normal(-1.0), "prior scale must be"),
        (lambda: priors.gamma(2.0, 0.0), "prior rate must be"),
        (lambda: priors.inverse_gamma(math.inf, 1.0), "prior shape must be"),
        (lambda: priors.lognormal(math.nan, 1.0), "prior location must be"),
        (lambda: priors.uniform(1.0, 1.0), "low below high, found 1 and 1"),
        (lambda: priors.uniform(0.0, math.inf), "prior high must be a finite number"),
        (lambda: priors.uniform([0.0, 3.0], 2.0).table(["a", "b"]), "'b' must have low below high"),
        (lambda: priors.uniform(-1.0, 2.0).rows(["sigma"], [True]), "'sigma'.* low of at least 0"),
    ],
)
def test_wrong_numbers_are_refused_in_one_line(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_point_beyond_a_wall_is_outside() -> None:
    bounded = [priors.uniform(-1.0, 1.0).table(["b"]), priors.uniform(0.0, 1.0).rows(["s"], [True])]
    table = np.vstack([priors.normal().table(["c"]), *bounded])
    assert not outside(np.array([1e9, 1.0, -1e9]), table)
    assert outside(np.array([0.0, 1.1, -1.0]), table)
    assert outside(np.array([0.0, 0.0, 0.1]), table)
