"""Draws of the effects of single groups: closed forms, dense grids, and the moments of effects."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from mixed_groups import GROUP, INNER, model_of, rows_of, theta_of
from mixed_runs import draws_near, make_run
from scipy import stats
from scipy.interpolate import CubicSpline

import streammc
from streammc import facts, from_arrays, from_table, models
from streammc.errors import ConfigError, DataError, IdentityError, RefusedError
from streammc.prediction.effect_draws import GroupDensity, draw_effects
from streammc.protocols import Rows

Q = 3
LEVELS = (1e-6, 0.01, 0.2, 0.5, 0.9, 0.999)


def density_of(name, kind, n):
    model, theta = model_of(name, kind), theta_of(name, kind)
    X, y = rows_of(name, n)
    return GroupDensity(model, theta, Rows(X[:Q].T, y, X[Q], X[Q + 1])), theta, X, y


def grid_of(name, kind, theta, X, y, size):
    """Return standardised effects on a grid and the log of their density, by the textbook."""
    log_lik, group = INNER[name][2], theta[-len(GROUP[kind]) :]
    scalars = list(theta[Q : -len(GROUP[kind])])
    v = np.linspace(-9.0, 9.0, size)
    v1, v2 = (v, np.zeros(1)) if kind == "intercept" else np.meshgrid(v, v, indexing="ij")
    tau2 = rho = 0.0
    if kind != "intercept":
        tau2, rho = math.exp(group[1]), math.tanh(group[2]) if kind == "correlated" else 0.0
    u1 = math.exp(group[0]) * v1
    u2 = tau2 * (rho * v1 + math.sqrt(1 - rho**2) * v2)
    log = -0.5 * (v1**2 + v2**2)
    for i in range(X.shape[1]):
        eta = theta[:Q] @ X[:Q, i] + X[Q, i] + u1 + X[1, i] * u2
        log = log + X[Q + 1, i] * log_lik(y[i], eta, scalars)
    return v, u1, u2, log


def distribution(v, weight):
    """Return the distribution function of a density on a grid."""
    whole = CubicSpline(v, weight).antiderivative()
    return lambda at: whole(at) / whole(v[-1])


def moments(v, weight):
    mean = weight @ v / weight.sum()
    return mean, weight @ (v - mean) ** 2 / weight.sum()


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("n", [1, 40])
def test_a_draw_of_an_intercept_is_the_quantile_of_a_dense_grid(name, n):
    density, theta, X, y = density_of(name, "intercept", n)
    v, u1, _, log = grid_of(name, "intercept", theta, X, y, 160_001)
    weight = np.exp(log - log.max())
    mean, variance = moments(v, weight)
    below = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    # The grid need not be centred, nor be of the right width.
    for center, square in ((mean, variance), (mean + 0.7 * math.sqrt(variance), 0.5 * variance)):
        for level in LEVELS:
            found = draw_effects(
                density, np.array([center]), np.array([[square]]), np.array([level])
            )
            reached = np.interp(found[0], u1, below)
            assert abs(reached - level) < 1e-4 * min(level, 1 - level)


@pytest.mark.parametrize("name", ["logistic", "poisson", "gaussian"])
@pytest.mark.parametrize("kind", ["slope", "correlated"])
def test_draws_of_intercept_and_slope_are_those_of_a_dense_grid(name, kind):
    """Rosenblatt: P(v2 below its draw), and P(v1 below its draw, given v2), are the uniforms."""
    density, theta, X, y = density_of(name, kind, 6)
    v, _, _, log = grid_of(name, kind, theta, X, y, 901)
    weight = np.exp(log - log.max())
    m1, s1 = moments(v, weight.sum(1))
    m2, s2 = moments(v, weight.sum(0))
    both = (weight * np.outer(v - m1, v - m2)).sum() / weight.sum()
    mean, covariance = np.array([m1, m2]), np.array([[s1, both], [both, s2]])
    below, columns = distribution(v, weight.sum(0)), CubicSpline(v, log, axis=1)
    tau = np.exp(theta[-len(GROUP[kind]) :][:2])
    rho = math.tanh(theta[-1]) if kind == "correlated" else 0.0
    for uniform in [(0.3, 0.1), (0.01, 0.99), (0.8, 0.5), (0.999, 1e-3)]:
        drawn = draw_effects(density, mean, covariance, np.array(uniform))
        v1 = drawn[0] / tau[0]
        v2 = (drawn[1] / tau[1] - rho * v1) / math.sqrt(1 - rho**2)
        column = columns(v2)
        given = distribution(v, np.exp(column - column.max()))
        for reached, level in ((below(v2), uniform[1]), (given(v1), uniform[0])):
            assert abs(reached - level) < 1e-4 * min(level, 1 - level)


def test_gaussian_draws_are_normal_with_the_mean_and_variance_of_the_best_predictor():
    density, theta, X, y = density_of("gaussian", "intercept", 9)
    tau, sigma, weight = math.exp(theta[-1]), math.exp(theta[Q]), X[Q + 1]
    precision = tau**-2 + weight.sum() / sigma**2
    rest = y - theta[:Q] @ X[:Q] - X[Q]
    mean, sd = weight @ rest / sigma**2 / precision, precision**-0.5
    for level in LEVELS:
        found = draw_effects(
            density, np.array([mean / tau]), np.array([[(sd / tau) ** 2]]), np.array([level])
        )[0]
        assert abs((found - mean) / sd - stats.norm.ppf(level)) < 1e-5


def table(kind="intercept"):
    rng = np.random.default_rng(3)
    g = rng.permutation(np.arange(6).repeat([1, 3, 8, 20, 4, 4]))
    x = 5.0 + 2.0 * rng.normal(size=len(g))
    y = (rng.random(len(g)) < 0.5) * 1
    frame = pd.DataFrame({"y": y, "x": x, "g": [f"shop {k}" for k in g]})
    term = "1" if kind == "intercept" else "1 + x"
    return from_table(frame, formula=f"y ~ x + ({term} | g)", standardize=True)


@pytest.mark.parametrize("kind", ["intercept", "slope"])
def test_draws_have_the_moments_of_the_summaries(tmp_path, kind):
    data = table(kind)
    center = [0.2, 0.3, 0.1] + ([-0.5, 0.4] if kind == "slope" else [])
    theta = draws_near(center, 0.1, (4, 500 if kind == "intercept" else 100))
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    labels = ["shop 3", "shop 0", "shop 3"]
    count = theta.shape[0] * theta.shape[1]
    made = streammc.effect_draws(run, data, labels, tmp_path / "e", draws=count, seed=1).load()
    assert made["u"].dims == ("group", "chain", "draw", "effect")
    assert made["group"].values.tolist() == ["shop 3", "shop 0"]
    assert made["rows"].values.tolist() == [20, 1]
    truth = streammc.effects(run, data, draws=count).sel(group=made["group"].values)
    error = 4.5 / math.sqrt(count)
    drawn = made["u"].stack(sample=("chain", "draw"))
    z = (drawn.mean("sample") - truth["mean"]) / truth["sd"]
    assert np.abs(z).max() < error
    assert np.abs(drawn.std("sample") / truth["sd"] - 1).max() < 1.2 * error
    for end, level in (("q5", 0.05), ("q95", 0.95)):
        assert np.abs((drawn < truth[end]).mean("sample") - level).max() < 0.3 * error + 0.003
    # The partner: draws of another group.
    other = streammc.effects(run, data, draws=count).sel(group=["shop 0", "shop 3"])
    wrong = (drawn.mean("sample").values - other["mean"].values) / other["sd"].values
    assert np.abs(wrong).max() > 3 * error


def test_effects_belong_to_the_draw_of_the_parameters(tmp_path):
    """A group of many rows: its effect and the intercept cancel, draw by draw."""
    g = np.arange(4000) // 2000
    rng = np.random.default_rng(1)
    data = from_arrays(
        np.ones((4000, 1)), rng.normal(g, 0.1), groups=g, feature_names=["Intercept"]
    )
    theta = draws_near([0.5, math.log(0.1), 0.0], [0.5, 0, 0], (2, 40))
    run = make_run(tmp_path / "r", models.gaussian(), data, theta)
    made = streammc.effect_draws(run, data, ["1"], draws=20).load()
    assert facts(made)["draws"] == 10
    u = made["u"].isel(group=0, effect=0)
    intercept = np.stack([theta[c, made["draw"].values, 0] for c in range(2)])
    assert np.abs(u.values + intercept - 1.0).max() < 0.03
    assert np.abs(u.values[::-1] + intercept - 1.0).max() > 0.3


def test_draws_of_a_group_depend_on_the_seed_alone(tmp_path):
    data = table()
    run = make_run(tmp_path / "r", models.logistic(), data, draws_near([0.2, 0.3, 0.1], 0.1))
    one = streammc.effect_draws(run, data, ["shop 1"], draws=20)
    both = streammc.effect_draws(run, data, ["shop 5", "shop 1"], draws=20)
    assert np.array_equal(one["u"][0], both["u"][1])
    again = streammc.effect_draws(run, data, ["shop 1"], draws=20, seed=2)
    assert not np.isclose(one["u"], again["u"]).any()


def test_what_has_no_draws_is_refused(tmp_path):
    data = table()
    theta = draws_near([0.2, 0.3, 0.1], 0.1)
    run = make_run(tmp_path / "r", models.logistic(), data, theta)
    with pytest.raises(ConfigError, match="found 'shop 9', which is none: did you mean 'shop "):
        streammc.effect_draws(run, data, ["shop 1", "shop 9"])
    with pytest.raises(ConfigError, match="'zzzzzzzzzzzz', which is none: give one of its labels"):
        streammc.effect_draws(run, data, ["zzzzzzzzzzzz"])
    for none in ([], "shop 1"):
        with pytest.raises(ConfigError, match="expected a list of labels of groups of 'g'"):
            streammc.effect_draws(run, data, none)
    with pytest.raises(IdentityError, match="expected the store of the run"):
        streammc.effect_draws(run, table("slope"), ["shop 1"])
    hot = make_run(tmp_path / "h", models.logistic(), data, theta, temperature=4.0)
    with pytest.raises(RefusedError, match="temperature 1, found 4"):
        streammc.effect_draws(hot, data, ["shop 1"])
    signed = make_run(tmp_path / "s", models.logistic(), data, theta, sign=np.ones((2, 10)))
    with pytest.raises(RefusedError, match="found a run whose draws have signs"):
        streammc.effect_draws(signed, data, ["shop 1"])
    wild = from_arrays(
        np.c_[np.ones(4), [0, 0, 1, 0]], np.ones(4), groups=[0, 0, 1, 1],
        feature_names=["Intercept", "x"],
    )  # fmt: skip
    lost = make_run(tmp_path / "w", models.poisson(), wild, np.tile([0.0, 1e300, 0.0], (1, 2, 1)))
    with pytest.raises(DataError, match="expected a finite likelihood of every group"):
        streammc.effect_draws(lost, wild, ["1"])
