"""Positions of effects and of their standard deviations: compiled transformations of theta.

One change of coordinates is for expansions, two are for the positions of chains.

1. Marginal precision (``to_precision``). The effects of a group have covariance ``Sigma``, and an
estimate of them from its rows has noise of covariance ``C``. The estimates vary by ``Sigma + C``,
and the log-likelihood of a group is nearly linear in ``P = (Sigma + C)^-1``, also where ``Sigma``
tends to 0. ``theta`` ends with ``log tau`` of each effect and, if two are correlated, with ``atanh
rho``; in these coordinates it ends with ``P11`` (, ``P22`` (, ``P12``)) instead.

``noise`` is ``(C11)``, ``(C11, C22)`` for two effects without correlation, or
``(C11, C22, C12)``; its length is that of the end of theta. Entries of symmetric matrices are in
the order 11, 22, 12.

2. Scale parameters of few groups or rows (``to_theta``, ``pull_to_position``). With few groups the
posterior of a standard deviation ``tau`` reaches from 0 far out, with a tail of a power of ``tau``,
and coefficients that differ between groups vary in proportion to ``tau`` there. Two changes of
coordinates remove both:

- ``tau = c |sinh t|`` with ``t`` on the real line: as ``tau / c`` near 0, where the density is
  even and smooth, and as ``log tau`` far out, where the tail is exponential. A correlation of
  effects changes its sign with ``t``, so that the covariance is smooth at ``t = 0``. A row of
  ``lines`` (s, 3) holds the component of ``log tau``, that of ``atanh rho`` or -1, and ``c``.
- The coefficients are stretched by ``s(tau)`` along a direction ``e``,
  ``theta = centre + delta + (s - 1) e (w . delta)`` with ``w . e = 1``, ``centre`` the mode and
  ``s(tau)^2`` in proportion to ``(c^2 + tau^2) / (c^2 + (1 - share) tau^2)``, scaled to 1 at the
  mode. It is their variance along ``e`` given ``tau``; ``share`` of the precision is lost as
  ``tau`` goes from 0 to infinity. A row of ``spreads`` (r, 5 + 2 d) holds the component of the
  logarithm of a parameter, ``share``, ``c^2``, ``log s`` at the mode before it is scaled, then
  ``e`` and ``w``, then the power of the parameter that ``tau`` is: 1, or of a gamma shape -1/2.

3. Levels of a factor (``stretch``, ``whiten``, ``shrink``). Effects are stretched by a power of
their scale: ``u = (tau / tau_star)^a v``, with an exponent ``a`` of each level; ``v`` is ``u``
where ``a`` is 0, and a standard normal variate times ``tau_star`` where it is 1. A row of
``levels`` (L, 3) holds the components of an effect and of the log of its scale in theta, and ``a``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.numerics.jit import inline, jit, matrix, vector

_LEAST: Final = 1e-14
"""Smallest variance in units of the noise: below it rounding decides."""
_MOST_CORRELATION: Final = 1.0 - 1e-12


@inline
def sandwich(p11, p22, p12, x11, x22, x12):  # type: ignore[no-untyped-def]
    """Return the entries of ``P X P``, of symmetric 2 x 2 matrices."""
    return (
        p11 * p11 * x11 + 2.0 * p11 * p12 * x12 + p12 * p12 * x22,
        p12 * p12 * x11 + 2.0 * p12 * p22 * x12 + p22 * p22 * x22,
        p11 * p12 * x11 + (p11 * p22 + p12 * p12) * x12 + p12 * p22 * x22,
    )


@inline
def _inverse(m11, m22, m12):  # type: ignore[no-untyped-def]
    """Return the entries of the inverse of a symmetric 2 x 2 matrix."""
    determinant = m11 * m22 - m12 * m12
    return m22 / determinant, m11 / determinant, -m12 / determinant


@inline
def _covariance(a, b, z):  # type: ignore[no-untyped-def]
    """Return the entries of Sigma of ``log tau1, log tau2, atanh rho``."""
    return math.exp(2.0 * a), math.exp(2.0 * b), math.tanh(z) * math.exp(a + b)


@jit(types.void(vector, vector), borrow=True)
def to_precision(theta, noise):  # type: ignore[no-untyped-def]
    """Replace the end of ``theta`` (d,) by the marginal precision, in place."""
    size = noise.shape[0]
    at = theta.shape[0] - size
    if size == 3:
        s11, s22, s12 = _covariance(theta[at], theta[at + 1], theta[at + 2])
        theta[at], theta[at + 1], theta[at + 2] = _inverse(
            s11 + noise[0], s22 + noise[1], s12 + noise[2]
        )
        return
    for j in range(size):
        theta[at + j] = 1.0 / (math.exp(2.0 * theta[at + j]) + noise[j])


@jit(types.void(vector, vector), borrow=True)
def from_precision(theta, noise):  # type: ignore[no-untyped-def]
    """Undo :func:`to_precision`, in place; a variance is at least 1e-14 times the noise."""
    size = noise.shape[0]
    at = theta.shape[0] - size
    if size == 3:
        m11, m22, m12 = _inverse(theta[at], theta[at + 1], theta[at + 2])
        s11 = max(m11 - noise[0], _LEAST * noise[0])
        s22 = max(m22 - noise[1], _LEAST * noise[1])
        rho = (m12 - noise[2]) / math.sqrt(s11 * s22)
        rho = min(max(rho, -_MOST_CORRELATION), _MOST_CORRELATION)
        theta[at], theta[at + 1] = 0.5 * math.log(s11), 0.5 * math.log(s22)
        theta[at + 2] = math.atanh(rho)
        return
    for j in range(size):
        variance = max(1.0 / theta[at + j] - noise[j], _LEAST * noise[j])
        theta[at + j] = 0.5 * math.log(variance)


@jit(types.void(vector, vector, vector), borrow=True)
def pull_to_theta(theta, noise, gradient):  # type: ignore[no-untyped-def]
    """Turn the end of ``gradient`` (d,), derivatives in P, into those in theta, in place.

    ``theta`` (d,) ends with ``log tau`` and ``atanh rho``.
    """
    size = noise.shape[0]
    at = theta.shape[0] - size
    if size == 3:
        s11, s22, s12 = _covariance(theta[at], theta[at + 1], theta[at + 2])
        turn = s11 * s22 - s12 * s12
        scale = math.sqrt(s11 * s22)
        turn = turn / scale if scale > 0.0 else 0.0
        p11, p22, p12 = _inverse(s11 + noise[0], s22 + noise[1], s12 + noise[2])
        # d P = -P dSigma P: the adjoint of the sandwich, once, then that of Sigma.
        g11, g22, g12 = gradient[at], gradient[at + 1], 0.5 * gradient[at + 2]
        h11, h22, h12 = sandwich(p11, p22, p12, g11, g22, g12)
        gradient[at] = -2.0 * (h11 * s11 + h12 * s12)
        gradient[at + 1] = -2.0 * (h22 * s22 + h12 * s12)
        gradient[at + 2] = -2.0 * h12 * turn
        return
    for j in range(size):
        variance = math.exp(2.0 * theta[at + j])
        precision = 1.0 / (variance + noise[j])
        gradient[at + j] *= -2.0 * variance * precision * precision


@jit(types.void(vector, vector, matrix, types.Array(types.float64, 3, "C")), borrow=True)
def precision_derivatives(theta, noise, first, second):  # type: ignore[no-untyped-def]
    """Write the derivatives of the marginal precision in the end of ``theta``.

    ``first`` (s, s): ``first[b, i]`` is that of entry ``b`` of P in component ``i``; ``second``
    (s, s, s) the second derivatives, ``second[b, i, j]``.
    """
    size = noise.shape[0]
    at = theta.shape[0] - size
    first[:, :] = 0.0
    second[:, :, :] = 0.0
    if size < 3:
        for j in range(size):
            variance = math.exp(2.0 * theta[at + j])
            precision = 1.0 / (variance + noise[j])
            slope = -2.0 * variance * precision * precision
            first[j, j] = slope
            second[j, j, j] = 2.0 * slope - 4.0 * variance * precision * slope
        return
    s11, s22, s12 = _covariance(theta[at], theta[at + 1], theta[at + 2])
    p11, p22, p12 = _inverse(s11 + noise[0], s22 + noise[1], s12 + noise[2])
    turn = (1.0 - math.tanh(theta[at + 2]) ** 2) * math.sqrt(s11 * s22)
    twist = -2.0 * math.tanh(theta[at + 2]) * turn
    steps = ((2.0 * s11, 0.0, s12), (0.0, 2.0 * s22, s12), (0.0, 0.0, turn))
    for i in range(3):
        x = steps[i]
        c11, c22, c12 = sandwich(p11, p22, p12, x[0], x[1], x[2])
        first[0, i], first[1, i], first[2, i] = -c11, -c22, -c12
    for i in range(3):
        x = steps[i]
        for j in range(i, 3):
            # P_ij = -(P_j X_i P + P X_i P_j) - P X_ij P, symmetric.
            b11, b22, b12 = first[0, j], first[1, j], first[2, j]
            # X_i P, rows by columns.
            r11, r12 = x[0] * p11 + x[2] * p12, x[0] * p12 + x[2] * p22
            r21, r22 = x[2] * p11 + x[1] * p12, x[2] * p12 + x[1] * p22
            y11 = y22 = 0.0
            y12 = s12
            if i == 2:
                y12 = twist
            elif j == 2:
                y12 = turn
            elif i == j and i == 0:
                y11 = 4.0 * s11
            elif i == j:
                y22 = 4.0 * s22
            c11, c22, c12 = sandwich(p11, p22, p12, y11, y22, y12)
            second[0, i, j] = -2.0 * (b11 * r11 + b12 * r21) - c11
            second[1, i, j] = -2.0 * (b12 * r12 + b22 * r22) - c22
            second[2, i, j] = -(b11 * r12 + b12 * r22 + b12 * r11 + b22 * r21) - c12
            for b in range(3):
                second[b, j, i] = second[b, i, j]


@jit(types.void(vector, vector, vector, matrix))
def to_precision_derivatives(theta, noise, gradient, hessian):  # type: ignore[no-untyped-def]
    """Turn derivatives in theta into those in the coordinates that end with P, in place.

    ``gradient`` (d,); ``hessian`` (d, d) symmetric, or (0, 0) for the gradient alone. With K the
    derivative of theta in P: ``g_P = K' g`` and ``H_P = K' (H - sum_b g_P,b d^2 P_b) K``.
    """
    size = noise.shape[0]
    d = theta.shape[0]
    at = d - size
    if size < 3:  # P is diagonal
        for j in range(size):
            variance = math.exp(2.0 * theta[at + j])
            precision = 1.0 / (variance + noise[j])
            slope = -2.0 * variance * precision * precision
            gradient[at + j] /= slope
            if hessian.shape[0] > 0:
                bend = 2.0 * slope - 4.0 * variance * precision * slope
                hessian[at + j, at + j] -= gradient[at + j] * bend
                for a in range(d):
                    hessian[a, at + j] /= slope
                for a in range(d):
                    hessian[at + j, a] /= slope
        return
    first = np.empty((size, size))
    second = np.empty((size, size, size))
    precision_derivatives(theta, noise, first, second)
    inverse = np.linalg.inv(first)
    end = np.empty(size)
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += inverse[j, i] * gradient[at + j]
        end[i] = total
    gradient[at:] = end
    if hessian.shape[0] == 0:
        return
    for i in range(size):
        for j in range(size):
            for b in range(size):
                hessian[at + i, at + j] -= end[b] * second[b, i, j]
    row = np.empty(size)
    for a in range(d):
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += hessian[a, at + j] * inverse[j, i]
            row[i] = total
        hessian[a, at:] = row
    for a in range(d):
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += inverse[j, i] * hessian[at + j, a]
            row[i] = total
        hessian[at:, a] = row


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

    Coefficients are stretched from ``centre`` (d,).
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

    The position is ``base.theta_star + S z``. Where coefficients are stretched, ``buffer`` (d,)
    gets theta before the stretch.
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
    if spreads.shape[0] > 0:
        for j in range(d):
            buffer[j] += centre[j]
    for i in range(lines.shape[0] - 1, -1, -1):
        j, rho = int(lines[i, 0]), int(lines[i, 1])
        t = base.theta_star[j]
        for k in range(j + 1):
            t += factor[j, k] * z[k]
        if rho >= 0 and t < 0.0:
            gradient[rho] = -gradient[rho]
        # log tau has the derivative coth t, the log Jacobian log coth t has tanh t - coth t.
        slope = math.tanh(t)
        gradient[j] = slope + ((gradient[j] - 1.0) / slope if slope != 0.0 else 0.0)


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
    """Turn a gradient (d,) in ``u`` into one in ``v``, with that of the Jacobian.

    ``theta`` (d,) is what :func:`stretch` wrote.
    """
    for i in range(levels.shape[0]):
        j, own, exponent = int(levels[i, 0]), int(levels[i, 1]), levels[i, 2]
        gradient[own] += exponent * (1.0 + gradient[j] * theta[j])
        gradient[j] *= math.exp(exponent * (theta[own] - theta_star[own]))
