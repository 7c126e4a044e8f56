"""Estimates of the scales of factors, against the closed form of a Gaussian response."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates.mode.factor_scales import (
    fewer_rows,
    given_scales,
    has_factors,
    refined_scales,
    with_effects,
)  # fmt: skip
from streammc.control_variates.mode.newton import maximise
from streammc.numerics.prior import (
    CONSTANT,
    EFFECT,
    KIND,
    LOCATION,
    NORMAL,
    SCALE,
    log_prior,
    smooth,
)  # fmt: skip
from streammc.priors import flat, half_student_t, normal, uniform
from streammc.priors.densities import POSITIVE
from streammc.protocols import Rows

LEVELS = 12


def gaussian(tau, n=2000, sigma=1.0, seed=3):
    """Return expansion of a Gaussian log-likelihood: intercept, effects, and the log scale."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, LEVELS, n)
    X = np.zeros((n, LEVELS + 2))
    X[:, 0] = 1.0
    X[np.arange(n), 1 + level] = 1.0
    y = 0.5 + tau * rng.normal(size=LEVELS)[level] + sigma * rng.normal(size=n)
    XX, Xy, yy = X.T @ X / sigma**2, X.T @ y / sigma**2, y @ y / sigma**2

    def likelihood(theta):
        value = -0.5 * (yy - 2 * theta @ Xy + theta @ XX @ theta)
        return float(value), Xy - XX @ theta, -XX

    return likelihood, XX, Xy


def table(prior=None):
    out = np.zeros((LEVELS + 2, 5))
    out[0] = normal(5.0).table(("",))[0]
    out[1:-1, KIND] = EFFECT
    out[1:-1, LOCATION] = LEVELS + 1
    out[1:-1, CONSTANT] = -0.5 * np.log(2 * np.pi)
    given = half_student_t(3.0, 2.5) if prior is None else prior
    out[-1] = given.rows(("",), [POSITIVE])[0]
    return out


def marginal(log_tau, XX, Xy, prior):
    """Log density of log tau, the other parameters integrated out."""
    own = np.arange(LEVELS + 1)
    precision = np.diag(np.append(1 / 25.0, np.full(LEVELS, np.exp(-2 * log_tau))))
    whole = XX[np.ix_(own, own)] + precision
    value = 0.5 * Xy[own] @ np.linalg.solve(whole, Xy[own])
    value += 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.linalg.slogdet(whole)[1]
    return value + log_prior(np.array([log_tau]), smooth(prior[-1:]), np.zeros(1))


@pytest.mark.parametrize("tau", [1.5, 0.2, 0.01])
def test_the_scale_is_the_mode_of_its_marginal_density(tau):
    likelihood, XX, Xy = gaussian(tau)
    found = given_scales(table(), likelihood, np.zeros(LEVELS + 2), False)
    grid = np.linspace(-7.0, 3.0, 2001)
    density = [marginal(t, XX, Xy, table()) for t in grid]
    assert found[-1, LOCATION] == pytest.approx(grid[int(np.argmax(density))], abs=0.03)
    assert found[-1, KIND] == NORMAL
    assert found[1:-1, SCALE] == pytest.approx(np.exp(found[-1, LOCATION]))


def test_the_width_is_that_of_the_marginal_density():
    likelihood, XX, Xy = gaussian(1.0)
    found = given_scales(table(), likelihood, np.zeros(LEVELS + 2), False)
    at, h = found[-1, LOCATION], 0.05
    three = [marginal(at + s, XX, Xy, table()) for s in (-h, 0.0, h)]
    curvature = -(three[0] - 2 * three[1] + three[2]) / h**2
    assert found[-1, SCALE] == pytest.approx(curvature**-0.5, rel=0.05)


def test_a_given_scale_is_kept():
    likelihood, _, _ = gaussian(1.0)
    centre = np.append(np.zeros(LEVELS + 1), -1.2)
    found = given_scales(table(), likelihood, centre, True)
    assert found[-1, LOCATION] == -1.2
    assert found[1:-1, SCALE] == pytest.approx(np.exp(-1.2))


def test_the_bounds_of_a_prior_hold():
    likelihood, _, _ = gaussian(1.5)
    found = given_scales(table(uniform(0.1, 0.4)), likelihood, np.zeros(LEVELS + 2), False)
    assert np.log(0.1) < found[-1, LOCATION] < np.log(0.4)


def test_without_factors_the_table_stays():
    plain = normal(5.0).table(("a", "b"))
    likelihood, _, _ = gaussian(1.0)
    assert not has_factors(plain)
    assert given_scales(plain, likelihood, np.zeros(2), False) is plain


def test_levels_that_add_up_to_the_intercept_are_no_weak_direction():
    likelihood, _, _ = gaussian(1.0)
    found = given_scales(table(), likelihood, np.zeros(LEVELS + 2), False)
    own = np.append(False, np.ones(LEVELS + 1, np.bool_))
    point = maximise(likelihood, np.zeros(LEVELS + 2), found)
    hessian = with_effects(likelihood, found, own)(point.theta)[2]
    assert np.linalg.eigvalsh(-hessian).min() > 0.1
    assert np.linalg.eigvalsh(-likelihood(point.theta)[2]).min() < 1e-8


def test_flat_coefficients_do_not_stop_the_estimate():
    likelihood, _, _ = gaussian(1.0)
    free = table()
    free[0] = flat().table(("",))[0]
    found = given_scales(free, likelihood, np.zeros(LEVELS + 2), False)
    assert abs(found[-1, LOCATION]) < 1.0
    assert found[0, KIND] == free[0, KIND]


def test_scales_are_estimated_again_from_all_rows():
    half, _, _ = gaussian(0.3, n=500)
    every, _, _ = gaussian(0.3, n=2000)
    start = np.zeros(LEVELS + 2)
    given = given_scales(table(), half, start, False)
    found, scales = refined_scales(table(), given, every(start), start)
    assert scales.tolist() == [LEVELS + 1]
    at_once = given_scales(table(), every, start, False)
    assert found == pytest.approx(at_once, abs=0.02)
    assert abs(given - at_once).max() > 0.02


def test_the_first_estimate_of_many_columns_takes_fewer_rows():
    n = 30_000
    parts = [np.zeros(n), np.zeros(n), np.ones(n)]
    assert len(fewer_rows(Rows(np.zeros((n, 3)), *parts)).y) == n
    assert 2048 <= len(fewer_rows(Rows(np.zeros((n, 1000)), *parts)).y) <= 4096
