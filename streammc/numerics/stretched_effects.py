"""Effects of the levels of a factor, stretched by a power of their scale; compiled.

``u = (tau / tau_star)^a v``, with an exponent ``a`` of each level; ``v`` is ``u`` where ``a`` is 0,
and a standard normal variate times ``tau_star`` where it is 1. A row of ``levels`` (L, 3) holds the
component of an effect in theta, that of the log of its scale, and ``a``.
"""

from __future__ import annotations

import math

from streammc.numerics.jit import inline


@inline
def stretch(levels, theta_star, theta, delta):  # type: ignore[no-untyped-def]
    """Turn ``v`` in ``theta`` (d,) into ``u``; return the log of the Jacobian.

    ``delta`` (d,), ``theta - theta_star``, follows.
    """
    total = 0.0
    for i in range(levels.shape[0]):
        j, own = int(levels[i, 0]), int(levels[i, 1])
        log_factor = levels[i, 2] * (theta[own] - theta_star[own])
        theta[j] *= math.exp(log_factor)
        delta[j] = theta[j] - theta_star[j]
        total += log_factor
    return total


@inline
def whiten(levels, theta_star, factor, theta, z):  # type: ignore[no-untyped-def]
    """Write ``z`` (d,) with ``theta_star + S z`` the effects of ``theta`` before :func:`stretch`.

    ``factor`` (d, d) is S, lower triangular.
    """
    d = theta.shape[0]
    for i in range(d):
        z[i] = theta[i]
    for i in range(levels.shape[0]):
        j, own = int(levels[i, 0]), int(levels[i, 1])
        z[j] *= math.exp(-levels[i, 2] * (theta[own] - theta_star[own]))
    for i in range(d):
        rest = z[i] - theta_star[i]
        for j in range(i):
            rest -= factor[i, j] * z[j]
        z[i] = rest / factor[i, i]


@inline
def shrink(levels, theta_star, theta, gradient):  # type: ignore[no-untyped-def]
    """Turn a gradient (d,) in ``u`` at ``theta`` into one in ``v``, with that of the Jacobian."""
    for i in range(levels.shape[0]):
        j, own, exponent = int(levels[i, 0]), int(levels[i, 1]), levels[i, 2]
        gradient[own] += exponent * (1.0 + gradient[j] * theta[j])
        gradient[j] *= math.exp(exponent * (theta[own] - theta_star[own]))
