"""What an error of every decision can do to the posterior, on a grid of the mixture.

Let T be the exact chain, pi its posterior, and T' a chain whose decisions accept with a
probability that is off by at most e, pi' what it leaves invariant. With the fundamental matrix
``Z = (I - T + 1 pi)^-1`` (Schweitzer 1968) ``pi' - pi = pi' (T' - T) Z``, and T' - T moves mass
only between a state and its proposals:

    TV(pi', pi) <= e max_s r(s),    r(s) = sum_t q(s, t) ||Z_s - Z_t||_1 / 2.

Lemma 5 of Seita et al. 2017 has ``1 / (1 - eta)`` for r, where eta contracts total variation in a
single step; a random walk that is short beside its posterior has eta = 1, and no such bound.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform

from bench.papers.measures import Array
from bench.papers.mixture_posterior import binned, log_density

BOX = ((-1.1, 2.1), (-2.7, 2.7))
SPACING = 0.1


def chain(points: Array, value: Array, step: float, barker: bool) -> tuple[Array, Array]:
    """Return the proposals and the transitions (k, k) between points with log posterior (k,)."""
    square = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=-1)
    walk = np.exp(-square / (2.0 * step**2))
    walk /= walk.sum(axis=1).max()
    drop = value[:, None] - value[None, :]
    matrix = walk / (1.0 + np.exp(drop)) if barker else walk * np.exp(-np.maximum(drop, 0.0))
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return walk, matrix


def amplification(walk: Array, matrix: Array, mass: Array) -> Array:
    """Return r (k,): total variation for each unit of error in the decisions of a state."""
    inverse = np.linalg.inv(np.eye(len(mass)) - matrix + mass[None, :])
    apart = 0.5 * squareform(pdist(inverse, "cityblock"))
    found: Array = (walk * apart).sum(axis=1)
    return found


def largest_amplification(x: Array, temperature: float, step: float, barker: bool) -> float:
    """Return ``max r`` for the posterior of the rows ``x`` on the grid."""
    axes = [np.arange(low + SPACING / 2.0, high, SPACING) for low, high in BOX]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    value = log_density(points, *binned(x), temperature)
    mass = np.exp(value - value.max())
    walk, matrix = chain(points, value, step, barker)
    return float(amplification(walk, matrix, mass / mass.sum()).max())
