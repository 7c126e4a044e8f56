"""Positions of scale parameters of few groups or rows, and of the coefficients beside them.

With few groups the posterior of a standard deviation ``tau`` reaches from 0 far out, with a tail of
a power of ``tau``, and coefficients that differ between groups vary in proportion to ``tau`` there.
In two changes of coordinates a chain sees neither:

- ``tau = c |sinh t|`` with ``t`` on the real line: as ``tau / c`` near 0, where the density is
  even and smooth, and as ``log tau`` far out, where the tail is exponential. A correlation of
  effects changes its sign with ``t``, so that the covariance is smooth at ``t = 0``. A row of
  ``lines`` (s, 3) holds the component of ``log tau``, that of ``atanh rho`` or -1, and ``c``.
- The coefficients are stretched by ``s(tau)`` along a direction ``e``,
  ``theta = theta_star + delta + (s - 1) e (w . delta)`` with ``w . e = 1`` and
  ``s(tau)^2 ~ (c^2 + tau^2) / (c^2 + (1 - share) tau^2)``, scaled to 1 at the mode: their variance
  along ``e`` given ``tau``. A row of ``spreads`` (r, 5 + 2 d) holds the component of the logarithm
  of a parameter, ``share``, ``c^2``, ``log s`` before it is scaled, then ``e`` and ``w``, then the
  power of the parameter that ``tau`` is: 1, or of a gamma shape -1/2.
"""

from __future__ import annotations

import math
from typing import Final

from streammc.numerics.jit import inline

_TINY: Final = 1e-300
_MOST: Final = 300.0
_LOG_2: Final = 0.6931471805599453


@inline
def log_spread(row, log_scale):  # type: ignore[no-untyped-def]
    """Return ``log s(tau)`` and its derivative in the component, for a row of ``spreads``."""
    power = row[row.shape[0] - 1]
    square = math.exp(2.0 * min(power * log_scale, _MOST))
    noise, rest = row[2], (1.0 - row[1]) * square
    value = 0.5 * (math.log(noise + square) - math.log(noise + rest)) - row[3]
    return value, power * (square / (noise + square) - rest / (noise + rest))


@inline
def to_theta(lines, spreads, centre, theta):  # type: ignore[no-untyped-def]
    """Turn a position (d,) into theta, in place; return the log of the Jacobian.

    ``centre`` (d,) is what coefficients are stretched from.
    """
    d = theta.shape[0]
    total = 0.0
    for i in range(lines.shape[0]):
        j, rho = int(lines[i, 0]), int(lines[i, 1])
        t = theta[j]
        size = max(abs(t), _TINY)
        log_rest = math.log(-math.expm1(-2.0 * size))
        theta[j] = math.log(lines[i, 2]) + size - _LOG_2 + log_rest  # log(c sinh t)
        total += math.log1p(math.exp(-2.0 * size)) - log_rest  # log coth t
        if rho >= 0 and t < 0.0:
            theta[rho] = -theta[rho]
    for i in range(spreads.shape[0]):
        row = spreads[i]
        log_s, _ = log_spread(row, theta[int(row[0])])
        along = 0.0
        for j in range(d):
            along += row[4 + d + j] * (theta[j] - centre[j])
        along *= math.expm1(log_s)
        for j in range(d):
            theta[j] += along * row[4 + j]
        total += log_s
    return total


@inline
def pull_to_position(base, z, theta, gradient, buffer):  # type: ignore[no-untyped-def]
    """Turn a gradient (d,) in ``theta`` into one in the position, with that of the Jacobian.

    The position is ``base.theta_star + S z``; ``buffer`` (d,) is scratch memory.
    """
    lines, spreads, centre, factor = base.lines, base.spreads, base.mode, base.factor
    d = theta.shape[0]
    if spreads.shape[0] > 0:
        for j in range(d):
            buffer[j] = theta[j] - centre[j]
    for i in range(spreads.shape[0] - 1, -1, -1):
        row = spreads[i]
        own = int(row[0])
        log_s, slope = log_spread(row, theta[own])
        pull = along = 0.0
        for j in range(d):
            pull += row[4 + j] * gradient[j]
            along += row[4 + d + j] * buffer[j]
        gradient[own] += slope * (1.0 + pull * along)
        pull *= math.expm1(log_s)
        along *= math.expm1(-log_s)
        for j in range(d):
            gradient[j] += pull * row[4 + d + j]
            buffer[j] += along * row[4 + j]
    for i in range(lines.shape[0] - 1, -1, -1):
        j, rho = int(lines[i, 0]), int(lines[i, 1])
        t = base.theta_star[j]
        for k in range(j + 1):
            t += factor[j, k] * z[k]
        if rho >= 0 and t < 0.0:
            gradient[rho] = -gradient[rho]
        slope = math.tanh(t)
        gradient[j] = slope + ((gradient[j] - 1.0) / slope if slope != 0.0 else 0.0)
