"""Calls of other libraries on what streammc returns, as their users write them."""

import pickle
import warnings

import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError, DataError, IdentityError

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
    assert found.elpd == pytest.approx(streammc.loo(runs["x"], table).elpd, abs=0.1)
