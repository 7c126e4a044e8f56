"""Means, sds and tails of small posteriors, by quadrature or importance sampling.

Every reference knows its own error. Up to two parameters are integrated by Gauss-Legendre rules on
boxes around every mode, more by importance sampling from Student t densities at the modes; a
gaussian family under normal priors is integrated in closed form, given sigma.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats
from silent_densities import Posterior, rows_of
from silent_integration import NEGLIGIBLE, importance, modes_of, quadrature
from silent_priors import prior_of, prior_text

Array = np.ndarray
Extra = Callable[[Array], dict[str, Array]]
"""Further functions of theta (m, d), by name, each (m,)."""
TAILS = (0.05, 0.95)
LARGEST_K = 0.5
FEWEST = 2000
"""Effective draws of importance sampling."""


class ReferenceFailure(Exception):
    """A reference that is not good enough to judge a run by."""


@dataclass(frozen=True)
class Reference:
    """What a run should find, and how well that is known; arrays are (labels,)."""

    labels: tuple[str, ...]
    mean: Array
    sd: Array
    tails: Array
    """(2, labels) 5 % and 95 % quantiles."""
    mean_error: Array
    sd_error: Array
    tail_error: Array
    """In probability."""
    method: str


def weighted(
    labels: tuple[str, ...], values: Array, weight: Array, random: bool, method: str
) -> Reference:
    """Return the moments and tails of weighted points (m, labels), random or of a rule."""
    mean = weight @ values
    away = values - mean
    sd = np.sqrt(weight @ np.square(away))
    tails = np.array([weighted_quantiles(column, weight) for column in values.T]).T
    zero = np.zeros(len(labels))
    if not random:
        return Reference(labels, mean, sd, tails, zero, zero, zero, method)
    squares = np.square(weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd_error = np.sqrt(squares @ np.square(np.square(away) - sd**2)) / (2.0 * sd)
    below = np.array(
        [squares @ np.square((values < q) - p) for q, p in zip(tails, TAILS, strict=True)]
    )
    return Reference(
        labels, mean, sd, tails, np.sqrt(squares @ np.square(away)), np.nan_to_num(sd_error),
        np.sqrt(below.max(axis=0)), method,
    )  # fmt: skip


def weighted_quantiles(column: Array, weight: Array) -> Array:
    """Return the quantiles ``TAILS``; the middle of a point's weight lies at the point."""
    digits = column / max(float(np.ptp(column)), 1e-300)  # nodes that differ by rounding are one
    _, first, inverse = np.unique(np.round(digits, 11), return_index=True, return_inverse=True)
    merged = np.bincount(inverse.ravel(), weights=weight)
    return np.interp(TAILS, np.cumsum(merged) - 0.5 * merged, column[first])


def reference_of(
    posterior: Posterior, extra: Extra | None = None, draws: int = 40_000, seed: int = 1
) -> Reference:
    """Return the reference, by quadrature up to two parameters.

    Raises
    ------
    ReferenceFailure
        If the two rules disagree, or the weights of importance sampling are too uneven.
    """
    rng = np.random.default_rng(seed)

    def with_extra(position: Array) -> tuple[tuple[str, ...], Array]:
        theta = posterior.theta(position)
        more = extra(theta) if extra else {}
        return (*posterior.labels, *more), np.column_stack([theta, *more.values()])

    if len(posterior.labels) <= 2:
        order = {1: 20, 2: 6}[len(posterior.labels)]
        found, modes = [], modes_of(posterior, rng)
        for nodes in (order, order + 2):
            position, weight = quadrature(posterior, modes, nodes)
            labels, values = with_extra(position)
            found.append(weighted(labels, values, weight, False, "quadrature"))
        coarse, fine = found
        mean_error, sd_error = abs(fine.mean - coarse.mean), abs(fine.sd - coarse.sd)
        if np.any(np.maximum(mean_error, sd_error) > 0.02 * fine.sd + 1e-12):
            raise ReferenceFailure(f"two rules differ by {(mean_error / fine.sd).max():.2g} sd")
        return Reference(labels, fine.mean, fine.sd, fine.tails, mean_error, sd_error,
                         fine.tail_error, "quadrature")  # fmt: skip
    position, weight, k = importance(posterior, rng, draws)
    size = 1.0 / np.square(weight).sum()
    if k > LARGEST_K or size < FEWEST:
        raise ReferenceFailure(f"importance sampling with Pareto k {k:.2f}, ESS {size:.0f}")
    labels, values = with_extra(position)
    method = f"importance sampling (ESS {size:,.0f}, k {k:.2f})"
    return weighted(labels, values, weight, True, method)


