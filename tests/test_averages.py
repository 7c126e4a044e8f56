"""Averages at every draw against all rows times all draws; what cannot be asked is refused."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from mixed_runs import make_run

import streammc
from streammc import averages, models
from streammc.errors import ConfigError, DataError
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.prediction.mean_responses import responses

N, DRAWS = 20_000, 200
FORMULA = "y ~ x * C(g) + z + I(z ** 2) + C(k)"


def frame(n=N, seed=3):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": 3.0 + 2.0 * rng.normal(size=n),
            "g": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
            "z": rng.exponential(size=n),
            "k": rng.integers(0, 3, n),
            "w": rng.integers(1, 4, n),
            "t": rng.integers(1, 9, n),
            "o": 0.2 * rng.normal(size=n),
        }
    )


FAMILIES = {
    "logistic": (models.logistic, {}),
    "probit": (models.probit, {"weight": "w"}),
    "binomial": (models.binomial, {"trials": "t"}),
    "poisson": (models.poisson, {"offset": "o"}),
    "exponential": (models.exponential, {}),
    "gamma": (models.gamma, {}),
    "negative-binomial": (models.negative_binomial, {"offset": "o", "weight": "w"}),
    "ordinal": (lambda: models.ordinal(levels=4), {"weight": "w"}),
    "gaussian": (models.gaussian, {}),
    "student-t": (models.student_t, {}),
}


def case(name, tmp_path, table=None):
    """A run with draws as far apart as those of a posterior of N rows, its table and its store."""
    family, columns = FAMILIES[name]
    table = frame() if table is None else table
    rng = np.random.default_rng(7)
    positive = {"exponential", "gamma"}
    most = 4 if name == "ordinal" else 2
    table["y"] = rng.integers(0, most, len(table)) + (0.5 if name in positive else 0)
    data = streammc.from_table(table, formula=FORMULA, chunk_rows=4096, **columns)
    model = family()
    q = data.n_features
    centre = np.r_[-0.3, rng.normal(0.0, 0.25, q - 1), np.zeros(model.n_scalar)]
    spread = 3.0 / np.sqrt(len(table))
    theta = centre + spread * rng.normal(size=(2, DRAWS // 2, len(centre)))
    return make_run(tmp_path / "run", model, data, theta), model, data, theta.reshape(DRAWS, -1)


def brute(model, data, theta, change, table, weights):
    """The average of every row of a changed table at every draw, by new columns of the design."""
    changed = change(table.copy())
    X = np.concatenate([part.X for part in streammc.stores.encode_rows(data.attributes, changed)])
    offset = table["o"].to_numpy() if data.attributes["offset"] else np.zeros(len(table))
    response = averages.MeanResponse(model)
    eta = response.predictors(X, offset, theta)
    return weights @ responses(model, eta) / weights.sum()


def weights_of(data, table):
    weights = np.ones(len(table))
    for column in ("weight", "trials"):
        if data.attributes[column]:
            weights = weights * table[data.attributes[column]].to_numpy()
    return weights


def step(table):
    table["x"] += 1.0
    return table


def level(value):
    return lambda table: table.assign(g=value)


@pytest.mark.parametrize("name", FAMILIES)
def test_comparisons_are_those_of_all_rows_times_all_draws(name, tmp_path):
    run, model, data, theta = case(name, tmp_path)
    table = frame()
    asked = streammc.comparisons(run, data, {"x": 1, "g": ["a", "c"]}, keep_draws=True)
    weights = weights_of(data, table)
    truth = [
        brute(model, data, theta, step, table, weights)
        - brute(model, data, theta, lambda t: t, table, weights),
        brute(model, data, theta, level("c"), table, weights)
        - brute(model, data, theta, level("a"), table, weights),
    ]
    for row, exact in zip(asked.to_pylist(), truth, strict=True):
        sd = exact.std()
        error = np.abs(np.array(row["draws"]) - exact)
        assert error.max() < 0.01 * sd
        assert row["estimate"] == pytest.approx(exact.mean(), abs=0.01 * sd)
        assert row["std_error"] == pytest.approx(sd, rel=0.02)
        assert row["conf_low"] == pytest.approx(np.quantile(exact, 0.05), abs=0.03 * sd)
        assert row["error"] < averages.ENOUGH


def test_groups_predictions_and_slopes(tmp_path):
    run, model, data, theta = case("logistic", tmp_path)
    table, ones = frame(), np.ones(N)
    averaged = streammc.predictions(run, data, by=["g", "k"], keep_draws=True).to_pylist()
    assert len(averaged) == 9
    for row in averaged:
        inside = ones * ((table.g == row["g"]) & (table.k == row["k"]))
        exact = brute(model, data, theta, lambda t: t, table, inside)
        assert np.abs(np.array(row["draws"]) - exact).max() < 0.01 * exact.std()
    (slope,) = streammc.slopes(run, data, "z", keep_draws=True).to_pylist()
    ends = [
        brute(model, data, theta, lambda t, h=h: t.assign(z=t.z + h), table, ones)
        for h in (-1e-4, 1e-4)
    ]
    exact = (ends[1] - ends[0]) / 2e-4
    assert np.abs(np.array(slope["draws"]) - exact).max() < 0.01 * exact.std()


@pytest.mark.parametrize("comparison", ["ratio", "lnratio", "lnor"])
def test_other_comparisons_of_averages(comparison, tmp_path):
    run, model, data, theta = case("logistic", tmp_path)
    table, ones = frame(), np.ones(N)
    asked = streammc.comparisons(
        run, data, {"g": ["a", "b"]}, comparison=comparison, keep_draws=True
    )
    low, high = (brute(model, data, theta, level(each), table, ones) for each in "ab")
    odds = high / (1 - high) / (low / (1 - low))
    exact = {"ratio": high / low, "lnratio": np.log(high / low), "lnor": np.log(odds)}[comparison]
    error = np.abs(np.array(asked["draws"].to_pylist()[0]) - exact)
    assert error.max() < 0.01 * exact.std()


def test_a_change_moves_the_offset_that_is_made_of_it(tmp_path):
    table = frame(4000)
    table["e"], table["b"] = np.exp(table.o), table.z > 1.0
    table["y"] = np.random.default_rng(1).integers(0, 3, len(table))
    data = streammc.from_table(table, formula="y ~ x + e + b + offset(log(e))", dtype="float64")
    theta = 0.1 * np.random.default_rng(2).normal(size=(1, 60, data.n_features))
    run = make_run(tmp_path / "run", models.poisson(), data, theta)
    asked = streammc.comparisons(run, data, ["e", "b"], keep_draws=True).to_pylist()
    scale = data.attributes["standardization"]["scale"]

    def averages_of(e, b):
        X = np.c_[np.ones(len(table)), table.x, e, b]
        X[:, 1:] = (X[:, 1:] - data.attributes["standardization"]["mean"][1:]) / scale[1:]
        return np.exp(X @ theta[0].T + np.log(e).to_numpy()[:, None]).mean(axis=0)

    e, b = table.e, table.b.astype(float)
    of_e = averages_of(e + 1.0, b) - averages_of(e, b)
    of_b = averages_of(e, np.ones(len(b))) - averages_of(e, np.zeros(len(b)))
    assert [row["contrast"] for row in asked] == ["+1", "1 - 0"]
    for row, exact in zip(asked, (of_e, of_b), strict=True):
        assert np.abs(np.array(row["draws"]) - exact).max() < 0.03 * exact.std()


def test_a_slope_of_columns_that_are_not_standardised(tmp_path):
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(3000), 1e-6 * rng.normal(size=3000)]
    data = streammc.from_arrays(X, rng.integers(0, 2, 3000).astype(float))
    theta = np.r_[0.2, 1e6] * (1.0 + 0.05 * rng.normal(size=(1, 60, 2)))
    run = make_run(tmp_path / "run", models.logistic(), data, theta)
    name = data.feature_names[1]
    (slope,) = streammc.slopes(run, data, name, keep_draws=True).to_pylist()
    p = 1.0 / (1.0 + np.exp(-X @ theta[0].T))
    exact = (p * (1.0 - p)).mean(axis=0) * theta[0][:, 1]
    assert np.abs(np.array(slope["draws"]) - exact).max() < 0.02 * exact.std()


def test_groups_have_the_values_of_the_table(tmp_path):
    table = frame(3000)
    table["year"], table["y"] = 2000 + table.k, np.random.default_rng(1).integers(0, 2, 3000)
    data = streammc.from_table(table, formula="y ~ year + C(g) : bs(x, df=4) + x + g")
    theta = 0.1 * np.random.default_rng(2).normal(size=(1, 50, data.n_features))
    run = make_run(tmp_path / "run", models.logistic(), data, theta)
    assert streammc.predictions(run, data, by="year")["year"].to_pylist() == [2000, 2001, 2002]
    assert streammc.predictions(run, data, by="g")["g"].to_pylist() == ["a", "b", "c"]


def test_answers_that_are_not_finite_are_refused(tmp_path, monkeypatch):
    run, _, data, _ = case("poisson", tmp_path, frame(2000))
    with pytest.raises(DataError, match="odds are of averages between 0 and 1"):
        streammc.comparisons(run, data, {"x": 1}, comparison="lnor")
    with pytest.raises(DataError, match=r"x: mean responses overflow .* column by less"):
        streammc.comparisons(run, data, {"x": 1e6})
    monkeypatch.setattr(averages, "MOST_BYTES", 4000)
    with pytest.raises(DataError, match=r"found more by g: .* ask for fewer variables"):
        streammc.comparisons(run, data, {"x": 1}, by="g")


def far_case(tmp_path):
    """Draws so far apart that the expansion is poor."""
    _, model, data, theta = case("logistic", tmp_path)
    rng = np.random.default_rng(1)
    wide = theta.mean(axis=0) + 0.4 * rng.normal(size=theta.shape)
    return make_run(tmp_path / "far", model, data, wide[None]), model, data, wide


def test_the_stated_error_is_that_of_the_sample(tmp_path, monkeypatch):
    run, model, data, theta = far_case(tmp_path)
    monkeypatch.setattr(averages, "ENOUGH", 10.0)
    monkeypatch.setattr(averages, "FEWEST", 200)
    table = frame()
    exact = brute(model, data, theta, step, table, np.ones(N)) - brute(
        model, data, theta, lambda t: t, table, np.ones(N)
    )
    stated, found = [], []
    for seed in range(40):
        (row,) = streammc.comparisons(run, data, {"x": 1}, seed=seed, keep_draws=True).to_pylist()
        stated.append(row["error"] ** 2)
        found.append(np.mean((np.array(row["draws"]) - exact) ** 2) / exact.var())
    ratio = np.sqrt(np.mean(found) / np.mean(stated))
    assert 0.7 < ratio < 1.4
    monkeypatch.setattr(averages, "_remainders", no_remainders(averages._remainders))
    (row,) = streammc.comparisons(run, data, {"x": 1}, keep_draws=True).to_pylist()
    lost = np.sqrt(np.mean((np.array(row["draws"]) - exact) ** 2)) / exact.std()
    assert lost > 3.0 * np.sqrt(np.mean(stated))


def no_remainders(original):
    def broken(*arguments):
        rest, errors = original(*arguments)
        return [0.0 * each for each in rest], errors

    return broken


def test_a_poor_expansion_gets_more_rows_or_a_warning(tmp_path, monkeypatch):
    run, _, data, _ = far_case(tmp_path)
    monkeypatch.setattr(averages, "SAMPLED", 100)
    (row,) = streammc.comparisons(run, data, {"x": 1}).to_pylist()
    assert 0.0 < row["error"] <= averages.ENOUGH
    monkeypatch.setattr(averages, "MOST_SAMPLED", 150)
    stated = "from a sample of rows with a standard error of up to"
    with pytest.warns(UserWarning, match=stated):
        one, two = streammc.comparisons(run, data, {"x": 1, "z": 1}).to_pylist()
    tested = {"hypothesis": ["b1 = 0", "b1 - b2 = 0"]}
    with pytest.warns(UserWarning, match=stated):
        alone, both = streammc.comparisons(run, data, {"x": 1, "z": 1}, **tested).to_pylist()
    assert alone["error"] == pytest.approx(one["error"], rel=1e-9)
    most = sum(each["error"] * each["std_error"] for each in (one, two)) / both["std_error"]
    assert 0.0 < both["error"] <= most * (1.0 + 1e-9)


def test_a_table_beside_the_store_and_any_number_of_threads(tmp_path):
    run, _, data, _ = case("poisson", tmp_path)
    table = frame()
    asked = [
        streammc.comparisons(run, rows, {"k": "pairwise", "z": "sd"}, by="g", scheduler=threads)
        for rows, threads in ((data, None), (data, 3), (table, None))
    ]
    assert asked[0].equals(asked[1])
    own, other = asked[0].to_pandas(), asked[2]
    assert (own.contrast == other.contrast).all()
    assert np.allclose(own.estimate, other.estimate, atol=1e-3 * own.std_error.min())


def test_levels_and_steps_are_spelled_as_documented(tmp_path):
    run, _, data, _ = case("logistic", tmp_path, frame(2000))
    every = streammc.comparisons(run, data).to_pandas()
    assert list(every.term) == ["x", "g", "g", "z", "k", "k"]
    assert list(every.contrast) == ["+1", "b - a", "c - a", "+1", "1 - 0", "2 - 0"]
    assert (every.error == 0.0).all() or every.error.max() < averages.ENOUGH
    some = streammc.comparisons(run, data, {"g": "sequential", "x": [1, 4.5], "k": [2, 0]})
    assert some["contrast"].to_pylist() == ["b - a", "c - b", "4.5 - 1", "0 - 2"]


def test_what_cannot_be_asked_is_refused(tmp_path):
    run, _, data, _ = case("logistic", tmp_path, frame(2000))
    for variables, message in (
        ({"q": 1}, "expected a column of the model, found 'q': choose among x, g"),
        (
            {"g": 1},
            r"expected reference, pairwise, sequential or two levels of 'g' such as \[a,c\]",
        ),
        ({"g": ["a", "d"]}, "two levels of 'g'"),
        ({"x": "big"}, r"expected a step such as 1, sd, or two values such as \[10,20\] of 'x'"),
        ({"x": 0}, "expected a step"),
    ):
        with pytest.raises(ConfigError, match=message):
            streammc.comparisons(run, data, variables)
    with pytest.raises(ConfigError, match="expected a comparison among difference, ratio"):
        streammc.comparisons(run, data, {"x": 1}, comparison="odds")
    with pytest.raises(ConfigError, match="found the factor 'g'"):
        streammc.slopes(run, data, "g")
    with pytest.raises(ConfigError, match="interval between 0 and 1"):
        streammc.predictions(run, data, interval=90)


def test_values_beyond_what_the_formula_was_fitted_for(tmp_path):
    table = frame(2000)
    table["y"] = np.random.default_rng(1).integers(0, 2, len(table))
    data = streammc.from_table(table, formula="y ~ x + bs(x, df=4) + poly(z, 2)")
    model = models.logistic()
    theta = 0.1 * np.random.default_rng(2).normal(size=(1, 50, data.n_features))
    run = make_run(tmp_path / "run", model, data, theta)
    with pytest.raises(DataError, match="change the column by less"):
        streammc.comparisons(run, data, {"x": 100.0})
    with pytest.raises(ConfigError, match="found 'z' inside other expressions alone"):
        streammc.comparisons(run, data, {"z": 1})


@pytest.mark.parametrize("effects", ["(1 | s)", "(1 + x | s)", "(1 + x | s) + (1 | r)"])
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_mixed_models_average_over_new_groups(family, effects, tmp_path):
    """Against integrals over the normal part of the predictor of every row, on a fine grid."""
    rng = np.random.default_rng(5)
    table = frame(3000)
    table["s"], table["y"] = rng.integers(0, 40, len(table)), rng.integers(0, 2, len(table))
    table["r"], cross, slope = rng.integers(0, 30, len(table)), "r" in effects, "x" in effects
    data = streammc.from_table(
        table,
        formula=f"y ~ x * C(g) + {effects}",
        group_as={"s": "crossed", "r": "crossed"} if cross else {},
    )
    model = {"logistic": models.logistic, "poisson": models.poisson}[family]()
    centre = np.r_[-0.5, 0.3 * rng.normal(size=data.n_features - 1), np.log(0.8)]
    centre = np.r_[centre, np.log(0.5), 0.3] if slope else centre
    centre = np.r_[centre, np.log(0.7)] if cross else centre
    theta = centre + 0.02 * rng.normal(size=(2, 30, len(centre)))
    run = make_run(tmp_path / "run", model, data, theta)
    asked = streammc.comparisons(run, data, {"x": 1}, keep_draws=True)
    found = np.array(asked["draws"].to_pylist()[0])
    q, place = data.n_features, list(data.feature_names).index("x")
    z = np.linspace(-8.0, 8.0, 161)
    share = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    exact, of_zero = np.empty((2, 60)), np.empty((2, 60))  # and groups whose effects are zero
    for k, rows in enumerate((table, step(table.copy()))):
        X = np.concatenate([part.X for part in streammc.stores.encode_rows(data.attributes, rows)])
        x = X[:, place].astype(np.float64)
        for s, one in enumerate(theta.reshape(60, -1)):
            variance = np.full(len(x), np.exp(2.0 * one[q]))
            if slope:
                covariance = np.tanh(one[q + 2]) * np.exp(one[q] + one[q + 1])
                variance += 2.0 * x * covariance + x**2 * np.exp(2.0 * one[q + 1])
            if cross:
                variance += np.exp(2.0 * one[q + 3])
            eta = X @ one[:q]
            nodes = eta[:, None] + np.sqrt(variance)[:, None] * z
            exact[k, s] = (model.mean(nodes.reshape(1, -1)).reshape(nodes.shape) @ share).mean()
            of_zero[k, s] = model.mean(eta[None]).mean()
    (exact,), (of_zero,) = np.diff(exact, axis=0), np.diff(of_zero, axis=0)
    bound = 2.0 * averages.ENOUGH * exact.std()
    assert np.sqrt(np.mean((found - exact) ** 2)) < bound
    assert np.sqrt(np.mean((of_zero - exact) ** 2)) > bound


@pytest.mark.parametrize("family", ["logistic", "negative_binomial"])
def test_derivatives_in_scales_and_correlations_are_those_of_differences(family):
    """By the logarithm of the variance of each row, against moves of all parameters together."""
    rng = np.random.default_rng(2)
    inner = getattr(models, family)()
    model = CrossedModel(
        inner.prior, inner=inner, crossed=("s", "r"), terms=(("1", "x", "z"), ("z",)),
        correlated=(True, False), features=("Intercept", "x", "z"),
    )  # fmt: skip
    response, X = averages.MeanResponse(model), np.c_[np.ones(9), rng.normal(size=(9, 2))]
    theta = 0.3 * rng.normal(size=(1, 3 + inner.n_scalar + model.n_covariance))
    eta, Z = response.predictors(X, np.zeros(9), theta)[:, :, 0], response.products(X)
    value, slope, bend = response.derivatives(eta, Z)
    for i in range(9):

        def moved(moves, row=i):
            return response((eta[:, row] + moves).T[:, None], Z[row : row + 1]).T

        exact = averages._differences(moved, len(eta))
        assert np.allclose(value[i], exact[0], rtol=1e-9)
        assert np.allclose(slope[:, i], exact[1][:, 0], rtol=1e-5, atol=1e-6 * value[i])
        assert np.allclose(bend[:, i], exact[2][:, 0], rtol=1e-4, atol=1e-5 * value[i])


def at_rows(model, data, theta, rows):
    """The mean response (rows, draws) of rows of a frame."""
    X = np.concatenate([part.X for part in streammc.stores.encode_rows(data.attributes, rows)])
    response = averages.MeanResponse(model)
    return responses(model, response.predictors(X, np.zeros(len(rows)), theta))


def test_rows_of_means_and_rows_of_a_grid(tmp_path):
    run, model, data, theta = case("logistic", tmp_path, frame(2000))
    table = frame(2000)
    means = table.groupby("g").agg({"x": "mean", "z": "mean", "k": lambda k: k.mode()[0]})
    grid = pd.DataFrame({"g": means.index, **means, "y": 0}).reset_index(drop=True)
    exact = at_rows(model, data, theta, grid)
    asked = streammc.predictions(run, data, by="g", at="mean", keep_draws=True)
    assert asked.column_names[:4] == ["g", "x", "z", "k"]
    assert asked["k"].to_pylist() == grid.k.tolist()
    assert np.allclose(np.array(asked["draws"].to_pylist()), exact, rtol=1e-5)
    rows = streammc.predictions(run, grid, by_row=True, keep_draws=True)
    assert rows.row_id.tolist() == [0, 1, 2]
    assert rows.g.tolist() == ["a", "b", "c"]
    assert np.allclose(np.stack(rows.draws), exact, rtol=1e-5)
    over_rows = streammc.predictions(run, data, by="g", keep_draws=True)
    assert not np.allclose(np.array(over_rows["draws"].to_pylist()), exact, rtol=1e-5)
    (moved,) = streammc.comparisons(run, data, {"x": 1}, at="mean", keep_draws=True).to_pylist()
    one = pd.DataFrame({"g": "a", "x": table.x.mean(), "z": table.z.mean(), "k": [1], "y": 0})
    one["k"] = table.k.mode()[0]
    both = [at_rows(model, data, theta, each) for each in (one, one.assign(x=one.x + 1.0))]
    assert np.allclose(moved["draws"], (both[1] - both[0])[0], rtol=1e-4)
    with pytest.raises(DataError, match="found more by row"):
        streammc.predictions(run, frame(2001).assign(y=0), by_row=True)
    with pytest.raises(ConfigError, match="expected by_row or at, found both"):
        streammc.predictions(run, data, by_row=True, at="mean")


def test_weights_by_a_column_of_the_table_or_of_the_store(tmp_path):
    run, model, data, theta = case("logistic", tmp_path)
    table = frame()
    table.loc[:99, "w"] = 0
    exact = brute(model, data, theta, lambda t: t, table, table.w.to_numpy())
    with pytest.raises(ConfigError, match="expected 'w' as the weight of"):
        streammc.predictions(run, data, weights="w")
    for rows, name in ((table, "w"), (table.assign(y=0), "w")):
        asked = streammc.predictions(run, rows, weights=name, keep_draws=True)
        error = np.stack(asked["draws"])[0] - exact
        assert np.sqrt(np.mean(error**2)) < averages.ENOUGH * exact.std()
    once = streammc.predictions(run, table, keep_draws=True)
    assert np.abs(np.stack(once["draws"])[0] - exact).max() > 0.1 * exact.std()
    of_column = streammc.predictions(run, data, weights="z", keep_draws=True)
    exact = brute(model, data, theta, lambda t: t, table, table.z.to_numpy())
    error = np.array(of_column["draws"].to_pylist()[0]) - exact
    assert np.sqrt(np.mean(error**2)) < averages.ENOUGH * exact.std()


def test_hypotheses_are_of_rows_of_the_result_at_every_draw(tmp_path):
    run, _, data, _ = case("logistic", tmp_path)
    rows = streammc.comparisons(run, data, {"g": "pairwise"}, keep_draws=True)
    b1, b2, b3 = np.array(rows["draws"].to_pylist())
    texts = ["b1 - b2 = 0", "b1 / b2 = 2", "exp(b3) == 1 + (b1 - b3) ** 2"]
    asked = streammc.comparisons(
        run, data, {"g": "pairwise"}, hypothesis=texts, keep_draws=True, interval=0.5
    ).to_pylist()
    exact = [b1 - b2, b1 / b2 - 2, np.exp(b3) - 1 - (b1 - b3) ** 2]
    for row, text, own in zip(asked, texts, exact, strict=True):
        assert row["term"] == text
        assert np.allclose(row["draws"], own, rtol=1e-12, atol=1e-15)
        assert row["above_zero"] == np.mean(own > 0)
        assert row["estimate"] == pytest.approx(own.mean())
        assert row["conf_high"] == pytest.approx(np.quantile(own, 0.75), abs=0.1 * own.std())
    assert not np.allclose(asked[0]["draws"], b2 - b1)
    for text, message in (
        ("b1 - b2", "expected one = between two sides"),
        ("b4 = 0", "expected rows of the result, b1 to b3, found 'b4'"),
        ("b1 < b2 = 0", "expected arithmetic with one ="),
        ("bs(b1) = 0", "expected arithmetic with one ="),
        ("b1.real = 0", "in the hypothesis, found '.'"),
        ("__import__(b1) = 0", "in the hypothesis, found '__import__'"),
    ):
        with pytest.raises(ConfigError, match="hypothesis .*" + re.escape(message)):
            streammc.comparisons(run, data, {"g": "pairwise"}, hypothesis=text)


def test_a_result_is_the_kind_of_frame_that_was_given(tmp_path):
    run, _, data, _ = case("logistic", tmp_path)
    table = frame(2000)
    table.to_parquet(tmp_path / "t.parquet")
    arrow = pa.Table.from_pandas(table)
    given = [table, pl.from_arrow(arrow), arrow, data, tmp_path / "t.parquet"]
    kinds = [pd.DataFrame, pl.DataFrame, pa.Table, pa.Table, pa.Table]
    found = [streammc.predictions(run, each, by="g") for each in given]
    assert [type(each) for each in found] == kinds
    assert found[0]["estimate"].tolist() == found[1]["estimate"].to_list()


def standard(z):
    """Whether numbers have mean 0 and mean square 1, within 4.5 standard errors."""
    bound = 4.5 / np.sqrt(z.size)
    return abs(z.mean()) < bound and abs((z**2).mean() - 1.0) < np.sqrt(2.0) * bound


@pytest.mark.parametrize("effects", ["(1 | s)", "(1 + x | s)"])
@pytest.mark.parametrize("family", ["logistic", "gaussian"])
def test_known_groups_have_the_effects_of_their_rows(family, effects, tmp_path):
    """Against mean and variance over the effects of each group, given its rows, on a fine grid."""
    rng = np.random.default_rng(5)
    table = frame(300)[["x", "g", "z"]]
    table["s"] = rng.choice(["p", "q", "r", "t"], 300)
    lean = table.s.map({"p": -0.8, "q": -0.4, "r": 0.4, "t": 0.8}) * (table.x - 3.0)
    table["y"] = (rng.logistic(size=300) < lean).astype(int)
    table = table.sort_values("s", kind="stable").reset_index(drop=True)
    data = streammc.from_table(
        table, formula=f"y ~ x + g + {effects}", dtype="float64", path=tmp_path / "t.zarr"
    )
    model = {"logistic": models.logistic, "gaussian": models.gaussian}[family]()
    q = data.n_features
    slope, first = "x" in effects, q + (family == "gaussian")
    of_effects = [0.0, 0.0, 0.3] if slope else [0.0]
    centre = np.r_[-0.5, 0.3 * rng.normal(size=q - 1), [np.log(0.9)] * (first - q), of_effects]
    S = 20 if slope else 40
    theta = centre + 0.1 * rng.normal(size=(2, S // 2, len(centre)))
    run = make_run(tmp_path / "run", model, data, theta)
    X = np.concatenate([part.X for part in streammc.stores.encode_rows(data.attributes, table)])
    moved = np.concatenate(
        [part.X for part in streammc.stores.encode_rows(data.attributes, step(table.copy()))]
    )
    y, place = table.y.to_numpy(), list(data.feature_names).index("x")
    axes = [np.linspace(-5.0, 5.0, 71)] * 2 if slope else [np.linspace(-8.0, 8.0, 2001)]
    v = np.stack([each.ravel() for each in np.meshgrid(*axes)])  # standardised effects
    exact = {name: np.empty((2, 2, S)) for name in "pqrt"}
    before = {name: np.empty((2, S)) for name in exact}  # the means without the group's rows
    for k, one in enumerate(theta.reshape(S, -1)):
        u, of_x = np.exp(one[first]) * v[0], 0.0
        if slope:
            rho = np.tanh(one[first + 2])
            of_x = np.exp(one[first + 1]) * (rho * v[0] + np.sqrt(1.0 - rho**2) * v[1])
        prior = np.exp(-0.5 * (v**2).sum(axis=0))
        for name in exact:
            inside = (table.s == name).to_numpy()
            eta, eta_moved = (
                (rows[inside] @ one[:q])[:, None] + u + rows[inside, place, None] * of_x
                for rows in (X, moved)
            )
            if family == "logistic":
                log_density = -np.logaddexp(0.0, np.where(y[inside, None], -eta, eta)).sum(0)
                eta, eta_moved = (1.0 / (1.0 + np.exp(-each)) for each in (eta, eta_moved))
            else:
                log_density = -0.5 * (((y[inside, None] - eta) / np.exp(one[q])) ** 2).sum(0)
            share = prior * np.exp(log_density - log_density.max())
            at_nodes = eta.mean(axis=0), (eta_moved - eta).mean(axis=0)
            for j, answer in enumerate(at_nodes):
                mean = answer @ share / share.sum()
                variance = (answer - mean) ** 2 @ share / share.sum()
                exact[name][j, :, k] = mean, np.sqrt(variance)
                before[name][j, k] = answer @ prior / prior.sum()
    known = {"groups": "known", "keep_draws": True}
    found = {name: np.empty((2, S)) for name in exact}
    for name in exact:
        rows = table[table.s == name]
        found[name][0] = streammc.predictions(run, rows, **known)["draws"][0]
        found[name][1] = streammc.comparisons(run, rows, {"x": 1}, **known)["draws"][0]
    for j in range(2):
        mean, sd = (np.stack([exact[name][j, part] for name in exact]) for part in (0, 1))
        draws = np.stack([found[name][j] for name in exact])
        if family == "gaussian" and j == 1 and not slope:  # no effect of a group is in it
            assert np.allclose(draws, mean, rtol=1e-3)
            continue
        assert standard((draws - mean) / sd)
        without_rows = np.stack([before[name][j] for name in exact])
        assert not standard((without_rows - mean) / sd)
    counts = table.s.value_counts()
    (whole,) = streammc.predictions(run, data, **known).to_pylist()
    total = sum(found[name][0] * counts[name] for name in exact) / len(table)
    assert np.allclose(whole["draws"], total, rtol=1e-6)
    of_rows = np.array(streammc.predictions(run, table, by_row=True, **known)["draws"].tolist())
    weighted = streammc.predictions(run, table, by="g", weights="z", **known)
    for level, draws in zip(weighted["g"], weighted["draws"], strict=True):
        inside = (table.g == level).to_numpy()
        own, weight = of_rows[inside], table.z[inside]
        assert np.allclose(draws, weight @ own / weight.sum(), rtol=1e-5)
        assert not np.allclose(draws, own.mean(axis=0), rtol=1e-3)
    (new,) = streammc.predictions(run, data, keep_draws=True).to_pylist()
    assert not np.allclose(new["draws"], total, rtol=1e-3)
    of_q = table[table.s == "q"]
    with pytest.raises(DataError, match="expected rows of groups that the run has seen, found 'v'"):
        streammc.predictions(run, of_q.assign(s="v"), groups="known")


def test_known_groups_need_groups(tmp_path):
    run, _, data, _ = case("logistic", tmp_path)
    with pytest.raises(ConfigError, match="expected known groups of a run of a mixed model"):
        streammc.predictions(run, data, groups="known")
    with pytest.raises(ConfigError, match="expected 'new' or 'known' as groups, found 'old'"):
        streammc.predictions(run, data, groups="old")


def test_numbers_of_the_table_come_back_as_they_are() -> None:
    rng = np.random.default_rng(3)
    age = rng.integers(18, 91, 2000).astype(float)
    table = {
        "age": age,
        "x": np.round(rng.exponential(size=2000), 2) * (rng.random(2000) > 0.3),
        "day": 20260101.0 + rng.integers(0, 28, 2000),
        "y": rng.integers(0, 2, 2000),
    }
    data = streammc.from_table(table, formula="y ~ age + x + day + I(age >= 65)")
    columns = averages.Columns(data.attributes)
    X = np.concatenate([part.X for part in streammc.stores.encode_rows(data.attributes, table)])
    found = columns.values(X, ["age", "x", "day"])
    for name in found:
        assert np.array_equal(table[name], found[name]), name
    assert 20260115 == columns.label("day", 20260115.0000004)
    # The threshold sees 64 + 1 as 65; with what single precision alone gives it does not.
    moved, _, _ = columns.replaced(X, {"age": lambda value: value + 1.0})
    changed = columns.replaced(X, {"age": lambda value: value + 1.0})[1]
    over = changed[:, moved.index(4)] > (0.5 - columns._mean[4]) / columns._scale[4]
    assert np.array_equal(age + 1.0 >= 65.0, over)


def test_a_function_out_of_its_range_is_refused() -> None:
    for compare, low, high in (("lnor", 1.5, 2.0), ("ratio", -1.0, 1.0), ("lnratio", -2.0, -1.0)):
        contrast = averages.Contrast("x", "+1", (0, 1), averages.COMPARISONS[compare])
        with pytest.raises(DataError, match="averages"):
            averages._contrasted(contrast, [np.full(3, low), np.full(3, high)], np.zeros(3))
