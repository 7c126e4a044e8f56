"""Stretched effects of a factor: values, inverse and gradient against NumPy and differences."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.effect_positions import log_spread, shrink, stretch, whiten

LEVELS = np.array([[0.0, 3.0, 1.0], [1.0, 3.0, 0.4], [2.0, 3.0, 0.0]])
"""Three effects of one scale, whose log is the last component but one; one is not stretched."""
STAR = np.array([0.3, -0.5, 0.2, -0.7, 1.1])
PLACED = np.array([0.9, -1.2, 0.6, 0.4, -0.8])


def stretched(placed):
    theta, delta = placed.copy(), placed - STAR
    return theta, delta, stretch(LEVELS, STAR, theta, delta)


def test_effects_are_stretched_by_their_power_of_the_scale():
    theta, delta, log_jacobian = stretched(PLACED)
    moved = PLACED[3] - STAR[3]
    factor = np.exp(np.array([1.0, 0.4, 0.0, 0.0, 0.0]) * moved)
    np.testing.assert_allclose(PLACED * factor, theta, rtol=1e-15)
    np.testing.assert_allclose(theta - STAR, delta, rtol=1e-14)
    assert 1.4 * moved == pytest.approx(log_jacobian, rel=1e-14)


def test_whitening_undoes_the_stretch_and_the_factor():
    factor = np.tril(np.random.default_rng(1).normal(size=(5, 5))) + 3.0 * np.eye(5)
    z, found = np.array([0.5, -0.2, 0.7, 0.1, -1.3]), np.full(5, np.nan)
    theta, _, _ = stretched(STAR + factor @ z)
    whiten(LEVELS, STAR, factor, theta, found)
    np.testing.assert_allclose(z, found, rtol=1e-12)


def test_the_gradient_is_that_of_the_density_before_the_stretch():
    slope = np.array([0.7, -0.4, 1.5, 0.3, -0.9])

    def density(placed):  # linear in the effects, with the log of the Jacobian
        theta, _, log_jacobian = stretched(placed)
        return slope @ theta + log_jacobian

    theta, _, _ = stretched(PLACED)
    gradient = slope.copy()
    shrink(LEVELS, STAR, theta, gradient)
    for j in range(5):
        step = np.eye(5)[j] * 1e-6
        expected = (density(PLACED + step) - density(PLACED - step)) / 2e-6
        assert expected == pytest.approx(gradient[j], rel=1e-8)


def test_the_power_of_an_effect_has_the_spread_of_its_row():
    row = np.array([0.0, 0.7, 0.02, 0.3, 0.4])
    for log_scale in (-0.8, 1.5):
        square = np.exp(2.0 * 0.4 * log_scale)
        expected = 0.5 * np.log((0.02 + square) / (0.02 + 0.3 * square)) - 0.3
        assert expected == pytest.approx(log_spread(row, log_scale)[0], rel=1e-12)
