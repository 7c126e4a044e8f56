"""The levels of a ladder, and the replicas that move between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammc.numerics.jit import inline
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix, Vector


class Ladder(NamedTuple):
    """``L = M + 1`` levels: ``h_m = p(X_m|theta)^power_m p(theta)^prior_power_m``."""

    beta: Vector
    """(L,) inverse temperatures, falling from 1."""
    power: Vector
    """(L,) power of the likelihood: 1 if a level has a subset of the rows instead."""
    prior_power: Vector
    """(L,) power of the prior."""
    lo: Index
    """(L,) index of the first row of every level."""
    hi: Index
    """(L,) index after the last row of every level."""
    step: Vector
    """(L,) step sizes."""
    n_steps: int
    """Leapfrog steps of a trajectory."""
    jitter: float
    """Half-width of the uniform factor on a step size."""
    own: int
    """1 if the levels above 0 have rows of their own, else 0."""


LADDER_TYPE: Any = record_type(Ladder)


class Replicas(NamedTuple):
    """States of the replicas, each at a level of the ladder; written in place."""

    z: Matrix
    """(R, d) whitened positions: ``theta = theta_star + S z``."""
    theta: Matrix
    """(R, d) positions theta."""
    slope: Matrix
    """(R, d) gradient of the log-likelihood in theta."""
    prior_slope: Matrix
    """(R, d) gradient of the log prior in theta."""
    scalars: Matrix
    """(R, 4) log-likelihood, log prior, stale values (0: none, 1: all, 2: the gradient, after a
    change of rows), and number of log-likelihoods of rows evaluated so far."""


REPLICAS_TYPE: Any = record_type(Replicas)
LOG_LIK, LOG_PRIOR, STALE, EVALUATED = range(4)
GRADIENT_STALE = 2.0


def allocate_replicas(n: int, d: int) -> Replicas:
    """Return ``n`` replicas at 0, with all values stale."""
    z, theta, slope, prior_slope = (np.zeros((n, d)) for _ in range(4))
    replicas = Replicas(z, theta, slope, prior_slope, np.zeros((n, 4)))
    replicas.scalars[:, STALE] = 1.0
    return replicas


@inline
def at_prior(ladder, m):  # type: ignore[no-untyped-def]
    """Return whether level ``m`` is the prior, from which every iteration draws anew."""
    return m > 0 and ladder.beta[m] == 0.0


def geometric(n_levels: int, beta_min: float) -> Vector:
    """Return (L,) inverse temperatures of a geometric ladder, ``beta_m = beta_min^(m / M)``.

    If the ladder ends at the prior (``beta_min`` 0), the other levels are a geometric ladder:
    every level is hotter than the one before by a factor of at most about 3, down to beta 1e-6.
    """
    if n_levels == 1:
        return np.ones(1)
    if beta_min > 0.0:
        return np.asarray(beta_min ** (np.arange(n_levels) / (n_levels - 1)))
    least = 10.0 ** -min(0.5 * (n_levels - 1), 6.0)
    return np.append(geometric(n_levels - 1, least) if n_levels > 2 else np.ones(1), 0.0)
