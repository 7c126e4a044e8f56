"""Families of models as the tests need them, by their names in the registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from streammc import registry
from streammc.protocols import Model, Vector

Terms = tuple[mpf, ...]


@dataclass(frozen=True)
class Family:
    """Support and exact log-likelihood of one family."""

    responses: tuple[float, ...]
    """Responses at which accuracy is checked."""
    bad: tuple[float, ...]
    """Responses outside the support."""
    log_lik: Callable[..., mpf]
    """``(y, *eta) -> log-likelihood``, as in a textbook."""
    support: Vector | None = None
    """Carries all but 1e-12 of the probability for predictors up to 3; ``None``: continuous."""
    exact: Callable[[mpf, mpf], Terms] | None = None
    """``(eta, y) -> value, first, second derivative`` where there is one predictor."""
    size: Callable[[mpf, mpf], Terms] | None = None
    """What the error of each is relative to: the largest term of the sum; default: itself."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the builder, where its default is too large for these tests."""
    shared: float = 1.5
    """Shared parameters, as they are sampled, where responses are drawn to compare their mean."""
    centre: tuple[float, ...] = (0.0,)
    """Of the predictors at which the model is compared with itself."""
    below: float | None = None
    """Chance of a response below what is predicted, where that is a quantile and not the mean."""
    pair: tuple[float, float] = (0.0, 1.0)
    """Two responses that default priors are of."""
    mean: bool = True
    """Whether there is a mean response."""
    first: str = ""
    """First label of a model with an intercept; empty: ``beta[Intercept]``, or of component 0."""
    reach: float = 6.0
    """Largest predictor at which densities are compared with those of many digits."""
    prior_scale: float | None = None
    """Of the default normal prior of a coefficient; ``None`` scales with the data."""


def logistic_log_lik(y: mpf, eta: mpf) -> mpf:
    return y * eta - mpmath.log1p(mpmath.exp(eta))


def poisson_log_lik(y: mpf, eta: mpf) -> mpf:
    return y * eta - mpmath.exp(eta) - mpmath.loggamma(y + 1)


def probit_log_lik(y: mpf, eta: mpf) -> mpf:
    return mpmath.log(mpmath.erfc((eta if y == 0 else -eta) / mpmath.sqrt(2)) / 2)


def gaussian_log_lik(y: mpf, eta: mpf, log_sigma: mpf) -> mpf:
    z = (y - eta) * mpmath.exp(-log_sigma)
    return -z * z / 2 - log_sigma - mpmath.log(2 * mpmath.pi) / 2


def student_t_log_lik(y: mpf, eta: mpf, log_sigma: mpf, log_nu: mpf) -> mpf:
    nu = mpmath.exp(log_nu)
    z = (y - eta) * mpmath.exp(-log_sigma)
    constant = mpmath.loggamma((nu + 1) / 2) - mpmath.loggamma(nu / 2)
    constant -= mpmath.log(mpmath.pi * nu) / 2
    return constant - log_sigma - (nu + 1) / 2 * mpmath.log1p(z * z / nu)


def negative_binomial_log_lik(y: mpf, log_mu: mpf, log_phi: mpf) -> mpf:
    phi = mpmath.exp(log_phi)
    ratio = mpmath.exp(log_mu - log_phi)
    choose = mpmath.loggamma(y + phi) - mpmath.loggamma(phi) - mpmath.loggamma(y + 1)
    return choose - phi * mpmath.log1p(ratio) - y * mpmath.log1p(1 / ratio)


def gamma_log_lik(y: mpf, log_mu: mpf, log_shape: mpf) -> mpf:
    shape = mpmath.exp(log_shape)
    rate = shape * mpmath.exp(-log_mu)
    return (
        shape * mpmath.log(rate) - mpmath.loggamma(shape) + (shape - 1) * mpmath.log(y) - rate * y
    )


def lognormal_log_lik(y: mpf, eta: mpf, log_sigma: mpf) -> mpf:
    return gaussian_log_lik(mpmath.log(y), eta, log_sigma) - mpmath.log(y)


def weibull_log_lik(y: mpf, eta: mpf, log_shape: mpf) -> mpf:
    shape = mpmath.exp(log_shape)
    z = shape * (mpmath.log(y) - eta)
    return log_shape + z - mpmath.log(y) - mpmath.exp(z)


def beta_log_lik(y: mpf, eta: mpf, log_phi: mpf) -> mpf:
    phi = mpmath.exp(log_phi)
    a, b = phi / (1 + mpmath.exp(-eta)), phi / (1 + mpmath.exp(eta))
    power = (a - 1) * mpmath.log(y) + (b - 1) * mpmath.log1p(-y)
    return mpmath.loggamma(phi) - mpmath.loggamma(a) - mpmath.loggamma(b) + power


