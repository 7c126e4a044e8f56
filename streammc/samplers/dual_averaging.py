"""Step size by dual averaging (Hoffman and Gelman 2014, section 3.2).

The state of one chain is a vector ``(log step, log of the averaged step, error sum,
iterations, shrinkage point)``, so that it is checkpointed as it is.
"""

from __future__ import annotations

import math

import numpy as np

from streammc.numerics.jit import jit
from streammc.protocols import Vector

LOG_STEP, LOG_AVERAGE, ERROR, COUNT, SHRINK_TO = 0, 1, 2, 3, 4
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75


def start(step_size: float) -> Vector:
    """Return the state before the first iteration."""
    log_step = math.log(step_size)
    return np.array([log_step, log_step, 0.0, 0.0, math.log(3.0) + log_step])


@jit("void(float64[::1], float64, float64, float64)", borrow=True)
def update(state, acceptance, target, largest):  # type: ignore[no-untyped-def]
    """Move the step size after an iteration with the given acceptance probability.

    ``largest`` is the trajectory length: a longer step would change nothing.
    """
    state[COUNT] += 1.0
    t = state[COUNT]
    weight = 1.0 / (t + T0)
    state[ERROR] = (1.0 - weight) * state[ERROR] + weight * (target - acceptance)
    log_step = state[SHRINK_TO] - math.sqrt(t) / GAMMA * state[ERROR]
    log_step = min(log_step, math.log(largest))
    state[LOG_STEP] = log_step
    decay = t ** (-KAPPA)
    state[LOG_AVERAGE] = decay * log_step + (1.0 - decay) * state[LOG_AVERAGE]