def gaussian_reference(data: dict[str, Any], prior: dict[str, str]) -> Reference:
    """Return the reference of ``gaussian`` under normal priors of its coefficients.

    Given sigma the coefficients are normal; the evidence of sigma is integrated on a grid of
    its logarithm. Coefficients are measured from least squares, so that large responses lose
    nothing to cancellation.
    """
    rows = rows_of(data)
    q = rows.X.shape[1]
    labels = (*(f"beta[x{j}]" for j in range(q)), "sigma")
    normal = [prior_of(prior_text(label, prior)) for label in labels[:-1]]
    scale = prior_of(prior_text("sigma", prior))
    root = np.sqrt(rows.weight)
    y = rows.y - rows.offset
    centre = np.linalg.lstsq(root[:, None] * rows.X, root * y, rcond=1e-13)[0]
    residual = y - rows.X @ centre
    residual[np.abs(residual) < 1e-13 * np.abs(y).max()] = 0.0
    location = np.array([p.mean() for p in normal]) - centre
    precision = np.diag([1.0 / p.var() for p in normal])
    square, n = rows.weight @ residual**2, root @ root

    # Where the prior has precision 1, in the directions in which the rows have some.
    width = 1.0 / np.sqrt(np.diag(precision))
    _, size, vectors = np.linalg.svd(root[:, None] * rows.X * width, full_matrices=True)
    values = np.zeros(q)
    values[: len(size)] = np.square(np.where(size > 1e-13 * size[0], size, 0.0))
    vectors = vectors.T
    along = vectors.T @ (location / width)

    def conditional(log_sigma: Array) -> tuple[Array, Array, Array]:
        power = np.exp(-2.0 * log_sigma)[:, None]
        P = 1.0 + power * values
        # The residuals of least squares have no moment with the columns.
        fit = power[:, 0] * square + (along**2 * (power * values / P)).sum(axis=1)
        mean = width * ((along / P) @ vectors.T)
        variance = width**2 * ((1.0 / P) @ np.square(vectors).T)
        return -n * log_sigma - 0.5 * (fit + np.log(P).sum(axis=1)), mean, variance

    def log_evidence(log_sigma: Array) -> Array:
        return conditional(log_sigma)[0] + scale.logpdf(np.exp(log_sigma)) + log_sigma

    grids = _grids(log_evidence)
    grid = np.concatenate(grids)
    _, means, variances = conditional(grid)
    spacing = np.concatenate([np.full(len(g), g[1] - g[0]) for g in grids])
    log_weight = log_evidence(grid) + np.log(spacing)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ means
    sd = np.sqrt(weight @ (variances + np.square(means - mean)))
    tails = np.empty((2, q))
    for j, (at, p) in itertools.product(range(q), enumerate(TAILS)):
        spread = np.sqrt(variances[:, j])
        below = lambda x, j=j, s=spread, p=p: weight @ stats.norm.cdf((x - means[:, j]) / s) - p  # noqa: E731
        ends = mean[j] - 200.0 * sd[j], mean[j] + 200.0 * sd[j]
        tails[at, j] = optimize.brentq(below, *ends, xtol=1e-12 * sd[j])
    own = weighted(("sigma",), grid[:, None], weight, False, "")
    zero = np.zeros(q + 1)
    return Reference(
        labels, np.append(mean + centre, own.mean), np.append(sd, own.sd),
        np.column_stack([tails + centre, own.tails]), zero, zero, zero,
        "conjugate, and quadrature over sigma",
    )  # fmt: skip


def _grids(value: Callable[[Array], Array]) -> list[Array]:
    """Return grids of log sigma that hold every mode of its density, however narrow."""
    coarse = np.linspace(-40.0, 40.0, 8001)
    at = value(coarse)
    inner = at[1:-1]
    lowest = 1 + np.flatnonzero((inner < at[:-2]) & (inner <= at[2:]))
    pieces = list(itertools.pairwise([0, *lowest, len(coarse) - 1]))
    best = at.max()
    segments = [(coarse[a], coarse[b]) for a, b in pieces]
    for _ in range(6):
        narrower = []
        for low, high in segments:
            grid = np.linspace(low, high, 401)
            at = value(grid)
            best = max(best, at.max())
            if at.max() < best - 3.0 * NEGLIGIBLE and len(narrower):
                continue
            above = np.flatnonzero(at > at.max() - NEGLIGIBLE)
            narrower.append((grid[max(above[0] - 1, 0)], grid[min(above[-1] + 1, 400)]))
        segments = narrower
    grids = [np.linspace(low, high, 2001) for low, high in segments]
    ends = value(np.array([grids[0][0], grids[-1][-1]]))
    if max(ends) > best - 0.5 * NEGLIGIBLE:
        raise ReferenceFailure("the posterior of log sigma does not vanish at the ends")
    return grids
