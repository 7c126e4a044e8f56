"""Groups of rows for the tests of mixed models, and their likelihood as in a textbook."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from streammc import models
from streammc.models.mixed.group_link import link
from streammc.models.mixed.mixed_model import MixedModel, mixed

Array = NDArray[np.float64]
FEATURES = ["Intercept", "x", "w"]


@dataclass(frozen=True)
class Groups:
    """What a model needs of a table of groups."""

    column: str = "carrier"
    terms: tuple[str, ...] = ("1",)
    correlated: bool = False


INTERCEPT = Groups()
SLOPE = Groups(terms=("1", "x"))
CORRELATED = Groups(terms=("1", "x"), correlated=True)
KINDS = {"intercept": INTERCEPT, "slope": SLOPE, "correlated": CORRELATED}


def _gamma(y: Array, eta: Array, s: list[float]) -> Array:
    return stats.gamma.logpdf(y, math.exp(s[0]), scale=np.exp(eta - s[0]))


def _negative_binomial(y: Array, eta: Array, s: list[float]) -> Array:
    phi = math.exp(s[0])
    return stats.nbinom.logpmf(y, phi, phi / (phi + np.exp(eta)))


def _ordinal(y: Array, eta: Array, s: list[float]) -> Array:
    cut = np.concatenate([[-np.inf, 0.0], np.cumsum(np.exp(s)), [np.inf]])
    k = y.astype(int)
    return np.log(special.expit(cut[k + 1] - eta) - special.expit(cut[k] - eta))


def _inflated(y: Array, eta: Array, s: list[float]) -> Array:
    zero, counts = special.log_expit(s[0]), stats.poisson.logpmf(y, np.exp(eta))
    counts += special.log_expit(-s[0])
    return np.where(y == 0.0, np.logaddexp(zero, counts), counts)


def _weibull(y: Array, eta: Array, s: list[float]) -> Array:
    return stats.weibull_min.logpdf(y, math.exp(s[0]), scale=np.exp(eta))


INNER: dict[str, tuple[Any, list[float], Any]] = {
    "logistic": (models.logistic, [], lambda y, eta, s: y * eta - np.logaddexp(0.0, eta)),
    "binomial": (models.binomial, [], lambda y, eta, s: y * eta - np.logaddexp(0.0, eta)),
    "probit": (models.probit, [], lambda y, eta, s: special.log_ndtr((2 * y - 1) * eta)),
    "poisson": (
        models.poisson,
        [],
        lambda y, eta, s: y * eta - np.exp(eta) - special.gammaln(y + 1.0),
    ),
    "negative-binomial": (models.negative_binomial, [0.4], _negative_binomial),
    "gamma": (models.gamma, [0.7], _gamma),
    "gaussian": (
        models.gaussian,
        [-0.3],
        lambda y, eta, s: stats.norm.logpdf(y, eta, math.exp(s[0])),
    ),
    "ordinal": (lambda: models.ordinal(levels=4), [-0.4, 0.3], _ordinal),
    "weibull": (models.weibull, [0.4], _weibull),
    "zero-inflated-poisson": (models.zero_inflated_poisson, [-0.6], _inflated),
    "text": (
        lambda: models.user("waits", "-eta - y * exp(-eta)", response="y > 0", mean="exp(eta)"),
        [],
        lambda y, eta, s: -eta - y * np.exp(-eta),
    ),
    "student-t": (
        models.student_t,
        [-0.3, 1.5],
        lambda y, eta, s: stats.t.logpdf(y, math.exp(s[1]), eta, math.exp(s[0])),
    ),
    "student-t of 5": (
        lambda: models.student_t(df=5.0),
        [-0.3],
        lambda y, eta, s: stats.t.logpdf(y, 5.0, eta, math.exp(s[0])),
    ),
}
"""Builder, scalars in their unconstrained coordinates, log-likelihood ``(y, eta, scalars)``."""
GROUP = {"intercept": [-0.2], "slope": [-0.2, -0.9], "correlated": [-0.2, -0.9, 0.5]}
"""``log tau`` of the effects, ``atanh rho``."""


def model_of(name: str, kind: str, nodes: int | None = None) -> MixedModel:
    """Return a mixed model."""
    return mixed(INNER[name][0](), KINDS[kind], FEATURES, nodes)


def theta_of(name: str, kind: str) -> Array:
    """Return parameters at which no derivative vanishes."""
    return np.array([0.3, -0.5, 0.2, *INNER[name][1], *GROUP[kind]])


def rows_of(name: str, n: int, seed: int = 1) -> tuple[Array, Array]:
    """Return a group: its design (q + 2, n) with offset and weight, its responses (n,)."""
    rng = np.random.default_rng(seed)
    X = np.vstack(
        [np.ones(n), rng.normal(size=(2, n)), 0.3 * rng.normal(size=n), rng.choice([1.0, 2.0], n)]
    )
    if name == "logistic":
        X[-1] = 1.0  # the paths from factors are for rows without weights
    if name in ("logistic", "probit"):
        y = (rng.random(n) < 0.4).astype(float)
    elif name == "binomial":
        y = rng.choice([0.0, 0.5, 1.0], n)
    elif name == "ordinal":
        y = rng.integers(0, 4, n).astype(float)
    elif name in ("poisson", "negative-binomial", "zero-inflated-poisson"):
        y = rng.poisson(2.0, n).astype(float)
    else:
        y = rng.gamma(2.0, 1.0, n)
    return X, y


def evaluate(model: MixedModel, theta: Array, X: Array, y: Array, order: int = 0) -> Array:
    """Return value and derivatives, (1 + d + d (d + 1) / 2,)."""
    d = len(theta)
    out = np.full((1 + d + d * (d + 1) // 2, 1), np.nan)
    link(np.ascontiguousarray(theta[:, None]), X, y, model.constants, order, out)
    return out[:, 0]


def hessian_of(out: Array, d: int) -> Array:
    """Return the symmetric matrix of an upper triangle."""
    full = np.zeros((d, d))
    full[np.triu_indices(d)] = out[1 + d :]
    return full + np.triu(full, 1).T


def brute(name: str, kind: str, theta: Array, X: Array, y: Array) -> float:
    """Return the log of the integral by the trapezoidal rule, which is exact to rounding here."""
    q, log_lik = len(FEATURES), INNER[name][2]
    scalars = list(theta[q : len(theta) - len(GROUP[kind])])
    group = theta[len(theta) - len(GROUP[kind]) :]
    fixed, weight = theta[:q] @ X[:q] + X[q], X[q + 1]
    if kind == "intercept":
        v = np.linspace(-11.0, 11.0, 4001)
        u = math.exp(group[0]) * v
        terms = np.array([weight @ log_lik(y, fixed + each, scalars) for each in u])
        terms += stats.norm.logpdf(v)
        return float(special.logsumexp(terms) + math.log(v[1] - v[0]))
    rho = math.tanh(group[2]) if kind == "correlated" else 0.0
    v = np.linspace(-9.0, 9.0, 301)
    v1, v2 = (each.ravel() for each in np.meshgrid(v, v))
    u1 = math.exp(group[0]) * v1
    u2 = math.exp(group[1]) * (rho * v1 + math.sqrt(1.0 - rho**2) * v2)
    eta = fixed[:, None] + u1 + X[1][:, None] * u2
    terms = weight @ log_lik(y[:, None], eta, scalars)
    terms += stats.norm.logpdf(v1) + stats.norm.logpdf(v2)
    return float(special.logsumexp(terms) + 2.0 * math.log(v[1] - v[0]))
