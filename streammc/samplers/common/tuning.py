"""Tuning in warm-up: the step size, and the frequency of the reference oscillator.

The step size is tuned by dual averaging (Hoffman and Gelman 2014, section 3.2). The frequency
``w`` of :mod:`streammc.samplers.hamiltonian.transition` is tuned by the mean square of the
whitened coordinates, ``1 / w^2 = E z'z / d``: it is 1 if the posterior is equal to its Laplace
approximation, and less for heavier tails.

The state of one chain is a vector ``(log step, log of the averaged step, error sum,
iterations, shrinkage point, mean square, number of positions)``, which a checkpoint stores.
A mean square of 0 means frequency 0, the leapfrog.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.jit import jit
from streammc.protocols import Matrix, Vector

LOG_STEP, LOG_AVERAGE, ERROR, COUNT, SHRINK_TO, SQUARE, SEEN = range(7)
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
PRIOR_COUNT = 10.0
"""Number of positions that the Gaussian approximation counts as."""


def start(step_size: float, *, reference: bool = True) -> Vector:
    """Return the tuning state before the first iteration.

    Without ``reference`` the frequency is 0, the leapfrog.
    """
    log_step = math.log(step_size)
    square = 1.0 if reference else 0.0
    shrink_to = math.log(3.0) + log_step
    return np.array([log_step, log_step, 0.0, 0.0, shrink_to, square, PRIOR_COUNT])


@jit("void(float64[::1], float64, float64, float64)", borrow=True)
def update(state, acceptance, target, longest):  # type: ignore[no-untyped-def]
    """Update the step size after an iteration with the given acceptance probability.

    ``longest`` bounds the step: steps longer than the trajectory would have no effect.
    """
    state[COUNT] += 1.0
    t = state[COUNT]
    weight = 1.0 / (t + T0)
    state[ERROR] = (1.0 - weight) * state[ERROR] + weight * (target - acceptance)
    log_step = state[SHRINK_TO] - math.sqrt(t) / GAMMA * state[ERROR]
    log_step = min(log_step, math.log(longest))
    state[LOG_STEP] = log_step
    decay = t ** (-KAPPA)
    state[LOG_AVERAGE] = decay * log_step + (1.0 - decay) * state[LOG_AVERAGE]


@jit("void(float64[::1], float64[::1])", borrow=True)
def observe(state, z):  # type: ignore[no-untyped-def]
    """Add the position ``z`` (d,) to the mean square."""
    square = 0.0
    for j in range(z.shape[0]):
        square += z[j] * z[j]
    if state[SQUARE] > 0.0 and z.shape[0] > 0:
        state[SEEN] += 1.0
        state[SQUARE] += (square / z.shape[0] - state[SQUARE]) / state[SEEN]


@jit("float64(float64[::1])", borrow=True)
def frequency(state):  # type: ignore[no-untyped-def]
    """Return the frequency of the reference oscillator."""
    return 1.0 / math.sqrt(state[SQUARE]) if state[SQUARE] > 0.0 else 0.0


# Covariance of the steps of a random walk, learnt in warm-up (Haario et al. 2001).
#
# Warm-up is divided into windows of 100, 200, 400, ... iterations. At the end of each, the steps
# take the covariance of the positions in the window, and the moments are reset, so that the
# approach to the posterior is forgotten. Positions after the last complete window are not used.


FIRST_WINDOW: Final = 100
_RIDGE: Final = 5.0
"""Number of positions that the average variance counts as."""


@jit(
    "void(float64[:,::1], float64[::1], float64[:,::1], float64[::1], float64[::1], float64[:,::1])"
)
def accumulate(theta, star, factor, count, mean, scatter):  # type: ignore[no-untyped-def]
    """Add rows of ``theta`` (n, d) to the moments of ``z``, where ``theta = star + factor z``.

    One by one, so that batches do not matter: to their ``count`` (1,), ``mean`` (d,) and
    ``scatter`` (d, d) about it.
    """
    d = star.shape[0]
    z = np.empty(d)
    for t in range(theta.shape[0]):
        for i in range(d):
            total = theta[t, i] - star[i]
            for j in range(i):
                total -= factor[i, j] * z[j]
            z[i] = total / factor[i, i]
        count[0] += 1.0
        for i in range(d):
            mean[i] += (z[i] - mean[i]) / count[0]
        if count[0] > 1.0:
            weight = count[0] / (count[0] - 1.0)
            for i in range(d):
                for j in range(d):
                    scatter[i, j] += weight * (z[i] - mean[i]) * (z[j] - mean[j])


class StepShape:
    """Running moments of the current window, and the shape of steps from the last window.

    Parameters
    ----------
    dim
        Number of parameters d.
    kind
        Shape: ``full``, ``diagonal``, or ``None`` to learn nothing.
    """

    def __init__(self, dim: int, kind: str | None) -> None:
        self.kind = kind
        size = dim if kind else 0
        self.factor: Matrix = np.eye(size)
        """(d, d) lower triangular factor of the covariance of steps."""
        self._count = np.zeros(1)
        self._mean = np.zeros(size)
        self._scatter = np.zeros((size, size))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the moments of the window, for a checkpoint."""
        return {
            "window_count": self._count,
            "window_mean": self._mean,
            "window_scatter": self._scatter,
        }

    def left(self, iteration: int) -> int:
        """Return the number of iterations until the window of ``iteration`` ends."""
        if self.kind is None:
            return 2**62
        end = FIRST_WINDOW
        while end <= iteration:
            end = 2 * end + FIRST_WINDOW
        return end - iteration

    def learn(self, theta: Matrix, star: Vector, factor: Matrix, iteration: int) -> bool:
        """Add positions ``theta`` (n, d) up to ``iteration``; return whether the shape is new.

        The moments are those of ``z`` in ``theta = star + factor z``; an empty factor is the
        identity. The shape is new at the end of a window in which the chain moved.
        """
        if self.kind is None:
            return False
        factor = factor if len(factor) else np.eye(len(star))
        accumulate(theta, star, factor, self._count, self._mean, self._scatter)
        if self.left(iteration - 1) > 1:
            return False
        covariance = self._scatter / (self._count[0] - 1.0)
        variance = np.diag(covariance)
        moved = float(variance.mean()) > 0.0
        if moved:
            if self.kind == "diagonal":
                covariance = np.diag(variance)
            ridge = _RIDGE * float(variance.mean()) * np.eye(len(variance))
            count = self._count[0]
            self.factor = np.linalg.cholesky((count * covariance + ridge) / (count + _RIDGE))
        self._count[:] = 0.0
        self._mean[:] = 0.0
        self._scatter[:] = 0.0
        return moved
