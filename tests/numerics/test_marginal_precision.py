"""Coordinates of expansions of groups: inverse, derivatives, the end at tau = 0."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.effect_positions import (
    from_precision,
    precision_derivatives,
    pull_to_theta,
    to_precision,
    to_precision_derivatives,
)

CASES = [
    pytest.param(np.array([0.3, -1.2]), np.array([0.05]), id="intercept"),
    pytest.param(np.array([0.3, -1.2, 0.4]), np.array([0.05, 0.4]), id="uncorrelated"),
    pytest.param(np.array([0.3, -1.2, 0.4, -0.7]), np.array([0.05, 0.4, 0.02]), id="correlated"),
]


def precision(theta: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The end of theta as P, by numpy."""
    size = len(noise)
    end = theta[-size:]
    if size < 3:
        return 1.0 / (np.exp(2.0 * end) + noise)
    tau = np.exp(end[:2])
    cross = np.tanh(end[2]) * tau.prod()
    sigma = np.array([[tau[0] ** 2, cross], [cross, tau[1] ** 2]])
    P = np.linalg.inv(sigma + np.array([[noise[0], noise[2]], [noise[2], noise[1]]]))
    return np.array([P[0, 0], P[1, 1], P[0, 1]])


def function(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """A function of the coordinates with its derivatives."""
    d = len(x)
    A = np.cos(np.arange(d * d).reshape(d, d))
    A = A + A.T
    b = np.sin(np.arange(d) + 1.0)
    e = np.exp(b @ x / 10)
    return e + x @ A @ x, b * e / 10 + 2 * A @ x, np.outer(b, b) * e / 100 + 2 * A


@pytest.mark.parametrize(("theta", "noise"), CASES)
def test_end_of_theta_is_the_precision_and_comes_back(theta, noise) -> None:
    moved = theta.copy()
    to_precision(moved, noise)
    size = len(noise)
    np.testing.assert_array_equal(moved[:-size], theta[:-size])
    np.testing.assert_allclose(moved[-size:], precision(theta, noise), rtol=1e-13)
    from_precision(moved, noise)
    np.testing.assert_allclose(moved, theta, rtol=1e-12)


@pytest.mark.parametrize(("theta", "noise"), CASES)
def test_derivatives_agree_with_finite_differences(theta, noise) -> None:
    s = len(noise)
    first, second = np.empty((s, s)), np.empty((s, s, s))
    precision_derivatives(theta, noise, first, second)
    h = 1e-5
    for i in range(s):
        step = np.zeros(len(theta))
        step[len(theta) - s + i] = h
        change = precision(theta + step, noise) - precision(theta - step, noise)
        np.testing.assert_allclose(first[:, i], change / (2 * h), rtol=1e-6, atol=1e-8)
        up, down = np.empty((s, s)), np.empty((s, s))
        precision_derivatives(theta + step, noise, up, second.copy())
        precision_derivatives(theta - step, noise, down, second.copy())
        np.testing.assert_allclose(second[:, :, i], (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("theta", "noise"), CASES)
def test_gradient_and_hessian_are_those_of_the_composed_function(theta, noise) -> None:
    s = len(noise)
    moved = theta.copy()
    to_precision(moved, noise)
    _, wanted_gradient, wanted_hessian = function(moved)
    pulled = wanted_gradient.copy()
    pull_to_theta(theta, noise, pulled)
    first, second = np.empty((s, s)), np.empty((s, s, s))
    precision_derivatives(theta, noise, first, second)
    J = np.eye(len(theta))
    J[-s:, -s:] = first
    np.testing.assert_allclose(pulled, J.T @ wanted_gradient, rtol=1e-12)
    hessian = J.T @ wanted_hessian @ J
    hessian[-s:, -s:] += np.einsum("b,bij->ij", wanted_gradient[-s:], second)
    to_precision_derivatives(theta, noise, pulled, hessian)
    np.testing.assert_allclose(pulled, wanted_gradient, rtol=1e-10)
    np.testing.assert_allclose(hessian, wanted_hessian, rtol=1e-9, atol=1e-10)


def test_variance_of_zero_is_one_that_rounding_reaches() -> None:
    for noise in (np.array([0.05]), np.array([0.05, 0.4]), np.array([0.05, 0.4, 0.02])):
        theta = np.full(len(noise) + 1, -40.0)
        to_precision(theta, noise)
        from_precision(theta, noise)
        assert np.all(np.isfinite(theta))
        taus = np.exp(theta[1 : 1 + min(len(noise), 2)])
        assert np.all(taus < 1e-6 * np.sqrt(noise[: len(taus)]))
        gradient = np.ones(len(theta))
        pull_to_theta(np.full(len(noise) + 1, -400.0), noise, gradient)
        np.testing.assert_array_equal(gradient[1:], 0.0)
