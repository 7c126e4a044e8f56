"""Predictions of mixed models against sums over draws and a dense grid of the effects."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from mixed_runs import draws_near, make_run
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

import streammc
from streammc import facts, from_arrays, from_table, models
from streammc.errors import ConfigError, DataError, IdentityError, RefusedError
from streammc.prediction import predictive, row_effects
from streammc.prediction.row_effects import LabelIndex

SIZES = [1, 2, 5, 9, 20]
MEANS = {"logistic": expit, "poisson": np.exp, "gaussian": lambda eta: eta}
SIGMA = 0.8


def log_lik(name, y, eta, theta):
    if name == "logistic":
        return y * eta - np.logaddexp(0, eta)
    if name == "poisson":
        return y * eta - np.exp(eta) - gammaln(y + 1)
    return stats.norm.logpdf(y, eta, math.exp(theta[2]))


def frame(name, seed=1, sizes=SIZES):
    """A table of groups a0, a1, ... in mixed order."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = 3.0 + 2.0 * rng.normal(size=len(g))
    eta = 0.4 * (x - 3) - 0.3 + 1.2 * rng.normal(size=len(sizes))[g]
    if name == "logistic":
        y = (rng.random(len(g)) < expit(eta)) * 1.0
    else:
        y = rng.poisson(np.exp(eta)) * 1.0 if name == "poisson" else rng.normal(eta, SIGMA)
    return pd.DataFrame({"y": y, "x": x, "g": [f"a{k}" for k in g]})


