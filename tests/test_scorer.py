"""Model files: the numbers of ``streammc.predict`` from the same draws, by NumPy alone."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from mixed_runs import draws_near, make_run
from scipy.special import ndtr

import streammc
from streammc import from_table, models, registry, scorer
from streammc.errors import (
    ConfigError,
    DataError,
    IdentityError,
    MissingError,
    ModelError,
    RefusedError,
    StorageIOError,
    StoreError,
)

FORMULA = (
    "y ~ x * C(origin, contr.treatment('b')) + bs(z, df=5) + poly(x, 2):t + scale(z) + C(month)"
    " + hour(`my day`) + C(weekday(`my day`))"
    " + C(month, contr.poly):x + C(t, Sum):z + I(t == 'p') + (1 | h) + offset(log(e))"
)


def frame(n=600, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "x": 3.0 + rng.normal(size=n),
            "z": rng.uniform(-1, 1, n).round(3),
            "origin": rng.choice(["a", "b", "c"], n),
            "t": rng.choice(["p", "q"], n),
            "month": rng.choice([1, 2.5, 12], n),
            "h": rng.choice(["u", "v", "w"], n),
            "e": rng.uniform(0.5, 2, n),
            "my day": rng.choice(np.array(["2024-01-31", "2024-02-01T12:30"], "M8[s]"), n),
        }
    )


def a_run(path, data, family="logistic", spread=0.3, **more):
    model = registry.model(family)(**more)
    d = len(model.labels(data.feature_names))
    return make_run(path, model, data, draws_near(0.2 * np.sin(np.arange(d)), spread, (2, 40)))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run of a formula of every kind of term, its store and its model file."""
    folder = tmp_path_factory.mktemp("scorer")
    options = {"shuffle": False, "dtype": "float64", "group_as": {"h": "columns"}}
    data = from_table(frame(), formula=FORMULA, **options)
    run = a_run(folder / "run", data)
    streammc.export(run, folder / "model.json", draws=60)
    return run, data, folder / "model.json"


def test_a_file_has_the_numbers_of_predict(fitted):
    run, data, path = fitted
    new = frame(20_000, 2)
    new["z"] = new["z"].clip(-0.99, 0.99)
    table = from_table(new, like=data, dtype="float64")
    expected = streammc.predict(run, table, draws=60, interval=0.8)
    found = scorer.load(path).predict(new, interval=0.8)
    for name in ("mean", "q10", "q90"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-11)
    for threads in (1, 3):
        other = scorer.load(path).predict(new, interval=0.8, threads=threads)
        assert all(np.array_equal(other[name], found[name]) for name in found)
    with pytest.raises(AssertionError):  # the draws of another thinning
        other = streammc.predict(run, table, draws=40, interval=0.8)
        np.testing.assert_allclose(found["mean"], other["mean"], rtol=1e-11)


def test_frames_of_every_kind_and_a_pickled_scorer_give_the_same(fitted):
    found = scorer.load(fitted[2])
    new = frame(200, 2)
    new["z"] = new["z"].clip(-0.99, 0.99)
    expected = found.predict(new)
    categories = new.astype({"origin": "category", "t": pd.CategoricalDtype(["q", "p"])})
    arrow = pa.Table.from_pandas(new)
    for other in (categories, pl.from_pandas(new), arrow, new.to_dict("list"), new.astype(object)):
        for name, values in found.predict(other).items():
            np.testing.assert_array_equal(expected[name], values)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(expected["q5"], again.predict(new)["q5"])
    assert ["mean"] == list(found.predict(new, interval=None))