PER_TRIAL = 2.0**26
"""Of the response ``2^26 trials + successes``."""


def beta_binomial_log_lik(y: mpf, eta: mpf, log_phi: mpf) -> mpf:
    phi, n = mpmath.exp(log_phi), mpmath.floor(y / PER_TRIAL)
    a, b, k = phi / (1 + mpmath.exp(-eta)), phi / (1 + mpmath.exp(eta)), y - n * PER_TRIAL
    return sum(
        (
            sign * (mpmath.loggamma(each + count) - mpmath.loggamma(each))
            for sign, each, count in ((1, a, k), (1, b, n - k), (-1, phi, n))
        ),
        mpf(0),
    )


def inflated(log_odds: mpf, y: mpf, of_counts: mpf) -> mpf:
    """Return the log probability of a count where zeros are added to those of a family."""
    rest = -mpmath.log1p(mpmath.exp(log_odds))
    if y > 0:
        return rest + of_counts
    return mpmath.log(mpmath.exp(log_odds + rest) + mpmath.exp(rest + of_counts))


def zero_inflated_poisson_log_lik(y: mpf, eta: mpf, log_odds: mpf) -> mpf:
    return inflated(log_odds, y, poisson_log_lik(y, eta))


def zero_inflated_negative_binomial_log_lik(y: mpf, eta: mpf, log_phi: mpf, log_odds: mpf) -> mpf:
    return inflated(log_odds, y, negative_binomial_log_lik(y, eta, log_phi))


def hurdle_poisson_log_lik(y: mpf, eta: mpf, log_odds: mpf) -> mpf:
    if y == 0:
        return -mpmath.log1p(mpmath.exp(-log_odds))
    above = mpmath.log(-mpmath.expm1(-mpmath.exp(eta)))
    return -mpmath.log1p(mpmath.exp(log_odds)) + poisson_log_lik(y, eta) - above


def inverse_gaussian_log_lik(y: mpf, log_mu: mpf, log_shape: mpf) -> mpf:
    mu, shape = mpmath.exp(log_mu), mpmath.exp(log_shape)
    density = log_shape - mpmath.log(2 * mpmath.pi * y**3)
    return density / 2 - shape * (y - mu) ** 2 / (2 * mu**2 * y)


def tweedie_log_lik(y: mpf, eta: mpf, log_phi: mpf, log_odds: mpf) -> mpf:
    """Dunn and Smyth 2005: a Poisson number of gamma variables, summed over that number."""
    p = 1 + 1 / (1 + mpmath.exp(-log_odds))
    mu, phi = mpmath.exp(eta), mpmath.exp(log_phi)
    rate = mu ** (2 - p) / (phi * (2 - p))
    if y == 0:
        return -rate
    each, scale = (2 - p) / (p - 1), phi * (p - 1) * mu ** (p - 1)

    def term(j: mpf) -> mpf:
        size = (j * each - 1) * mpmath.log(y / scale) - mpmath.loggamma(j * each)
        return j * mpmath.log(rate) - mpmath.loggamma(j + 1) + size - mpmath.log(scale)

    middle = max(1, int(y ** (2 - p) / (phi * (2 - p))))
    top, total = term(mpf(middle)), mpf(0)
    for way, j in ((1, middle), (-1, middle - 1)):
        while j >= 1:
            total += (part := mpmath.exp(term(mpf(j)) - top))
            if part < mpmath.eps * total:
                break
            j += way
    return top + mpmath.log(total) - rate - y / scale


def quantile_log_lik(y: mpf, eta: mpf, log_sigma: mpf) -> mpf:
    """Of order 0.8, smoothed over sigma: steps of differences are to see no kink."""
    tau, width = mpf(0.8), mpf(1)
    z = (y - eta) * mpmath.exp(-log_sigma)
    soft = mpmath.log1p(mpmath.exp(-abs(z) / width)) * width + max(z, 0)
    constant = mpmath.log(width * mpmath.beta(width * (1 - tau), width * tau))
    return (1 - tau) * z - soft - log_sigma - constant


def exponential_log_lik(y: mpf, eta: mpf) -> mpf:
    return -eta - y * mpmath.exp(-eta)


def logistic_exact(eta: mpf, y: mpf) -> Terms:
    a = eta if y == 0 else -eta
    value = -mpmath.log1p(mpmath.exp(a))
    slope = 1 / (1 + mpmath.exp(-a))
    return value, -slope if y == 0 else slope, -slope / (1 + mpmath.exp(a))


