"""Responses that vary more than their family, or have other zeros, are named in a warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammc
from streammc import from_arrays, models
from streammc.control_variates.mode.dispersion import dispersion_warnings
from streammc.protocols import Rows

THETA = np.array([0.4, 0.5])


def rows_of(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.standard_normal(n)]
    return X, rng


def found(model: Any, X: Any, y: Any, theta: Any, weight: Any = None) -> list[str]:
    weight = np.ones(len(y)) if weight is None else weight
    rows = Rows(X, np.asarray(y, np.float64), np.zeros(len(y)), weight)
    return dispersion_warnings(from_arrays(X, y), model, rows, theta)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("level", [-5.0, 0.0, 3.0, 12.0])
def test_responses_of_the_family_are_no_reason_for_a_warning(seed: int, level: float) -> None:
    X, rng = rows_of(3000, seed)
    theta = np.array([level, 0.5])
    rate = np.exp(X @ theta)
    assert found(models.poisson(), X, rng.poisson(rate), theta) == []
    assert found(models.exponential(), X, rng.exponential(rate), theta) == []
    chance = rate / (1.0 + rate)
    assert found(models.logistic(), X, rng.random(3000) < chance, theta) == []
    trials = rng.integers(1, 40, 3000).astype(np.float64)
    shares = rng.binomial(trials.astype(int), chance) / trials
    assert found(models.binomial(), X, shares, theta, trials) == []
    phi = np.exp(0.3)
    counts = rng.poisson(rate * rng.gamma(phi, size=3000) / phi)
    assert found(models.negative_binomial(), X, counts, np.append(theta, 0.3)) == []


def test_more_variation_is_named_with_its_size_and_a_family() -> None:
    X, rng = rows_of(4000, 1)
    rate = np.exp(X @ THETA)
    counts = rng.poisson(rate * rng.gamma(2.0, size=4000) / 2.0)
    (line,) = found(models.poisson(), X, counts, THETA)
    truth = 1.0 + 0.5 * np.mean(rate**2) / np.mean(rate)
    stated = float(line.split(" times")[0].split()[-1])
    assert stated == pytest.approx(truth, rel=0.15)
    assert "take negative-binomial" in line
    times = rate * rng.gamma(0.4, size=4000) / 0.4
    assert "take gamma or weibull" in found(models.exponential(), X, times, THETA)[0]
    chance = rng.beta(2.0, 3.0, 4000)
    shares = rng.binomial(20, chance) / 20.0
    (line,) = found(
        models.binomial(), X, shares, np.array([np.log(2.0 / 3.0), 0.0]), np.full(4000, 20.0)
    )
    assert "take beta-binomial" in line
    assert "give groups of rows" in line


def test_zeros_with_a_cause_of_their_own_are_named() -> None:
    X, rng = rows_of(4000, 2)
    theta = np.array([1.2, 0.3])
    counts = rng.poisson(np.exp(X @ theta))
    counts[rng.random(4000) < 0.2] = 0
    lines = found(models.poisson(), X, counts, theta)
    assert "more responses are 0 than under negative-binomial" in lines[1]
    inflated = np.append(theta, np.log(0.25))
    assert found(models.zero_inflated_poisson(), X, counts, inflated) == []
    few = np.maximum(rng.poisson(np.exp(X @ THETA)), rng.random(4000) < 0.9)
    assert any("fewer responses are 0" in line for line in found(models.poisson(), X, few, THETA))


@pytest.mark.filterwarnings("ignore")
def test_a_run_says_that_its_intervals_are_too_narrow() -> None:
    X, rng = rows_of(3000, 4)
    counts = rng.poisson(np.exp(X @ THETA) * rng.gamma(1.0, size=3000))
    data = from_arrays(X, counts, feature_names=["Intercept", "x"])
    lines = streammc.control_variates(data, models.poisson()).certificate.warnings
    assert any(line.startswith("the responses vary ") for line in lines)
    lines = streammc.control_variates(data, models.negative_binomial()).certificate.warnings
    assert not any("responses" in line for line in lines)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cells", ["yes", "no"])
def test_cells_and_weights_are_no_reason_for_a_warning(cells: str) -> None:
    rng = np.random.default_rng(6)
    n = 70_000
    g = rng.integers(0, 4, n)
    rate = np.exp(-0.5 + 0.4 * g)
    dispersed = rng.poisson(rate * rng.gamma(2.0, 0.5, n))
    late = (rng.random(n) < rate / (1.0 + rate)).astype(int)
    weight = rng.uniform(0.5, 60.0, n)
    table = {"c": dispersed, "p": rng.poisson(rate), "late": late, "g": g.astype(str)}
    for response, model in (
        ("c", models.negative_binomial()),
        ("p", models.poisson()),
        ("late", models.binomial()),
        ("late", models.logistic()),
    ):
        options = {"cells": cells} if cells == "yes" else {"weight": "w"}
        data = streammc.from_table(table | {"w": weight}, formula=f"{response} ~ g", **options)
        lines = streammc.control_variates(data, model).certificate.warnings
        assert not any("responses" in line for line in lines), (response, model.name, lines)
    if cells == "yes":  # the partner: counts that do vary more, as cells
        data = streammc.from_table(table, formula="c ~ g", cells="yes")
        lines = streammc.control_variates(data, models.poisson()).certificate.warnings
        assert any(line.startswith("the responses vary ") for line in lines)