def test_moments_with_a_zone_and_words_of_missing_values_are_levels(tmp_path):
    rng = np.random.default_rng(6)
    day = pd.Series(pd.date_range("2024-01-01 05:30", periods=40, freq="12h", tz="Asia/Kolkata"))
    words = rng.choice(["None", "nan", "NaT", "<NA>", "word"], 40)
    table = pd.DataFrame({"y": rng.normal(size=40), "when": day.dt.floor("4D"), "word": words})
    data = from_table(table, formula="y ~ C(when) + word", shuffle=False, dtype="float64")
    streammc.export(a_run(tmp_path / "run", data, "gaussian"), tmp_path / "m.json")
    found = scorer.load(tmp_path / "m.json")
    expected = streammc.predict(tmp_path / "run", data)["mean"].values
    arrow = pa.Table.from_pandas(table)
    for other in (table, pl.from_pandas(table), arrow, table.to_dict("list")):
        np.testing.assert_allclose(found.predict(other)["mean"], expected, rtol=1e-11)
    for gone in (None, np.nan, pd.NaT):
        lists = table.to_dict("list")
        lists["word"][3] = lists["when"][5] = gone
        means = found.predict(lists, invalid="nan")["mean"]
        assert [3, 5] == np.flatnonzero(np.isnan(means)).tolist()
    nulls = pl.from_pandas(table.assign(when=table["when"].where(table.index != 5)))
    with pytest.raises(DataError, match="missing values in 1 row, first in row 5"):
        found.predict(nulls)


def test_masked_values_are_missing(fitted):
    found, new = scorer.load(fitted[2]), frame(40, 2)
    new["z"] = new["z"].clip(-0.99, 0.99)
    columns = {name: new[name].to_numpy() for name in new}
    columns["e"] = np.ones(40, np.int64)
    expected = found.predict(columns)["mean"]
    places = {"x": 1, "month": 3, "my day": 5, "origin": 7, "e": 9}
    masked = {
        name: np.ma.masked_array(columns[name], np.arange(40) == place)
        for name, place in places.items()
    }
    for name, place in places.items():
        with pytest.raises(DataError, match=f"missing values in 1 row, first in row {place},"):
            found.predict({**columns, name: masked[name]})
    means = found.predict({**columns, **masked}, invalid="nan")["mean"]
    assert list(places.values()) == np.flatnonzero(np.isnan(means)).tolist()
    kept = ~np.isnan(means)
    np.testing.assert_array_equal(expected[kept], means[kept])


@pytest.mark.parametrize("family", sorted(scorer.LINKS))
def test_every_family_has_the_numbers_of_predict(tmp_path, family):
    rng = np.random.default_rng(4)
    y = 0.5 if family == "beta" else 1.0
    table = {"y": np.full(50, y), "a": rng.normal(size=50), "n": rng.normal(size=50)}
    options = {"trials": "t"} if family == "beta-binomial" else {}
    table |= {"t": np.ones(50)} if options else {}
    data = from_table(table, response="y", features=["a"], offset="n", dtype="float64", **options)
    more = {"levels": 4} if family == "ordinal" else {}
    streammc.export(a_run(tmp_path / "run", data, family, **more), tmp_path / "m.json")
    expected = streammc.predict(tmp_path / "run", data)
    found = scorer.load(tmp_path / "m.json").predict(table)
    order = expected["row_id"].values
    np.testing.assert_allclose(found["mean"][order], expected["mean"], rtol=1e-11)
    np.testing.assert_allclose(found["q95"][order], expected["q95"], rtol=1e-11)


def test_counts_above_zero_have_a_mean_of_one_at_least():
    mean = scorer.Family("hurdle-poisson", 1).mean(np.array([[-800.0, -5.0, 3.0], [0.0, 0.0, 0.0]]))
    truth = [0.5, 0.5 * np.exp(-5.0) / -np.expm1(-np.exp(-5.0)), 0.5 * np.exp(3.0)]
    np.testing.assert_allclose(mean, truth, rtol=1e-8)


