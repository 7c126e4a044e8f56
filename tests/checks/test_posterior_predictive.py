"""Replicated responses and log-likelihoods of a sample of rows, and ArviZ on them."""

from __future__ import annotations

import math

import arviz_stats
import numpy as np
import pytest
from mixed_runs import draws_near, make_run
from scipy import stats
from scipy.special import expit

import streammc
from streammc import from_arrays, models, open_run
from streammc.errors import (
    ConfigError,
    DataError,
    IdentityError,
    ModelError,
    RefusedError,
    StreammcError,
)
from streammc.priors import flat, half_normal, normal

NAMES = ["Intercept", "a"]
BETA = np.array([0.3, -0.5])
FAMILIES = {
    "logistic": (models.logistic(), []),
    "probit": (models.probit(), []),
    "binomial": (models.binomial(), []),
    "poisson": (models.poisson(), []),
    "negative-binomial": (models.negative_binomial(), [1.0]),
    "ordinal": (models.ordinal(levels=4), [0.2, -0.6]),
    "gamma": (models.gamma(), [0.7]),
    "gaussian": (models.gaussian(), [-0.3]),
    "student-t": (models.student_t(df=6), [-0.3]),
}


def arrays(n=400, seed=2, values=2, **more):
    rng = np.random.default_rng(seed)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    return from_arrays(X, np.arange(n) % values, feature_names=NAMES, **more)


def poisson_run(path, n=400, draws=40, sign=None, identity=None, **more):
    table = arrays(n, values=3, **more)
    theta = draws_near(BETA, 0.03, (2, draws))
    return make_run(path, models.poisson(), table, theta, sign, **(identity or {})), table, theta


def test_groups_are_those_of_arviz_with_row_numbers_and_thinned_draws(tmp_path):
    run, table, _ = poisson_run(tmp_path / "run")
    tree = streammc.posterior_predictive(run, table, rows=50, draws=20, seed=4)
    assert {"posterior", "posterior_predictive", "observed_data", "log_likelihood"} == set(tree)
    rows = tree["observed_data"]["row"].values
    assert 50 == len(rows)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows % 3, tree["observed_data"]["y"])
    assert ("chain", "draw", "row") == tree["posterior_predictive"]["y"].dims
    assert (2, 10, 50) == tree["posterior_predictive"]["y"].shape
    kept = tree["posterior"]["draw"].values
    np.testing.assert_array_equal(
        open_run(run)["posterior"]["beta"].isel(draw=kept), tree["posterior"]["beta"]
    )


def test_the_same_seed_gives_the_same_rows_and_responses_and_another_others(tmp_path):
    run, table, _ = poisson_run(tmp_path / "run")
    first, again, other = (
        streammc.posterior_predictive(run, table, rows=50, seed=seed) for seed in (4, 4, 5)
    )
    assert first["posterior_predictive"].equals(again["posterior_predictive"])
    assert not first["posterior_predictive"].equals(other["posterior_predictive"])
    assert set(first["posterior"]["draw"].values) == set(range(40))


def test_log_likelihoods_are_the_weighted_densities_with_offset(tmp_path):
    weight = np.arange(400) % 3
    offset = np.linspace(-1, 1, 400)
    run, table, theta = poisson_run(tmp_path / "run", weight=weight, offset=offset)
    tree = streammc.posterior_predictive(run, table, rows=60, draws=80)
    at = tree["log_likelihood"]["row"].values
    assert (weight[at] > 0).all()
    X = np.c_[np.ones(400), np.random.default_rng(2).normal(size=400)][at]
    rate = np.exp(theta @ X.T + offset[at])
    expected = weight[at] * stats.poisson.logpmf(at % 3, rate)
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected, rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_of_replicated_responses_is_the_mean_response(name, tmp_path):
    model, scalars = FAMILIES[name]
    table = arrays(30, weight=np.full(30, 5.0)) if name == "binomial" else arrays(30)
    if name == "gamma":
        table = from_arrays(
            np.c_[np.ones(30), np.random.default_rng(2).normal(size=30)],
            1.0 + np.arange(30),
            feature_names=NAMES,
        )
    theta = np.tile([*BETA, *scalars], (2, 1000, 1))
    run = make_run(tmp_path / "run", model, table, theta)
    tree = streammc.posterior_predictive(run, table, draws=2000, seed=3)
    y = tree["posterior_predictive"]["y"].values.reshape(2000, 30)
    X = np.c_[np.ones(30), np.random.default_rng(2).normal(size=30)]
    eta = np.vstack([X @ BETA, *(np.full(30, s) for s in scalars)])
    error = y.std(axis=0, ddof=1) / math.sqrt(2000)
    distance = np.abs(y.mean(axis=0) - model.mean(eta)) / error
    assert distance.max() < 4.5
    assert np.abs(np.roll(y.mean(axis=0), 1) - model.mean(eta)).max() / error.max() > 4.5


