"""Error and rows used of a sequence of tests on the mean, rows drawn without replacement.

The mean of the first ``n`` of ``N`` terms has variance ``sigma^2 (N - n) / (n (N - 1))``
and, since the order is exchangeable, the same covariance with every earlier mean. So the
statistics ``z_j = (mean_j - mu_0) / sd(mean_j)`` are, as far as means are normal, a Brownian
motion with drift looked at in the times ``tau = n / (N - n)``,

    z_j = W(tau_j) / sqrt(tau_j),   W(tau) = B(tau) + mu_std tau,
    mu_std = (mu - mu_0) sqrt(N - 1) / sigma,

which is the recursion of Korattikara, Chen and Welling (2014, supplement B) in other words.
The test ends at the first look with ``|z_j| >= G = Phi^-1(1 - epsilon)``, and with all rows,
``tau = inf``, where it is right. Two things make tables cheap. By Girsanov's theorem a path
without drift counts ``exp(mu_std W - mu_std^2 tau / 2)`` times under a drift: one recursion
serves all ``mu_std``. And in the time ``log tau`` the process without drift is stationary:
where looks follow each other more closely than ``LEAST_STEP``, some are left out and the
boundary is moved inwards by ``0.5826`` times what the standard deviation of a step has grown
(Siegmund 1985, Broadie, Glasserman and Kou 1997), so that 2e6 looks cost 600 steps.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numba import types

from streammc.numerics.jit import f8, i8, inline, jit, vector
from streammc.numerics.special import exp
from streammc.protocols import Vector

LEAST_STEP: Final = 0.02
"""In ``log tau``: errors within 0.1 % and rows within 0.4 % of those with all looks, measured
for ``N`` up to 3e5."""
N_DRIFTS: Final = 96
_OVERSHOOT: Final = 0.5825971579390106  # -zeta(1/2) / sqrt(2 pi)
_RESOLUTION: Final = 2.93  # the middle nodes lie closer than the sd of the shortest step
_ROOT_HALF: Final = 0.7071067811865476
_RECIPROCAL_ROOT_2PI: Final = 0.3989422804014327
_REACH: Final = 8.5
_NEGLIGIBLE: Final = 1e-14


class SequentialTest(NamedTuple):
    """Error and terms used of the tests with one ``m`` and ``epsilon``, by ``mu_std``."""

    error: Vector
    """(K,) probability of a wrong decision at ``drifts``, the same for either sign."""
    rows: Vector
    """(K,) expected terms used."""


@inline
def _upper(x):  # type: ignore[no-untyped-def]
    """``1 - Phi(x)``."""
    return 0.5 * math.erfc(x * _ROOT_HALF)


@jit(types.void(i8, i8, f8, f8, vector, vector, vector, vector, vector))
def _recurse(population, m, threshold, least, nodes, weights, drifts, error, rows):  # type: ignore[no-untyped-def]
    """Write error and rows used (K,) at ``drifts`` >= 0; nodes and weights on [-1, 1]."""
    n_nodes, n_drifts = nodes.shape[0], drifts.shape[0]
    mass = np.zeros(n_nodes)  # f(z_k) w_k without drift, not yet decided
    after = np.zeros(n_nodes)
    alive = np.ones(n_drifts)
    mass[0] = 1.0
    at = np.zeros(n_nodes)  # z_k; before the first look all mass is at z = 0
    error[:] = 0.0
    rows[:] = 0.0
    n = 0
    tau = 0.0
    last = (population - 1) // m * m
    while n < last:
        looks = 1
        if n > 0:
            further = tau * math.exp(least)
            wanted = population * further / (1.0 + further)
            looks = max(1, math.ceil((min(wanted, last) - n) / m - 1e-9))
        following = n + looks * m
        tau_next = following / (population - following)
        keep = tau / tau_next
        rho, sd = math.sqrt(keep), math.sqrt(1.0 - keep)
        edge = threshold
        if looks > 1:
            previous = following - m
            single = math.sqrt(1.0 - previous / (population - previous) / tau_next)
            edge -= _OVERSHOOT * (sd - single)
        root = math.sqrt(tau_next)
        for d in range(n_drifts):
            if alive[d] < _NEGLIGIBLE:
                continue
            # Across -edge under the drift: a normal tail, times what the path counts.
            mu = drifts[d] * root
            for k in range(n_nodes):
                centre = rho * at[k]
                beyond = (edge + centre + mu * sd * sd) / sd
                if mass[k] > 0.0 and beyond < _REACH:
                    weight = math.exp(mu * centre + 0.5 * mu * mu * (sd * sd - 1.0))
                    error[d] += mass[k] * weight * _upper(beyond)
        scale = _RECIPROCAL_ROOT_2PI / sd
        for i in range(n_nodes):
            here = edge * nodes[i]
            total = 0.0
            for k in range(n_nodes):
                off = (here - rho * at[k]) / sd
                total += mass[k] * exp(-0.5 * off * off)
            after[i] = total * scale * weights[i] * edge
        for k in range(n_nodes):
            mass[k] = after[k]
            at[k] = edge * nodes[k]
        for d in range(n_drifts):
            if alive[d] < _NEGLIGIBLE:
                continue
            mu = drifts[d] * root
            left = 0.0
            for k in range(n_nodes):
                left += mass[k] * exp(mu * (at[k] - 0.5 * mu))
            left = min(left, alive[d])
            # Every look before this one asked for m more; survivors between are interpolated.
            rows[d] += m * (looks * alive[d] + 0.5 * (looks - 1.0) * (left - alive[d]))
            alive[d] = left
        n = following
        tau = tau_next
    for d in range(n_drifts):
        rows[d] += alive[d] * (population - n)


def drift_grid(population: int) -> Vector:
    """Return (K,) values of ``mu_std`` >= 0, dense where error and rows change.

    They change with the logarithm of ``mu_std``, from where the last looks see it,
    ``sqrt(m / N)``, to where the first decides, about ``9 sqrt(N / m)``.
    """
    smallest = min(1.0, math.sqrt(50.0 / population))
    largest = max(9.0 * math.sqrt(population / 25.0), 20.0)
    return smallest * np.sinh(np.linspace(0.0, math.asinh(largest / smallest), N_DRIFTS))


@cache
def _rule(n: int) -> tuple[Vector, Vector]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return nodes, weights


def sequential_test(
    population: int,
    m: int,
    epsilon: float,
    drifts: Vector | None = None,
    least_step: float = LEAST_STEP,
) -> SequentialTest:
    """Return error and expected rows of a sequential test.

    Parameters
    ----------
    population
        Terms, N.
    m
        Terms more at each look; the last takes what is left.
    epsilon
        Threshold of every look, in (0, 1/2).
    drifts
        (K,) values of ``mu_std`` >= 0; by default those of :func:`drift_grid`.
    least_step
        Looks closer than this in ``log tau`` are left out; 0: none is.
    """
    from scipy.special import ndtri

    drifts = drift_grid(population) if drifts is None else np.asarray(drifts, dtype=np.float64)
    error, rows = np.zeros(len(drifts)), np.zeros(len(drifts))
    threshold = float(-ndtri(epsilon))
    closest = math.sqrt(-math.expm1(-max(least_step, 4.0 * m / (population + 4.0 * m))))
    nodes, weights = _rule(max(48, math.ceil(_RESOLUTION * threshold / closest)))
    _recurse(population, m, threshold, least_step, nodes, weights, drifts, error, rows)
    return SequentialTest(error, rows)


@cache
def tabulated(population: int, m: int, epsilon: float) -> SequentialTest:
    """Return :func:`sequential_test` on :func:`drift_grid`, kept in memory."""
    return sequential_test(population, m, epsilon)
