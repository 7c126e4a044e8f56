"""Posteriors of the families stated as text, against maximum likelihood by scipy.

Under flat priors, or wide ones where these are refused, the posterior of many rows is the normal
distribution at the maximum of the likelihood with the inverse of its curvature, up to the order of
one over the rows. The densities of this file are those of ``scipy.stats``, and parameters are as
the posterior has them. The partner is the same posterior against responses of another shape.

Default priors do not decide: modes stay where they are under priors ten times wider, and where the
response has another unit, they move by its logarithm alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special, stats

import streammc
from streammc import registry, samplers
from streammc.control_variates import compute, resolved
from streammc.errors import ConfigError
from streammc.priors import flat, from_description, half_cauchy, normal
from streammc.protocols import Dataset, Matrix, Model, Vector

ROWS, ROWS_OF_COSTLY = 3000, 2000
COEFFICIENTS = np.array([0.6, 0.4, -0.3, 0.3, -0.2])
Density = Callable[..., Vector]


def with_zeros(chance: float, y: Vector, log_rest: Vector) -> Vector:
    """Return the log probability of counts with more zeros, of which the chance is given."""
    more = np.where(y == 0, np.log(chance + (1.0 - chance) * np.exp(log_rest)), -np.inf)
    return np.where(y == 0, more, np.log1p(-chance) + log_rest)


def inverse_gaussian(y: Vector, eta: Vector, shape: float) -> Vector:
    log_density: Vector = stats.invgauss.logpdf(y, np.exp(eta) / shape, scale=shape)
    return log_density


def lognormal(y: Vector, eta: Vector, sigma: float) -> Vector:
    log_density: Vector = stats.lognorm.logpdf(y, sigma, scale=np.exp(eta))
    return log_density


def weibull(y: Vector, eta: Vector, shape: float) -> Vector:
    log_density: Vector = stats.weibull_min.logpdf(y, shape, scale=np.exp(eta))
    return log_density


def beta(y: Vector, eta: Vector, phi: float) -> Vector:
    mu = special.expit(eta)
    log_density: Vector = stats.beta.logpdf(y, phi * mu, phi * (1.0 - mu))
    return log_density


def zero_inflated_poisson(y: Vector, eta: Vector, logit_zi: float) -> Vector:
    return with_zeros(special.expit(logit_zi), y, stats.poisson.logpmf(y, np.exp(eta)))


def zero_inflated_negative_binomial(y: Vector, eta: Vector, phi: float, logit_zi: float) -> Vector:
    counts = stats.nbinom.logpmf(y, phi, phi / (phi + np.exp(eta)))
    return with_zeros(special.expit(logit_zi), y, counts)


def hurdle_poisson(y: Vector, eta: Vector, logit_hu: float) -> Vector:
    chance, mu = special.expit(logit_hu), np.exp(eta)
    above = stats.poisson.logpmf(y, mu) - np.log(-np.expm1(-mu))
    return np.where(y == 0, np.log(chance), np.log1p(-chance) + above)


def tweedie(y: Vector, eta: Vector, phi: float, logit_power: float) -> Vector:
    """A Poisson number of gamma variables, summed over that number."""
    p = 1.0 + special.expit(logit_power)
    log_rate = (2.0 - p) * eta - math.log(phi * (2.0 - p))
    shape, log_scale = (2.0 - p) / (p - 1.0), math.log(phi * (p - 1.0)) + (p - 1.0) * eta
    j = np.arange(1.0, 80.0)
    log_y = np.log(np.where(y > 0.0, y, 1.0))
    terms = np.outer(j, log_rate + shape * (log_y - log_scale))
    terms -= (special.gammaln(j + 1.0) + special.gammaln(j * shape))[:, None]
    most = terms.max(axis=0)
    above = most + np.log(np.exp(terms - most).sum(axis=0)) - log_y - y * np.exp(-log_scale)
    return np.where(y > 0.0, above, 0.0) - np.exp(log_rate)


def quantile(y: Vector, eta: Vector, sigma: float) -> Vector:
    """A logit of a beta variable, of the median and smoothed over 0.05 sigma."""
    z = (y - eta) / (0.05 * sigma)
    log_density: Vector = 0.025 * (special.log_expit(z) + special.log_expit(-z))
    return log_density - math.log(0.05 * sigma) - special.betaln(0.025, 0.025)


class Family(NamedTuple):
    """One family: its log density by scipy, and the truth of its table."""

    log_density: Density
    shared: dict[str, float]
    other: dict[str, float]
    """Shared parameters of the partner's responses."""
    costly: bool = False
    """Whether a row takes microseconds: it is sampled by importance."""


