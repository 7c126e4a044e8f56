"""Integrator: one step of the Hamiltonian dynamics.

Positions are whitened: the posterior is nearly a standard normal, and the kinetic
energy of a momentum ``p`` is ``p'p / 2``. The Gaussian part of the energy,
``w^2 z'z / 2``, is integrated exactly: a rotation of ``(w z, p)`` by the angle
``w step``. The gradient of the remaining energy changes the momentum, half before and half
after the rotation (split Hamiltonian dynamics, Shahbaba et al. 2014). The error is that of
the remaining energy alone, so one step can span a quarter of a period if the posterior is
close to its Gaussian approximation. For every ``w`` a step conserves volume and is
reversible; ``w = 0`` is the leapfrog.
"""

from __future__ import annotations

import math

from streammc.likelihood.positions import place
from streammc.likelihood.target import BASE_TYPE, DENSITY, POINT_TYPE, WORK_TYPE, evaluate_inline
from streammc.numerics.jit import i8, inline, jit
from streammc.numerics.prior import outside

MAX_ENERGY_ERROR = 1000.0


@inline(composition=True)
def move(link, sums, base, certain, sub, point, work, step, frequency):  # type: ignore[no-untyped-def]
    """Move ``point`` and ``work.momentum`` by one step; return the energy after it."""
    momentum = work.momentum
    d = momentum.shape[0]
    stiffness = frequency * frequency
    cosine, sine = math.cos(frequency * step), math.sin(frequency * step)
    drift = sine / frequency if frequency > 0.0 else step
    for j in range(d):
        z = point.z[j]
        p = momentum[j] + 0.5 * step * (point.gradient[j] + stiffness * z)
        point.z[j] = cosine * z + drift * p
        momentum[j] = cosine * p - frequency * sine * z
    evaluate_inline(link, sums, base, certain, sub, point, work)
    kinetic = 0.0
    for j in range(d):
        momentum[j] += 0.5 * step * (point.gradient[j] + stiffness * point.z[j])
        kinetic += 0.5 * momentum[j] * momentum[j]
    return kinetic - point.scalars[DENSITY]


@jit(i8(BASE_TYPE, POINT_TYPE, WORK_TYPE), borrow=True)
def walled(base, point, work):  # type: ignore[no-untyped-def]
    """Return 1 if ``point`` is outside the bounds of the prior: a smaller step would not help."""
    place(base, point.z, work)
    return 1 if base.prior.shape[0] > 0 and outside(work.theta, base.prior) else 0
