"""Check 1: five models whose posterior is known in closed form, through the public API.

A conjugate prior that streammc has no name for is written as rows with weights: a row of weight w
multiplies the posterior by its likelihood to the power w. The partner has the rows of the data,
not those of the prior, with weight 1.05.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from arviz_stats.base import array_stats
from checks_of_trust import rounds
from scipy import stats

import streammc
from streammc.models import gaussian, gaussian_mean, logistic, user
from streammc.priors import flat, gamma, normal

LIMIT, POWER = 4.5, 1.05
Marginals = dict[str, tuple[np.ndarray, object]]
"""Draws of each parameter (chain, draw), and its exact distribution."""
Record = Callable[[str, object], None]


def fit(X: np.ndarray, y: np.ndarray, weight: np.ndarray, model: object, seed: int):
    """Return the posterior draws of a run of hmc."""
    store = streammc.from_arrays(X, y, weight=weight)
    draws = rounds(10_000, 25_000)
    sampler = streammc.samplers.hmc()
    return streammc.sample(store, model, sampler=sampler, draws=draws, warmup=500, seed=seed)[
        "posterior"
    ]


def normal_mean(power: float, seed: int) -> Marginals:
    x = np.random.default_rng(2).standard_normal((60, 1)) + 3.0
    model = gaussian_mean([1.0], prior=normal(0.1))
    posterior = fit(x, np.zeros(60), np.full(60, power), model, seed)
    precision = 60 + 1 / 0.1**2
    mean = stats.norm(x.sum() / precision, precision**-0.5)
    return {"mu": (next(iter(posterior.data_vars.values())).to_numpy()[..., 0], mean)}


def beta_binomial(power: float, seed: int) -> Marginals:
    """Beta(12, 3): a row of each response, and a flat prior on the logit."""
    successes, failures, a, b = 9, 31, 12.0, 3.0
    y = np.r_[np.ones(successes), np.zeros(failures), 1.0, 0.0]
    weight = np.r_[np.full(40, power), a, b]
    posterior = fit(np.ones((42, 1)), y, weight, logistic(prior=flat()), seed)
    p = 1.0 / (1.0 + np.exp(-posterior["beta"].to_numpy()[..., 0]))
    return {"p": (p, stats.beta(a + successes, b + failures))}


def gamma_poisson(power: float, seed: int) -> Marginals:
    """A model of the user's own, whose only parameter is positive."""
    y = np.random.default_rng(4).poisson(6.0, 20).astype(float)
    model = user(
        "rate",
        predictors=(),
        scales=("rate",),
        log_lik=lambda theta, X, y: y * theta[0] - np.exp(theta[0]),
        gradient=lambda theta, X, y: (y - np.exp(theta[0]))[:, None],
        hessian=lambda theta, X, y: np.full((len(y), 1, 1), -np.exp(theta[0])),
        prior={"rate": gamma(20.0, 10.0)},
    )
    posterior = fit(np.ones((20, 1)), y, np.full(20, power), model, seed)
    return {"rate": (posterior["rate"].to_numpy(), stats.gamma(20.0 + y.sum(), scale=1 / 30.0))}


def regression(power: float, seed: int) -> Marginals:
    """Five coefficients and sigma: the normal prior of ``beta / sigma`` is five rows."""
    rng = np.random.default_rng(5)
    n, d = 40, 5
    X = rng.normal(size=(n, d))
    y = X @ np.full(d, 2.0) + rng.normal(size=n)
    X, y = np.r_[X, 3.0 * np.eye(d)], np.r_[y, np.zeros(d)]
    weight = np.r_[np.full(n, power), np.ones(d)]
    model = gaussian(prior={"*": flat(), "sigma": flat()})
    posterior = fit(X, y, weight, model, seed)
    inverse = np.linalg.inv(X.T @ X)
    mean = inverse @ X.T @ y
    residual, degrees = ((y - X @ mean) ** 2).sum(), n - 1  # flat in sigma itself
    scale = np.sqrt(np.diag(inverse) * residual / degrees)
    beta = posterior["beta"].to_numpy()
    found: Marginals = {
        f"beta[{j}]": (beta[..., j], stats.t(degrees, mean[j], scale[j])) for j in range(d)
    }
    variance = posterior["sigma"].to_numpy() ** 2
    return found | {"variance": (variance, stats.invgamma(degrees / 2, scale=residual / 2))}


def dirichlet(power: float, seed: int) -> Marginals:
    """Four categories, and logits against the last; the prior is a row of each category."""
    counts, alpha = np.array([30, 12, 5, 3]), np.array([1.0, 4.0, 9.0, 6.0])
    y = np.r_[np.repeat(np.arange(4.0), counts), np.arange(4.0)]
    weight = np.r_[np.full(counts.sum(), power), alpha]

    def chances(theta: np.ndarray) -> np.ndarray:
        size = np.exp(np.r_[theta, 0.0] - max(theta.max(), 0.0))
        return size / size.sum()

    def hessian(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = chances(theta)[:3]
        return np.tile(np.outer(p, p) - np.diag(p), (len(y), 1, 1))

    model = user(
        "categories",
        predictors=(),
        locations=("a", "b", "c"),
        log_lik=lambda theta, X, y: np.log(chances(theta))[y.astype(int)],
        gradient=lambda theta, X, y: np.eye(4)[y.astype(int), :3] - chances(theta)[:3],
        hessian=hessian,
        prior=flat(),
    )
    posterior = fit(np.ones((len(y), 1)), y, weight, model, seed)
    theta = np.stack([posterior[name].to_numpy() for name in "abc"], axis=-1)
    size = np.exp(np.concatenate([theta, np.zeros((*theta.shape[:2], 1))], axis=-1))
    p = size / size.sum(axis=-1, keepdims=True)
    total = counts + alpha
    return {f"p[{k}]": (p[..., k], stats.beta(total[k], total.sum() - total[k])) for k in range(4)}


CASES = [normal_mean, beta_binomial, gamma_poisson, regression, dirichlet]


def largest_z(marginals: Marginals) -> float:
    """z of every mean and variance, by the Monte Carlo errors of ArviZ: the largest."""
    found = [0.0]
    for draws, exact in marginals.values():
        for values, wanted in (
            (draws, exact.mean()),
            ((draws - exact.mean()) ** 2, exact.var()),
        ):
            found.append(abs(values.mean() - wanted) / array_stats.mcse(values, method="mean"))
    return float(max(found))


@pytest.mark.trust(1)
@pytest.mark.parametrize("case", CASES)
def test_draws_are_those_of_the_closed_form(
    case: Callable[[float, int], Marginals], record_property: Record
) -> None:
    marginals = case(1.0, 1)
    z = largest_z(marginals)
    assert z < LIMIT
    least = min(
        stats.kstest(draws[:, ::20].ravel(), exact.cdf).pvalue
        for draws, exact in marginals.values()
    )
    assert least > 1e-6
    record_property("figure", f"{case.__name__}: z at most {z:.1f}, KS p at least {least:.2g}")


@pytest.mark.trust(1)
@pytest.mark.parametrize("case", CASES)
def test_a_likelihood_to_the_power_1_05_is_caught(
    case: Callable[[float, int], Marginals], record_property: Record
) -> None:
    tried = rounds(1, 4)  # of five models: 20
    found = [largest_z(case(POWER, 10 + seed)) for seed in range(tried)]
    assert min(found) > LIMIT
    record_property("caught", f"likelihood^{POWER}, {case.__name__} ({tried} of {tried})")
