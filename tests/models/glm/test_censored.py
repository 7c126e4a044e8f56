"""Families of times of which some are censored: their densities on both signs of the response."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from families import FAMILIES

from streammc import models
from streammc.models.check import evaluate
from streammc.models.glm import exponential_log
from streammc.priors.scaled import time_level
from streammc.protocols import Rows
from streammc.runs.record import registered_model

mpf = mpmath.mpf
NAMES = ("exponential", "lognormal", "weibull")
TIMES = (1e-8, 0.5, 1.0, 3.7, 40.0)


def censored(name: str) -> Any:
    return replace(getattr(models, name)(), censored=True)


def log_survival(name: str, t: mpf, eta: mpf, *shared: mpf) -> mpf:
    if name == "exponential":
        return -t * mpmath.exp(-eta)
    scale = mpmath.exp(shared[0])
    if name == "weibull":
        return -((t * mpmath.exp(-eta)) ** scale)
    return mpmath.log(mpmath.erfc((mpmath.log(t) - eta) / scale / mpmath.sqrt(2)) / 2)


def exact(name: str, y: float, *eta: float) -> list[mpf]:
    """Return value, gradient and upper Hessian with 50 digits; ``y < 0`` is censored."""

    def value(*at: mpf) -> mpf:
        if y < 0:
            return log_survival(name, mpf(-y), *at)
        return FAMILIES[name].log_lik(mpf(y), *at)

    at = tuple(mpf(each) for each in eta)
    if len(at) == 1:
        return [mpmath.diff(value, at[0], order) for order in (0, 1, 2)]
    orders = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    return [mpmath.diff(value, at, order) if any(order) else value(*at) for order in orders]


def worst(name: str, events: Any) -> float:
    """Return the largest error, relative to the largest output of a row, of ``events(y)``."""
    model = censored(name)
    shared = (-1.0, 0.0, 1.2) if model.n_scalar else (0.0,)
    points = [(y * s, e, u) for y in TIMES for s in (1, -1) for e in (-2, 0.3, 4) for u in shared]
    y, *eta = np.array(points).T
    found = evaluate(model, np.array(eta[: 1 + model.n_scalar]), events(y))
    largest = 0.0
    with mpmath.workdps(50):
        for i, point in enumerate(points):
            truth = exact(name, point[0], *point[1 : 2 + model.n_scalar])
            size = max(mpf(1), *map(abs, truth))
            wrong = [abs(mpf(float(a)) - b) / size for a, b in zip(found[:, i], truth, strict=True)]
            largest = max(largest, float(max(wrong)))
    return largest


@pytest.mark.parametrize("name", NAMES)
def test_density_and_survival_have_their_digits(name: str) -> None:
    assert worst(name, lambda y: y) < 1e-12
    assert worst(name, np.abs) > 1e-2  # censored times taken for events


@pytest.mark.parametrize("name", NAMES)
def test_survival_and_density_add_up(name: str) -> None:
    """The slope of the survival function in the time is minus the density."""
    model = censored(name)
    t = np.linspace(0.2, 5.0, 9)
    eta = np.full((1 + model.n_scalar, 9), 0.4)
    step = 1e-5
    up, down = (np.exp(evaluate(model, eta, -(t + h))[0]) for h in (step, -step))
    density = np.exp(evaluate(model, eta, t)[0])
    np.testing.assert_allclose((down - up) / (2 * step), density, rtol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_time_below_zero_is_refused_unless_times_are_censored(name: str) -> None:
    model: Any = getattr(models, name)()
    y = np.array([1.0, -2.0, 3.0, np.nan, -np.inf])
    assert model.response_fault(y)[0].tolist() == [1, 3, 4]
    assert censored(name).response_fault(y)[0].tolist() == [3, 4]
    assert "censored" not in model.describe()
    assert registered_model(censored(name).describe()) == censored(name) != model


def test_third_derivative_bounds_that_of_a_censored_time() -> None:
    out = np.empty(2)
    y, eta, reach = np.array([2.0, -2.0]), np.array([0.3, 0.3]), np.array([0.5, 0.5])
    exponential_log.third_derivative(eta, reach, y, np.zeros(0), out)
    assert out.tolist() == [pytest.approx(2.0 * np.exp(0.2))] * 2


@pytest.mark.parametrize("name", NAMES)
def test_start_and_level_are_of_all_time_over_events(name: str) -> None:
    rng = np.random.default_rng(4)
    t = rng.exponential(50.0, 4000)
    end = rng.uniform(0.0, 80.0, 4000)
    y = np.where(t <= end, t, -end)
    rows = Rows(np.ones((4000, 1)), y, np.zeros(4000), np.ones(4000))
    rate = (y > 0).sum() / np.abs(y).sum()
    assert time_level(rows).location == pytest.approx(-np.log(rate))
    model = censored(name)
    theta = model.start(rows)
    if name == "exponential":
        assert theta[0] == pytest.approx(-np.log(rate), abs=1e-9)
    out = evaluate(model, np.repeat(theta[:, None], 4000, axis=1), y)
    assert np.abs(out[1 : 1 + len(theta)].sum(axis=1)).max() < 1.0  # at the mode
