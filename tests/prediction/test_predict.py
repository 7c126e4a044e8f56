"""Predictions against NumPy on all rows at once."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import streammc
from streammc import facts, from_table
from streammc.errors import (
    ConfigError,
    DataError,
    IdentityError,
    ModelError,
    RefusedError,
    StoreError,
)
from streammc.models import gaussian, gaussian_mean, logistic, negative_binomial, poisson, user
from streammc.prediction import mean_responses, predictive, roc
from streammc.prediction.roc import is_binary
from streammc.runs import record
from streammc.stores import StoreWriter, from_arrays, open_store
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

NAMES = ["Intercept", "a", "b"]
TRUTH = np.array([-0.4, 0.8, -0.5])


def table(n=9000, seed=1, chunk_rows=4096, response=True, **more):
    """A data set of three blocks."""
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    y = (rng.random(n) < expit(X @ TRUTH)).astype(float) if response else None
    return from_arrays(X, y, feature_names=NAMES, chunk_rows=chunk_rows, **more)


def make_run(path, model, data, theta, sign=None, draws=None):
    """A run with these draws (chain, draw, d)."""
    stats = {"lp": np.zeros(theta.shape[:2])} | ({} if sign is None else {"sign": sign})
    identity = {"store": data.fingerprint, "model": model.describe(), "sampler": {"name": "hmc"}}
    labels, dtypes = model.labels(data.feature_names), dict.fromkeys(stats, "float64")
    plan = {
        "layout": make_layout(labels, data.feature_names, *theta.shape[:2], dtypes),
        "draws": draws or theta.shape[1],
        "warmup": 0,
        "attributes": {"design": record.describe_design(data.attributes), "store": data.address},
    }
    with RunDirectory.hold(path, identity=identity, **plan) as run:
        run.append("draws", model.constrain(theta), stats, ({}, {}))
    return path


@pytest.fixture(autouse=True, scope="module")
def no_power_cut():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def some_draws(centre, shape=(2, 30), seed=2, spread=0.05):
    rng = np.random.default_rng(seed)
    return np.asarray(centre) + spread * rng.normal(size=(*shape, len(centre)))


@pytest.fixture
def data():
    return table()


@pytest.fixture
def run(tmp_path, data):
    return make_run(tmp_path / "run", logistic(), data, some_draws(TRUTH))


def arrays_of(data):
    X, y = data._arrays[:2]
    return np.asarray(X, float), np.asarray(y, float)


def test_means_and_quantiles_are_those_of_numpy(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p")
    X, _ = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T)
    assert found.sizes["row"] == data.n_rows
    np.testing.assert_allclose(found["mean"], p.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(found["q5"], np.quantile(p, 0.05, axis=1), atol=1e-12)
    np.testing.assert_allclose(found["q95"], np.quantile(p, 0.95, axis=1), atol=1e-12)


def test_thinned_draws_are_evenly_spaced(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p", draws=6, interval=0.5)
    theta = some_draws(TRUTH)[:, [0, 14, 29]].reshape(-1, 3)
    p = expit(arrays_of(data)[0] @ theta.T)
    np.testing.assert_allclose(found["mean"], p.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(found["q75"], np.quantile(p, 0.75, axis=1), atol=1e-12)
    assert facts(found)["draws"] == 6


def exact_area(score, y):
    """P(positive above negative), ties one half, by ranks."""
    ordered = np.sort(score)
    low, high = (np.searchsorted(ordered, score, side) for side in ("left", "right"))
    rank = 0.5 * (low + high + 1)
    positives = y.sum()
    pairs = positives * (len(y) - positives)
    return (rank[y == 1].sum() - positives * (positives + 1) / 2) / pairs


def test_area_under_the_curve_is_exact_to_its_resolution(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p")
    X, y = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T)
    exact = np.array([exact_area(column, y) for column in p.T])
    area = facts(found)["auc"]
    assert 0 < area["resolution"] < 2e-4
    assert np.abs(found["auc"] - exact).max() <= area["resolution"]
    assert abs(area["of_mean"] - exact_area(p.mean(axis=1), y)) <= area["resolution"]
    assert abs(area["q5"] - np.quantile(exact, 0.05)) <= area["resolution"]


def test_rates_are_exact_at_every_threshold(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p")
    X, y = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T)
    for k in (0, 100, 2000, 4000):
        above = p >= found["threshold"].values[k]
        np.testing.assert_allclose(found["tpr"][k], above[y == 1].mean(), atol=1e-12)
        rates = above[y == 0].mean(axis=0)
        np.testing.assert_allclose(found["fpr"][k], rates.mean(), atol=1e-12)
        np.testing.assert_allclose(found["fpr_q5"][k], np.quantile(rates, 0.05), atol=1e-12)
    assert found["roc"].values[[0, -1]] == pytest.approx([0, 1], abs=5e-3)
    # The area of the averaged curve is the average area.
    assert np.trapezoid(found["roc"], found["fpr_grid"]) == pytest.approx(
        float(found["auc"].mean()), abs=2e-3
    )


def test_log_score_is_that_of_the_averaged_density(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p")
    X, y = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T).mean(axis=1)
    exact = np.where(y == 1, np.log(p), np.log1p(-p)).mean()
    assert facts(found)["log_score"] == pytest.approx(exact, rel=1e-12)


def test_mean_responses_are_evaluated_once_and_for_few_draws_of_a_pilot(
    tmp_path, data, monkeypatch
):
    evaluated = []
    responses = mean_responses.responses

    def count(model, eta):
        evaluated.append(eta[0].size)
        return responses(model, eta)

    for module in (predictive, roc):
        monkeypatch.setattr(module, "responses", count)
    made = make_run(tmp_path / "run", logistic(), data, some_draws(TRUTH, (2, 200)))
    found = streammc.predict(made, data, tmp_path / "p", draws=400)
    assert sum(evaluated) <= 1.15 * 400 * data.n_rows
    assert facts(found)["auc"]["resolution"] < 2e-4


def test_log_score_keeps_its_digits_where_a_chance_is_almost_one(tmp_path, data):
    theta = some_draws([30.0, 0.0, 0.0], spread=0.0)
    found = streammc.predict(make_run(tmp_path / "run", logistic(), data, theta), data)
    _, y = arrays_of(data)
    exact = np.where(y == 1, -np.log1p(np.exp(-30.0)), -30.0).mean()
    assert facts(found)["log_score"] == pytest.approx(exact, rel=1e-12)


def test_rows_without_a_response_have_the_same_means_and_no_score(tmp_path):
    rng = np.random.default_rng(4)
    table = pd.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400)})
    late = table.assign(y=(rng.random(400) < expit(table["a"])).astype(int))
    train = from_table(late, response="y", dtype="float64")
    made = make_run(tmp_path / "run", logistic(), train, some_draws(TRUTH))
    scored = streammc.predict(made, from_table(late, like=train), by="a", bins=4)
    with pytest.warns(UserWarning, match="predicted, not scored"):
        new = from_table(table, like=train)
    found = streammc.predict(made, new, by="a", bins=4)
    for name in ("mean", "q5", "q95", "group_mean"):
        np.testing.assert_array_equal(scored[name], found[name])
    assert facts(found)["auc"] is None
    assert facts(found)["log_score"] is None
    assert facts(scored)["log_score"] < 0.0


def test_covariate_groups_have_predicted_and_realised_means(tmp_path, run, data):
    found = streammc.predict(run, data, tmp_path / "p", by="a", bins=7)
    X, y = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T)
    order = np.argsort(X[:, 1])
    sizes = found["group_rows"].values
    assert sizes.sum() == data.n_rows
    assert np.ptp(sizes) <= 1
    for g, part in enumerate(np.split(order, np.cumsum(sizes)[:-1])):
        means = p[part].mean(axis=0)
        np.testing.assert_allclose(found["group_mean"][g], means.mean(), atol=1e-12)
        np.testing.assert_allclose(found["group_mean_q5"][g], np.quantile(means, 0.05), atol=1e-12)
        np.testing.assert_allclose(found["group_realised"][g], y[part].mean(), atol=1e-12)
        np.testing.assert_allclose(found["group_covariate"][g], X[part, 1].mean(), atol=1e-12)


def test_sampled_edges_cost_resolution_and_not_exactness(tmp_path, run, data, monkeypatch):
    monkeypatch.setattr(roc, "_PILOT_ROWS", 300)
    monkeypatch.setattr(roc, "_EXACT_ROWS", 5000)
    monkeypatch.setattr(roc, "_SAMPLE_ROWS", 2000)
    found = streammc.predict(run, data, tmp_path / "p", by="a", bins=4)
    X, y = arrays_of(data)
    p = expit(X @ some_draws(TRUTH).reshape(-1, 3).T)
    exact = np.array([exact_area(column, y) for column in p.T])
    assert 0 < facts(found)["auc"]["resolution"] < 1e-3
    assert np.abs(found["auc"] - exact).max() <= facts(found)["auc"]["resolution"]
    assert facts(found)["by"]["quantiles_sampled"]
    sizes = found["group_rows"].values
    assert sizes.sum() == 9000
    assert np.abs(sizes - 2250).max() < 4.5 * 9000 * np.sqrt(0.25 * 0.75 / 2000 * 2)
    assert np.ptp(sizes) > 1
    edges = found["group_lower"].values
    group = np.searchsorted(edges[1:], X[:, 1], side="right")
    np.testing.assert_array_equal(sizes, np.bincount(group))
    other = streammc.predict(run, data, tmp_path / "q", by="a", bins=4, seed=1)
    assert (other["group_lower"].values[1:] != edges[1:]).all()


def test_weights_of_rows_count_in_sums_alone(tmp_path, run, data):
    weight = np.random.default_rng(5).integers(0, 4, data.n_rows).astype(float)
    X, y = arrays_of(data)
    weighted = from_arrays(X, y, weight=weight, feature_names=NAMES, chunk_rows=4096)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    copied = from_arrays(X[repeated], y[repeated], feature_names=NAMES, chunk_rows=4096)
    plain = streammc.predict(run, data, tmp_path / "plain")
    one = streammc.predict(run, weighted, tmp_path / "one")
    two = streammc.predict(run, copied, tmp_path / "two")
    np.testing.assert_array_equal(plain["mean"], one["mean"])
    assert facts(one)["log_score"] == pytest.approx(facts(two)["log_score"], rel=1e-12)
    both = facts(one)["auc"]["resolution"] + facts(two)["auc"]["resolution"]
    np.testing.assert_allclose(one["auc"], two["auc"], atol=both)


@pytest.mark.parametrize("model", [poisson(), negative_binomial(), gaussian()])
def test_other_families_predict_their_mean(tmp_path, model):
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(500), rng.normal(size=(500, 2))]
    offset = 0.3 * rng.normal(size=500)
    y = rng.poisson(1.0, 500).astype(float)
    data = from_arrays(X, y, offset=offset, feature_names=NAMES)
    theta = some_draws([*TRUTH, *[0.2] * model.n_scalar])
    made = make_run(tmp_path / "run", model, data, theta)
    found = streammc.predict(made, data, tmp_path / "p", by="b", bins=3)
    eta = X @ theta.reshape(-1, theta.shape[-1])[:, :3].T + offset[:, None]
    mu = eta if model.name == "gaussian" else np.exp(eta)
    np.testing.assert_allclose(found["mean"], mu.mean(axis=1), rtol=1e-12)
    assert facts(found)["auc"] is None
    assert "threshold" not in found
    density = np.empty((60, 500))
    out = np.empty((6, 500))
    for s, t in enumerate(theta.reshape(60, -1)):
        block = np.ascontiguousarray([eta[:, s], *[np.full(500, v) for v in t[3:]]])
        model.link(block, X.T, y, model.constants, 0, out)
        density[s] = np.exp(out[0])
    assert facts(found)["log_score"] == pytest.approx(
        np.log(density.mean(axis=0)).mean(), rel=1e-12
    )


def test_proportions_count_trials(tmp_path):
    from streammc.models import binomial

    rng = np.random.default_rng(3)
    X = np.c_[np.ones(400), rng.normal(size=(400, 2))]
    trials = rng.integers(0, 6, 400)
    counts = rng.binomial(trials, expit(X @ TRUTH))
    rows = np.repeat(np.arange(400), trials)
    pairs = zip(counts, trials, strict=True)
    y = np.concatenate([np.r_[np.ones(k), np.zeros(n - k)] for k, n in pairs])
    data = from_arrays(X, counts, trials=trials, feature_names=NAMES)
    single = from_arrays(X[rows], y, feature_names=NAMES)
    theta = some_draws(TRUTH)
    one = streammc.predict(make_run(tmp_path / "r", binomial(), data, theta), data)
    two = streammc.predict(make_run(tmp_path / "s", logistic(), single, theta), single)
    assert facts(one)["log_score"] == pytest.approx(facts(two)["log_score"], rel=1e-12)
    both = facts(one)["auc"]["resolution"] + facts(two)["auc"]["resolution"]
    np.testing.assert_allclose(one["auc"], two["auc"], atol=both)


def test_signs_weigh_the_draws(tmp_path, data):
    theta = some_draws(TRUTH)
    sign = np.where(np.random.default_rng(8).random((2, 30)) < 0.2, -1.0, 1.0)
    made = make_run(tmp_path / "run", logistic(), data, theta, sign)
    found = streammc.predict(made, data, tmp_path / "p", by="a", bins=4)
    X, _ = arrays_of(data)
    w = sign.ravel() / sign.sum()
    p = expit(X @ theta.reshape(-1, 3).T)
    np.testing.assert_allclose(found["mean"], p @ w, atol=1e-12)
    assert facts(found)["mean_sign"] == pytest.approx(sign.mean())
    assert np.abs(found["mean"] - p.mean(axis=1)).max() > 1e-4
    given = streammc.predict(made, data, tmp_path / "q", weights=np.ones((2, 30)))
    np.testing.assert_allclose(given["mean"], p.mean(axis=1), atol=1e-12)


def test_low_mean_sign_is_refused(tmp_path, data):
    sign = np.tile([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], (2, 5))
    made = make_run(tmp_path / "run", logistic(), data, some_draws(TRUTH), sign)
    with pytest.raises(RefusedError, match="mean sign"):
        streammc.predict(made, data, tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_threads_give_the_same_bits(tmp_path, run):
    data = table(30_000)
    results = [
        streammc.predict(run, data, tmp_path / f"p{k}", by="a", scheduler=scheduler)
        for k, scheduler in enumerate(["sync", 1, 3])
    ]
    for name in results[0].variables:
        for other in results[1:]:
            np.testing.assert_array_equal(results[0][name], other[name])


def test_another_standardisation_predicts_the_same(tmp_path):
    rng = np.random.default_rng(4)
    columns = {"a": rng.normal(5, 3, 3000), "b": rng.gamma(2.0, size=3000)}
    y = (rng.random(3000) < 0.4).astype(float)
    import pandas as pd

    whole = pd.DataFrame({**columns, "y": y})
    options = {"response": "y", "dtype": "float64", "shuffle": False}
    train = streammc.from_table(whole[:2000], **options)
    test = whole[2000:]
    made = make_run(tmp_path / "run", logistic(), train, some_draws(TRUTH))
    own = streammc.predict(made, streammc.from_table(test, **options), tmp_path / "own")
    like = streammc.from_table(test, like=train, dtype="float64", shuffle=False)
    same = streammc.predict(made, like, tmp_path / "same")
    np.testing.assert_allclose(own["mean"], same["mean"], rtol=1e-12)
    table = train.attributes["standardization"]
    assert like.attributes["standardization"] == table
    z = (test[["a", "b"]].to_numpy() - table["mean"][1:]) / table["scale"][1:]
    p = expit(np.c_[np.ones(1000), z] @ some_draws(TRUTH).reshape(-1, 3).T)
    np.testing.assert_allclose(same["mean"], p.mean(axis=1), rtol=1e-12)


def test_table_without_response_is_predicted_and_not_scored(tmp_path, run):
    found = streammc.predict(run, table(response=False), tmp_path / "p", by="a")
    assert facts(found)["auc"] is None
    assert facts(found)["log_score"] is None
    assert "group_mean" in found
    assert "group_realised" not in found


def test_other_features_are_refused(tmp_path, run, data):
    X, y = arrays_of(data)
    for names, columns in ((["Intercept", "a", "c"], X), (["Intercept", "a"], X[:, :2])):
        with pytest.raises(IdentityError, match="--like"):
            streammc.predict(run, from_arrays(columns, y, feature_names=names), tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_other_knots_are_refused(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.random(400), "y": rng.integers(0, 2, 400)})
    options = {"formula": "y ~ bs(x, df=4)", "dtype": "float64"}
    train = streammc.from_table(frame[:300], **options)
    other = streammc.from_table(frame[100:], **options)
    made = make_run(tmp_path / "run", logistic(), train, some_draws(np.zeros(5)))
    with pytest.raises(IdentityError, match="knots"):
        streammc.predict(made, other, tmp_path / "p")


def test_unfinished_run_is_refused(tmp_path, data):
    made = make_run(tmp_path / "run", logistic(), data, some_draws(TRUTH), draws=60)
    with pytest.raises(DataError, match="30 of 60 draws"):
        streammc.predict(made, data, tmp_path / "p")


def test_existing_output_is_kept(tmp_path, run, data):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine").write_text("x")
    with pytest.raises(IdentityError, match="it exists"):
        streammc.predict(run, data, tmp_path / "p")
    assert [tmp_path / "p" / "mine"] == list((tmp_path / "p").iterdir())


def tampered(data, **changes):
    """The data set with a value that no writer lets in."""
    for name, (place, value) in changes.items():
        array = data._arrays["Xy".index(name)]
        array[place] = value
    return data


def test_nan_in_a_row_is_named_and_nothing_is_left(tmp_path, run):
    with pytest.raises(DataError, match="row 5001"):
        streammc.predict(run, tampered(table(), X=((5000, 1), np.nan)), tmp_path / "p")
    with pytest.raises(DataError, match=r"'a'.*row_id 5000 "):
        streammc.predict(run, tampered(table(), X=((5000, 1), np.nan)), tmp_path / "p", by="a")
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_response_outside_its_support_is_named(tmp_path, run):
    with pytest.raises(ModelError, match="row 7001"):
        streammc.predict(run, tampered(table(), y=((7000,), 0.5)), tmp_path / "p")
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_damaged_chunk_of_the_store_is_found(tmp_path):
    data = table()
    X, y = arrays_of(data)
    with StoreWriter(tmp_path / "s", features=NAMES, chunk_rows=4096) as writer:
        writer.append(X, y)
        writer.commit({"response": "y", "intercept": True})
    store = open_store(tmp_path / "s")
    made = make_run(tmp_path / "run", logistic(), store, some_draws(TRUTH))
    streammc.predict(made, store, tmp_path / "p")
    with open(tmp_path / "s" / "X" / "c.1.0", "r+b") as file:
        file.seek(1000)
        file.write(b"\1")
    with pytest.raises(StoreError, match=r"c\.1\.0"):
        streammc.predict(made, open_store(tmp_path / "s"), tmp_path / "q")
    assert not (tmp_path / "q").exists()


def own(**more):
    def log_lik(eta, y):
        return y * eta[0] - np.logaddexp(0, eta[0])

    def gradient(eta, y):
        return y - expit(eta)

    def hessian(eta, y):
        return -(expit(eta) * expit(-eta))[None]

    return user("own", log_lik=log_lik, gradient=gradient, hessian=hessian, **more)


def test_model_of_ones_own_predicts_where_it_has_a_mean(tmp_path, data):
    model = own(mean=lambda eta: expit(eta[0]), response=lambda y: (y == 0) | (y == 1))
    made = make_run(tmp_path / "run", model, data, some_draws(TRUTH))
    found = streammc.predict(made, data, tmp_path / "p", model=model)
    p = expit(arrays_of(data)[0] @ some_draws(TRUTH).reshape(-1, 3).T)
    np.testing.assert_allclose(found["mean"], p.mean(axis=1), atol=1e-12)
    assert facts(found)["auc"]["mean"] > 0.6
    with pytest.raises(ModelError, match="mean=f"):
        streammc.predict(made, data, tmp_path / "q", model=own())
    with pytest.raises(ModelError, match="shape"):
        streammc.predict(made, data, tmp_path / "q", model=own(mean=lambda eta: expit(eta)))
    with pytest.raises(StoreError, match="registered"):
        streammc.predict(made, data, tmp_path / "q")
    with pytest.raises(ConfigError, match="found another"):
        streammc.predict(made, data, tmp_path / "q", model=logistic())


def two_predictors():
    """Normal with its own predictor for the logarithm of the scale."""

    def log_lik(eta, y):
        return -0.5 * ((y - eta[0]) * np.exp(-eta[1])) ** 2 - eta[1] - 0.5 * np.log(2 * np.pi)

    def nothing(eta, y):
        raise AssertionError("predictions need no derivatives")

    options = {"predictors": ("beta", "gamma"), "scales": ("tau",)}
    return user(
        "two",
        log_lik=log_lik,
        gradient=nothing,
        hessian=nothing,
        mean=lambda eta: eta[0] + eta[1] * np.exp(eta[2]),
        **options,
    )


def test_several_predictors_and_a_scale_on_another_standardisation(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"a": rng.normal(2, 3, 900), "e": rng.normal(size=900)})
    frame["y"] = rng.normal(size=900)
    options = {"response": "y", "offset": "e", "dtype": "float64", "shuffle": False}
    train = streammc.from_table(frame[:500], **options)
    test = streammc.from_table(frame[500:], **options)
    model, theta = two_predictors(), some_draws([0.3, -0.2, 0.1, 0.2, -0.5])
    made = make_run(tmp_path / "run", model, train, theta)
    found = streammc.predict(made, test, tmp_path / "p", model=model)
    table = train.attributes["standardization"]
    z = (frame["a"].to_numpy()[500:] - table["mean"][1]) / table["scale"][1]
    X, flat = np.c_[np.ones(400), z], theta.reshape(-1, 5)
    first = X @ flat[:, :2].T + frame["e"].to_numpy()[500:, None]
    second = X @ flat[:, 2:4].T
    mu = first + second * np.exp(flat[:, 4])
    np.testing.assert_allclose(found["mean"], mu.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(found["q95"], np.quantile(mu, 0.95, axis=1), atol=1e-12)
    y = frame["y"].to_numpy()[500:, None]
    density = np.exp(-0.5 * ((y - first) / np.exp(second)) ** 2 - second) / np.sqrt(2 * np.pi)
    assert facts(found)["log_score"] == pytest.approx(
        np.log(density.mean(axis=1)).mean(), rel=1e-11
    )


def test_model_of_the_columns_themselves_is_refused(tmp_path):
    data = from_arrays(np.random.default_rng(1).normal(size=(50, 2)), feature_names=["a", "b"])
    model = gaussian_mean([[1.0, 0.0], [0.0, 1.0]])
    made = make_run(tmp_path / "run", model, data, some_draws([0.0, 0.0]))
    with pytest.raises(ConfigError, match="linear predictor"):
        streammc.predict(made, data, tmp_path / "p")


def test_binary_responses_are_known_by_what_the_model_accepts():
    from streammc import registry

    binary = {name for name in registry.MODELS if is_binary(registry.model(name)())}
    assert {"logistic", "network", "probit", "binomial"} == binary


@pytest.mark.parametrize("options", [{"interval": 1.0}, {"draws": 1}, {"bins": 0, "by": "a"}])
def test_wrong_options_are_refused(tmp_path, run, data, options):
    with pytest.raises(ConfigError):
        streammc.predict(run, data, tmp_path / "p", **options)


def test_unknown_covariate_lists_what_there_is(tmp_path, run, data):
    with pytest.raises(DataError, match="Intercept, a, b"):
        streammc.predict(run, data, tmp_path / "p", by="zzz")


def test_one_class_alone_has_no_curve(tmp_path, run):
    data = table()
    data._arrays[1][:] = 0.0
    found = streammc.predict(run, data, tmp_path / "p")
    assert facts(found)["auc"] is None
    assert facts(found)["log_score"] < 0
    assert "roc" not in found


def test_near_certain_failure_keeps_its_log_score(tmp_path):
    """A 0 where the chance of a 1 rounds to one: its logarithm is -45, not minus infinity."""
    data = from_arrays(np.array([[45.0], [-45.0], [8.0]]), [0.0, 1.0, 0.0], feature_names=["a"])
    theta = np.ones((1, 4, 1))
    made = make_run(tmp_path / "run", logistic(), data, theta)
    found = streammc.predict(made, data, tmp_path / "p")
    exact = -(45 + 45 + 8 + np.log1p(np.exp(-8))) / 3
    assert facts(found)["log_score"] == pytest.approx(exact, rel=1e-13)


def test_run_opened_from_its_folder_is_a_run(tmp_path, run, data):
    one = streammc.predict(streammc.open_run(run), data, tmp_path / "p")
    two = streammc.predict(run, data)
    np.testing.assert_array_equal(one["mean"], two["mean"])
    with pytest.raises(ConfigError, match="path of a run"):
        streammc.predict(one, data)


def test_failure_in_the_middle_leaves_nothing(tmp_path, run):
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        streammc.predict(run, table(30_000), tmp_path / "p", progress=interrupt)
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.slow
def test_workers_give_the_same_bits(tmp_path):
    from distributed import Client, LocalCluster

    X, y = arrays_of(table(30_000))
    with StoreWriter(tmp_path / "s", features=NAMES, chunk_rows=4096) as writer:
        writer.append(X, y)
        writer.commit({"response": "y", "intercept": True})
    store = open_store(tmp_path / "s")
    made = make_run(tmp_path / "run", logistic(), store, some_draws(TRUTH))
    here = streammc.predict(made, store, tmp_path / "p", by="a")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        there = streammc.predict(made, store, tmp_path / "q", by="a", scheduler=client)
    for name in here.variables:
        np.testing.assert_array_equal(here[name], there[name])
