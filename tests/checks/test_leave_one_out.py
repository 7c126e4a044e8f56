"""Terms of rows against ArviZ, against a closed form, and on public data."""

from __future__ import annotations

import json
import math

import arviz_stats
import numpy as np
import pytest
from arviz_stats.base import array_stats
from mixed_runs import make_run
from scipy import stats

import streammc
from streammc import from_arrays, models
from streammc.checks.leave_one_out import row_terms


def log_likelihoods(draws=600, rows=40, seed=3):
    rng = np.random.default_rng(seed)
    scale = np.linspace(0.01, 2.0, rows)
    return -scale * rng.exponential(size=(draws, rows)) - 1.0


@pytest.mark.parametrize("relative_size", [1.0, 0.6, 1.3])
def test_terms_are_those_of_arviz(relative_size):
    values = log_likelihoods()
    found = row_terms(values, np.ones(40), relative_size)
    for i in range(40):
        elpd, k, p = array_stats.loo(values[:, i][None], r_eff=relative_size)
        assert found.elpd[i] == pytest.approx(float(elpd), rel=1e-10)
        assert found.shape[i] == pytest.approx(float(k), rel=1e-8, abs=1e-10)
        assert found.lpd[i] - found.elpd[i] == pytest.approx(float(p), rel=1e-8, abs=1e-10)
    np.testing.assert_allclose(found.lpd - found.waic, values.var(axis=0, ddof=1), rtol=1e-10)


def test_a_row_of_weight_zero_has_no_terms():
    values = log_likelihoods(rows=3)
    values[:, 1] = 0.0
    found = row_terms(values, np.array([1.0, 0.0, 2.0]), 1.0)
    assert (0.0, 0.0, 0.0, -math.inf, 0.0, 0.0) == tuple(each[1] for each in found)
    assert [1.0, 0.0, 2.0] == found.observations.tolist()


def test_of_a_weight_below_one_no_more_than_the_row_is_left_out():
    """With ``exp(-w l)`` as weights; a tail that is not smoothed shows the sums themselves."""
    values = -np.random.default_rng(3).uniform(0.9, 1.1, size=(4000, 1))
    found = row_terms(values, np.array([0.25]), 1.0)
    left_out = np.average(np.exp(values), weights=np.exp(-0.25 * values), axis=0)
    assert found.elpd[0] == pytest.approx(0.25 * math.log(left_out[0]), abs=1e-6)
    whole = np.average(np.exp(values), weights=np.exp(-values), axis=0)
    assert found.elpd[0] != pytest.approx(0.25 * math.log(whole[0]), abs=1e-5)
    assert found.lpd[0] == pytest.approx(0.25 * math.log(np.exp(values).mean()), rel=1e-12)


def test_equal_log_likelihoods_are_their_own_terms():
    found = row_terms(np.full((200, 1), -0.7), np.ones(1), 1.0)
    assert found.elpd[0] == pytest.approx(-0.7, rel=1e-12)
    assert found.lpd[0] == pytest.approx(-0.7, rel=1e-12)
    assert found.shape[0] == -math.inf


def test_scores_are_those_of_the_closed_form_of_a_gaussian_response():
    """Flat prior and known scale: p(y_i | rest) is normal; averaged over sets of draws."""
    rng = np.random.default_rng(5)
    n, sigma = 60, 0.7
    X = np.c_[np.ones(n), rng.normal(size=n)]
    y = X @ [0.3, -0.5] + sigma * rng.normal(size=n)
    covariance = sigma**2 * np.linalg.inv(X.T @ X)
    mean = covariance @ X.T @ y / sigma**2
    leverage = np.einsum("ij,jk,ik->i", X, covariance, X) / sigma**2
    residual = (y - X @ mean) / (1 - leverage)
    exact = stats.norm.logpdf(residual, scale=sigma / np.sqrt(1 - leverage)).sum()
    sums, inside = [], []
    for _ in range(30):
        beta = mean + rng.normal(size=(1000, 2)) @ np.linalg.cholesky(covariance).T
        values = stats.norm.logpdf(y, beta @ X.T, sigma)
        terms = row_terms(values, np.ones(n), 1.0)
        sums.append(terms.elpd.sum())
        inside.append(terms.lpd.sum())
    error = np.std(sums, ddof=1) / math.sqrt(30)
    assert abs(np.mean(sums) - exact) < 4.5 * error
    assert abs(np.mean(inside) - exact) > 4.5 * error  # the score in sample is too good


def columns_of(name, data):
    if name.startswith("wells"):
        return np.c_[np.ones(len(data["dist"])), np.array(data["dist"]) / 100.0], data["switched"]
    return np.c_[np.ones(len(data["kid_score"])), data["mom_iq"]], data["kid_score"]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("wells_data-wells_dist100_model", models.logistic()),
        ("kidiq-kidscore_momiq", models.gaussian()),
    ],
)
def test_scores_of_public_data_are_those_of_arviz(name, model, data_folder, tmp_path):
    path = data_folder / "posteriordb" / name / "data.json"
    if not path.exists():
        pytest.skip(f"{name} is not among the data sets here")
    X, y = columns_of(name, json.loads(path.read_text()))
    store = from_arrays(X, y, feature_names=["Intercept", "x"])
    run = streammc.sample(
        store, model, sampler=streammc.samplers.hmc(), chains=2, draws=600, seed=1
    )
    tree = streammc.posterior_predictive(run, store, rows=len(y), draws=1000)
    expected = arviz_stats.loo(tree)
    found = streammc.score(run, store, draws=1000)
    assert ("exact", len(y), 1000) == (found["method"], found["evaluated"], found["draws"])
    for ours, theirs in (
        (found["elpd_loo"]["estimate"], expected.elpd),
        (found["elpd_loo"]["se"], expected.se),
        (found["p_loo"]["estimate"], expected.p),
        (found["pareto_k"]["good_below"], expected.good_k),
    ):
        assert ours == pytest.approx(float(theirs), rel=1e-9)


def test_a_group_of_a_mixed_model_is_left_out_with_all_its_rows(tmp_path):
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(20), 5)
    X = np.c_[np.ones(100), rng.normal(size=100)]
    y = X @ [0.3, -0.5] + rng.normal(size=20)[g] + 0.5 * rng.normal(size=100)
    table = from_arrays(X, y, feature_names=["Intercept", "a"], groups=g)
    order = table.row_ids()
    X, y = X[order], y[order]
    center = np.array([0.3, -0.5, math.log(0.5), 0.0])
    theta = center + 0.1 * rng.normal(size=(2, 300, 4))
    run = make_run(tmp_path / "run", models.gaussian(), table, theta)
    found = streammc.score(run, table, draws=600)
    values = np.empty((600, 20))
    for s, (b0, b1, log_sigma, log_tau) in enumerate(theta.reshape(600, 4)):
        covariance = math.exp(2 * log_sigma) * np.eye(5) + math.exp(2 * log_tau)
        away = (y - X @ [b0, b1]).reshape(20, 5)
        values[s] = stats.multivariate_normal.logpdf(away, cov=covariance)
    expected = row_terms(values, np.ones(20), found["relative_effective_size"])
    assert ("group", 20) == (found["left_out"], found["n"])
    assert found["elpd_loo"]["estimate"] == pytest.approx(expected.elpd.sum(), rel=1e-8)
    assert found["lpd"]["estimate"] == pytest.approx(expected.lpd.sum(), rel=1e-8)
