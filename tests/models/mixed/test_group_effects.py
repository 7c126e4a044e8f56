"""Moments of the effects of a group: sums over a dense grid, and the Gaussian closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mixed_groups import FEATURES, GROUP, INNER, model_of, rows_of, theta_of
from scipy import special

from streammc.models.mixed.group_constants import PANEL_CELLS
from streammc.models.mixed.group_effects import group_effects

Q = len(FEATURES)


LEVELS = (0.05, 0.5, 0.95)


def found(model, thetas, X, y, shift=0.0, scale=1.0):
    """Return mean, variance, its part between draws, and three quantiles of each effect."""
    out = np.full((len(model.effects), 6), np.nan)
    dense = replace(model, nodes=PANEL_CELLS if model.slope is None else model.nodes)
    levels = np.array([LEVELS, special.ndtri(LEVELS)])
    thetas = np.ascontiguousarray(thetas)
    group_effects(thetas, X, y, model.constants, dense.constants, shift, scale, levels, out)
    return out


def on_a_grid(name, kind, theta, X, y):
    """Return effects (m, 2) at the points of a grid, and the posterior weights (m,) there."""
    log_lik = INNER[name][2]
    scalars, group = list(theta[Q : -len(GROUP[kind])]), theta[-len(GROUP[kind]) :]
    v1, v2 = np.linspace(-9.0, 9.0, 3001), np.zeros(1)
    tau2 = rho = 0.0
    if kind != "intercept":
        v1 = v2 = np.linspace(-7.0, 7.0, 201)
        tau2 = math.exp(group[1])
        rho = math.tanh(group[2]) if kind == "correlated" else 0.0
    v1, v2 = (each.ravel() for each in np.meshgrid(v1, v2))
    u = np.stack([math.exp(group[0]) * v1, tau2 * (rho * v1 + math.sqrt(1 - rho**2) * v2)], 1)
    eta = (theta[:Q] @ X[:Q] + X[Q])[:, None] + u[:, 0] + X[1][:, None] * u[:, 1]
    log = X[Q + 1] @ log_lik(y[:, None], eta, scalars) - 0.5 * (v1**2 + v2**2)
    weight = np.exp(log - log.max())
    return u, weight / weight.sum()


def expected(name, kind, thetas, X, y, shift=0.0, scale=1.0):
    """Return moments (effects, 3) and, of each effect, points and weights of the mixture."""
    grids = [on_a_grid(name, kind, theta, X, y) for theta in thetas]
    u = np.concatenate([points for points, _ in grids])
    weight = np.concatenate([each for _, each in grids]) / len(thetas)
    rows, effects = [], [u[:, 0] - shift * u[:, 1], u[:, 1] / scale]
    for effect in effects[: 1 if kind == "intercept" else 2]:
        mean = weight @ effect
        parts = effect.reshape(len(thetas), -1) * weight.reshape(len(thetas), -1)
        between = np.var(len(thetas) * parts.sum(1))
        rows.append([mean, weight @ (effect - mean) ** 2, between])
    return np.array(rows), effects, weight


def draws_around(theta, count=3):
    return theta + 0.3 * np.random.default_rng(4).normal(size=(count, len(theta)))


CASES = [
    *((name, "intercept") for name in INNER),
    ("logistic", "slope"),
    ("poisson", "correlated"),
    ("gaussian", "correlated"),
]


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("n", [1, 12])
def test_moments_are_those_of_a_dense_grid(name, kind, n):
    nodes = 61 if kind == "intercept" else 25
    model, thetas = model_of(name, kind, nodes), draws_around(theta_of(name, kind))
    X, y = rows_of(name, n)
    ours = found(model, thetas, X, y, 0.7, 2.0)
    truth, _, _ = expected(name, kind, thetas, X, y, 0.7, 2.0)
    sd = np.sqrt(truth[:, 1])[:, None]
    assert np.abs((ours[:, :3] - truth) / sd ** [1, 2, 2]).max() < 2e-6
    theta = thetas[:1]  # several draws are as many lumps
    ours = found(model, theta, X, y, 0.7, 2.0)
    _, effects, weight = expected(name, kind, theta, X, y, 0.7, 2.0)
    for quantiles, effect in zip(ours[:, 3:], effects, strict=False):
        reached = [weight[effect <= each].sum() for each in quantiles]
        assert np.abs(np.array(reached) - LEVELS).max() < 0.005


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_default_nodes_are_enough(name, kind):
    model, thetas = model_of(name, kind), draws_around(theta_of(name, kind))
    X, y = rows_of(name, 3)
    ours, (truth, _, _) = found(model, thetas, X, y), expected(name, kind, thetas, X, y)
    sd = np.sqrt(truth[:, 1])[:, None]
    assert np.abs((ours[:, :3] - truth) / sd ** [1, 2, 2]).max() < 0.01


@pytest.mark.parametrize(("name", "y"), [("logistic", 1.0), ("probit", 0.0), ("poisson", 0.0)])
def test_quantiles_of_a_group_that_agrees_are_those_of_a_dense_grid(name, y):
    """Half a normal density cut off: with three moments 3 % were below the 5 % quantile."""
    for log_tau, n in ((1.0, 2), (2.0, 10), (3.0, 3)):
        theta = theta_of(name, "intercept")
        theta[-1] = log_tau
        X, responses = np.vstack([np.ones(n), np.zeros((Q, n)), np.ones(n)]), np.full(n, y)
        thetas = draws_around(theta, 16)
        ours = found(model_of(name, "intercept"), thetas, X, responses)[0]
        _, effects, weight = expected(name, "intercept", thetas, X, responses)
        order = np.argsort(effects[0])
        at, below = effects[0][order], np.cumsum(weight[order]) - 0.5 * weight[order]
        assert np.abs(np.interp(ours[3:], at, below) - LEVELS).max() < 0.003
        # Broken partner: the first term of Cornish and Fisher, from three moments.
        mean = weight @ effects[0]
        sd = math.sqrt(weight @ (effects[0] - mean) ** 2)
        skewness = weight @ (effects[0] - mean) ** 3 / sd**3
        z = special.ndtri(LEVELS)
        wrong = np.interp(mean + sd * (z + (z**2 - 1) * skewness / 6), at, below)
        assert np.abs(wrong - LEVELS).max() > (0.003 if log_tau < 2.0 else 0.01)


def test_gaussian_effects_are_the_best_linear_predictor():
    model, theta = model_of("gaussian", "correlated"), theta_of("gaussian", "correlated")
    X, y = rows_of("gaussian", 9)
    s1, s2, rho = math.exp(theta[-3]), math.exp(theta[-2]), math.tanh(theta[-1])
    sigma = np.array([[s1**2, rho * s1 * s2], [rho * s1 * s2, s2**2]])
    Z = np.stack([np.ones(9), X[1]], 1)
    noise = np.diag(math.exp(theta[Q]) ** 2 / X[Q + 1])
    gain = sigma @ Z.T @ np.linalg.inv(Z @ sigma @ Z.T + noise)
    mean = gain @ (y - theta[:Q] @ X[:Q] - X[Q])
    variance = np.diag(sigma - gain @ Z @ sigma)
    ours = found(model, theta[None], X, y)
    assert np.allclose(ours[:, :2], np.stack([mean, variance], 1), rtol=1e-10)
    assert np.abs(ours[:, 2]).max() < 1e-12
    quantiles = mean[:, None] + np.sqrt(variance)[:, None] * special.ndtri(LEVELS)
    assert np.allclose(ours[:, 3:], quantiles, rtol=1e-8)


def test_a_group_whose_rows_have_weight_zero_keeps_the_prior():
    model, theta = model_of("logistic", "intercept"), theta_of("logistic", "intercept")
    X, y = rows_of("logistic", 4)
    X[Q + 1] = 0.0
    ours = found(model, theta[None], X, y)[0]
    assert np.allclose(ours[:3], [0.0, math.exp(2 * theta[-1]), 0.0], atol=1e-12)
    assert np.allclose(ours[3:], math.exp(theta[-1]) * special.ndtri(LEVELS), atol=1e-8)


def test_moments_are_nan_where_the_likelihood_is_not_finite():
    model, theta = model_of("logistic", "intercept"), theta_of("logistic", "intercept")
    X, y = rows_of("logistic", 4)
    X[1, 2] = np.nan
    assert np.isnan(found(model, theta[None], X, y)).all()
