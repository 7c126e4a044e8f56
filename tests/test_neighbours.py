"""Calls of other libraries on what streammc returns, as their users write them."""

import importlib
import pickle
import warnings

import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError, DataError, IdentityError, SamplingWarning

pd = pytest.importorskip("pandas")
azs = pytest.importorskip("arviz_stats")

N = 1200
SIZES = {"draws": 200, "warmup": 150, "chains": 2, "seed": 1}
FORMULAS = {"x": "y ~ x + g", "z": "y ~ z + g"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    x, z, g = 7.0 + 3.0 * rng.normal(size=N), rng.normal(size=N), rng.choice(["east", "west"], N)
    eta = 0.3 * (x - 7.0) + 0.5 * (g == "west")
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": (rng.logistic(size=N) < eta).astype(int)})


@pytest.fixture(scope="module")
def runs(table):
    return {
        name: streammc.fit(table, formula, "logistic", **SIZES)
        for name, formula in FORMULAS.items()
    }


def test_summary_has_the_coefficients_of_the_table(table, runs):
    found = azs.summary(runs["x"], round_to="none")
    kept = streammc.facts(runs["x"])["summary"]["parameters_original"]
    assert ["beta[Intercept]", "beta[x]", "beta[g[T.west]]"] == list(found.index) == list(kept)
    for label, entry in kept.items():
        assert entry["mean"] == pytest.approx(found["mean"][label], rel=1e-9)
        assert entry["r_hat"] == pytest.approx(found["r_hat"][label], rel=1e-9)
    # What the sampler drew is per standard deviation of the column.
    sampled = azs.summary(runs["x"], group="sampled_posterior", round_to="none")["mean"]
    ratio = sampled["beta[x]"] / found["mean"]["beta[x]"]
    assert ratio == pytest.approx(table["x"].std(ddof=0), rel=1e-3)


def test_loo_is_the_score(table, runs):
    score = streammc.score(runs["x"], streammc.from_table(table, formula=FORMULAS["x"]))
    whole, part = (streammc.loo(runs["x"], table, rows=rows) for rows in (None, 200))
    assert score["elpd_loo"]["estimate"] == whole.elpd == pytest.approx(float(whole.elpd_i.sum()))
    assert (score["elpd_loo"]["se"], score["p_loo"]["estimate"]) == (whole.se, whole.p)
    assert score["pareto_k"]["good"] == int((whole.pareto_k <= whole.good_k).sum())
    assert whole.subsample_size is None
    assert part.subsample_size == 200 == int(np.isfinite(part.pareto_k).sum())
    assert part.elpd == pytest.approx(float(part.elpd_i.sum()))
    assert abs(part.elpd - whole.elpd) < 4.5 * part.subsampling_se
    assert "200 subsampled" in str(part)
    assert pickle.loads(pickle.dumps(part)).elpd == part.elpd


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # pandas 3.1, of ArviZ
@pytest.mark.parametrize("rows", [None, 200])
def test_compare_pairs_the_rows(table, runs, rows):
    scores = {name: streammc.loo(run, table, rows=rows) for name, run in runs.items()}
    found = azs.compare(scores)
    ours = streammc.compare(runs, table, loo=True, rows=rows)
    assert "x" == ours["best"] == found.index[0]
    exact = streammc.compare(runs, table, loo=True)["runs"][1]["difference"]
    difference = ours["runs"][1]["difference"]
    assert found["elpd_diff"]["z"] == pytest.approx(-difference["estimate"], abs=1e-2)
    # Of a sample, ArviZ has the spread of all rows from surrogates: that of all rows.
    assert found["dse"]["z"] == pytest.approx(exact["se"], rel=1e-2)
    assert found["weight"]["x"] > 0.9
    # Rows that are not paired have another error.
    broken = scores["z"].elpd_i[np.random.default_rng(1).permutation(N)]
    away = np.asarray(scores["x"].elpd_i) - broken.values
    assert abs(np.sqrt(N * away.var()) / exact["se"] - 1.0) > 5e-2


def test_compare_without_loo_compares_costs(runs):
    same = streammc.compare([runs["x"], runs["x"]])
    assert same["base"] == same["runs"][0]["run"] == runs["x"].encoding["source"]
    assert 1.0 == same["runs"][1]["rct"]["median"]
    with pytest.raises(IdentityError, match="rank models of the same rows with --loo"):
        streammc.compare(runs)
    with pytest.raises(ConfigError, match="expected several runs to compare"):
        streammc.compare([])


def test_a_run_of_rows_in_memory_needs_its_table(table, runs):
    with pytest.raises(DataError, match="give it, as it was given to"):
        streammc.loo(runs["x"])
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.loo(runs["x"], table.assign(x=table["x"] + 1.0))


def test_loo_of_replicated_rows(table, runs):
    store = streammc.from_table(table, formula=FORMULAS["x"])
    tree = streammc.posterior_predictive(runs["x"], store, rows=N, draws=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pareto k
        found = azs.loo(tree)
    assert found.elpd == pytest.approx(streammc.loo(runs["x"], table).elpd, abs=0.01)


def frames(table):
    """Yield the table in every kind of frame whose library is installed, and its types."""
    pl, duckdb, ibis, dd, pa = (
        pytest.importorskip(name) if name in ("pyarrow",) else _installed(name)
        for name in ("polars", "duckdb", "ibis", "dask.dataframe", "pyarrow")
    )
    yield "pandas", table.set_axis(np.arange(N) + 5)
    yield "pyarrow", pa.Table.from_pandas(table)
    yield "mapping", {name: table[name].to_numpy() for name in table}
    if pl is not None:
        yield "polars", pl.from_pandas(table)
        yield "polars lazy", pl.from_pandas(table).lazy().filter(pl.col("x") > -1e9)
    if duckdb is not None:
        yield "duckdb", duckdb.from_arrow(pa.Table.from_pandas(table))
    if dd is not None:
        yield "dask", dd.from_pandas(table, npartitions=11)
    if ibis is not None:
        yield "ibis", ibis.memtable(table)


def _installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def as_pandas(frame):
    """Return a result of any kind as a frame of pandas."""
    if isinstance(frame, dict):
        return pd.DataFrame(frame)
    if isinstance(frame, pd.DataFrame):
        return frame
    for method in ("collect", "compute", "to_arrow_table", "to_pandas"):
        frame = getattr(frame, method)() if hasattr(frame, method) else frame
    return frame


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # pandas 3.1, of Dask
def test_every_kind_of_frame_is_the_same_table_and_predictions_come_back_in_it(table, runs):
    store = streammc.from_table(table, formula=FORMULAS["x"])
    expected = streammc.predict(runs["x"], store)
    seen = []
    for kind, frame in frames(table):
        assert store.fingerprint == streammc.from_table(frame, formula=FORMULAS["x"]).fingerprint
        found = streammc.predict(runs["x"], frame)
        assert isinstance(found, type(frame)), kind
        plain = as_pandas(found)
        assert ["row_id", "mean", "eti90_lb", "eti90_ub"] == list(plain.columns)
        # Rows of a table are in its order, those of the store are shuffled.
        order = np.argsort(expected["row_id"].values)
        np.testing.assert_allclose(plain["mean"], expected["mean"].values[order], rtol=1e-6)
        np.testing.assert_allclose(plain["eti90_lb"], expected["q5"].values[order], rtol=1e-6)
        seen.append(kind)
    assert ["pandas", "pyarrow", "mapping", "polars", "polars lazy", "duckdb", "dask"] == seen[:7]
    assert ["ibis"] * (_installed("ibis") is not None) == seen[7:]
    index = as_pandas(streammc.predict(runs["x"], table.set_axis(np.arange(N) + 5))).index
    assert list(index[:2]) == [5, 6]


def test_groups_of_a_frame_have_the_effects_of_the_run(table):
    grouped = table.assign(g=np.arange(N) % 30)
    formula = "x ~ z + (1 | g)"
    run = streammc.fit(grouped, formula, "gaussian", sampler="hmc", **SIZES)
    store = streammc.from_table(grouped, formula=formula)
    by_store = streammc.predict(run, store, trained_on=store)
    expected = by_store["mean"].values[np.argsort(by_store["row_id"].values)]
    found = streammc.predict(run, grouped, trained_on=grouped)
    np.testing.assert_allclose(found["mean"], expected, rtol=1e-5)
    with pytest.warns(UserWarning, match="belong to groups that the run has not seen"):
        new = streammc.predict(run, grouped.assign(g=99), trained_on=grouped)["mean"]
    assert np.abs(new - expected).max() > 1e-3
    with pytest.raises(DataError, match="give the table that was fitted as trained_on="):
        streammc.predict(run, grouped)


def test_a_lazy_frame_is_fitted_and_one_that_fails_says_why(table, runs):
    pl = pytest.importorskip("polars")
    lazy = pl.from_pandas(table).lazy()
    run = streammc.fit(lazy, FORMULAS["x"], "logistic", **SIZES)
    assert np.array_equal(run["posterior"]["beta"], runs["x"]["posterior"]["beta"])
    assert streammc.loo(run, lazy).elpd == streammc.loo(runs["x"], table).elpd
    with pytest.raises(DataError, match="expected a lazy frame that can be computed, found Column"):
        streammc.from_table(lazy.select(pl.col("none")), formula=FORMULAS["x"])


@pytest.mark.filterwarnings("ignore:The .* data looks binary")
def test_plots_of_arviz_take_the_run_and_its_replicated_responses(table, runs):
    azp = pytest.importorskip("arviz_plots")
    assert "beta" in azp.plot_forest(runs["x"], backend="none").viz["point_estimate"]
    tree = streammc.posterior_predictive(runs["x"], table, rows=100, draws=50)
    assert "y" in azp.plot_ppc_dist(tree, backend="none").viz["observed_dist"]
    new = streammc.posterior_predictive(runs["x"], table.drop(columns="y"), rows=100, draws=50)
    assert {"posterior", "predictions"} == set(new)
    azp.plot_ppc_dist(new, group="predictions", visuals={"observed_dist": False}, backend="none")


def test_words_of_pymc_are_understood_or_answered(table, runs):
    again = {**SIZES, "random_seed": SIZES["seed"]}
    del again["seed"]
    run = streammc.fit(table, FORMULAS["x"], "logistic", **again)
    assert np.array_equal(run["posterior"]["beta"], runs["x"]["posterior"]["beta"])
    drawn = [
        streammc.fit(table, FORMULAS["x"], "logistic", **{**SIZES, "seed": seed}).attrs["streammc"]
        for seed in (np.random.default_rng(3), int(np.random.default_rng(3).integers(2**63)))
    ]
    assert drawn[0] == drawn[1]
    with pytest.raises(TypeError, match=r"fit\(\): expected a name of streammc, found 'tune': w"):
        streammc.fit(table, FORMULAS["x"], "logistic", tune=500)
    with pytest.raises(TypeError, match="expected 'seed' once, found it under another name"):
        streammc.fit(table, FORMULAS["x"], "logistic", seed=1, random_seed=1)
    with pytest.raises(TypeError, match="found 'cores': write threads="):
        streammc.sample(streammc.from_table(table, formula="y ~ x"), None, cores=2)


def test_dimensions_of_a_run_have_names(table):
    run = streammc.fit(table, "x ~ z", "gaussian", sampler="hmc-ecs", audit=True, **SIZES)
    dims = {str(dim) for group in run.children.values() for dim in group.sizes}
    assert {"chain", "draw", "feature", "parameter", "certainty_row"} == dims
    labels = ["beta[Intercept]", "beta[z]", "sigma"]
    assert labels == list(run["constant_data"]["theta_star"]["parameter"].values)


def test_rows_of_a_frame_keep_their_numbers(table):
    frame = table.assign(y=table["x"] + 0.1 * table["z"])
    frame.loc[7, "y"] = 60.0
    run = streammc.fit(frame, "y ~ x", "gaussian", **SIZES)
    assert streammc.loo(run, frame).elpd_i.values.argmin() == 7
    drawn = streammc.posterior_predictive(run, frame, rows=300)
    found = drawn["observed_data"]["y"]
    np.testing.assert_allclose(frame["y"].to_numpy()[found["row"]], found, rtol=1e-6)


def test_a_raw_table_is_read_as_that_of_the_run(table, tmp_path):
    frame = table.assign(w=1 + np.arange(N) % 3, id=[f"f{i}" for i in range(N)])
    frame.loc[3, "x"] = -999
    path, rest = tmp_path / "t.csv", tmp_path / "u.csv"
    frame.to_csv(path, index=False)
    frame.drop(index=3).to_csv(rest, index=False)
    asked = {"weight": "w", "row_id": "id", "missing": ["-999.0"], "drop_missing": True}
    with pytest.warns(UserWarning, match="left out: 1"):
        run = streammc.fit(path, "y ~ x", "logistic", dtype="float64", **asked, **SIZES)
    with pytest.raises(DataError, match="missing"):
        streammc.predict(run, path)
    found = streammc.predict(run, rest)
    assert found["row_id"].values[0] == "f0"
    assert found.attrs["weight"] == frame["w"].drop(index=3).sum()
    left_out = pytest.warns(UserWarning, match="left out: 1")
    with left_out, pytest.warns(SamplingWarning, match="rows have weights"):
        assert streammc.loo(run, path).n_data_points == N - 1  # the rows of the fit, made again


def test_a_series_is_no_table(table):
    with pytest.raises(ConfigError, match="Series"):
        streammc.from_table(table["x"])