def test_families_without_a_mean_response_are_refused(tmp_path):
    for family in sorted(set(registry.MODELS) - {*scorer.LINKS}):
        with pytest.raises(ModelError, match="have a mean response, found none"):
            registry.model(family)().mean(np.zeros((1, 3)))
    X = np.random.default_rng(1).normal(size=(50, 1))
    data = streammc.from_arrays(X)
    run = a_run(tmp_path / "run", data, "gaussian-mean")
    with pytest.raises(ConfigError, match="model with a linear predictor, found 'gaussian-mean'"):
        streammc.export(run, tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_models_of_ones_own_are_refused(tmp_path):
    def log_lik(eta, y):
        return -0.5 * (y - eta[0]) ** 2

    def mean(eta):
        return eta[0]

    data = from_table({"y": np.ones(20), "a": np.arange(20.0)}, response="y")
    model = models.user("own", log_lik=log_lik, gradient=log_lik, hessian=log_lik, mean=mean)
    make_run(tmp_path / "run", model, data, draws_near([0.1, 0.2], 0.1))
    with pytest.raises(StoreError, match="found a model of your own, 'own'"):
        streammc.export(tmp_path / "run", tmp_path / "m.json")


def test_the_normal_distribution_function_is_that_of_scipy():
    x = np.r_[np.linspace(-37, 9, 20_001), np.linspace(-2, 2, 10_001)]
    np.testing.assert_allclose(scorer.MEANS["probit"](x), ndtr(x), rtol=2e-14)


@pytest.mark.parametrize("formula", ["y ~ x + (1 | g)", "y ~ x + (1 + x || g)"])
@pytest.mark.parametrize("family", ["logistic", "poisson", "gaussian", "ordinal"])
def test_new_groups_are_integrated_as_predict_does(tmp_path, family, formula):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"y": rng.integers(0, 2, 60), "x": 3 + rng.normal(size=60)})
    table["g"] = [f"a{k}" for k in rng.integers(0, 6, 60)]
    data = from_table(table, formula=formula, dtype="float64")
    shared = {"gaussian": [-0.2], "ordinal": [-0.7, 0.4]}
    theta = [0.1, 0.5, *shared.get(family, []), 0.3]
    theta += [-0.4] if "||" in formula else []
    model = registry.model(family)(**({"levels": 4} if family == "ordinal" else {}))
    run = make_run(tmp_path / "run", model, data, draws_near(theta, 0.1, (2, 40)))
    assert "g" == streammc.export(run, tmp_path / "m.json", draws=40)["groups"]
    new = pd.DataFrame({"y": 1, "x": 3 + rng.normal(size=40), "g": "new"})
    rows = from_table(new, like=data, dtype="float64")
    with pytest.warns(UserWarning, match="40 of 40 rows"):
        expected = streammc.predict(run, rows, draws=40, trained_on=data)
    found = scorer.load(tmp_path / "m.json").predict(new)
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-9)
    with pytest.raises(DataError, match="groups that the model file has, found none of 'g'"):
        scorer.load(tmp_path / "m.json").predict(new, new_groups="refuse")


def test_many_columns_have_mean_and_covariance(tmp_path):
    rng = np.random.default_rng(5)
    names = [f"x{j}" for j in range(400)]
    X = rng.normal(size=(500, 400))
    data = streammc.from_arrays(X, rng.integers(0, 2, 500), feature_names=names)
    d = len(data.feature_names)
    draws = draws_near(np.linspace(-0.1, 0.1, d), 0.05, (4, 1000))
    draws += 0.05 * rng.normal(size=(4, 1000, 1))  # correlations of a half
    run = make_run(tmp_path / "run", models.logistic(), data, draws)
    facts = streammc.export(run, tmp_path / "m.json", draws=300)
    assert ("normal", 4000) == (facts["kind"], facts["draws"])
    assert (tmp_path / "m.json").stat().st_size == facts["bytes"] <= scorer.MOST_BYTES
    table = dict(zip(names, X.T, strict=True))
    found = scorer.load(tmp_path / "m.json").predict(table)
    expected = streammc.predict(run, data, draws=4000)
    order = expected["row_id"].values if "row_id" in expected else np.arange(500)
    # Quantiles of 4,000 draws: a standard error of 0.033 sd, and none sd below 0.05 here.
    sd = (expected["q95"] - expected["q5"]).values / (2 * 1.645)
    assert np.abs(found["mean"][order] - expected["mean"]).max() < 4.5 * sd.max() / 4000**0.5
    limits = {end: (expected[end].values, 4.5 * 0.034 * sd + 1e-3) for end in ("q5", "q95")}
    for end, (quantile, bound) in limits.items():
        assert (np.abs(found[end][order] - quantile) < bound).all()
    whole = json.loads((tmp_path / "m.json").read_text())["model"]
    lower = scorer._unpacked(whole["posterior"]["covariance"], -1)
    places = np.tril_indices(len(whole["design"]) + 1)
    lower[places[0] != places[1]] = 0.0
    alone = whole["posterior"] | {"covariance": scorer._packed(lower)}
    found = scorer.Scorer(whole | {"posterior": alone}).predict(table)
    for end, (quantile, bound) in limits.items():
        assert (np.abs(found[end][order] - quantile) > bound).mean() > 0.5


