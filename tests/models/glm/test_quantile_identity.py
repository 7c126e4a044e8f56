"""Quantile regression: the minimum of the check loss, the density it stands for, its options."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from scipy.optimize import linprog

import streammc
from streammc import registry, samplers
from streammc.errors import ConfigError
from streammc.models import gaussian, quantile
from streammc.models.check import evaluate
from streammc.protocols import Matrix, Vector
from streammc.runs.record import registered_model


def table(n: int, seed: int) -> tuple[Matrix, Vector]:
    """Return columns (n, 2), and responses whose spread grows with the second."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.random(n)])
    return X, 1.0 + 0.5 * X[:, 1] + (1.0 + X[:, 1]) * rng.standard_normal(n)


def minimum_of_check_loss(X: Matrix, y: Vector, tau: float) -> Vector:
    """Return the coefficients of least check loss, by the linear program of Koenker and Bassett."""
    n, q = X.shape
    cost = np.concatenate([np.zeros(q), np.full(n, tau), np.full(n, 1.0 - tau)])
    equal = sparse.hstack([sparse.csr_array(X), sparse.eye_array(n), -sparse.eye_array(n)])
    bounds = [(None, None)] * q + [(0.0, None)] * (2 * n)
    found: Vector = linprog(cost, A_eq=equal.tocsc(), b_eq=y, bounds=bounds).x[:q]
    return found


@pytest.mark.parametrize("tau", [0.5, 0.9])
def test_posterior_is_centred_at_the_least_check_loss(tau: float) -> None:
    """Within 0.4 standard errors: the check loss itself is not smooth over a few rows."""
    X, y = table(4000, 5)
    prior = {"beta*": streammc.priors.flat()}
    run = streammc.sample(
        streammc.from_arrays(X, y), quantile(prior, tau=tau), sampler=samplers.hmc(), seed=1
    )
    mean = run["posterior"]["beta"].to_numpy().reshape(-1, 2).mean(axis=0)
    z = float(stats.norm.ppf(tau))
    density = float(stats.norm.pdf(z)) / (1.0 + X[:, 1])  # Koenker 2005, section 3.2.3
    bread = np.linalg.inv((X.T * density) @ X)
    error = np.sqrt(tau * (1.0 - tau) * np.diag(bread @ (X.T @ X) @ bread))
    assert np.abs((mean - minimum_of_check_loss(X, y, tau)) / error).max() < 0.4
    other = minimum_of_check_loss(X, y, tau - 0.1)
    assert np.abs((mean - other) / error).max() > 2.0


@pytest.mark.parametrize("tau", [0.001, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("smooth", [0.001, 0.05, 1.0])
def test_density_adds_up_to_one_and_tends_to_the_check_loss(tau: float, smooth: float) -> None:
    model = quantile(tau=tau, smooth=smooth)
    reach = 45.0 / min(tau, 1.0 - tau)
    near = np.linspace(-50.0, 50.0, 4001) * smooth
    far = np.linspace(-reach, reach, 200_001)
    y = np.unique(np.concatenate([near, far]))
    value = evaluate(model, np.zeros((2, len(y))), y, 0)[0]
    assert abs(integrate.trapezoid(np.exp(value), y) - 1.0) < 1e-4
    loss = y * (tau - (y < 0.0))
    away = np.abs(y) > 40.0 * smooth
    np.testing.assert_allclose((value - value[-1] + loss - loss[-1])[away], 0.0, atol=1e-9)


def p_value(tau: float, of: float) -> float:
    """Return the p-value of responses of one order under the density of another."""
    model = quantile(tau=of, smooth=0.3)
    y = quantile(tau=tau, smooth=0.3).simulate(
        np.tile([[0.4], [0.2]], 20_000), np.random.default_rng(3)
    )
    at = np.sort(np.concatenate([np.linspace(-300.0, 300.0, 60_001), 1e-3 * np.arange(-4e3, 4e3)]))
    density = np.exp(evaluate(model, np.tile([[0.4], [0.2]], len(at)), at, 0)[0])
    below = integrate.cumulative_trapezoid(density, at, initial=0.0)
    return float(stats.kstest(y, lambda x: np.interp(x, at, below)).pvalue)


def test_simulated_responses_follow_the_density() -> None:
    assert p_value(0.8, 0.8) > 1e-3
    assert p_value(0.8, 0.77) < 1e-6


@pytest.mark.parametrize("key", ["tau", "smooth"])
@pytest.mark.parametrize("value", [0, -0.5, 1.5, math.nan, math.inf, "abc", True, None])
def test_options_out_of_range_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} must be a number from 0.001 to .*, found"):
        registry.model("quantile")(**{key: value})


def test_options_are_part_of_the_description() -> None:
    model = quantile(tau=0.9, smooth=0.02)
    described = model.describe()
    assert (0.9, 0.02) == (described["tau"], described["smooth"])
    assert registered_model(described).describe() == described
    assert described != quantile(tau=0.8, smooth=0.02).describe()


def test_columns_that_fit_all_responses_leave_no_scale() -> None:
    data = streammc.from_arrays(np.ones((60, 1)), np.full(60, 3.0))
    with pytest.raises(streammc.errors.StreammcError, match="sigma"):
        streammc.sample(data, quantile({"*": streammc.priors.flat()}), seed=1)


def test_far_responses_have_finite_derivatives() -> None:
    y = np.array([1e300, -1e300, 0.0])
    out = evaluate(quantile(tau=0.999), np.zeros((2, 3)), y)
    assert np.isfinite(out).all()


def test_a_run_says_what_its_intervals_are_not() -> None:
    rng = np.random.default_rng(11)
    table = {"x": rng.normal(size=300), "y": rng.normal(size=300)}
    data = streammc.from_table(table, formula="y ~ x")
    for model, said in ((quantile(tau=0.5), True), (gaussian(), False)):
        found = streammc.control_variates.compute(data, model).certificate.notes
        assert any("working one" in line for line in found) == said