def test_binomial_responses_are_shares_of_the_trials_of_each_row(tmp_path):
    trials = np.array([1.0, 2.0, 4.0, 50.0])
    table = from_arrays(np.ones((4, 1)), np.zeros(4), weight=trials, feature_names=["Intercept"])
    run = make_run(tmp_path / "run", models.binomial(), table, np.full((1, 4000, 1), 0.4))
    y = streammc.posterior_predictive(run, table, draws=4000)["posterior_predictive"]["y"]
    counts = y.values.reshape(4000, 4) * trials
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    share = expit(0.4)
    spread = np.sqrt(share * (1 - share) / trials)
    np.testing.assert_allclose(y.values.reshape(4000, 4).std(axis=0), spread, rtol=0.06)


def test_arviz_takes_the_tree_as_it_is(tmp_path):
    run, table, _ = poisson_run(tmp_path / "run", draws=200)
    tree = streammc.posterior_predictive(run, table, rows=60)
    found = arviz_stats.loo(tree, reff=1.0)
    assert 60 == found.n_data_points
    values = arviz_stats.loo_pit(tree)["y"].values
    assert ((values >= 0) & (values <= 1)).all()


def test_arviz_plots_take_the_tree_as_it_is(tmp_path):
    plots = pytest.importorskip("arviz_plots")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    run, table, _ = poisson_run(tmp_path / "run", draws=200)
    tree = streammc.posterior_predictive(run, table, rows=60)
    assert plots.plot_ppc_dist(tree) is not None
    matplotlib.pyplot.close("all")


def test_another_table_has_no_log_likelihood(tmp_path):
    run, _, _ = poisson_run(tmp_path / "run")
    tree = streammc.posterior_predictive(run, arrays(seed=9), rows=20)
    assert {"posterior", "predictions", "observed_data"} == set(tree)


def grouped(slope):
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(12), 6)
    X = np.c_[np.ones(72), rng.normal(size=72)]
    y = X @ BETA + rng.normal(size=12)[g] + 0.5 * rng.normal(size=72)
    terms = ("1", "a") if slope else ("1",)
    table = from_arrays(X, y, feature_names=NAMES, groups=g, terms=terms)
    order = table.row_ids()  # the rows of a group are put together
    return table, X[order], y[order], g[order]


@pytest.mark.parametrize("slope", [False, True])
def test_responses_of_a_mixed_model_are_conditional_on_its_groups(slope, tmp_path):
    table, X, y, g = grouped(slope)
    sigma, tau = 0.5, np.array([1.0, 0.6])[: 1 + slope]
    center = [*BETA, math.log(sigma), *np.log(tau), *([0.0] if slope else [])]
    run = make_run(tmp_path / "run", models.gaussian(), table, np.tile(center, (2, 200, 1)))
    tree = streammc.posterior_predictive(run, table, draws=400, seed=8)
    found = tree["posterior_predictive"]["y"].values.reshape(400, -1)
    expected = np.empty(72)
    for group in range(12):
        own = g == group
        Z = X[own][:, : 1 + slope]
        precision = Z.T @ Z / sigma**2 + np.diag(1 / tau**2)
        u = np.linalg.solve(precision, Z.T @ (y - X @ BETA)[own] / sigma**2)
        expected[own] = X[own] @ BETA + Z @ u
    error = found.std(axis=0, ddof=1) / math.sqrt(400)
    assert (np.abs(found.mean(axis=0) - expected) / error).max() < 4.5
    # Of a new group the mean would be that of the fixed effects alone.
    assert (np.abs(found.mean(axis=0) - X @ BETA) / error).max() > 4.5
    # Rows of one group share its effects: their residuals are correlated within a draw.
    away = found - found.mean(axis=0)
    own = np.flatnonzero(g == 0)
    assert np.corrcoef(away[:, own].T)[np.triu_indices(6, 1)].mean() > 0.02


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"rows": 0}, ConfigError, "at least 1 row"),
        ({"draws": 1}, ConfigError, "draws must be"),
        ({"seed": -1}, ConfigError, "seed must be"),
        ({"model": models.logistic()}, ConfigError, "expected the model of the run"),
    ],
)
def test_wrong_options_are_refused(change, kind, words, tmp_path):
    run, table, _ = poisson_run(tmp_path / "run")
    with pytest.raises(kind, match=words):
        streammc.posterior_predictive(run, table, **change)


