"""Effects of groups against NumPy: dense grids, closed forms, coverage, labels, chunks."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from mixed_runs import draws_near, make_run
from scipy.special import expit

import streammc
from streammc import facts, from_arrays, from_table, models
from streammc.errors import ConfigError, DataError, IdentityError, RefusedError, StorageIOError
from streammc.likelihood.data_views import by_group
from streammc.models.table_scale import transform
from streammc.prediction import group_summaries
from streammc.prediction.predictors import matched
from streammc.trace.row_arrays import GROUPS, check_chunks
from streammc.trace.run_directory import RunDirectory


def simulated(sizes, tau=1.0, seed=1, noise=None, **more):
    """A table of groups with an intercept each, its arrays ``(X, y, group)``, the true effects."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(len(sizes)), sizes)
    u = tau * rng.normal(size=len(sizes))
    X = np.c_[np.ones(len(g)), rng.normal(size=len(g))]
    eta = X @ [-0.4, 0.6] + u[g]
    y = (rng.random(len(g)) < expit(eta)) * 1.0 if noise is None else rng.normal(eta, noise)
    names = ["Intercept", "x"]
    return from_arrays(X, y, groups=g, feature_names=names, **more), (X, y, g), u


def on_a_grid(eta, y, tau):
    """Return points and weights of the posterior of a group's intercept."""
    u = tau * np.linspace(-8, 8, 801)
    log = (y[:, None] * (eta[:, None] + u) - np.logaddexp(0, eta[:, None] + u)).sum(0)
    weight = np.exp(log - log.max() - 0.5 * (u / tau) ** 2)
    return u, weight / weight.sum()


def test_means_sds_and_intervals_are_those_of_a_dense_grid(tmp_path):
    sizes = [1, 7, 30, 2, 100]
    data, (X, y, g), _ = simulated(sizes)
    theta = draws_near([-0.4, 0.6, 0.0], 0.2, (2, 100))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    made = streammc.effects(run, data, draws=200).sortby("group")
    assert made["rows"].values.tolist() == sizes
    assert made["group"].values.tolist() == [0, 1, 2, 3, 4]
    assert made["effect"].values.tolist() == ["Intercept"]
    for k in range(5):
        rows = g == k
        parts = [on_a_grid(X[rows] @ t[:2], y[rows], math.exp(t[2])) for t in theta.reshape(-1, 3)]
        u, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        weight = weight / weight.sum()
        mean = weight @ u
        sd = math.sqrt(weight @ (u - mean) ** 2)
        order = np.argsort(u)
        ends = np.interp([0.05, 0.95], weight[order].cumsum(), u[order])
        found = made.isel(group=k, effect=0)
        assert abs(found["mean"] - mean) < 1e-3 * sd
        assert abs(found["sd"] / sd - 1) < 1e-3
        assert np.abs([found["q5"] - ends[0], found["q95"] - ends[1]]).max() < 0.03 * sd


def test_sd_includes_what_is_uncertain_in_the_parameters(tmp_path):
    """Few large groups: the intercept is uncertain, and so are all effects. Closed form."""
    tau, noise, sizes = 1.0, 0.5, [400] * 6
    data, (X, y, g), _ = simulated(sizes, tau, noise=noise)
    V = noise**2 * np.eye(len(y)) + tau**2 * (g[:, None] == g)
    gls = X.T @ np.linalg.inv(V)
    covariance = np.linalg.inv(gls @ X)
    beta = covariance @ gls @ y
    rng = np.random.default_rng(2)
    draws = rng.multivariate_normal(beta, covariance, size=(2, 400))
    fixed = np.broadcast_to([math.log(noise), math.log(tau)], (2, 400, 2))
    theta = np.concatenate([draws, fixed], axis=2)
    run = make_run(tmp_path / "r", models.gaussian(), data, theta)
    made = streammc.effects(run, data, draws=60).sortby("group")
    Z = (g[:, None] == np.arange(6)) * 1.0
    both = np.c_[X, Z]
    precision = both.T @ both / noise**2 + np.diag([0, 0] + [tau**-2] * 6)
    joint = np.linalg.inv(precision)
    mean = (joint @ both.T @ y / noise**2)[2:]
    sd = np.sqrt(np.diag(joint))[2:]
    # The two parameters that do not move leave the covariance of 60 draws as it is.
    assert np.abs(made["mean"].values[:, 0] - mean).max() < 4 * sd.max() / math.sqrt(800)
    assert np.abs(made["sd"].values[:, 0] / sd - 1).max() < 0.35
    within = math.sqrt(1 / (400 / noise**2 + tau**-2))
    assert within < 0.1 * sd.min()  # without the variance between draws the test fails