def poisson_exact(eta: mpf, y: mpf) -> Terms:
    rate = mpmath.exp(eta)
    return y * eta - rate - mpmath.loggamma(y + 1), y - rate, -rate


def poisson_size(eta: mpf, y: mpf) -> Terms:
    rate = mpmath.exp(eta)
    return max(abs(y * eta), rate, abs(mpmath.loggamma(y + 1))), max(y, rate), rate


def exponential_exact(eta: mpf, y: mpf) -> Terms:
    ratio = y * mpmath.exp(-eta)
    return -eta - ratio, ratio - 1, -ratio


def exponential_size(eta: mpf, y: mpf) -> Terms:
    ratio = y * mpmath.exp(-eta)
    return max(abs(eta), ratio), max(mpf(1), ratio), ratio


def both_chances(eta: mpf) -> tuple[mpf, mpf]:
    """Return ``1 / (1 + exp(-eta))`` and one minus it, without cancellation."""
    return 1 / (1 + mpmath.exp(-eta)), 1 / (1 + mpmath.exp(eta))


def binomial_exact(eta: mpf, y: mpf) -> Terms:
    p, q = both_chances(eta)
    linear = y * eta if eta < 0 else (y - 1) * eta
    return linear - mpmath.log1p(mpmath.exp(-abs(eta))), y * q - (1 - y) * p, -p * q


def binomial_size(eta: mpf, y: mpf) -> Terms:
    value, _, curve = binomial_exact(eta, y)
    p, q = both_chances(eta)
    return abs(value), max(y * q, (1 - y) * p), abs(curve)


def network_log_lik(y: mpf, *eta: mpf) -> mpf:
    first, second, *weights, bias = eta
    units = (1 / (1 + mpmath.exp(-z)) for z in (first, second))
    return logistic_log_lik(y, bias + sum(w * h for w, h in zip(weights, units, strict=True)))


def ordinal_log_lik(y: mpf, eta: mpf, *log_gaps: mpf) -> mpf:
    cuts = [-eta]
    for u in log_gaps:
        cuts.append(cuts[-1] + mpmath.exp(u))
    ends = [mpf(0), *(1 / (1 + mpmath.exp(-cut)) for cut in cuts), mpf(1)]
    k = int(y)
    if k == len(cuts):  # without the difference from 1
        return -mpmath.log1p(mpmath.exp(cuts[-1]))
    return mpmath.log(ends[k + 1] - ends[k])


def multinomial_log_lik(y: mpf, *eta: mpf) -> mpf:
    every = (mpf(0), *eta)
    return every[int(y)] - mpmath.log(sum(mpmath.exp(each) for each in every))


COUNTS = (0.0, 1.0, 3.0, 255.0, 256.0, 1e4, 1e9, 2.0**53)
NOT_COUNTS = (-1.0, 0.5, np.nan, np.inf, -np.inf, 2.0**54)

