"""Coordinates of effects and their scale: the exponents, and the same map in NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from streammc.control_variates.effect_coordinates import level_coordinates, stretched
from streammc.numerics.prior import EFFECT, KIND, LOCATION

STAR = np.array([0.3, 0.7, -0.4, 0.1, -1.0])
"""A coefficient, three effects, and the log of their scale."""


def coordinates(information, sd=0.2):
    table = np.zeros((5, 5))
    table[1:4, KIND] = EFFECT
    table[1:4, LOCATION] = 4
    cv = SimpleNamespace(
        theta_star=STAR,
        hessian=-np.diag([50.0, *information, 0.0]),
        factor=np.diag([0.1, 0.1, 0.1, 0.1, sd]),
    )
    return level_coordinates(table, cv)


def test_exponents_go_from_what_the_data_decide_to_what_the_prior_does():
    found = coordinates([1e9, 20.0, 0.0])
    assert found[:, :2].tolist() == [[1, 4], [2, 4], [3, 4]]
    low = np.exp(-1.0 - 2 * 0.2)
    assert found[:, 2] == pytest.approx([0.0, 1.0 / (1.0 + low**2 * 20.0), 1.0], abs=1e-6)


def test_an_unsure_scale_counts_as_smaller():
    sure, unsure = (coordinates([20.0] * 3, sd)[0, 2] for sd in (0.05, 1.0))
    assert sure < unsure


def test_without_effects_there_are_no_levels():
    cv = SimpleNamespace(theta_star=STAR, hessian=-np.eye(5), factor=np.eye(5))
    levels = level_coordinates(np.zeros((5, 5)), cv)
    shifts = np.ones((2, 5))
    assert levels.shape == (0, 3)
    assert stretched(levels, STAR, shifts)[0] is shifts


def test_the_jacobian_is_the_determinant_of_the_map():
    levels, h = coordinates([3.0, 20.0, 0.0]), 1e-6
    shift = np.array([0.2, -0.5, 0.3, 0.8, -0.7])
    steps = [
        (
            stretched(levels, STAR, (shift + s)[None])[0]
            - stretched(levels, STAR, (shift - s)[None])[0]
        )
        for s in h * np.eye(5)
    ]
    slopes = np.concatenate(steps) / (2 * h)
    log = stretched(levels, STAR, shift[None])[1][0]
    assert np.linalg.slogdet(slopes)[1] == pytest.approx(log, rel=1e-6)


def test_at_the_estimated_scale_effects_stay():
    levels = coordinates([3.0, 20.0, 0.0])
    shift = np.array([[0.2, -0.5, 0.3, 0.8, 0.0]])
    moved, log = stretched(levels, STAR, shift)
    assert moved == pytest.approx(shift)
    assert log == pytest.approx([0.0])