FAMILIES = {
    "inverse-gaussian": Family(inverse_gaussian, {"shape": 2.0}, {"shape": 2.6}),
    "lognormal": Family(lognormal, {"sigma": 0.8}, {"sigma": 1.0}),
    "weibull": Family(weibull, {"shape": 1.5}, {"shape": 1.8}),
    "beta": Family(beta, {"phi": 4.5}, {"phi": 6.0}),
    "zero-inflated-poisson": Family(zero_inflated_poisson, {"logit_zi": -0.8}, {"logit_zi": 0.0}),
    "zero-inflated-negative-binomial": Family(
        zero_inflated_negative_binomial,
        {"phi": 3.0, "logit_zi": -0.8},
        {"phi": 3.0, "logit_zi": 0.0},
    ),
    "hurdle-poisson": Family(hurdle_poisson, {"logit_hu": -0.5}, {"logit_hu": 0.0}),
    "tweedie": Family(
        tweedie, {"phi": 1.0, "logit_power": 0.3}, {"phi": 1.4, "logit_power": 0.3}, costly=True
    ),
    "quantile": Family(quantile, {"sigma": 0.8}, {"sigma": 1.0}),
}


class Fitted(NamedTuple):
    """Maximum likelihood and posterior of one table, both of (beta, shared)."""

    mean: Vector
    sd: Vector
    maximum: Vector
    """Of the likelihood of the same table."""
    error: Vector
    """Standard errors."""
    other: Vector
    """Maximum of the partner's likelihood, of responses of another shape."""


def maximum_likelihood(
    family: Family, X: Matrix, y: Vector, shared: dict[str, float]
) -> tuple[Vector, Vector]:
    """Return the maximum of the likelihood (d,) and standard errors (d,), from near the truth."""
    q = X.shape[1]

    def log_lik(at: Vector) -> float:
        return float(family.log_density(y, X @ at[:q], *at[q:]).sum())

    at = np.array([*COEFFICIENTS, *shared.values()])
    for _ in range(5):
        slope, curve = differences(log_lik, at)
        step, error = np.linalg.solve(curve, slope), np.sqrt(-np.diag(np.linalg.inv(curve)))
        if np.abs(step / error).max() < 1e-3:
            return at, error
        at = at - step
    raise AssertionError(step / error)


def differences(f: Callable[[Vector], float], at: Vector) -> tuple[Vector, Matrix]:
    """Return the gradient (d,) and Hessian (d, d) by central differences of step 1e-3."""
    steps = 1e-3 * np.eye(len(at))
    slope = np.array([f(at + e) - f(at - e) for e in steps]) / 2e-3
    curve = np.zeros((len(at), len(at)))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps[: i + 1]):
            curve[i, j] = f(at + a + b) - f(at + a - b) - f(at - a + b) + f(at - a - b)
            curve[j, i] = curve[i, j]
    return slope, curve / 4e-6


def responses(name: str, X: Matrix, shared: dict[str, float]) -> Vector:
    """Return simulated responses, of the same random numbers for all ``shared``."""
    sampled = [value if key.startswith("logit") else np.log(value) for key, value in shared.items()]
    eta = np.vstack([X @ COEFFICIENTS, *(np.full((1, len(X)), each) for each in sampled)])
    return registry.model(name)().simulate(eta, np.random.default_rng(5))


def design(n: int) -> Matrix:
    """Return the columns of an intercept, x, z, and two levels of a factor g, (n, 5)."""
    rng = np.random.default_rng(1)
    level = rng.integers(0, 3, n)
    columns = [np.ones(n), *rng.normal(size=(2, n)), level == 1, level == 2]
    return np.column_stack(columns).astype(np.float64)