def new_rows(seed=7):
    """Rows of known groups and of two new ones, in mixed order."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.r_[np.arange(5), np.arange(5), [8, 8, 9, 9]])
    x = 3.0 + 2.0 * rng.normal(size=14)
    return pd.DataFrame({"y": np.arange(14) % 2, "x": x, "g": [f"a{k}" for k in g]})


FORMULAS = {"intercept": "y ~ x + (1 | g)", "slope": "y ~ x + (1 + x | g)"}
THETA = {"intercept": [0.1, 0.5], "slope": [0.1, 0.5]}
GROUP = {"intercept": [0.2], "slope": [0.2, -0.5, 0.4]}


def center(name, kind):
    return [*THETA[kind], *([math.log(SIGMA)] if name == "gaussian" else []), *GROUP[kind]]


def effect_grid(theta, kind):
    """Return the effects (m, 2) at a grid and the log of their prior (m,)."""
    if kind == "intercept":
        v = np.linspace(-8, 8, 801)
        return np.stack([math.exp(theta[-1]) * v, 0 * v], 1), -0.5 * v**2
    t0, t1, rho = math.exp(theta[-3]), math.exp(theta[-2]), math.tanh(theta[-1])
    v = np.linspace(-7, 7, 161)
    v0, v1 = (each.ravel() for each in np.meshgrid(v, v))
    u = np.stack([t0 * v0, t1 * (rho * v0 + math.sqrt(1 - rho**2) * v1)], 1)
    return u, -0.5 * (v0**2 + v1**2)


def brute(name, kind, thetas, data, rows, shared, as_new=False):
    """Return values (row, S m) of the predictor and their weights, by the textbook.

    ``shared`` turns x into the column of the store.
    """
    values, weights = [], []
    for theta in thetas:
        u, log_prior = effect_grid(theta, kind)
        at, share = [], []
        for x, g in zip(shared(rows["x"].to_numpy()), rows["g"], strict=True):
            own = data[data["g"] == g]
            log = log_prior.copy()
            if len(own) and not as_new:
                z = shared(own["x"].to_numpy())
                eta = theta[0] + theta[1] * z + u[:, :1] + u[:, 1:] * z
                log = log + log_lik(name, own["y"].to_numpy(), eta, theta).sum(1)
            weight = np.exp(log - logsumexp(log))
            at.append(theta[0] + theta[1] * x + u[:, 0] + u[:, 1] * x)
            share.append(weight / len(thetas))
        values.append(at)
        weights.append(share)
    return np.concatenate(values, axis=1), np.concatenate(weights, axis=1)


def weighted_quantile(values, weights, p):
    order = np.argsort(values, axis=1)
    below = np.take_along_axis(weights, order, 1).cumsum(1)
    ordered = np.take_along_axis(values, order, 1)
    return np.array([np.interp(p, b, v) for b, v in zip(below, ordered, strict=True)])


@pytest.fixture(params=[(n, k) for n in MEANS for k in FORMULAS], ids="-".join)
def case(request, tmp_path):
    """Name, kind, table, draws, a finished run on a standardised store, and its data set."""
    name, kind = request.param
    table = frame(name)
    data = from_table(table, formula=FORMULAS[kind], standardize=True)
    theta = draws_near(center(name, kind), 0.15, (2, 4))
    run = make_run(tmp_path / "r", getattr(models, name)(), data, theta)
    return name, kind, table, theta.reshape(-1, theta.shape[-1]), run, data


def on_store(data):
    moved = data.attributes["standardization"]
    return lambda x: (x - moved["mean"][1]) / moved["scale"][1]


def test_means_and_ends_are_those_of_a_dense_grid(case):
    name, kind, table, thetas, run, data = case
    rows = new_rows()
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data).load()
    values, weights = brute(name, kind, thetas, table, rows, on_store(data))
    expected = (MEANS[name](values) * weights).sum(1)
    low, high = (weighted_quantile(values, weights, p) for p in (0.05, 0.95))
    assert made["row_id"].values.tolist() == list(range(len(rows)))
    bound = 2e-4 * (MEANS[name](high) - MEANS[name](low))
    assert (np.abs(made["mean"].values - expected) / bound).max() < 1
    for end, p in (("q5", 0.05), ("q95", 0.95)):
        reached = (weights * (MEANS[name](values) <= made[end].values[:, None])).sum(1)
        assert np.abs(reached - p).max() < 0.006
    assert facts(made)["new_group_rows"] == 4
    # The partner: known groups, predicted as new ones.
    as_new, share = brute(name, kind, thetas, table, rows, on_store(data), as_new=True)
    wrong = (MEANS[name](as_new) * share).sum(1)
    known = rows["g"].isin(table["g"]).to_numpy()
    assert np.median(np.abs(wrong - expected)[known] / bound[known]) > 100
    assert np.abs(wrong - expected)[~known].max() == 0


def test_log_score_is_that_of_a_dense_grid(case):
    name, kind, table, thetas, run, data = case
    rows = new_rows()
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data)
    values, weights = brute(name, kind, thetas, table, rows, on_store(data))
    points = values.shape[1] // len(thetas)
    density = np.zeros(len(rows))
    for s, theta in enumerate(thetas):
        here = slice(s * points, (s + 1) * points)
        log = log_lik(name, rows["y"].to_numpy()[:, None], values[:, here], theta)
        density += (weights[:, here] * np.exp(log)).sum(1)
    assert abs(facts(made)["log_score"] - np.log(density).mean()) < 1e-4


FAR = {
    "logistic": expit,
    "probit": stats.norm.cdf,
    "poisson": np.exp,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "tau"),
    [
        ("logistic", 6.0),
        ("logistic", 20.0),
        ("probit", 20.0),
        ("poisson", 6.0),
        ("logistic", 300.0),
    ],
)
def test_mean_of_a_new_group_is_that_of_a_dense_grid_whatever_tau_is(tmp_path, name, tau):
    """Fifteen nodes are 6 apart at tau 20: means were up to 0.085 off, to either side along x."""
    table = frame("poisson" if name == "poisson" else "logistic")
    data = from_table(table, formula=FORMULAS["intercept"], standardize=False)
    theta = draws_near([0.1, 0.5, math.log(tau)], 0.05, (1, 10))
    run = make_run(tmp_path / "r", getattr(models, name)(), data, theta)
    rows = pd.DataFrame({"y": np.arange(45) % 2, "x": np.linspace(-80, 80, 45), "g": "new"})
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data, by="x", bins=9)
    v = (
        np.linspace(-8.0 - tau, 8.0 + tau, 20_001)
        if name == "poisson"
        else np.linspace(-9, 9, 20_001)
    )
    weight = stats.norm.pdf(v) / stats.norm.pdf(v).sum()
    z, w = np.polynomial.hermite_e.hermegauss(15)
    exact, wrong = np.empty((2, 45, 10))
    for s, (b0, b1, log_tau) in enumerate(theta[0]):
        for i, x in enumerate(rows["x"]):
            eta = b0 + b1 * x
            exact[i, s] = weight @ FAR[name](eta + math.exp(log_tau) * v)
            wrong[i, s] = w @ FAR[name](eta + math.exp(log_tau) * z) / w.sum()
    sd = exact.std(axis=1)
    assert (np.abs(made["mean"].values - exact.mean(axis=1)) / sd).max() < 0.01
    by_group = exact.reshape(9, 5, 10).mean(axis=1)
    assert (
        np.abs(made["group_mean"].values - by_group.mean(axis=1)) / by_group.std(axis=1)
    ).max() < 0.01
    # Broken partner: the nodes of before.
    assert (np.abs(wrong - exact).mean(axis=1) / sd).max() > 0.05


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_area_of_new_groups_is_that_of_their_mean_responses(tmp_path):
    """With tau 20 they are close together, and thresholds far from them told no rows apart."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=3000)
    rows = pd.DataFrame({"y": (rng.random(3000) < expit(x)) * 1.0, "x": x, "g": "new"})
    data = from_table(frame("logistic"), formula=FORMULAS["intercept"], standardize=False)
    theta = draws_near([0.1, 1.0, math.log(20.0)], 0.1, (1, 4))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data)
    found = facts(made)["auc"]
    rank, y = stats.rankdata(x), rows["y"].to_numpy()  # means rise with x
    exact = (rank[y == 1].sum() - y.sum() * (y.sum() + 1) / 2) / (y.sum() * (1 - y).sum())
    assert found["resolution"] < 1e-3
    assert abs(found["of_mean"] - exact) <= found["resolution"]
    assert abs(found["mean"] - exact) <= found["resolution"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "tau"), [("poisson", 1.0), ("poisson", 20.0), ("gaussian", 20.0)])
