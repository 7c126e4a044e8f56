"""Tweedie regression: its simulator against its density, its limits, and hostile responses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import streammc
from streammc.control_variates import compute
from streammc.errors import ConfigError, DataError, StreammcError
from streammc.models import tweedie
from streammc.models.check import evaluate
from streammc.priors import flat, half_cauchy, normal
from streammc.protocols import Vector


def p_values(eta: Vector, of: Vector) -> tuple[float, float]:
    """Return p-values of the zeros, and of the others, simulated at ``eta``, of the density."""
    n = 20_000
    y = tweedie().simulate(np.tile(eta[:, None], n), np.random.default_rng(7))
    zero = math.exp(evaluate(tweedie(), of[:, None], np.zeros(1), 0)[0, 0])
    at = np.linspace(-45.0, 8.0, 8001)
    log_density = evaluate(tweedie(), np.tile(of[:, None], len(at)), np.exp(at), 0)[0]
    below = integrate.cumulative_trapezoid(np.exp(log_density + at), at, initial=0.0)
    assert abs(below[-1] + zero - 1.0) < 1e-4
    zeros = stats.binomtest(int((y == 0.0).sum()), n, zero).pvalue
    others = np.log(y[y > 0.0])
    ks = stats.kstest(others, lambda x: np.interp(x, at, below / below[-1]))
    return float(zeros), float(ks.pvalue)


@pytest.mark.parametrize("eta", [[0.5, 0.0, 0.0], [-1.0, 0.7, 1.5], [2.0, 0.3, -1.0]])
def test_simulated_responses_follow_the_density(eta: list[float]) -> None:
    at = np.array(eta)
    assert min(p_values(at, at)) > 1e-3
    assert min(p_values(at + np.array([0.0, 0.1, 0.0]), at)) < 1e-3
    assert min(p_values(at + np.array([0.0, 0.0, 0.3]), at)) < 1e-3


def test_mean_and_variance_are_those_of_the_family() -> None:
    eta = np.array([1.0, -0.3, 0.4])
    y = tweedie().simulate(np.tile(eta[:, None], 200_000), np.random.default_rng(1))
    power = 1.0 + special.expit(0.4)
    variance = math.exp(-0.3 + power)
    assert abs(y.mean() - math.e) < 4.5 * math.sqrt(variance / len(y))
    fourth = np.mean((y - y.mean()) ** 4)
    error = math.sqrt((fourth - variance**2) / len(y))
    assert abs(y.var() - variance) < 4.5 * error
    assert abs(y.var() - math.exp(-0.3 + power - 0.1)) > 4.5 * error


def test_zeros_alone_leave_a_proper_posterior() -> None:
    data = streammc.from_arrays(np.ones((100, 1)), np.zeros(100))
    found = compute(data, tweedie())
    assert np.isfinite(found.theta_star).all()


def test_flat_prior_of_the_power_is_refused() -> None:
    """Without zeros the likelihood tends to that of gamma variables as p goes to 2."""
    labels = tweedie().labels(["x"])
    prior = {"*": normal(1.0), "phi": half_cauchy(1.0), "logit_power": flat()}
    with pytest.raises(ConfigError, match="prior of 'logit_power' must be proper"):
        tweedie(prior).prior_table(labels)


@pytest.mark.parametrize("bad", [-1e-300, -1.0, np.inf, np.nan])
def test_amounts_below_zero_are_refused(bad: float) -> None:
    y = np.ones(60)
    y[7] = bad
    with pytest.raises(StreammcError, match="finite numbers"):
        streammc.sample(streammc.from_arrays(np.ones((60, 1)), y), tweedie(), seed=1)


def test_largest_and_smallest_amounts_have_finite_derivatives() -> None:
    y = np.array([1e300, 1e-300, 5e-324, 1.0])
    for odds in (-40.0, 0.0, 40.0):
        eta = np.tile(np.array([[0.0], [0.0], [odds]]), 4)
        assert np.isfinite(evaluate(tweedie(), eta, y)[:, 1:]).all()
        assert not np.isnan(evaluate(tweedie(), eta, y)).any()


def test_an_amount_of_1e300_is_refused() -> None:
    y = np.ones(60)
    y[0] = 1e300
    with pytest.raises(DataError, match=r"at most 1e\+150 in size in column 'y', found 1e\+300"):
        streammc.from_arrays(np.ones((60, 1)), y)