def test_runs_without_equal_draws_of_the_posterior_are_refused(tmp_path):
    run, table, _ = poisson_run(tmp_path / "signed", sign=np.ones((2, 40)))
    with pytest.raises(RefusedError, match="signs"):
        streammc.posterior_predictive(run, table)
    run, table, _ = poisson_run(tmp_path / "warm", identity={"temperature": "2"})
    with pytest.raises(RefusedError, match="temperature"):
        streammc.posterior_predictive(run, table)


def test_models_without_a_response_of_rows_are_refused(tmp_path):
    table = from_arrays(np.random.default_rng(1).normal(size=(20, 1)), feature_names=["a"])
    model = models.gaussian_mean(covariance=1.0, dim=1)
    run = make_run(tmp_path / "run", model, table, np.zeros((2, 10, 1)))
    with pytest.raises(ModelError, match="observations are the columns"):
        streammc.posterior_predictive(run, table)


def test_another_table_of_a_mixed_model_is_refused(tmp_path):
    table, *_ = grouped(False)
    run = make_run(tmp_path / "run", models.gaussian(), table, np.zeros((2, 10, 4)))
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.posterior_predictive(run, arrays())


def test_a_log_likelihood_that_is_not_finite_is_an_error_with_its_row(tmp_path):
    table = arrays()
    theta = np.tile([800.0, 0.0], (2, 10, 1))
    run = make_run(tmp_path / "run", models.poisson(), table, theta)
    with pytest.raises(DataError, match="in row 1: check") as caught:
        streammc.posterior_predictive(run, table)
    assert isinstance(caught.value, StreammcError)


def test_trials_with_weights_are_refused(tmp_path):
    # The store has their product, so that the trials of a row are not known.
    X, rng = np.c_[np.ones(60), np.linspace(-1.0, 1.0, 60)], np.random.default_rng(1)
    y, trials = rng.binomial(4, 0.5, 60).astype(float), np.full(60, 4.0)
    model = models.binomial(prior=streammc.priors.normal(scale=2.0))
    words = {"feature_names": NAMES, "trials": trials}
    run = streammc.sample(from_arrays(X, y, **words), model, draws=100, warmup=100, seed=1)
    both = from_arrays(X, y, weight=np.full(60, 5.0), **words)
    with pytest.raises(ModelError, match="expected trials or weights, found both"):
        streammc.posterior_predictive(run, both, model=model)
    found = streammc.posterior_predictive(run, from_arrays(X, y, **words), model=model)
    replicates = found["posterior_predictive"]["y"].to_numpy()
    assert {0.0, 0.25, 0.5, 0.75, 1.0} == set(np.unique(replicates))


def variance_z(scale):
    """z of the mean square of prior predictive responses, whose exact value is 4 + 1."""
    data = streammc.from_arrays(np.ones((1, 1)), np.zeros(1), feature_names=["Intercept"])
    priors = {"beta*": normal(scale=scale), "sigma": half_normal(1.0)}
    tree = streammc.prior_predictive(streammc.models.gaussian(prior=priors), data, draws=4000)
    square = tree["prior_predictive"]["y"].values.ravel() ** 2
    return (square.mean() - 5.0) / (square.std() / np.sqrt(len(square)))


def test_prior_predictive_responses_have_the_variance_of_the_prior():
    assert abs(variance_z(2.0)) < 4.5
    assert abs(variance_z(2.6)) > 4.5  # the broken partner


def test_prior_predictive_draws_are_on_the_scale_of_the_table_and_flat_ones_are_refused():
    x = np.linspace(5.0, 9.0, 200)
    store = streammc.from_table({"x": x, "y": x % 2 > 1.0}, formula="y ~ x")
    prior = normal(scale=1.0)
    tree = streammc.prior_predictive(streammc.models.logistic(prior=prior), store, draws=3000)
    assert {"prior", "prior_predictive", "observed_data"} == set(tree)
    slope = tree["prior"]["beta"].sel(feature="x").values
    assert slope.std() * x.std() == pytest.approx(1.0, rel=0.06)  # 4.5 errors of an sd
    assert set(np.unique(tree["prior_predictive"]["y"])) == {0.0, 1.0}
    with pytest.raises(ConfigError, match="that can be drawn from, found a flat one of 'beta"):
        streammc.prior_predictive(streammc.models.logistic(prior=flat()), store)
