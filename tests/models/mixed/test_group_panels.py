"""Integrals of groups on panels: half a normal density cut off, and several modes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mixed_groups import INNER, evaluate, hessian_of, model_of, theta_of
from scipy import special

from streammc.models.mixed.group_constants import PANELS
from streammc.models.mixed.group_quadrature import GAUSS_7, KRONROD_15, NODES_15

CASES = [
    *((name, (1.0, 1.0)) for name in ("logistic", "probit")),
    ("logistic", (0.0,) * 12),
    ("binomial", (1.0, 0.5)),
    *((name, (0.0, 0.0, 0.0)) for name in ("poisson", "negative-binomial")),
    ("poisson", (30.0, 31.0)),
    ("gamma", (0.01, 0.02)),
    ("gaussian", (1.0, 5.0)),
    *(("student-t", (0.1, 0.4, far, far + 0.2, -0.6 * far)) for far in (5.0, 30.0, 2000.0)),
    ("student-t of 5", (0.0, 0.0, 40.0, 41.0)),
]


def hard(name, responses, log_tau):
    """A group of rows without covariates, and theta."""
    n, theta = len(responses), theta_of(name, "intercept")
    theta[-1] = log_tau
    X = np.vstack([np.ones(n), np.zeros((3, n)), np.ones(n)])
    return theta, X, np.array(responses)


def brute(name, theta, X, y):
    """The integral by trapezia that are narrow where the integrand may be."""
    scalars, tau = list(theta[3:-1]), math.exp(theta[-1])
    fixed = theta[:3] @ X[:3]
    parts = [np.linspace(-12.0, 12.0, 20_001)]
    peaks = y if "student" in name else np.zeros(len(y))
    if name in ("poisson", "gamma", "negative-binomial"):
        peaks = np.log(np.maximum(y, 0.5))
    for at in (peaks - fixed) / tau:
        parts += [at + scale * np.sinh(np.linspace(-9, 9, 16_001)) for scale in (1.0, 1e-2, 1e-4)]
    most = min(40.0, 300.0 / tau)  # beyond it SciPy's densities are not finite
    v = np.unique(np.clip(np.concatenate(parts), -most, most))
    log = INNER[name][2](y[:, None], fixed[:, None] + tau * v, scalars).sum(0) - 0.5 * v * v
    ends = np.log(0.5 * np.diff(v))
    return special.logsumexp([log[:-1] + ends, log[1:] + ends]) - 0.5 * math.log(2 * math.pi)


def panels(name, theta, X, y, order=0):
    return evaluate(replace(model_of(name, "intercept"), nodes=PANELS), theta, X, y, order)


@pytest.mark.parametrize("log_tau", [-3.0, 0.0, 2.0, 4.0])
@pytest.mark.parametrize(("name", "responses"), CASES)
def test_panels_give_the_integral_of_hard_groups(name, responses, log_tau):
    theta, X, y = hard(name, responses, log_tau)
    with np.errstate(over="ignore"):
        assert panels(name, theta, X, y)[0] == pytest.approx(brute(name, theta, X, y), abs=3e-6)


def test_nodes_around_a_mode_miss_what_panels_see():
    for name, responses, log_tau, least in (
        ("logistic", (1.0, 1.0), 4.0, 1e-2),
        ("student-t", (0.1, 0.4, 30.0, 30.2, -18.0), 4.0, 1e-3),
    ):
        theta, X, y = hard(name, responses, log_tau)
        found = evaluate(model_of(name, "intercept", 61), theta, X, y)[0]
        assert abs(found - brute(name, theta, X, y)) > least


@pytest.mark.parametrize(("name", "responses"), CASES)
def test_derivatives_are_those_of_the_values(name, responses):
    theta, X, y = hard(name, responses, 1.3)
    d, h = len(theta), 1e-4
    steps = h * np.eye(d)
    out = panels(name, theta, X, y, 2)
    ends = [[panels(name, theta + s * step, X, y, 1) for s in (1, -1)] for step in steps]
    slopes = np.array([(up[0] - down[0]) / (2 * h) for up, down in ends])
    bends = np.array([(up[1 : 1 + d] - down[1 : 1 + d]) / (2 * h) for up, down in ends])
    assert out[1 : 1 + d] == pytest.approx(slopes, rel=1e-5, abs=1e-5)
    assert hessian_of(out, d) == pytest.approx(bends, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("name", INNER)
def test_panels_agree_with_nodes_where_these_suffice(name, n):
    from mixed_groups import rows_of

    theta, (X, y) = theta_of(name, "intercept"), rows_of(name, n)
    found = evaluate(model_of(name, "intercept", 61), theta, X, y, 2)
    assert panels(name, theta, X, y, 2) == pytest.approx(found, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", [PANELS, 15])
def test_predictors_that_are_not_finite_give_a_number_or_nan(kind):
    theta, X, y = hard("poisson", (3.0, 2.0), 0.0)
    theta[0] = 1e300
    model = replace(model_of("poisson", "intercept"), nodes=kind)
    assert not np.isfinite(evaluate(model, theta, X, y)[0])


def test_rules_of_a_panel_are_exact_for_polynomials():
    for degree in range(23):
        exact = (1 - (-1) ** (degree + 1)) / (degree + 1)
        assert KRONROD_15 @ NODES_15**degree == pytest.approx(exact, abs=1e-14)
        if degree < 14:
            assert GAUSS_7 @ NODES_15**degree == pytest.approx(exact, abs=1e-14)