def test_thinned_draws_get_mean_and_covariance_of_all():
    rng = np.random.default_rng(1)
    everything = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 3)) + [5.0, -2.0, 0.1]
    found = matched(everything[::100], everything)
    assert np.allclose(found.mean(0), everything.mean(0))
    assert np.allclose(np.cov(found.T), np.cov(everything.T) * 40 / 39 * 3999 / 4000)
    assert np.abs(found - everything[::100]).max() < 2.0
    few = matched(everything[:6], everything)  # too few for a covariance
    assert np.allclose(few.mean(0), everything.mean(0))
    assert np.allclose(np.cov(few.T), np.cov(everything[:6].T))
    everything[:, 1] = 3.0
    assert np.allclose(matched(everything[::100], everything).mean(0), everything.mean(0))


def moments(tmp_path, data, theta, chunk_groups=2**16, scheduler="sync", **options):
    run = tmp_path / f"r{len(list(tmp_path.iterdir()))}"
    make_run(run, options.pop("model", models.logistic()), data, theta)
    return streammc.effects(run, data, scheduler=scheduler, **options).load()


def test_intervals_cover_the_true_effects_and_those_of_a_wrong_tau_do_not(tmp_path):
    groups = 600
    data, _, truth = simulated([12] * groups, tau=1.0, seed=4)
    run = streammc.sample(
        data, models.logistic(), sampler=streammc.samplers.hmc(), draws=60, warmup=80, chains=2,
        seed=1, path=tmp_path / "run",
    )  # fmt: skip
    made = streammc.effects(run, data).isel(effect=0).sortby("group")
    lost = 4 * math.sqrt(0.09 / groups)
    covered = ((made["q5"] < truth) & (truth < made["q95"])).mean()
    assert abs(covered - 0.9) < lost
    z = (made["mean"] - truth) / made["sd"]
    assert abs(z.std() - 1) < 4 / math.sqrt(2 * groups)
    assert abs(made["mean"].mean()) < 0.02  # the intercept has what they have in common
    opened = RunDirectory.open(tmp_path / "run")
    bound = by_group(data, models.logistic())[1]
    theta = bound.unconstrain(opened.draws_matrix())
    theta[..., -1] -= math.log(2.5)
    wrong = moments(tmp_path, data, theta).isel(effect=0).sortby("group")
    covered = ((wrong["q5"] < truth) & (truth < wrong["q95"])).mean()
    assert covered < 0.9 - 2 * lost


def test_result_does_not_depend_on_chunks_or_threads(tmp_path, monkeypatch):
    sizes = np.random.default_rng(1).integers(1, 60, 500)
    theta = draws_near([-0.4, 0.6, 0.0], 0.2, (1, 4))
    data, _, _ = simulated(sizes, chunk_rows=4096)
    assert data.n_rows > 3 * 4096
    whole = moments(tmp_path, data, theta)
    assert np.array_equal(whole["rows"].sortby("group"), sizes)
    monkeypatch.setattr(group_summaries, "_CHUNK_GROUPS", 7)
    small = moments(tmp_path, data, theta, scheduler=2)
    assert small.drop_attrs().identical(whole.drop_attrs())
    alone, _, _ = simulated(sizes, chunk_rows=2**20)
    assert moments(tmp_path, alone, theta).drop_attrs().identical(whole.drop_attrs())