def test_log_score_of_a_new_group_is_that_of_a_dense_grid(tmp_path, name, tau):
    """A large count says much about its effect: 61 nodes over all of tau did not see it."""
    data = from_table(frame(name), formula=FORMULAS["intercept"], standardize=False)
    center = [0.1, 0.0, *([math.log(SIGMA)] if name == "gaussian" else []), math.log(tau)]
    theta = draws_near(center, 0.05, (1, 5))
    run = make_run(tmp_path / "r", getattr(models, name)(), data, theta)
    y = np.array([0.0, 1.0, 150.0, 3.0])
    rows = pd.DataFrame({"y": y, "x": np.zeros(4), "g": "new"})
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data)
    v = np.unique(np.concatenate([np.linspace(-9, 9, 20_001), np.linspace(-0.5, 6, 400_001)]))
    density = np.zeros(4)
    for each in theta[0]:
        eta = each[0] + math.exp(each[-1]) * v
        with np.errstate(over="ignore"):
            values = np.exp([log_lik(name, one, np.minimum(eta, 700.0), each) for one in y])
        density += np.trapezoid(values * stats.norm.pdf(v), v, axis=1) / 5
    assert facts(made)["log_score"] == pytest.approx(np.log(density).mean(), abs=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantiles_of_known_groups_that_agree_are_those_of_a_dense_grid(tmp_path):
    table = pd.DataFrame(
        {
            "y": np.repeat([1.0, 0.0], 8),
            "x": np.tile([2.0, 4.0], 8),
            "g": np.repeat(["a0", "a1", "a2", "a3"], 4),
        }
    )
    data = from_table(table, formula=FORMULAS["intercept"], standardize=True)
    theta = draws_near([0.1, 0.5, math.log(8.0)], 0.1, (2, 5))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    rows = table.iloc[::4]
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data).load()
    values, weights = brute(
        "logistic", "intercept", theta.reshape(-1, 3), table, rows, on_store(data)
    )
    for end, p in (("q5", 0.05), ("q95", 0.95)):
        reached = (weights * (expit(values) <= made[end].values[:, None])).sum(1)
        assert np.abs(reached - p).max() < 0.006