def table(X: Matrix, y: Vector) -> Dataset:
    """Return the rows in memory, with the columns in the order of the formula."""
    level = np.array(["a", "b", "c"])[(X[:, 3] + 2.0 * X[:, 4]).astype(int)]
    frame = {"x": X[:, 1], "z": X[:, 2], "g": level, "y": y}
    return streammc.from_table(frame, formula="y ~ x + z + g")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow) if family.costly else name
        for name, family in FAMILIES.items()
    ],
)
def fitted(request: pytest.FixtureRequest) -> Fitted:
    """Posterior and maximum likelihood of one family, of two columns and a factor."""
    name, family = request.param, FAMILIES[request.param]
    X = design(ROWS_OF_COSTLY if family.costly else ROWS)
    y = responses(name, X, family.shared)
    few = {"sampler": samplers.laplace(), "chains": 1, "draws": 2000} if family.costly else {}
    refused = {"phi": half_cauchy(1e4)} if "negative" in name else {}
    width = 10.0 if family.costly else 1e3  # with wider ones a search climbs where p is 2
    refused |= {key: normal(width) for key in family.shared if key.startswith("logit")}
    prior = {"*": flat(), **refused}
    run = streammc.sample(table(X, y), registry.model(name)(prior), seed=1, **few)
    posterior = run["posterior"]
    draws = [posterior[key].to_numpy() for key in ("beta", *family.shared)]
    theta = np.concatenate([each.reshape(*each.shape[:2], -1) for each in draws], axis=2)
    theta = theta.reshape(-1, theta.shape[2])
    found = maximum_likelihood(family, X, y, family.shared)
    other, _ = maximum_likelihood(family, X, responses(name, X, family.other), family.other)
    return Fitted(theta.mean(0), theta.std(0), *found, other)


def test_posterior_is_at_the_maximum_of_the_likelihood_by_scipy(fitted: Fitted) -> None:
    assert np.abs((fitted.mean - fitted.maximum) / fitted.error).max() < 0.15
    assert np.abs(fitted.sd / fitted.error - 1.0).max() < 0.1
    assert np.abs((fitted.mean - fitted.other) / fitted.error).max() > 3.0


def rescaled_defaults(name: str, data: Dataset, factor: float) -> Model:
    """Return the model with a prior of every parameter whose scale is that of its default."""
    model = registry.model(name)()
    defaults = {each.name: each.default for each in model.parameters if each.default is not None}
    defaults |= dict(resolved(model, data).prior.priors)
    stated = {key: prior.describe() for key, prior in defaults.items() if not callable(prior)}
    return registry.model(name)(
        {key: from_description({**each, "scale": factor * each["scale"]})
         for key, each in stated.items()}
    )  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_default_priors_ten_times_wider_leave_the_mode_where_it_is(name: str) -> None:
    X = design(2000)
    data = table(X, responses(name, X, FAMILIES[name].shared))
    usual = compute(data, registry.model(name)())
    sd = np.sqrt(np.diag(np.linalg.inv(-usual.hessian)))

    def moved(factor: float) -> float:
        other = compute(data, rescaled_defaults(name, data, factor))
        return float(np.abs((other.theta_star - usual.theta_star) / sd).max())

    assert moved(10.0) < 0.1
    assert moved(0.01) > 0.1


@pytest.mark.parametrize("name", ["inverse-gaussian", "lognormal", "weibull"])
@pytest.mark.parametrize("unit", [1e3, 1e-3])
def test_another_unit_of_the_response_moves_location_and_shape_alone(
    name: str, unit: float
) -> None:
    X = design(2000)
    y = responses(name, X, FAMILIES[name].shared)
    one, other = (compute(table(X, c * y), registry.model(name)()) for c in (1.0, unit))
    expected = np.zeros(6)
    expected[0] = math.log(unit)
    expected[5] = math.log(unit) * (name == "inverse-gaussian")  # mu and shape have the unit of y
    sd = np.sqrt(np.diag(np.linalg.inv(-one.hessian)))
    assert np.abs((other.theta_star - one.theta_star - expected) / sd).max() < 1e-4
    fixed = compute(table(X, unit * y), registry.model(name)(normal(1.0)))
    assert np.abs((fixed.theta_star - one.theta_star - expected) / sd).max() > 1e-2


@pytest.mark.parametrize("name", [name for name in FAMILIES if "zero" in name or "hurdle" in name])
def test_a_flat_prior_of_the_log_odds_of_zeros_is_refused(name: str) -> None:
    """Of a table without zeros the likelihood tends to that of the counts as they fall."""
    model = registry.model(name)
    labels = model().labels(["x"])
    key = next(each for each in labels if each.startswith("logit"))
    with pytest.raises(ConfigError, match=rf"prior of '{key}' must be proper.*as it falls"):
        model({"*": normal(1.0), key: flat()}).prior_table(labels)
    others = {
        each: half_cauchy(1.0) if each == "phi" else normal(1.0)
        for each in labels
        if not each.startswith("beta")
    }
    assert model({"*": flat(), **others}).prior_table(labels).shape[0] == len(labels)