def test_labels_belong_to_their_groups_whatever_the_order(tmp_path):
    rng = np.random.default_rng(2)
    level = {"Zürich": 2.0, "a": -2.0, "Bern": 0.0, "no": 1.0}
    name = rng.choice(list(level), 2000, p=[0.1, 0.2, 0.3, 0.4])
    y = rng.normal([level[each] for each in name], 0.1)
    number = {"Zürich": -7, "a": 10**12, "Bern": 3, "no": 0}
    for labels, key in ((name, str), (np.array([number[each] for each in name]), number.get)):
        data = from_arrays(np.ones((2000, 1)), y, groups=labels, feature_names=["Intercept"])
        theta = np.tile([0.0, math.log(0.1), math.log(2.0)], (1, 3, 1))
        made = moments(tmp_path, data, theta, model=models.gaussian())
        for each, value in level.items():
            found = made.sel(group=key(each), effect="Intercept")
            assert abs(found["mean"] - value) < 0.05
            assert found["rows"] == (name == each).sum()


def test_slope_of_a_standardised_store_is_on_the_scale_of_the_table(tmp_path):
    rng = np.random.default_rng(3)
    g = np.repeat([f"g{k}" for k in range(5)], 8)
    x = 7.0 + 3.0 * rng.normal(size=40)
    y = (rng.random(40) < 0.5) * 1
    table = pd.DataFrame({"y": y, "x": x, "g": g})
    data = from_table(table, formula="y ~ x + (1 + x | g)", standardize=True)
    assert data.attributes["standardization"] is not None
    theta = draws_near([0.2, 0.3, -0.2, -0.7, 0.4], 0.1, (1, 3))
    made = moments(tmp_path, data, theta)
    assert made["effect"].values.tolist() == ["Intercept", "x"]
    _, bound = by_group(data, models.logistic())
    labels = list(bound.labels(data.feature_names))
    blocks = bound.table_scale(data.feature_names)
    ours, _ = transform(bound.constrain(theta), labels, data.attributes, blocks)
    for k in range(5):
        rows = g == f"g{k}"
        expected = np.zeros(2), np.zeros((2, 2))
        for b0, b1, t0, t1, rho in ours[0]:
            v = np.linspace(-7, 7, 301)
            v0, v1 = (each.ravel() for each in np.meshgrid(v, v))
            u = np.stack([t0 * v0, t1 * (rho * v0 + math.sqrt(1 - rho**2) * v1)])
            eta = b0 + u[0] + np.outer(x[rows], b1 + u[1])
            log = (y[rows, None] * eta - np.logaddexp(0, eta)).sum(0) - 0.5 * (v0**2 + v1**2)
            w = np.exp(log - log.max())
            w /= w.sum()
            expected[0][:] += u @ w / 3
            expected[1][:] += (w * u) @ u.T / 3
        sd = np.sqrt(np.diag(expected[1] - np.outer(expected[0], expected[0])))
        found = made.sel(group=f"g{k}")
        assert np.abs((found["mean"] - expected[0]) / sd).max() < 2e-3
        assert np.abs(found["sd"] / sd - 1).max() < 2e-3


def test_attributes_say_what_was_done_and_files_are_checked(tmp_path):
    data, _, _ = simulated([3, 4, 5])
    theta = draws_near([-0.4, 0.6, 0.0], 0.3, (2, 50))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    made = streammc.effects(run, data, tmp_path / "e", draws=20, interval=0.5)
    assert {"q25", "q75"} < set(made)
    said = facts(made)
    assert (said["groups"], said["draws"], said["effects"]) == (3, 20, ["Intercept"])
    assert 0 < said["mean_error"] < 1 / math.sqrt(20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "r"]
    assert len(list(check_chunks(tmp_path / "e", GROUPS))) == 7
    with pytest.raises(IdentityError, match="expected nothing at"):
        streammc.effects(run, data, tmp_path / "e")
    streammc.effects(run, data, tmp_path / "e", overwrite=True)


