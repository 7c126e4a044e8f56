"""The likelihood of a group against brute quadrature, and its derivatives by differences."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mixed_groups import INNER, KINDS, brute, evaluate, hessian_of, model_of, rows_of, theta_of
from scipy import stats

from streammc.models.check import evaluate as evaluate_rows
from streammc.models.mixed.group_constants import quadrature
from streammc.numerics.effect_positions import to_precision

CASES = [(name, kind) for name in INNER for kind in KINDS]
every_case = pytest.mark.parametrize(("name", "kind"), CASES)


@every_case
def test_likelihood_equals_brute_quadrature(name: str, kind: str) -> None:
    X, y = rows_of(name, 9)
    theta = theta_of(name, kind)
    found = evaluate(model_of(name, kind, 25), theta, X, y)[0]
    heavy = name.startswith("student")  # not log-concave: more nodes are needed
    assert found == pytest.approx(brute(name, kind, theta, X, y), abs=1e-4 if heavy else 1e-8)


@every_case
def test_gradient_and_hessian_equal_differences(name: str, kind: str) -> None:
    model, theta = model_of(name, kind, 31), theta_of(name, kind)
    X, y = rows_of(name, 9)
    d, step = len(theta), 1e-3
    out = evaluate(model, theta, X, y, 2)
    first, second = np.zeros(d), np.zeros((d, d))
    for j, move in enumerate(np.eye(d)):
        for k, weight in ((1, 8.0), (2, -1.0)):  # of order 4
            ahead, behind = (
                evaluate(model, theta + sign * k * step * move, X, y, 1) for sign in (1, -1)
            )
            first[j] += weight * (ahead[0] - behind[0]) / (12.0 * step)
            second[j] += weight * (ahead - behind)[1 : 1 + d] / (12.0 * step)
    bound = 2e-3 if name.startswith("student") else 1e-7
    assert np.abs(out[1 : 1 + d] - first).max() < bound
    assert np.abs(hessian_of(out, d) - second).max() < bound
    orders = [evaluate(model, theta, X, y, order) for order in (0, 1)]
    assert [each[0] for each in orders] == pytest.approx([out[0]] * 2, rel=1e-13)
    assert orders[1][1 : 1 + d] == pytest.approx(out[1 : 1 + d], rel=1e-10, abs=1e-12)


@every_case
def test_derivatives_in_the_marginal_precision_equal_differences(name: str, kind: str) -> None:
    noise = {"intercept": (0.3,), "slope": (0.3, 0.2), "correlated": (0.3, 0.2, 0.1)}[kind]
    plain = model_of(name, kind, 31)
    model, theta = replace(plain, noise=noise), theta_of(name, kind)
    X, y = rows_of(name, 9)
    at = theta.copy()
    to_precision(at, np.array(noise))
    d, step = len(theta), 1e-3
    out = evaluate(model, at, X, y, 2)
    assert out[0] == pytest.approx(evaluate(plain, theta, X, y)[0], rel=1e-12)
    first, second = np.zeros(d), np.zeros((d, d))
    for j, move in enumerate(np.eye(d)):
        for k, weight in ((1, 8.0), (2, -1.0)):  # of order 4
            ahead, behind = (
                evaluate(model, at + sign * k * step * move, X, y, 1) for sign in (1, -1)
            )
            first[j] += weight * (ahead[0] - behind[0]) / (12.0 * step)
            second[j] += weight * (ahead - behind)[1 : 1 + d] / (12.0 * step)
    bound = 2e-3 if name.startswith("student") else 1e-7
    assert np.abs(out[1 : 1 + d] - first).max() < bound
    assert np.abs(hessian_of(out, d) - second).max() < bound


@pytest.mark.parametrize("kind", KINDS)
def test_gaussian_equals_the_dense_normal(kind: str) -> None:
    X, y = rows_of("gaussian", 40)
    X[-1] = 1.0
    theta = theta_of("gaussian", kind)
    group = theta[4:]
    d1, d2 = np.ones(40), X[1]
    covariance = np.exp(2.0 * theta[3]) * np.eye(40) + np.exp(2.0 * group[0]) * np.outer(d1, d1)
    if kind != "intercept":
        covariance += np.exp(2.0 * group[1]) * np.outer(d2, d2)
    if kind == "correlated":
        both = math.tanh(group[2]) * np.exp(group[0] + group[1])
        covariance += both * (np.outer(d1, d2) + np.outer(d2, d1))
    exact = stats.multivariate_normal.logpdf(y, theta[:3] @ X[:3] + X[3], covariance)
    assert evaluate(model_of("gaussian", kind), theta, X, y)[0] == pytest.approx(exact, rel=1e-12)


@every_case
def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row(name: str, kind: str) -> None:
    model, theta = model_of(name, kind), theta_of(name, kind)
    X, y = rows_of(name, 8)
    X[-1] = [2.0, 1.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0]
    y[6] = math.nan
    kept = [0, 0, 1, 3, 4, 5, 5, 7]
    plain = X[:, kept].copy()
    plain[-1] = 1.0
    found, expected = evaluate(model, theta, X, y, 2), evaluate(model, theta, plain, y[kept], 2)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


@every_case
def test_order_of_rows_and_memory_layout_do_not_matter(name: str, kind: str) -> None:
    model, theta = model_of(name, kind), theta_of(name, kind)
    X, y = rows_of(name, 50)
    order = np.random.default_rng(2).permutation(50)
    found = evaluate(model, theta, np.asfortranarray(X[:, order]), y[order], 2)
    assert found == pytest.approx(evaluate(model, theta, X, y, 2), rel=1e-9, abs=1e-9)


@every_case
def test_without_variation_of_the_groups_it_is_the_regression(name: str, kind: str) -> None:
    model, theta = model_of(name, kind), theta_of(name, kind)
    groups = len(model.group_parameters)
    theta[-groups : len(theta) - (kind == "correlated")] = -20.0
    X, y = rows_of(name, 12)
    scalars = theta[3 : len(theta) - groups]
    eta = np.vstack([theta[:3] @ X[:3] + X[3], *(np.full(12, each) for each in scalars)])
    rows = evaluate_rows(model.inner, eta, y)
    out = evaluate(model, theta, X, y, 1)
    assert out[0] == pytest.approx(X[-1] @ rows[0], rel=1e-12)
    assert out[1:4] == pytest.approx(X[:3] @ (X[-1] * rows[1]), rel=1e-7, abs=1e-7)
    assert np.abs(out[1 + len(theta) - groups : 1 + len(theta)]).max() < 1e-8


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("logistic", kind) for kind in KINDS), ("poisson", "slope"), ("poisson", "correlated")],
)
@pytest.mark.parametrize("n", [0, 1, 3, 15, 16, 17, 300])
def test_factors_give_the_derivatives_of_the_path_by_rows(name: str, kind: str, n: int) -> None:
    # A row without information, far out, leaves only the path by rows.
    model, theta = model_of(name, kind), theta_of(name, kind)
    X, y = rows_of(name, n)
    X[-1] = 1.0
    slower = np.column_stack([X, [0.0, 0.0, 0.0, -690.0, 1.0]])
    rows = evaluate(model, theta, slower, np.append(y, 0.0), 2)
    for order, size in ((0, 1), (1, 1 + len(theta)), (2, len(rows))):
        fast = evaluate(model, theta, X, y, order)[:size]
        assert fast == pytest.approx(rows[:size], rel=1e-8, abs=1e-8)


def test_nodes_frozen_at_another_theta_fail_for_a_large_deviation() -> None:
    # Broken partner: nodes as for tau = 1, the same group at tau = 3.
    X, y = rows_of("logistic", 200, seed=3)
    X[-1] = 1.0
    theta = theta_of("logistic", "intercept")
    theta[-1] = math.log(3.0)
    exact = brute("logistic", "intercept", theta, X, y)
    found = evaluate(model_of("logistic", "intercept"), theta, X, y)[0]
    assert found == pytest.approx(exact, abs=1e-9)
    fixed = theta[:3] @ X[:3] + X[3]

    def log_joint(v: float, tau: float) -> float:
        eta = fixed + tau * v
        return float(np.sum(y * eta - np.logaddexp(0.0, eta)) + stats.norm.logpdf(v))

    grid = np.linspace(-5.0, 5.0, 20_001)
    centre = grid[np.argmax([log_joint(v, 1.0) for v in grid])]
    h = 1e-3
    bend = (log_joint(centre + h, 1.0) - 2.0 * log_joint(centre, 1.0)) / h**2
    bend += log_joint(centre - h, 1.0) / h**2
    z, log_weights = quadrature(15)
    sd = 1.0 / math.sqrt(-bend)
    terms = [
        a + math.log(sd) + log_joint(centre + sd * x, 3.0) + 0.5 * math.log(2.0 * math.pi)
        for x, a in zip(z, log_weights, strict=True)
    ]
    assert abs(np.logaddexp.reduce(terms) - exact) > 0.01


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [-700.0, 700.0, math.inf, math.nan])
def test_extreme_predictors_give_a_number_or_nan(name: str, kind: str, at: float) -> None:
    model, theta = model_of(name, kind), theta_of(name, kind)
    X, y = rows_of(name, 5)
    for j in (0, len(theta) - 1):
        moved = theta.copy()
        moved[j] = at
        for order in (0, 1, 2):
            value = evaluate(model, moved, X, y, order)[0]
            assert value < 1e-9 or math.isnan(value) or name in ("gamma", "gaussian")


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_constant_responses_and_wide_effects_keep_the_brute_value(name: str) -> None:
    X, _ = rows_of(name, 30)
    theta = theta_of(name, "intercept")
    for response, log_tau, bound in ((0.0, 1.0, 2e-5), (1.0, 1.0, 2e-5), (0.0, -20.0, 1e-9)):
        theta[-1] = log_tau
        y = np.full(30, response)
        found = evaluate(model_of(name, "intercept", 41), theta, X, y)[0]
        assert found == pytest.approx(brute(name, "intercept", theta, X, y), abs=bound)


@pytest.mark.parametrize("name", ["logistic", "poisson", "gaussian"])
def test_large_group_has_the_laplace_value(name: str) -> None:
    # 100,000 rows determine the effect, so that Laplace's formula is exact to about 1/n.
    X, y = rows_of(name, 100_000)
    model, theta = model_of(name, "intercept", 5), theta_of(name, "intercept")
    values = [evaluate(each, theta, X, y)[0] for each in (model, model_of(name, "intercept", 21))]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    gradient = evaluate(model, theta, X, y, 1)[1:4]
    # A move of the intercept moves the effect back: only the prior of the effect changes.
    assert abs(gradient[0]) < 5.0
