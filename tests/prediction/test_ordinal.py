"""Predictions of ordinal runs with groups: the mean response differs between draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mixed_runs import draws_near, make_run
from numpy.typing import NDArray
from scipy import special, stats

import streammc
from streammc import from_table
from streammc.models import ordinal
from streammc.prediction.mean_responses import effect_levels

Array = NDArray[np.float64]
LOG_GAPS = [-1.5, 1.0]


def expected_category(eta: Array, log_gaps: Array) -> Array:
    """Return the means (draws, points) of predictors (draws, points), gaps (draws, 2)."""
    cut = np.c_[np.zeros(len(log_gaps)), np.cumsum(np.exp(log_gaps), axis=1)]
    total: Array = special.expit(eta[..., None] - cut[:, None]).sum(axis=-1)
    return total


def test_bands_of_new_groups_are_quantiles_over_draws_and_effects(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = {"y": np.arange(60) % 4, "x": rng.normal(size=60), "g": np.arange(60) // 6}
    data = from_table(table, formula="y ~ x + (1 | g)", dtype="float64", standardize=False)
    draws = draws_near([0.3, 0.6, *LOG_GAPS, 0.2], 0.3, (2, 400))
    run = make_run(tmp_path / "run", ordinal(levels=4), data, draws)
    new = {"y": np.ones(4), "x": np.linspace(-2.0, 2.0, 4), "g": np.full(4, 99)}
    rows = from_table(new, like=data, dtype="float64")
    with pytest.warns(UserWarning, match="4 of 4 rows"):
        found = streammc.predict(run, rows, draws=800, trained_on=data)
    theta = draws.reshape(-1, 5)
    fine = np.tile((np.arange(500) + 0.5) / 500, (800, 1))
    for i, x in enumerate(new["x"][found["row_id"].values]):
        centre, sd = (theta[:, 0] + theta[:, 1] * x)[:, None], np.exp(theta[:, 4])[:, None]
        means = expected_category(centre + sd * stats.norm.ppf(fine), theta[:, 2:4])
        few = expected_category(centre + sd * stats.norm.ppf(effect_levels(800)), theta[:, 2:4])
        assert found["mean"].values[i] == pytest.approx(means.mean(), abs=2e-4)
        for end, p in (("q5", 0.05), ("q95", 0.95)):
            assert found[end].values[i] == pytest.approx(np.quantile(few, p), abs=1e-6)
            assert found[end].values[i] == pytest.approx(np.quantile(means, p), abs=0.04)


def test_bands_by_the_quantiles_of_the_predictor_alone_are_other_ones() -> None:
    draws = draws_near([0.3, *LOG_GAPS], 0.3, (1, 800))[0]
    eta = draws[:, :1] + 1.3 * stats.norm.ppf((np.arange(500) + 0.5) / 500)
    right = np.quantile(expected_category(eta, draws[:, 1:]), 0.95)
    wrong = expected_category(np.quantile(eta, [[0.95]]), np.zeros((1, 2)))[0, 0]
    assert abs(right - wrong) > 0.08