def test_as_many_draws_are_kept_as_fit(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    X, path = rng.normal(size=(9, 600)), tmp_path / "m.json"
    data = streammc.from_arrays(X, rng.integers(0, 2, 9))
    theta = draws_near(np.zeros(len(data.feature_names)), 0.05, (2, 150))
    run = make_run(tmp_path / "run", models.logistic(), data, theta)
    facts = streammc.export(run, path)
    kept = facts["draws"]
    assert "draws" == facts["kind"]
    assert 50 <= kept < 200
    assert kept == scorer.load(path).facts["draws"]
    assert path.stat().st_size == facts["bytes"] <= scorer.MOST_BYTES
    first = path.read_bytes()
    streammc.export(run, path, draws=kept, overwrite=True)
    assert first == path.read_bytes()
    path.unlink()
    # One more of both chains, whose mean and covariance do not fit either.
    for asked in (kept + 2, 300):
        with pytest.raises(RefusedError, match=rf"600 columns .* room for {kept} draws: ask for"):
            streammc.export(run, path, draws=asked)
    monkeypatch.setattr(scorer, "FEWEST", kept + 1)
    with pytest.raises(RefusedError, match=rf"with {kept + 1} draws or more, .*--draws {kept}"):
        streammc.export(run, path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("origin", "d", "levels that the model has seen in column 'origin', found unseen levels"),
        ("month", 3, r"column 'month', found unseen levels in 1 row, first in row 7.*\(3\)"),
        ("z", 9.0, "within the bounds of the spline in column 'bs"),
        ("x", np.nan, "no missing values in column 'x'"),
        ("t", None, "no missing values in column 't'"),
        ("e", -1.0, "finite numbers in column"),
    ],
)
def test_rows_that_cannot_be_predicted_are_refused_by_name(fitted, column, value, message):
    found, new = scorer.load(fitted[2]), frame(30, 2)
    new["z"] = new["z"].clip(-0.99, 0.99)
    expected = found.predict(new)["mean"]
    new[column] = new[column].astype(object)
    new.loc[7, column] = value
    with pytest.raises(DataError, match=message):
        found.predict(new)
    means = found.predict(new, invalid="nan")["mean"]
    assert np.isnan(means[7])
    np.testing.assert_array_equal(np.delete(expected, 7), np.delete(means, 7))


