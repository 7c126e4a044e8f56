"""Tuning in warm-up: the step size, and the frequency of the reference oscillator.

The step size is tuned by dual averaging (Hoffman and Gelman 2014, section 3.2). The frequency
``w`` of :mod:`streammc.samplers.hamiltonian.integrator` is tuned by the mean square of the
whitened coordinates, ``1 / w^2 = E z'z / d``: it is 1 if the posterior is equal to its Laplace
approximation, and less for heavier tails.

The state of one chain is a vector ``(log step, log of the averaged step, error sum,
iterations, shrinkage point, mean square, number of positions)``, which a checkpoint stores.
A mean square of 0 means frequency 0, the leapfrog.
"""

from __future__ import annotations

import math

import numpy as np

from streammc.numerics.jit import jit
from streammc.protocols import Vector

LOG_STEP, LOG_AVERAGE, ERROR, COUNT, SHRINK_TO, SQUARE, SEEN = range(7)
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
PRIOR_COUNT = 10.0
"""Number of positions that the Gaussian approximation counts as."""


def start(step_size: float, *, reference: bool = True) -> Vector:
    """Return the tuning state before the first iteration."""
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
