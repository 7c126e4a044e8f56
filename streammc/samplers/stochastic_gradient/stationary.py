"""Stationary covariance of stochastic-gradient chains on a Gaussian posterior, in closed form.

Let the posterior be Gaussian, let ``u`` be coordinates in which minus the Hessian of its
logarithm is diagonal, ``lambda_i``, and let each gradient have noise of covariance ``V``
in these coordinates. Every step is then linear in ``u``, and its stationary covariance has
a closed form, derived in docs/explanation/stochastic-gradients.md. With ``V = 0`` its error
is that of the step size alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from streammc.protocols import Matrix, Vector

LARGEST_BIAS: Final = 0.01
"""Largest predicted relative error of a variance with an automatic step size."""
_MOST_AUTOMATIC: Final = 4096


@dataclass(frozen=True)
class Approximation:
    """Gaussian approximation of the posterior, and the noise of a gradient."""

    curvature: Vector
    """(d,) lambda, the eigenvalues of minus the Hessian in the sampler's coordinates."""
    axes: Matrix
    """(d, d) eigenvectors of minus the Hessian, as columns."""
    noise: Matrix
    """(d, d) covariance V of the noise in the sampler's coordinates."""

    def bias(self, covariance: Matrix) -> float:
        """Return the largest relative error of the variance of a linear combination of theta.

        ``covariance`` is in the coordinates of the eigenvectors.
        """
        root = np.sqrt(self.curvature)
        relative = root[:, None] * covariance * root
        if not np.isfinite(relative).all():
            return math.inf
        return float(np.abs(np.linalg.eigvalsh(relative) - 1.0).max())


def langevin_covariance(step: float, at: Approximation) -> Matrix:
    """Return the stationary covariance of SGLD with step size ``step``, or infinities.

    ``[h delta_ij + h^2 V_ij / 4] / [h (lambda_i + lambda_j) / 2 - h^2 lambda_i lambda_j / 4]``.
    """
    curvature = at.curvature
    noise = at.axes.T @ at.noise @ at.axes
    if step * curvature.max() >= 4.0:
        return np.full_like(noise, math.inf)
    added = step * np.eye(len(curvature)) + 0.25 * step * step * noise
    pull = 0.5 * (curvature[:, None] + curvature) - 0.25 * step * np.outer(curvature, curvature)
    covariance: Matrix = added / (step * pull)
    return covariance


def injected(step: float, friction: float, estimated: bool, noise: Matrix) -> Vector:
    """Return (d,) the variance of the noise that one step of SGHMC adds to the momentum.

    ``2 (C - B^) step`` with ``B^ = step V / 2`` per coordinate, never below 0.
    """
    known = np.diag(noise) if estimated else np.zeros(len(noise))
    added: Vector = np.maximum(2.0 * step * friction - step * step * known, 0.0)
    return added


def hamiltonian_covariance(
    step: float, n_steps: int, friction: float, estimated: bool, at: Approximation
) -> Matrix:
    """Return the stationary covariance of SGHMC, or infinities if it does not exist.

    One step is ``u + step p``, then ``p - step lambda u - step friction p + noise``: the
    matrix ``T = [[1, step], [-step lambda, 1 - step friction - step^2 lambda]]`` for each
    coordinate. After ``n_steps`` from a fresh momentum ``u`` is ``a u + b p`` plus the
    noise of every step times an entry of a power of ``T``.
    """
    d = len(at.curvature)
    total = step * step * at.noise
    total = total + np.diag(injected(step, friction, estimated, at.noise))
    total = at.axes.T @ total @ at.axes
    curvature, which = np.unique(at.curvature, return_inverse=True)
    # Columns of T^m: u and p after m steps from (1, 0), and from (0, 1).
    from_u, from_p = np.ones((2, len(curvature))), np.ones((2, len(curvature)))
    from_u[1], from_p[0] = 0.0, 0.0
    reach = np.zeros((len(curvature), n_steps))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for m in range(n_steps):
            reach[:, m] = from_p[0]
            for x in (from_u, from_p):
                x[0] += step * x[1]
                x[1] -= step * (curvature * x[0] + friction * x[1])
        kept = 1.0 - np.outer(from_u[0], from_u[0])
        fresh = np.diag(from_p[0, which] ** 2)
        covariance = fresh + total * (reach @ reach.T)[np.ix_(which, which)]
        covariance /= kept[np.ix_(which, which)]
    settled = np.isfinite(covariance).all() and np.abs(from_u[0]).max() < 1.0
    return covariance if settled else np.full((d, d), math.inf)


def longest_step(bias: Callable[[float], float], longest: float) -> float:
    """Return the longest step below ``longest`` with an allowed bias, to three digits.

    ``bias`` must not decrease with the step.
    """
    low, high = longest * 1e-12, longest
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bias(middle) <= LARGEST_BIAS else (low, middle)
    return three_digits(low)


def fewest_steps(bias: Callable[[int], float]) -> int:
    """Return the fewest steps of a trajectory such that these and more have an allowed bias.

    If there is no such number, return the number of steps with the smallest bias.
    """
    counts = sorted({round(2.0 * 1.08**i) for i in range(100)})
    counts = [n for n in counts if n <= _MOST_AUTOMATIC]
    found, best, least = 0, counts[-1], math.inf
    allowed = True
    for n in reversed(counts):
        size = bias(n)
        if size < least:
            best, least = n, size
        allowed = allowed and size <= LARGEST_BIAS
        if allowed:
            found = n
        elif found:
            break
    return found or best


def three_digits(value: float) -> float:
    """Return ``value`` rounded down to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.3g}")