FAMILIES = {
    "beta": Family(
        responses=(1e-9, 0.01, 0.5, 0.93, 1.0 - 1e-9),
        log_lik=beta_log_lik,
        centre=(0.0, 3.0),  # mass at the ends is finer than the steps of a float64 below 1
        pair=(0.25, 0.75),
        bad=(0.0, 1.0, -0.1, 1.5, np.nan, np.inf),
    ),
    "beta-binomial": Family(
        responses=tuple(
            PER_TRIAL * n + k
            for n, k in ((0, 0), (1, 0), (1, 1), (7, 3), (60, 58), (1e4, 0), (1e6, 3e5))
        ),
        log_lik=beta_binomial_log_lik,
        pair=(PER_TRIAL, PER_TRIAL + 1.0),
        bad=(1.0, PER_TRIAL - 1.0, PER_TRIAL + 2.0, PER_TRIAL + 0.5, 2.0**53, -1.0, np.nan, np.inf),
    ),
    "binomial": Family(
        support=np.array([0.0, 1.0]),
        responses=(0.0, 0.1, 0.5, 0.999, 1.0),
        log_lik=logistic_log_lik,
        exact=binomial_exact,
        size=binomial_size,
        bad=(1.0000001, -0.1, 2.0, np.nan, np.inf),
    ),
    "exponential": Family(
        responses=(0.0, 1e-8, 0.5, 1.0, 3.7, 1e9),
        log_lik=exponential_log_lik,
        exact=exponential_exact,
        size=exponential_size,
        bad=(-1.0, np.nan, np.inf, -np.inf),
    ),
    "gamma": Family(
        responses=(1e-8, 0.5, 1.0, 3.7, 1e9),
        log_lik=gamma_log_lik,
        bad=(0.0, -1.0, np.nan, np.inf),
    ),
    "gaussian": Family(
        responses=(0.0, 1.0, -3.5, 1e6, -1e15),
        log_lik=gaussian_log_lik,
        bad=(np.nan, np.inf, -np.inf),
    ),
    "hurdle-poisson": Family(
        support=np.arange(400.0),
        responses=COUNTS,
        log_lik=hurdle_poisson_log_lik,
        bad=NOT_COUNTS,
    ),
    "inverse-gaussian": Family(
        responses=(1e-8, 0.5, 1.0, 3.7, 1e9),
        log_lik=inverse_gaussian_log_lik,
        bad=(0.0, -1.0, np.nan, np.inf),
    ),
    "logistic": Family(
        support=np.array([0.0, 1.0]),
        responses=(0.0, 1.0),
        log_lik=logistic_log_lik,
        exact=logistic_exact,
        bad=(2.0, -1.0, 0.5, np.nan, np.inf),
    ),
    "lognormal": Family(
        responses=(1e-8, 0.5, 1.0, 3.7, 1e9),
        log_lik=lognormal_log_lik,
        shared=0.0,
        pair=(1.0, math.e),
        bad=(0.0, -1.0, np.nan, np.inf),
    ),
    "multinomial": Family(
        support=np.arange(4.0),
        responses=(0.0, 1.0, 2.0, 3.0),
        log_lik=multinomial_log_lik,
        bad=(-1.0, 0.5, 4.0, np.nan, np.inf, -np.inf),
        options={"levels": 4},
        mean=False,
        first="beta[1, Intercept]",
    ),
    "negative-binomial": Family(
        support=np.arange(4000.0),
        responses=COUNTS,
        log_lik=negative_binomial_log_lik,
        bad=NOT_COUNTS,
    ),
    "network": Family(
        support=np.array([0.0, 1.0]),
        responses=(0.0, 1.0),
        log_lik=network_log_lik,
        bad=(2.0, -1.0, 0.5, np.nan, np.inf),
        options={"hidden": [2]},
        prior_scale=1.0,
    ),
    "ordinal": Family(
        support=np.arange(4.0),
        responses=(0.0, 1.0, 2.0, 3.0),
        log_lik=ordinal_log_lik,
        bad=(-1.0, 0.5, 4.0, np.nan, np.inf, -np.inf),
        options={"levels": 4},
    ),
    "poisson": Family(
        support=np.arange(400.0),
        responses=COUNTS,
        log_lik=poisson_log_lik,
        exact=poisson_exact,
        size=poisson_size,
        bad=NOT_COUNTS,
    ),
    "probit": Family(
        support=np.array([0.0, 1.0]),
        responses=(0.0, 1.0),
        log_lik=probit_log_lik,
        bad=(2.0, -1.0, 0.5, np.nan, np.inf),
    ),
    "quantile": Family(
        responses=(0.0, 1.0, -3.5, 1e6, -1e15),
        log_lik=quantile_log_lik,
        bad=(np.nan, np.inf, -np.inf),
        options={"tau": 0.8, "smooth": 1.0},
        below=float(mpmath.betainc(0.2, 0.8, 0, 0.5, regularized=True)),
    ),
    "student-t": Family(
        responses=(0.0, 1.0, -3.5, 1e6, -1e15),
        log_lik=student_t_log_lik,
        bad=(np.nan, np.inf, -np.inf),
    ),
    "tweedie": Family(
        responses=(0.0, 1e-8, 0.5, 1.0, 3.7, 30.0),
        log_lik=tweedie_log_lik,
        reach=2.0,
        bad=(-1e-9, -1.0, np.nan, np.inf, -np.inf),
        shared=0.0,
        pair=(0.0, 2.0),
    ),
    "weibull": Family(
        responses=(1e-8, 0.5, 1.0, 3.7, 1e9),
        log_lik=weibull_log_lik,
        bad=(0.0, -1.0, np.nan, np.inf),
    ),
    "zero-inflated-negative-binomial": Family(
        support=np.arange(4000.0),
        responses=COUNTS,
        log_lik=zero_inflated_negative_binomial_log_lik,
        bad=NOT_COUNTS,
    ),
    "zero-inflated-poisson": Family(
        support=np.arange(400.0),
        responses=COUNTS,
        log_lik=zero_inflated_poisson_log_lik,
        bad=NOT_COUNTS,
    ),
}


def built(name: str, **options: Any) -> Model:
    """Return the registered model ``name``, small enough for every test."""
    model: Model = registry.model(name)(**FAMILIES[name].options, **options)
    return model
