"""Probabilities of categories: of rows, with bands, and their averages over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mixed_runs import draws_near, make_run
from numpy.typing import NDArray
from scipy import special

import streammc
from streammc import from_table
from streammc.errors import ConfigError, ModelError
from streammc.models import logistic, multinomial, ordinal
from streammc.prediction.mean_responses import CategoryChance

Array = NDArray[np.float64]
THETA = [0.4, 0.8, -0.3, 0.5]
"""Of three categories and the columns Intercept and x; of ordinal ones the first three numbers."""


def of_multinomial(draws: Array, x: Array) -> Array:
    """Return the probabilities (draws, rows, 3)."""
    eta = [np.zeros((len(draws), len(x)))]
    eta += [draws[:, [2 * k]] + draws[:, [2 * k + 1]] * x for k in range(2)]
    chances: Array = special.softmax(np.stack(eta, axis=-1), axis=-1)
    return chances


def of_ordinal(draws: Array, x: Array) -> Array:
    """Return the probabilities (draws, rows, 3)."""
    eta = draws[:, [0]] + draws[:, [1]] * x
    upto = [special.expit(-eta), special.expit(np.exp(draws[:, [2]]) - eta)]
    ends = [np.zeros_like(eta), *upto, np.ones_like(eta)]
    chances: Array = np.diff(np.stack(ends, axis=-1), axis=-1)
    return chances


CASES = {
    "multinomial": (multinomial(levels=3), THETA, of_multinomial, {}),
    "ordinal": (ordinal(levels=3), THETA[:3], of_ordinal, {"probabilities": True}),
}


def table(rows: int) -> dict[str, Array]:
    rng = np.random.default_rng(4)
    return {"y": np.arange(float(rows)) % 3, "x": rng.normal(size=rows)}


@pytest.mark.parametrize("name", CASES)
def test_probabilities_of_rows_are_those_of_the_draws(tmp_path: Path, name: str) -> None:
    model, theta, exact, options = CASES[name]
    rows = table(300)
    data = from_table(rows, formula="y ~ x", dtype="float64", standardize=False)
    draws = draws_near(theta, 0.2, (2, 100))
    run = make_run(tmp_path / "run", model, data, draws)
    found = streammc.predict(run, data, **options)
    assert ("row", "category") == found["mean"].dims
    assert [0, 1, 2] == found["category"].values.tolist()
    flat, x = draws.reshape(200, -1), rows["x"][found["row_id"].values]
    each = exact(flat, x)
    np.testing.assert_allclose(each.mean(axis=0), found["mean"].values, rtol=1e-12)
    np.testing.assert_allclose(1.0, found["mean"].values.sum(axis=1), rtol=1e-12)
    for end, p in (("q5", 0.05), ("q95", 0.95)):
        np.testing.assert_allclose(np.quantile(each, p, axis=0), found[end].values, rtol=1e-10)
    y = rows["y"][found["row_id"].values].astype(np.int64)
    score = np.log(each.mean(axis=0)[np.arange(300), y]).mean()
    assert streammc.facts(found)["log_score"] == pytest.approx(score, rel=1e-10)
    assert 3 == streammc.facts(found)["categories"]


def test_frames_have_a_line_for_each_row_and_category(tmp_path: Path) -> None:
    data = from_table(table(90), formula="y ~ x", dtype="float64", standardize=False)
    run = make_run(tmp_path / "run", multinomial(levels=3), data, draws_near(THETA, 0.2, (2, 50)))
    new = pd.DataFrame({"x": [0.5, -1.0]}, index=["a", "b"])
    found = streammc.predict(run, new)
    assert ["row_id", "category", "mean", "eti90_lb", "eti90_ub"] == list(found.columns)
    assert ["a"] * 3 + ["b"] * 3 == found.index.tolist()
    assert [0, 1, 2] * 2 == found["category"].tolist()
    np.testing.assert_allclose(1.0, found.groupby("row_id")["mean"].sum(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*rows of 'memory' belong to groups")
def test_probabilities_in_new_groups_are_averages_over_their_effect(tmp_path: Path) -> None:
    rows = {**table(60), "g": np.arange(60) // 6}
    data = from_table(rows, formula="y ~ x + (1 | g)", dtype="float64", standardize=False)
    draws = draws_near([*THETA[:3], 0.2], 0.2, (2, 100))
    run = make_run(tmp_path / "run", ordinal(levels=3), data, draws)
    new = {"y": np.ones(3), "x": np.array([-1.0, 0.0, 2.0]), "g": np.full(3, 99)}
    made = from_table(new, like=data, dtype="float64")
    found = streammc.predict(run, made, draws=200, probabilities=True, trained_on=data)
    flat, x = draws.reshape(200, -1), new["x"][found["row_id"].values]
    nodes, masses = np.polynomial.hermite_e.hermegauss(61)
    mean = np.zeros((3, 3))
    for node, mass in zip(nodes, masses / masses.sum(), strict=True):
        moved = flat[:, :3] + np.exp(flat[:, 3:]) * node * np.array([1.0, 0.0, 0.0])
        mean += mass * of_ordinal(moved, x).mean(axis=0)
    np.testing.assert_allclose(mean, found["mean"].values, rtol=3e-4)
    assert (found["q95"].values > found["mean"].values).all()


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_probability_are_differences_of_it(name: str) -> None:
    model = CASES[name][0]
    eta = np.random.default_rng(2).normal(size=(2, 5))
    for k in range(3):
        chance = CategoryChance(model, k)
        value, slope, bend = chance.derivatives(eta)
        np.testing.assert_allclose(chance.mean(eta), value, rtol=1e-14)
        step, pair = 1e-5, 0
        for a in range(2):
            move = step * np.eye(2)[:, [a]]
            up, down = (chance.derivatives(eta + sign * move) for sign in (1.0, -1.0))
            np.testing.assert_allclose((up[0] - down[0]) / (2 * step), slope[a], atol=1e-9)
            for b in range(a + 1):
                np.testing.assert_allclose(
                    (up[1][b] - down[1][b]) / (2 * step), bend[pair], atol=1e-9
                )
                pair += 1


def test_what_has_no_probabilities_or_no_mean_is_refused(tmp_path: Path) -> None:
    rows = table(90)
    data = from_table(rows, formula="y ~ x", dtype="float64", standardize=False)
    run = make_run(tmp_path / "run", multinomial(levels=3), data, draws_near(THETA, 0.2, (2, 50)))
    with pytest.raises(ConfigError, match=r"no groups of 'x' with probabilities .* leave by out"):
        streammc.predict(run, data, by="x")
    with pytest.raises(ModelError, match="predict the probabilities of its categories"):
        streammc.scorer.export(run, tmp_path / "model.json")
    binary = from_table({**rows, "y": rows["y"] % 2}, formula="y ~ x", standardize=False)
    other = make_run(tmp_path / "other", logistic(), binary, draws_near(THETA[:2], 0.2, (2, 50)))
    with pytest.raises(ConfigError, match=r"found one of 'logistic', .* leave probabilities out"):
        streammc.predict(other, binary, probabilities=True)


SCALE = 0.05


def made(folder: Path, name: str, rows: int = 600) -> tuple[Any, Any, Any, Any]:
    """Return a run, its data, its draws (S, d) and the column x."""
    model, theta, _, _ = CASES[name]
    own = table(rows)
    data = from_table(own, formula="y ~ x", dtype="float64", standardize=False, shuffle=False)
    draws = draws_near(theta, SCALE, (2, 100))
    return make_run(folder / "run", model, data, draws), data, draws.reshape(200, -1), own["x"]


@pytest.mark.parametrize("name", CASES)
def test_averages_are_those_of_all_rows_and_draws(tmp_path: Path, name: str) -> None:
    run, data, draws, x = made(tmp_path, name)
    exact = CASES[name][2]
    found = streammc.predictions(run, data, category=[0, 1, 2]).to_pydict()
    every = exact(draws, x).mean(axis=1)
    assert [0, 1, 2] == found["category"]
    np.testing.assert_allclose(every.mean(axis=0), found["estimate"], rtol=1e-4)
    np.testing.assert_allclose(every.std(axis=0), found["std_error"], rtol=1e-2)
    assert 1.0 == pytest.approx(sum(found["estimate"]), rel=1e-4)
    one = streammc.comparisons(run, data, {"x": 0.5}, category=2).to_pydict()
    change = (exact(draws, x + 0.5) - exact(draws, x)).mean(axis=1)[:, 2]
    assert (["x"], [2]) == (one["term"], one["category"])
    assert change.mean() == pytest.approx(one["estimate"][0], rel=1e-3)
    other = (exact(draws, x + 0.5) - exact(draws, x)).mean(axis=1)[:, 1]
    assert abs(other.mean() - one["estimate"][0]) > 0.01
    slope = streammc.slopes(run, data, "x", category=2).to_pydict()
    step = (exact(draws, x + 1e-5) - exact(draws, x - 1e-5)).mean(axis=1)[:, 2] / 2e-5
    assert step.mean() == pytest.approx(slope["estimate"][0], rel=1e-3)


def test_multinomial_averages_every_category_unless_some_are_named(tmp_path: Path) -> None:
    run, data, draws, x = made(tmp_path, "multinomial")
    found = streammc.predictions(run, data).to_pydict()
    assert [0, 1, 2] == found["category"]
    at_mean = streammc.predictions(run, data, at="mean", category=1).to_pydict()
    exact = CASES["multinomial"][2](draws, np.array([x.mean()]))[:, 0, 1]
    assert exact.mean() == pytest.approx(at_mean["estimate"][0], rel=1e-6)
    rest = streammc.predictions(run, data, hypothesis="b2 - b1 = 0").to_pydict()
    apart = found["estimate"][1] - found["estimate"][0]
    assert apart == pytest.approx(rest["estimate"][0], rel=1e-6)


def test_ordinal_averages_its_mean_category_unless_some_are_named(tmp_path: Path) -> None:
    run, data, draws, x = made(tmp_path, "ordinal")
    found = streammc.predictions(run, data).to_pydict()
    mean = of_ordinal(draws, x).mean(axis=1) @ np.arange(3.0)
    assert "category" not in found
    assert mean.mean() == pytest.approx(found["estimate"][0], rel=1e-4)


def test_new_groups_are_averaged_over(tmp_path: Path) -> None:
    rows = {**table(120), "g": np.arange(120) // 6}
    data = from_table(rows, formula="y ~ x + (1 | g)", dtype="float64", standardize=False)
    draws = draws_near([*THETA[:3], 0.2], SCALE, (2, 100))
    run = make_run(tmp_path / "run", ordinal(levels=3), data, draws)
    found = streammc.predictions(run, data, category=1).to_pydict()
    nodes, masses = np.polynomial.hermite_e.hermegauss(61)
    flat, mean = draws.reshape(200, -1), 0.0
    for node, mass in zip(nodes, masses / masses.sum(), strict=True):
        moved = flat[:, :3] + np.exp(flat[:, 3:]) * node * np.array([1.0, 0.0, 0.0])
        mean += mass * of_ordinal(moved, rows["x"])[:, :, 1].mean()
    assert mean == pytest.approx(found["estimate"][0], rel=1e-3)


def test_wrong_categories_are_refused(tmp_path: Path) -> None:
    run, data, _, _ = made(tmp_path, "multinomial", 90)
    with pytest.raises(ConfigError, match=r"category from 0 to 2, found 3: choose"):
        streammc.predictions(run, data, category=3)
    rows = table(90)
    binary = from_table({**rows, "y": rows["y"] % 2}, formula="y ~ x", standardize=False)
    other = make_run(tmp_path / "other", logistic(), binary, draws_near(THETA[:2], 0.2, (2, 50)))
    with pytest.raises(ConfigError, match=r"found one of 'logistic', .* leave category out"):
        streammc.slopes(other, binary, category=1)