def test_standard_error_of_the_means_bounds_what_other_draws_give(tmp_path):
    data, _, _ = simulated([2000] * 3)
    theta = draws_near([-0.4, 0.6, 0.0], 0.3, (1, 4000))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    one = streammc.effects(run, data, draws=50)
    other = streammc.effects(run, data, draws=400)
    gap = np.abs((one["mean"] - other["mean"]) / other["sd"]).max()
    assert gap < 0.3 * one.attrs["mean_error"]  # without the match of moments about 1
    assert np.abs(one["sd"] / other["sd"] - 1).max() < 0.01


@pytest.mark.parametrize(("sd", "rows", "used"), [(0.003, 50, 16), (0.3, 2000, 100)])
def test_draws_are_as_many_as_the_means_need(tmp_path, sd, rows, used):
    data, _, _ = simulated([rows] * 3)
    theta = draws_near([-0.4, 0.6, 0.0], sd, (2, 1000))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    made, all_draws = streammc.effects(run, data), streammc.effects(run, data, draws=2000)
    assert facts(made)["draws"] == used
    gap = np.abs((made["mean"] - all_draws["mean"]) / all_draws["sd"]).max()
    assert gap < 0.02
    assert np.abs(made["sd"] / all_draws["sd"] - 1).max() < 0.02


def test_runs_and_stores_without_such_effects_are_refused(tmp_path):
    data, _, _ = simulated([3, 4, 5])
    theta = draws_near([-0.4, 0.6, 0.0], 0.3)
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    plain = from_arrays(np.ones((5, 1)), np.ones(5))
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.effects(run, simulated([3, 4, 6])[0])
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.effects(run, plain)
    ones = np.ones((2, 10))
    signed = make_run(tmp_path / "s", models.logistic(), data, theta, sign=ones)
    with pytest.raises(RefusedError, match="found a run whose draws have signs"):
        streammc.effects(signed, data)
    hot = make_run(tmp_path / "h", models.logistic(), data, theta, temperature=4.0)
    with pytest.raises(RefusedError, match="temperature 1, found 4"):
        streammc.effects(hot, data)
    alone = streammc.sample(
        from_arrays(np.ones((50, 1)), np.arange(50) % 2), models.logistic(), draws=4, warmup=4,
        chains=1, seed=1, sampler=streammc.samplers.hmc(), path=tmp_path / "p", audit=False,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="expected a run of a mixed model"):
        streammc.effects(alone, data)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_group_without_a_finite_likelihood_is_named(tmp_path):
    data = from_arrays(
        np.c_[np.ones(6), [0, 0, 0, 1, 0, 0]], np.ones(6), groups=[0, 0, 1, 1, 2, 2],
        feature_names=["Intercept", "x"],
    )  # fmt: skip
    run = make_run(tmp_path / "r", models.poisson(), data, np.tile([0.0, 1e300, 0.0], (1, 2, 1)))
    place = data.groups.labels(0, 3).tolist().index(1)
    with pytest.raises(DataError, match=f"found none of group {place + 1} of 'group'"):
        streammc.effects(run, data, tmp_path / "e")


def test_lost_part_is_an_error(tmp_path, monkeypatch):
    data, _, _ = simulated([3, 4, 5])
    theta = draws_near([-0.4, 0.6, 0.0], 0.3)
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    whole = group_summaries._chunks

    def lost(folder, *rest):
        next(folder.iterdir()).unlink()
        return whole(folder, *rest)

    monkeypatch.setattr(group_summaries, "_chunks", lost)
    with pytest.raises(StorageIOError, match="expected the effects of 3 groups"):
        streammc.effects(run, data, tmp_path / "e")
    assert not (tmp_path / "e").exists()
