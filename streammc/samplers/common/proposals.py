"""Proposals of Metropolis-Hastings and their Hastings corrections.

The coordinates are ``w``, with ``theta = theta_star + S z`` and ``z = L w``; the step size is
``eps``. Gradients ``g`` are those of the log density in ``w``, from rows drawn for the proposal
alone: each correction is exact for any such rows.

- random walk: ``w' = w + eps xi``; symmetric.
- Langevin: ``w' = w + eps^2 g(w) / 2 + eps xi``. The reverse step needs
  ``xi' = -(xi + eps (g(w) + g(w')) / 2)``, so the log of the density of the reverse step over
  that of the forward step is ``(|xi|^2 - |xi'|^2) / 2``.
- SGHMC (Chen, Fox and Guestrin 2014, made reversible as in Zhang, Cooper and De Sa 2020):
  ``L`` times half a drift ``w += v / 2``, a kick
  ``v' = (1 - a) v + (1 - a / 2) eps^2 g(w) + N(0, a (2 - a) eps^2)`` and half a drift. With
  ``v ~ N(0, eps^2)`` the log ratio of the reverse kick, from ``-v'`` to ``-v``, over the
  forward kick is ``- g (v + v') / 2``, summed over the steps. A rejection reverses ``v``. For
  small ``a`` the kick is that of the paper, with noise of variance ``2 a eps^2``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import Scratch, allocate_scratch
from streammc.likelihood.target import BASE_TYPE, displace
from streammc.numerics.jit import inline, jit, record_type, vector
from streammc.numerics.prior import log_prior
from streammc.protocols import Vector


class Trial(NamedTuple):
    """Scratch of a transition."""

    z: Vector
    theta: Vector
    slope: Vector
    prior_slope: Vector
    momentum: Vector
    pull: Vector
    """(d,) whitened gradient."""
    scratch: Scratch


TRIAL_TYPE: Any = record_type(Trial)


def allocate_trial(d: int, p: int) -> Trial:
    """Return scratch for positions (d,) and ``p`` predictors."""
    z, theta, slope, prior_slope, momentum, pull = np.zeros((6, d))
    return Trial(z, theta, slope, prior_slope, momentum, pull, allocate_scratch(p))


@jit(types.void(BASE_TYPE, vector, vector), borrow=True)
def place(base, z, theta):  # type: ignore[no-untyped-def]
    """Write ``theta = theta_star + S z``."""
    displace(base.factor, z, theta)
    for j in range(z.shape[0]):
        theta[j] += base.theta_star[j]


@inline
def probability(change):  # type: ignore[no-untyped-def]
    """Return ``min(1, exp(change))``; 0 if ``change`` is NaN."""
    return min(1.0, math.exp(min(change, 0.0))) if change == change else 0.0


RANDOM_WALK, LANGEVIN, SGHMC = range(3)


@inline
def prior_at(base, z, theta, gradient, slope):  # type: ignore[no-untyped-def]
    """Return the log prior at ``z``; write its whitened gradient ``slope`` (d,).

    ``theta`` and ``gradient`` (d,) become theta and the gradient in it.
    """
    d = z.shape[0]
    displace(base.factor, z, theta)
    for i in range(d):
        theta[i] += base.theta_star[i]
        gradient[i] = 0.0
        slope[i] = 0.0
    value = log_prior(theta, base.prior, gradient)
    if base.factor.shape[0] == 0:
        for i in range(d):
            slope[i] = gradient[i]
        return value
    for i in range(d):
        for j in range(i + 1):
            slope[j] += base.factor[i, j] * gradient[i]
    return value


@inline
def shaped(shape, learnt, x, out):  # type: ignore[no-untyped-def]
    """Write ``L x``, the step ``x`` in the learnt shape; the identity unless ``learnt``."""
    for i in range(x.shape[0]):
        if learnt == 0:
            out[i] = x[i]
        else:
            total = 0.0
            for j in range(i + 1):
                total += shape[i, j] * x[j]
            out[i] = total


@inline
def pulled(shape, learnt, gradient, slope, heat, out):  # type: ignore[no-untyped-def]
    """Write the gradient in ``w`` at relative temperature ``heat``: ``L' g``.

    ``gradient`` (d,) is that of the log density at temperature 1 in ``z``, ``slope`` its part from
    the prior.
    """
    d = gradient.shape[0]
    for j in range(d):
        out[j] = 0.0
    for i in range(d):
        g = gradient[i]
        if heat != 1.0:
            g = (g - slope[i]) / heat + slope[i]
        if learnt == 0:
            out[i] = g
        else:
            for j in range(i + 1):
                out[j] += shape[i, j] * g


@inline
def langevin_ratio(xi, eps, forth, back):  # type: ignore[no-untyped-def]
    """Return the log density ratio of the reverse to the forward Langevin step."""
    total = 0.0
    for j in range(xi.shape[0]):
        returning = xi[j] + 0.5 * eps * (forth[j] + back[j])
        total += 0.5 * (xi[j] * xi[j] - returning * returning)
    return total


@inline
def kick(v, gradient, eps, friction, rng):  # type: ignore[no-untyped-def]
    """Kick ``v`` (d,) in place; return the contribution of the kick to the log ratio."""
    spread = eps * math.sqrt(friction * (2.0 - friction))
    total = 0.0
    for j in range(v.shape[0]):
        old = v[j]
        new = (1.0 - friction) * old + (1.0 - 0.5 * friction) * eps * eps * gradient[j]
        new += spread * rng.standard_normal()
        total -= 0.5 * gradient[j] * (old + new)
        v[j] = new
    return total
