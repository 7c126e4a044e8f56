"""Marginal precision of group effects: the coordinates in which a group's likelihood is quadratic.

The effects of a group have covariance ``Sigma``, and its rows see them with noise of a covariance
near ``C``: an estimate of the effects varies by ``Sigma + C``, and the log-likelihood of a
group is nearly linear in ``P = (Sigma + C)^-1``, also where ``Sigma`` tends to 0. ``theta`` ends
with ``log tau`` of each effect and, if two are correlated, with ``atanh rho``; in these
coordinates it ends with ``P11`` (, ``P22`` (, ``P12``)) instead.

``noise`` is ``(C11)``, ``(C11, C22)`` for two effects without correlation, or
``(C11, C22, C12)``; its length is that of the end of theta. Entries of symmetric matrices are in
the order 11, 22, 12.
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
