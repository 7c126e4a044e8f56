"""Tables, a two-predictor model and brute force, for the tests of the full pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streammc.models import logistic, poisson
from streammc.models.base import StatedModel
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.priors import normal
from streammc.protocols import RowBlock
from streammc.stores import from_arrays


@jit(LINK_SIGNATURE)
def gaussian_link(eta, X, y, constants, order, out):
    """Normal response: the predictors are the mean and the log standard deviation."""
    for i in range(y.shape[0]):
        precision = math.exp(-2.0 * eta[1, i])
        r = y[i] - eta[0, i]
        out[0, i] = -0.9189385332046727 - eta[1, i] - 0.5 * r * r * precision
        if order >= 1:
            out[1, i] = r * precision
            out[2, i] = r * r * precision - 1.0
        if order == 2:
            out[3, i] = -precision
            out[4, i] = -2.0 * r * precision
            out[5, i] = -2.0 * r * r * precision


@dataclass(frozen=True)
class Gaussian(StatedModel):
    """``n_linear`` 1: one scale for all rows; 2: the scale is a regression too."""

    n_linear: int = 1
    prior: Any = field(default_factory=lambda: normal(scale=10.0))
    name: str = "gaussian"

    @property
    def n_scalar(self):
        return 2 - self.n_linear

    @property
    def link(self):
        return gaussian_link

    def dim(self, n_features):
        return self.n_linear * n_features + self.n_scalar

    def labels(self, names):
        return tuple(f"b{j}" for j in range(self.dim(len(names))))

    def response_fault(self, y):
        wrong = np.flatnonzero(~np.isfinite(y))
        return (wrong, "finite numbers") if len(wrong) else None

    constants = np.zeros(0)
    exact_sums = None
    joint = None
    parameters = ()

    def simulate(self, eta, rng):
        return rng.normal(eta[0], np.exp(eta[1]))

    def start(self, rows):
        return np.zeros(self.dim(rows.X.shape[1]))

    def constrain(self, theta):
        return theta

    unconstrain = constrain

    def prior_table(self, labels):
        return self.prior.table(labels)

    def describe(self):
        return {"name": self.name, "n_linear": self.n_linear, "prior": self.prior.describe()}


@dataclass
class Table:
    """Rows and their model."""

    X: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    model: Any

    @property
    def store(self):
        return from_arrays(self.X, self.y, offset=self.offset, weight=self.weight)

    def reordered(self, order):
        return Table(
            self.X[order], self.y[order], self.offset[order], self.weight[order], self.model
        )

    def blocks(self, rows):
        """The rows as blocks of ``rows``."""
        return [
            RowBlock(
                i, start, *(part[start : start + rows] for part in
                (self.X, self.y, self.offset, self.weight)),
            )
            for i, start in enumerate(range(0, len(self.y), rows))
        ]  # fmt: skip

    def log_lik(self, theta):
        """(n,) weighted log-likelihood of each row, in plain NumPy."""
        X = self.X.astype(float)
        q = X.shape[1]
        eta = X @ theta[:q] + self.offset
        if self.model.name == "logistic":
            value = self.y * eta - np.logaddexp(0.0, eta)
        elif self.model.name == "poisson":
            value = self.y * eta - np.exp(eta) - np.array([math.lgamma(k + 1) for k in self.y])
        else:
            log_sd = X @ theta[q:] if self.model.n_linear == 2 else theta[q]
            value = -0.5 * math.log(2 * math.pi) - log_sd
            value = value - 0.5 * ((self.y - eta) * np.exp(-log_sd)) ** 2
        return self.weight * value

    def remainders(self, theta, shifts, order):
        """(S, n) by Taylor expansion along each shift, with finite differences of l."""
        base = self.log_lik(theta)
        h = 1e-3
        result = []
        for shift in shifts:
            plus, minus = self.log_lik(theta + h * shift), self.log_lik(theta - h * shift)
            r = self.log_lik(theta + shift) - base
            if order >= 1:
                r = r - (plus - minus) / (2 * h)
            if order == 2:
                r = r - 0.5 * (plus - 2 * base + minus) / h**2
            result.append(r)
        return np.array(result)


def table(kind="logistic", n=3000, q=4, seed=1, dtype=np.float64, prior=None, heavy=False):
    """Simulate a table with an intercept, offsets and weights."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_t(3, size=(n, q - 1)) if heavy else rng.normal(size=(n, q - 1))
    X = np.c_[np.ones(n), noise].astype(dtype)
    beta = np.r_[-0.3, rng.normal(size=q - 1) * 0.4]
    offset = rng.normal(size=n) * 0.1
    weight = rng.integers(0, 3, size=n).astype(float)
    eta = X @ beta + offset
    prior = prior or normal(scale=10.0)
    if kind == "logistic":
        y, model = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float), logistic(prior=prior)
    elif kind == "poisson":
        y, model = rng.poisson(np.exp(np.clip(eta, -5, 5))).astype(float), poisson(prior=prior)
    else:
        model = Gaussian(2 if kind == "gaussian-2" else 1, prior)
        y = eta + rng.normal(size=n) * 0.7
    return Table(X, y, offset, weight, model)


def outliers(n=4000, seed=2):
    """Poisson with a heavy-tailed covariate: a few rows dominate."""
    rows = table("poisson", n=n, q=3, seed=seed)
    rows.weight[:] = 1.0
    rows.offset[:] = -2.0
    heavy = np.random.default_rng(seed).standard_t(2.0, size=n)
    rows.X[:, 2] = np.clip(heavy, -15, 15) * 0.5
    rows.y[:] = np.random.default_rng(9).poisson(np.exp(-2.0 + 0.5 * rows.X[:, 2]))
    return rows
