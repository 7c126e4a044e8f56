"""Posteriors of Gaussian models with factors that cross, by numerical integration over the scales.

    y = X beta + sum_f Z_f u_f + e,    u_f ~ Normal(0, tau_f^2),    e ~ Normal(0, sigma^2).

Given the scales everything else is jointly normal: with ``W = (X, Z_1, ..., Z_F)``, ``D`` the prior
covariance of ``w = (beta, u)``, ``m`` its prior mean, ``r = y - W m`` and ``A = W'W / sigma^2 +
D^-1``,

    log p(y | scales) = -n/2 log(2 pi sigma^2) - log|D|/2 - log|A|/2
                        - (r'r / sigma^2 - r'W A^-1 W'r / sigma^4) / 2.

The factor with most levels has a diagonal block in ``A`` and is eliminated first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse


class Exact(NamedTuple):
    """Sums of a table: the factor that is eliminated, and the columns and the other factors."""

    rows: int
    square: float
    """``r'r``."""
    counts: Any
    """(K,) rows of each level of the eliminated factor."""
    own: Any
    """(K,) its sums of ``r``."""
    cross: Any
    """(p, K) products of the other columns with its levels; sparse where these are many."""
    gram: Any
    """(p, p) products of the other columns."""
    other: Any
    """(p,) their sums of ``r``."""
    sizes: tuple[int, ...]
    """Levels of each factor, in the order of the scales."""
    first: int
    """Place of the eliminated factor."""
    precision: Any
    """(q, q) prior precision of beta."""
    mean: Any
    """(q,) its prior mean."""

    def at(self, log_scales: Any) -> tuple[float, Any, Any]:
        """Return ``log p(y | scales)``, and mean and covariance of beta; sigma stands last."""
        tau, s2 = np.exp(2 * log_scales[:-1]), np.exp(2 * log_scales[-1])
        q = len(self.mean)
        diagonal = self.counts / s2 + 1.0 / tau[self.first]
        if sparse.issparse(self.cross):
            scaled = self.cross.multiply(1.0 / (diagonal * s2)).tocsr()
            A = self.gram / s2 - (scaled @ self.cross.T).toarray() / s2
        else:
            scaled = self.cross / (diagonal * s2)
            A = self.gram / s2 - scaled @ self.cross.T / s2
        A[:q, :q] += self.precision
        rest = [f for f in range(len(self.sizes)) if f != self.first]
        places = np.arange(q, len(A))
        A[places, places] += np.repeat(1.0 / tau[rest], [self.sizes[f] for f in rest])
        b = self.other / s2 - scaled @ self.own / s2
        root = linalg.cholesky(A, lower=True, check_finite=False)
        half = linalg.solve_triangular(root, b, lower=True, check_finite=False)
        inverse = linalg.solve_triangular(root, np.eye(len(A), q), lower=True, check_finite=False)
        value = -0.5 * self.rows * np.log(2 * np.pi * s2) - np.log(np.diag(root)).sum()
        value -= 0.5 * np.log(diagonal).sum() + 0.5 * np.dot(self.sizes, np.log(tau))
        if np.any(self.precision):
            value += 0.5 * np.linalg.slogdet(self.precision)[1]
        fitted = half @ half + (self.own**2 / diagonal).sum() / s2**2
        value -= 0.5 * (self.square / s2 - fitted)
        return value, self.mean + inverse.T @ half, inverse.T @ inverse


def exact_of(X: Any, y: Any, factors: Iterable[Any], mean: Any, precision: Any) -> Exact:
    """Return the sums of a table: columns (n, q), responses (n,), labels (n,) of each factor.

    A ``precision`` of 0 is a flat prior of beta: the density of the scales is then that whose
    mode is the REML estimate.
    """
    blocks = []
    for labels in factors:
        _, code = np.unique(labels, return_inverse=True)
        blocks.append(sparse.csr_matrix((np.ones(len(y)), (np.arange(len(y)), code))))
    sizes = tuple(block.shape[1] for block in blocks)
    first = int(np.argmax(sizes))
    Z = blocks.pop(first)
    W = sparse.hstack([sparse.csr_matrix(X), *blocks]).tocsr()
    r = y - X @ mean
    counts = np.asarray(Z.sum(axis=0)).ravel()
    cross = (W.T @ Z).tocsr()
    if cross.shape[1] < 100:  # sparse products cost more there
        cross = cross.toarray()
    return Exact(
        len(y), float(r @ r), counts, Z.T @ r, cross, (W.T @ W).toarray(), W.T @ r,
        sizes, first, precision, mean,
    )  # fmt: skip


def reml(table: Exact, start: Any) -> Any:
    """Return the scales at the largest marginal likelihood."""
    from scipy.optimize import minimize

    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}
    found = minimize(lambda t: -table.at(t)[0], start, method="Nelder-Mead", options=options)
    return np.exp(found.x)


def log_half_t(scale: float) -> Callable[[Any], float]:
    """Return the log density of half-Student-t(3, scale) scales, as one of their logarithms."""

    def density(log_scales: Any) -> float:
        ratio = np.exp(log_scales) / scale
        return float(np.sum(log_scales - 2.0 * np.log1p(ratio**2 / 3.0)))

    return density


def weighted_moments(table: Exact, log_prior: Any, points: Any, log_weights: Any) -> Any:
    """Return means and sds of (beta, tau, sigma) from weighted points, and the effective number."""
    logs, means, seconds = np.array(log_weights, float) + np.zeros(len(points)), [], []
    for i, point in enumerate(points):
        value, mean, cov = table.at(point)
        logs[i] += value + log_prior(point)
        scales = np.exp(point)
        means.append(np.r_[mean, scales])
        seconds.append(np.r_[mean**2 + np.diag(cov), scales**2])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    mean = p @ np.array(means)
    return mean, np.sqrt(p @ np.array(seconds) - mean**2), 1.0 / np.sum(p**2)


def on_grid(table: Exact, log_prior: Any, grid: Any) -> tuple[Any, Any]:
    """Return means and sds of (beta, tau, sigma) from a grid of the logarithms of the scales."""
    points = np.stack([each.ravel() for each in np.meshgrid(*grid, indexing="ij")], axis=1)
    return weighted_moments(table, log_prior, points, 0.0)[:2]


def by_importance(table: Exact, log_prior: Any, start: Any, power: int) -> tuple[Any, Any, float]:
    """Return means and sds, and the effective number of ``2^power`` Sobol points.

    The points are of a Student t with 8 degrees of freedom at the mode, with its curvature.
    """
    from scipy import stats
    from scipy.optimize import minimize

    def energy(t: Any) -> float:
        return -table.at(t)[0] - log_prior(t)

    found = minimize(energy, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-3})
    mode, d, step = found.x, len(start), 0.02
    curvature, unit = np.empty((d, d)), np.eye(d) * step
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                total += a * b * energy(mode + a * unit[i] + b * unit[j])
            curvature[i, j] = curvature[j, i] = total / (4 * step**2)
    root = 1.1 * np.linalg.cholesky(np.linalg.inv(curvature))
    uniform = stats.qmc.Sobol(d + 1, seed=1).random_base2(power)
    normal = stats.norm.ppf(uniform[:, :d])
    mixing = stats.chi2.ppf(uniform[:, d], 8.0) / 8.0
    v = normal / np.sqrt(mixing)[:, None]
    log_proposal = -0.5 * (8.0 + d) * np.log1p((v**2).sum(axis=1) / 8.0)
    return weighted_moments(table, log_prior, mode + v @ root.T, -log_proposal)