def test_tables_and_options_that_do_not_fit_are_refused(fitted):
    found, new = scorer.load(fitted[2]), frame(30)
    with pytest.raises(DataError, match="expected the column 'x' in the table, found none"):
        found.predict(new.drop(columns="x"))
    with pytest.raises(DataError, match=r"numbers in column 'x'.* found text, such as 'one'"):
        found.predict(new.assign(x="one"))
    with pytest.raises(DataError, match="text in column 'origin'"):
        found.predict(new.assign(origin=3))
    with pytest.raises(DataError, match="mapping from names to arrays, found ndarray"):
        found.predict(np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"in memory, found LazyFrame.* give its .collect\(\)"):
        found.predict(pl.from_pandas(new).lazy())
    for wrong in (
        {"interval": 2.0}, {"invalid": "drop"}, {"new_groups": "x"},
        {"threads": -1}, {"threads": 0}, {"threads": "2"}, {"threads": True},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            found.predict(new, **wrong)


def test_threads_need_no_affinity_of_processors(fitted, monkeypatch):
    found, new = scorer.load(fitted[2]), frame(20_000)
    new["z"] = new["z"].clip(-0.99, 0.99)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert 20_000 == len(found.predict(new, interval=None)["mean"])


def test_damaged_newer_and_other_files_are_refused(fitted, tmp_path):
    whole = json.loads(fitted[2].read_text())
    cases = {
        "no JSON": "{",
        "another file": "[]",
        "a damaged one": json.dumps(whole | {"model": whole["model"] | {"family": "poisson"}}),
        "version 2, written by": json.dumps(whole | {"streammc_model": 2}),
    }
    model = whole["model"]
    cases["no JSON (nested)"] = "[" * 100_000
    (first, *others) = model["design"]
    node = first["of"][0][0]
    for change in (
        *(
            {"design": [first | wrong, *others]}
            for wrong in ({"of": []}, {"of": [[node, 99]]}, {"of": [[node, -1]]}, {"scale": "nan"})
        ),
        {"hidden": [3]},
        {"design": [{"name": "x", "of": [[{"call": "open('x')"}, 0]], "scale": 1}]},
        {"states": {}},
        {"posterior": model["posterior"] | {"intercept": {"shape": [9], "data": "AA=="}}},
    ):
        changed = model | change
        text = json.dumps(whole | {"model": changed, "sha256": scorer._digest(changed)})
        cases[f"a damaged one ({len(cases)}"] = text
    for found, text in cases.items():
        (tmp_path / "m.json").write_text(text)
        with pytest.raises(StoreError, match=found.split(" (")[0]):
            scorer.load(tmp_path / "m.json")
    with pytest.raises(MissingError, match="streammc export RUN FILE"):
        scorer.load(tmp_path / "none.json")
    with pytest.raises(StorageIOError, match="cannot be read"):
        scorer.load(tmp_path)


def test_an_existing_file_is_left(fitted, tmp_path):
    (tmp_path / "notes.json").write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(IdentityError, match="expected nothing at"):
            streammc.export(fitted[0], tmp_path / "notes.json", overwrite=overwrite)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IdentityError, match="expected nothing at"):
        streammc.export(fitted[0], tmp_path / "pipe", overwrite=True)
    streammc.export(fitted[0], tmp_path / "m.json", draws=10)
    left = (tmp_path / "m.json").read_bytes()
    with pytest.raises(IdentityError, match="or replace it with --overwrite"):
        streammc.export(fitted[0], tmp_path / "m.json", draws=20)
    assert left == (tmp_path / "m.json").read_bytes()
    streammc.export(fitted[0], tmp_path / "m.json", draws=20, overwrite=True)
    assert 20 == scorer.load(tmp_path / "m.json").facts["draws"]


@pytest.mark.filterwarnings("ignore")
def test_the_example_with_mlflow_runs(fitted, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    page = Path(__file__).resolve().parents[1] / "docs/how-to/predict.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (code,) = (each for each in blocks if "mlflow" in each)
    monkeypatch.chdir(tmp_path)
    shutil.copy(fitted[2], "model.json")
    new = frame(20, 2).assign(z=0.5)
    space = {"streammc": streammc, "pd": pd, "new": new}
    exec(code.replace("\nmlflow.pyfunc.load_model", "\nfound = mlflow.pyfunc.load_model"), space)
    expected = scorer.load("model.json").predict(new)
    np.testing.assert_array_equal(expected["q5"], space["found"]["q5"])


def test_a_file_is_scored_by_numpy_alone(fitted):
    code = (
        "import sys, streammc\n"
        f"model = streammc.scorer.load({str(fitted[2])!r})\n"
        "row = {'x': [3.0], 'z': [0.1], 'origin': ['a'], 't': ['p'], 'month': [1], 'h': ['u']}\n"
        "print(model.predict(row | {'e': [1.0], 'my day': ['2024-01-31']})['mean'].shape)\n"
        "heavy = 'numba zarr dask xarray pyarrow pandas formulaic scipy'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ("(1,)\n[]\n", "") == (done.stdout, done.stderr)