def test_the_store_of_the_run_is_predicted_by_itself(case):
    _, _, table, _, run, data = case
    made = streammc.predict(run, data).load().sortby("row_id")
    like = streammc.predict(run, from_table(table, like=data), trained_on=data).load()
    assert np.allclose(made["mean"], like["mean"], rtol=1e-12)
    assert np.allclose(made["q5"], like["q5"], rtol=1e-12)
    assert facts(made)["new_group_rows"] == 0


def simple(tmp_path, name="logistic", seed=1, **more):
    """A table with groups, and a run of a random intercept on it."""
    table = frame(name, seed)
    data = from_table(table, formula=FORMULAS["intercept"])
    theta = draws_near(center(name, "intercept"), 0.15, (2, 10))
    return table, data, make_run(tmp_path / "r", getattr(models, name)(), data, theta, **more)


def test_rows_are_those_of_the_table_whatever_threads_tiles_and_memory(tmp_path, monkeypatch):
    _, data, run = simple(tmp_path)
    rng = np.random.default_rng(3)
    g = rng.permutation(np.r_[np.arange(5).repeat(2000), np.arange(5, 20).repeat(20)])
    rows = pd.DataFrame({"y": g % 2, "x": rng.normal(size=len(g)), "g": [f"a{k}" for k in g]})
    whole = from_table(rows, like=data)
    options = {"trained_on": data, "draws": 6}
    made = streammc.predict(run, whole, scheduler="sync", **options).load()
    assert facts(made)["new_group_rows"] == 300
    picked = rng.choice(len(rows), 40, replace=False)
    some = streammc.predict(run, from_table(rows.iloc[picked], like=data), **options).load()
    for name in ("mean", "q5", "q95"):
        assert np.allclose(made[name].values[picked], some[name].values, rtol=1e-13)
    monkeypatch.setattr(row_effects, "_CACHE_BYTES", 2000)
    monkeypatch.setattr(predictive, "_TILE_ENTRIES", 1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    small = from_table(tmp_path / "rows.csv", like=data, path=tmp_path / "s.zarr", chunk_rows=4096)
    again = streammc.predict(run, small, scheduler=2, **options).load()
    for name in ("row_id", "mean", "q5", "q95"):
        assert np.array_equal(made[name], again[name])


def test_rows_without_labels_are_those_of_new_groups(tmp_path):
    _, data, run = simple(tmp_path)
    rows = new_rows()
    with pytest.warns(UserWarning, match="predicted as those of new groups"):
        unlabelled = from_table(rows.drop(columns="g"), like=data)
    made = streammc.predict(run, unlabelled).load()
    with pytest.warns(UserWarning, match="14 of 14 rows of 'memory' .* such as 'new'"):
        other = streammc.predict(run, from_table(rows.assign(g="new"), like=data), trained_on=data)
    assert facts(made)["new_group_rows"] == facts(other)["new_group_rows"] == len(rows)
    assert np.array_equal(made["mean"], other["mean"])
    with pytest.raises(DataError, match="found no label in row 1 of 'memory'"):
        streammc.predict(run, unlabelled, tmp_path / "p", new_groups="refuse")
    with pytest.raises(DataError, match="run has seen, found 'a9' in row 2 of"):
        streammc.predict(
            run, from_table(rows, like=data), tmp_path / "p", trained_on=data, new_groups="refuse"
        )
    assert not (tmp_path / "p").exists()
    known = rows[rows["g"] < "a8"]
    streammc.predict(run, from_table(known, like=data), trained_on=data, new_groups="refuse")


def test_area_is_that_of_the_mean_responses_of_each_draw(tmp_path):
    """The effects make the scores, so that thresholds without them would not tell rows apart."""
    rng = np.random.default_rng(5)
    g = rng.integers(0, 40, 4000)
    x = 0.3 * rng.normal(size=4000)
    y = (rng.random(4000) < expit(rng.normal(size=40)[g])) * 1.0
    table = pd.DataFrame({"y": y, "x": x, "g": g})
    data = from_table(table, formula=FORMULAS["intercept"], standardize=False)
    run = make_run(tmp_path / "r", models.logistic(), data, draws_near([0, 0.3, 0], 0.1, (1, 4)))
    found = facts(streammc.predict(run, data))["auc"]
    assert found["resolution"] < 1e-3
    score = streammc.predict(run, data).sortby("row_id")["mean"].values
    rank = stats.rankdata(score)
    exact = (rank[y == 1].sum() - y.sum() * (y.sum() + 1) / 2) / (y.sum() * (1 - y).sum())
    assert abs(found["of_mean"] - exact) <= found["resolution"]


def test_what_cannot_be_predicted_is_refused(tmp_path):
    table, data, run = simple(tmp_path)
    rows = from_table(new_rows(), like=data)
    with pytest.raises(ConfigError, match="data set of the run as trained_on, found none"):
        streammc.predict(run, rows)
    other = from_table(frame("logistic", 9), formula=FORMULAS["intercept"])
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.predict(run, rows, trained_on=other)
    h = from_table(table.rename(columns={"g": "h"}), formula="y ~ x + (1 | h)")
    with pytest.raises(IdentityError, match=r"groups of 'g', as the run has, found .* 'h'"):
        streammc.predict(run, h, trained_on=data)
    with pytest.raises(ConfigError, match="expected 'integrate' or 'refuse' as new_groups"):
        streammc.predict(run, rows, trained_on=data, new_groups="guess")
    hot, theta = tmp_path / "h", draws_near(center("logistic", "intercept"), 0.15, (2, 10))
    make_run(hot, models.logistic(), data, theta, temperature=4.0)
    with pytest.raises(RefusedError, match="temperature 1, found 4"):
        streammc.predict(hot, rows, trained_on=data)


def test_signs_weigh_draws_and_effects(tmp_path):
    table, data, run = simple(tmp_path)
    weights = np.ones((2, 10))
    weights[0, 3] = weights[1, 7] = -1.0
    rows = new_rows()
    made = streammc.predict(run, from_table(rows, like=data), trained_on=data, weights=weights)
    thetas = draws_near(center("logistic", "intercept"), 0.15, (2, 10)).reshape(-1, 3)
    values, share = brute("logistic", "intercept", thetas, table, rows, on_store(data))
    share = share * np.repeat(weights.ravel() / weights.mean(), share.shape[1] // 20)
    assert np.abs(made["mean"].values - (expit(values) * share).sum(1)).max() < 1e-5


@pytest.mark.parametrize("kind", ["number", "text"])
def test_labels_are_found_whatever_their_kind_and_order(kind, monkeypatch):
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(-500, 4500) * 3)
    given = labels if kind == "number" else [str(each) for each in labels]
    table = from_arrays(np.ones((5000, 1)), np.ones(5000), groups=np.array(given)).groups
    own = table.labels(0, 5000)
    monkeypatch.setattr(row_effects, "_PIECE", 700)
    known = {text: k // 5 for k, text in enumerate(sorted(row_effects.as_text(own)))}
    colliding = np.frompyfunc(lambda text: known.get(text, 3), 1, 1)
    for hashes in (row_effects._hashes, lambda texts: colliding(texts).astype("u8")):
        monkeypatch.setattr(row_effects, "_hashes", hashes)
        index = LabelIndex(table)
        for wanted in (own[::7], row_effects.as_text(own[::7])):
            assert np.array_equal(index.find(wanted), np.arange(0, 5000, 7))
        assert index.find(np.array([b"x", b"1", b"-99999999", b"007"])).tolist() == [-1] * 4
        found = index.find(np.array([1, 10**15, int(labels[0])]))
        assert found[:2].tolist() == [-1, -1]
        assert int(own[found[2]]) == labels[0]
