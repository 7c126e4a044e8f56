"""The tied mixture of Welling and Teh 2011: its rows, and its posterior on a grid.

``theta ~ N(0, diag(10, 1))`` and ``x ~ 0.5 N(theta_1, 2) + 0.5 N(theta_1 + theta_2, 2)``, rows
drawn at ``theta = (0, 1)``; the second mode is ``(1, -1)``. At temperature T the posterior is
``p(theta) prod_i p(x_i | theta)^(1/T)``.

A million rows enter through bins of width ``w``, each at the mean of its own rows: a bin of
``c`` rows with variance v is off by ``c v l'' / 2``, at most ``n w^2 |l''| / (24 T)`` in all, which
is 8e-6 for a million rows, ``w = 0.002`` and T = 10,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from bench.papers.measures import Array

TRUTH = np.array([0.0, 1.0])
OTHER_MODE = np.array([1.0, -1.0])
PRIOR_VARIANCE = np.array([10.0, 1.0])
NOISE_VARIANCE = 2.0
BIN_WIDTH = 0.002
SMALLEST_EXPECTED = 1e-12


def rows(n: int, seed: int = 1) -> Array:
    """Return ``n`` rows (n,) at the true theta."""
    rng = np.random.default_rng([2017, seed])
    second = rng.random(n) < 0.5
    noise = np.sqrt(NOISE_VARIANCE) * rng.standard_normal(n)
    found: Array = TRUTH[0] + TRUTH[1] * second + noise
    return found


def binned(x: Array, width: float = BIN_WIDTH) -> tuple[Array, Array]:
    """Return the means of the bins that hold rows, and how many they hold."""
    index = np.floor((x - x.min()) / width).astype(np.int64)
    count = np.bincount(index).astype(np.float64)
    total = np.bincount(index, weights=x)
    held = count > 0
    return total[held] / count[held], count[held]


def log_density(
    theta: Array, x: Array, count: Array, temperature: float, flat: bool = False
) -> Array:
    """Return the log posterior (k,) without its constant at theta (k, 2), of binned rows.

    With the prior of the mixture, or where ``flat`` with none.
    """
    found = np.empty(len(theta))
    for i, (first, step) in enumerate(theta):
        a = (x - first) ** 2 / (2.0 * NOISE_VARIANCE)
        b = (x - first - step) ** 2 / (2.0 * NOISE_VARIANCE)
        likelihood = count @ np.logaddexp(-a, -b)
        found[i] = likelihood / temperature
    prior: Array = (theta**2 / (2.0 * PRIOR_VARIANCE)).sum(axis=1)
    return found if flat else found - prior


@dataclass
class Grid:
    """Probabilities of square bins, integrated with ``fine`` points a side in each."""

    edges_1: Array
    edges_2: Array
    mass: Array
    """(bins, bins): probabilities that add up to one."""
    log_density: Array
    """(fine points, fine points), 0 at its largest: for contours."""
    centres_1: Array
    centres_2: Array

    def counts(self, draws: Array) -> tuple[Array, int]:
        """Return how many of the draws (k, 2) fall in each bin, and how many in none."""
        found, _, _ = np.histogram2d(draws[:, 0], draws[:, 1], [self.edges_1, self.edges_2])
        return found, len(draws) - int(found.sum())


def posterior(
    x: Array,
    temperature: float,
    box: tuple[tuple[float, float], tuple[float, float]],
    bins: int = 40,
    fine: int = 4,
    flat: bool = False,
) -> Grid:
    """Return the posterior of rows ``x`` on a box: outside of it there should be nothing."""
    middle, count = binned(x)
    edges = [np.linspace(low, high, bins + 1) for low, high in box]
    step = [(high - low) / (bins * fine) for low, high in box]
    points = [
        low + h * (np.arange(bins * fine) + 0.5) for (low, _), h in zip(box, step, strict=True)
    ]
    mesh = np.stack(np.meshgrid(*points, indexing="ij"), axis=-1).reshape(-1, 2)
    value = log_density(mesh, middle, count, temperature, flat).reshape(bins * fine, bins * fine)
    value -= value.max()
    mass = np.exp(value).reshape(bins, fine, bins, fine).sum(axis=(1, 3))
    return Grid(edges[0], edges[1], mass / mass.sum(), value, points[0], points[1])


def poisson_log_likelihood(counts: Array, mass: Array) -> float:
    """Return eq. (40): ``sum_j c_j log(n P_j) - n P_j - log Gamma(c_j + 1)``.

    The multinomial of n draws, its bins taken as independent Poisson counts. A bin of which
    less than ``SMALLEST_EXPECTED`` draws are expected counts as that many.
    """
    expected = np.maximum(counts.sum() * mass, SMALLEST_EXPECTED)
    return float((counts * np.log(expected) - expected - gammaln(counts + 1.0)).sum())


def chi_squared(counts: Array, mass: Array, least: float = 0.0) -> tuple[float, int]:
    """Return Pearson's statistic and its bins; those expecting under ``least`` are pooled."""
    expected = counts.sum() * mass
    alone = expected >= least
    pairs = [(counts[alone], expected[alone])]
    if not alone.all() and expected[~alone].sum() > 0.0:
        pairs.append((np.array([counts[~alone].sum()]), np.array([expected[~alone].sum()])))
    observed, predicted = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    predicted = np.maximum(predicted, SMALLEST_EXPECTED)
    return float(((observed - predicted) ** 2 / predicted).sum()), len(observed)


def total_variation(counts: Array, mass: Array, outside: int = 0) -> float:
    """Return half the sum of absolute differences of frequencies and probabilities."""
    n = counts.sum() + outside
    return float(0.5 * (np.abs(counts / n - mass).sum() + outside / n))


def expected_variation(mass: Array, draws: float, repeats: int = 200, seed: int = 0) -> float:
    """Return the mean total variation of ``draws`` independent draws from ``mass`` itself."""
    rng = np.random.default_rng([40, seed])
    n = max(round(draws), 1)
    flat = mass.ravel() / mass.sum()
    found = rng.multinomial(n, flat, size=repeats) / n
    return float(0.5 * np.abs(found - flat).sum(axis=1).mean())
