"""Predictions of runs with groups whose mean response differs between draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mixed_runs import draws_near, make_run
from numpy.typing import NDArray
from scipy import special, stats

import streammc
from streammc import from_table
from streammc.models import ordinal, weibull
from streammc.prediction.mean_responses import effect_levels

Array = NDArray[np.float64]
LOG_GAPS = [-1.5, 1.0]


def expected_category(eta: Array, log_gaps: Array) -> Array:
    """Return the means (draws, points) of predictors (draws, points), gaps (draws, 2)."""
    cut = np.c_[np.zeros(len(log_gaps)), np.cumsum(np.exp(log_gaps), axis=1)]
    total: Array = special.expit(eta[..., None] - cut[:, None]).sum(axis=-1)
    return total


def mean_time(eta: Array, log_shape: Array) -> Array:
    """Return the means (draws, points) of Weibull times at predictors (draws, points)."""
    total: Array = np.exp(eta) * special.gamma(1.0 + np.exp(-log_shape))
    return total


FAMILIES = {
    "ordinal": (ordinal(levels=4), LOG_GAPS, expected_category),
    "weibull": (weibull(), [-0.4], mean_time),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_bands_of_new_groups_are_quantiles_over_draws_and_effects(
    tmp_path: Path, name: str
) -> None:
    model, shared, mean = FAMILIES[name]
    rng = np.random.default_rng(3)
    y = np.arange(60) % 4 + (name == "weibull")
    table = {"y": y, "x": rng.normal(size=60), "g": np.arange(60) // 6}
    data = from_table(table, formula="y ~ x + (1 | g)", dtype="float64", standardize=False)
    draws = draws_near([0.3, 0.6, *shared, 0.2], 0.3, (2, 400))
    run = make_run(tmp_path / "run", model, data, draws)
    new = {"y": np.ones(4), "x": np.linspace(-2.0, 2.0, 4), "g": np.full(4, 99)}
    rows = from_table(new, like=data, dtype="float64")
    with pytest.warns(UserWarning, match="4 of 4 rows"):
        found = streammc.predict(run, rows, draws=800, trained_on=data)
    theta = draws.reshape(-1, 3 + len(shared))
    fine = np.tile((np.arange(500) + 0.5) / 500, (800, 1))
    for i, x in enumerate(new["x"][found["row_id"].values]):
        centre, sd = (theta[:, 0] + theta[:, 1] * x)[:, None], np.exp(theta[:, -1])[:, None]
        means = mean(centre + sd * stats.norm.ppf(fine), theta[:, 2:-1])
        few = mean(centre + sd * stats.norm.ppf(effect_levels(800)), theta[:, 2:-1])
        nodes, masses = np.polynomial.hermite_e.hermegauss(61)
        average = mean(centre + sd * nodes, theta[:, 2:-1]) @ masses / masses.sum()
        assert found["mean"].values[i] == pytest.approx(average.mean(), rel=2e-4)
        for end, p in (("q5", 0.05), ("q95", 0.95)):
            assert found[end].values[i] == pytest.approx(np.quantile(few, p), rel=1e-6)
            assert found[end].values[i] == pytest.approx(np.quantile(means, p), rel=0.08)


def test_bands_by_the_quantiles_of_the_predictor_alone_are_other_ones() -> None:
    draws = draws_near([0.3, *LOG_GAPS], 0.3, (1, 800))[0]
    eta = draws[:, :1] + 1.3 * stats.norm.ppf((np.arange(500) + 0.5) / 500)
    right = np.quantile(expected_category(eta, draws[:, 1:]), 0.95)
    wrong = expected_category(np.quantile(eta, [[0.95]]), np.zeros((1, 2)))[0, 0]
    assert abs(right - wrong) > 0.08
