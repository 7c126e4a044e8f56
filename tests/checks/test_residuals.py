"""Quantile residuals: uniform under the model that drew the responses, and not under others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mixed_runs import draws_near, make_run
from scipy import special, stats

import streammc
from streammc import models
from streammc.errors import ConfigError, DataError, ModelError
from streammc.protocols import Dataset, Model

ROWS, BETA = 2000, np.array([0.4, 0.6])


def design(seed: int = 1) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(ROWS), rng.normal(size=ROWS)])


def simulated(model: Model, shared: list[float], trials: float = 1.0) -> Dataset:
    """Return rows of a model whose shared parameters, as they are sampled, are these."""
    X, n = design(), np.full(ROWS, trials)
    eta = np.vstack([X @ BETA, *(np.full((1, ROWS), each) for each in shared)])
    y = model.simulate_trials(eta, n, np.random.default_rng(2))
    if trials == 1.0:
        return streammc.from_arrays(X, y)
    return streammc.from_arrays(X, np.rint(y * n), trials=n)


def run_at(path: Path, model: Model, data: Dataset, shared: list[float]) -> Path:
    """Return a run whose draws are close to these parameters."""
    return make_run(path, model, data, draws_near(np.array([*BETA, *shared]), 0.003, (2, 100)))


RIGHT = {
    "logistic": (models.logistic(), [], 1.0),
    "poisson": (models.poisson(), [], 1.0),
    "negative-binomial": (models.negative_binomial(), [0.7], 1.0),
    "zero-inflated-poisson": (models.zero_inflated_poisson(), [-0.5], 1.0),
    "gaussian": (models.gaussian(), [0.3], 1.0),
    "binomial": (models.binomial(), [], 12.0),
    "beta-binomial": (models.beta_binomial(), [1.2], 12.0),
    "weibull": (models.weibull(), [0.4], 1.0),
}
WRONG = {
    "too narrow": ("gaussian", models.gaussian(), [0.0]),
    "too wide": ("gaussian", models.gaussian(), [0.6]),
    "without variation": ("negative-binomial", models.poisson(), []),
    "without zeros": ("zero-inflated-poisson", models.poisson(), []),
    "without correlation": ("beta-binomial", models.binomial(), []),
    "another shape": ("weibull", models.exponential(), []),
}


@pytest.mark.parametrize("name", RIGHT)
def test_residuals_of_the_true_model_are_standard_normal(name: str, tmp_path: Path) -> None:
    model, shared, trials = RIGHT[name]
    data = simulated(model, shared, trials)
    found = streammc.residuals(run_at(tmp_path / "run", model, data, shared), data, seed=3)
    assert found.attrs["ks_p_value"] > 1e-3
    assert abs(found.attrs["residual_mean"]) < 4.5 / np.sqrt(ROWS)
    assert abs(found.attrs["residual_sd"] - 1.0) < 4.5 / np.sqrt(2 * ROWS)
    np.testing.assert_allclose(found["residual"], stats.norm.ppf(found["pit"]))
    assert 0.0 < found["pit"].min() < found["pit"].max() < 1.0


@pytest.mark.parametrize("name", WRONG)
def test_residuals_of_a_wrong_model_are_not(name: str, tmp_path: Path) -> None:
    of, model, shared = WRONG[name]
    data = simulated(*RIGHT[of])
    run = run_at(tmp_path / "run", model, data, shared)
    found = streammc.residuals(run, data, seed=3).attrs
    assert found["ks_p_value"] < 1e-6
    narrow = name in ("too narrow", "without variation", "without correlation", "without zeros")
    assert (found["residual_sd"] > 1.1) == narrow


def test_pit_is_the_distribution_function_where_it_is_continuous(tmp_path: Path) -> None:
    model, shared = models.gaussian(), [0.3]
    data = simulated(model, shared)
    run = make_run(
        tmp_path / "run", model, data, np.tile([*BETA, *shared], (1, 4000, 1)).astype(float)
    )
    found = streammc.residuals(run, data, rows=300, draws=4000, seed=1)
    rows = found["row"].values
    X, y = design()[rows], data.rows().arrays[1][rows]
    truth = stats.norm.cdf(y, X @ BETA, np.exp(0.3))
    assert np.abs(found["pit"].values - truth).max() < 4.5 * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(found["mean"], X @ BETA, rtol=1e-12)


def test_numbers_follow_the_seed_and_rows_are_drawn_by_their_number(tmp_path: Path) -> None:
    model = models.poisson()
    data = simulated(model, [])
    run = run_at(tmp_path / "run", model, data, [])
    first, again, other = (streammc.residuals(run, data, rows=100, seed=seed) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    assert len(np.unique(first["row"])) == 100


def test_residuals_need_a_response_and_whole_numbers(tmp_path: Path) -> None:
    model = models.poisson()
    data = simulated(model, [])
    run = run_at(tmp_path / "run", model, data, [])
    with pytest.raises(DataError, match=r"expected responses of two rows or more.*no response"):
        streammc.residuals(run, streammc.from_arrays(design()))
    with pytest.raises(ConfigError, match="expected at least 1 row, found rows=0"):
        streammc.residuals(run, data, rows=0)


def test_calibration_of_the_true_model_is_inside_and_of_another_outside(tmp_path: Path) -> None:
    model = models.logistic()
    data = simulated(model, [])
    found = streammc.calibration(run_at(tmp_path / "run", model, data, []), data, seed=1)
    assert found.sizes["bin"] == 10
    assert found.attrs["p_value"] > 1e-3
    assert (found["rows"] == ROWS / 10).all()
    inside = (found["observed"] >= found["low"]) & (found["observed"] <= found["high"])
    assert inside.sum() >= 6  # nine are expected: 5 or fewer have the probability 1e-3
    wrong = make_run(tmp_path / "wrong", model, data, draws_near(2.5 * BETA, 0.003, (2, 100)))
    other = streammc.calibration(wrong, data, seed=1)
    assert other.attrs["p_value"] < 0.01
    away = (other["observed"] < other["low"]) | (other["observed"] > other["high"])
    assert away.sum() > 5
    assert other.attrs["miscalibration"] > 4.0 * found.attrs["miscalibration"]


def test_score_is_divided_and_rates_rise_with_the_chances(tmp_path: Path) -> None:
    model = models.logistic()
    data = simulated(model, [])
    found = streammc.calibration(run_at(tmp_path / "run", model, data, []), data, bins=7, seed=1)
    parts = [found.attrs[key] for key in ("miscalibration", "discrimination", "uncertainty")]
    assert abs(found.attrs["brier"] - (parts[0] - parts[1] + parts[2])) < 1e-12
    assert min(parts) >= 0.0
    y = data.rows().arrays[1][found["row"].values]
    chance = found["mean"].values
    assert abs(found.attrs["brier"] - np.square(y - chance).mean()) < 1e-12
    order = np.argsort(chance)
    assert (np.diff(found["recalibrated"].values[order]) >= 0.0).all()
    assert np.abs(chance - special.expit(design()[found["row"].values] @ BETA)).max() < 0.01
    assert abs((found["observed"] * found["weight"]).sum() - y.sum()) < 1e-9


def test_rates_of_trials_that_have_something_in_common_vary_more(tmp_path: Path) -> None:
    data = simulated(*RIGHT["beta-binomial"])
    right = run_at(tmp_path / "right", models.beta_binomial(), data, [1.2])
    narrow = run_at(tmp_path / "narrow", models.binomial(), data, [])
    first, other = (streammc.calibration(run, data, seed=1) for run in (right, narrow))
    assert first.attrs["p_value"] > 1e-3
    assert (first["weight"] == 12.0 * first["rows"]).all()
    width = (first["high"] - first["low"]) / (other["high"] - other["low"])
    expected = np.sqrt(1.0 + 11.0 / (1.0 + np.exp(1.2)))
    assert abs(float(width.mean()) / expected - 1.0) < 0.2


def test_responses_without_a_chance_are_refused(tmp_path: Path) -> None:
    model = models.poisson()
    data = simulated(model, [])
    run = run_at(tmp_path / "run", model, data, [])
    with pytest.raises(ModelError, match=r"0 and 1 or shares of trials.*'poisson'"):
        streammc.calibration(run, data)
    for bins in (0, 2.5, 1001):
        with pytest.raises(ConfigError, match=r"expected bins between 1 and 1000"):
            streammc.calibration(run, data, bins=bins)
    with pytest.raises(ConfigError, match=r"expected an interval between 0 and 1, found 1.5"):
        streammc.calibration(run, data, interval=1.5)


def test_a_table_is_known_by_its_own_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=400)
    table = {"x": x, "y": (rng.logistic(size=400) < x).astype(int)}
    run = streammc.fit(
        table, "y ~ x", "logistic", seed=1, draws=100, warmup=100, path=tmp_path / "r"
    )
    found = streammc.residuals(tmp_path / "r", table, seed=1)
    assert (found["row"] == np.arange(400)).all()
    theta = run["posterior"]["beta"].mean(("chain", "draw")).values
    assert np.corrcoef(found["mean"], special.expit(theta[0] + theta[1] * x))[0, 1] > 0.999
    chances = streammc.calibration(tmp_path / "r", table)
    assert (chances["row"] == np.arange(400)).all()
