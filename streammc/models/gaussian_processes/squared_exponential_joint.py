"""The compiled log-likelihood of a Gaussian process, and its gradient.

With ``K_ij = f^2 exp(-sum_d (x_id - x_jd)^2 / (2 l_d^2))``, ``C = K + v I`` and
``a = C^-1 y``, the gradient in a parameter t is ``tr(M dC/dt) / 2``, ``M = a a' - C^-1``:
one inverse, then ``D N^2`` operations for all length scales. Everything is computed tile
by tile, on and below the diagonal.
"""

from __future__ import annotations

import math

import numpy as np

from streammc.numerics.cholesky import factor, invert, solve, tile_shape
from streammc.numerics.jit import JOINT_SIGNATURE, inline, jit
from streammc.numerics.special import exp

_shape = inline(tile_shape)
_LARGEST = 300.0
"""Logarithms beyond it are moved to it: ``exp(600)`` is still a number."""
_FAR = 280.0
"""Squared distance from which rows have nothing in common: 1e-61 changes no sum, but products of
such numbers are subnormal, and take ten times as long."""


@inline
def _positive(log_value):  # type: ignore[no-untyped-def]
    """Return ``exp(log_value)``, far from overflow; NaN stays NaN."""
    if log_value > _LARGEST:
        return math.exp(_LARGEST)
    if log_value < -_LARGEST:
        return math.exp(-_LARGEST)
    return math.exp(log_value)


@jit(reassociate=True)
def _squares(Z, i, j, b, out):  # type: ignore[no-untyped-def]
    """Write ``sum_d (z_dr - z_dc)^2`` of a tile into ``out`` (b, b)."""
    for r in range(b):
        for c in range(b):
            out[r, c] = 0.0
        for d in range(Z.shape[0]):
            at = Z[d, i * b + r]
            for c in range(b):
                away = at - Z[d, j * b + c]
                out[r, c] += away * away


@jit(reassociate=True)
def _pull(Z, i, j, b, Q, lengths):  # type: ignore[no-untyped-def]
    """Add ``sum_rc Q_rc (z_dr - z_dc)^2`` of a tile to ``lengths`` (D,)."""
    for r in range(b):
        for d in range(Z.shape[0]):
            at = Z[d, i * b + r]
            total = 0.0
            for c in range(b):
                away = at - Z[d, j * b + c]
                total += Q[r, c] * away * away
            lengths[d] += total


@jit(JOINT_SIGNATURE)
def joint(X, y, theta, constants, order, gradient):  # type: ignore[no-untyped-def]
    """Return ``log N(y; 0, K + v I)`` and write its gradient; see ``protocols.Model``.

    ``theta`` holds the logarithms of the length scales (D or 1), of ``f``, and of the noise;
    ``constants`` the power p in ``v = noise^p``. Minus infinity where ``K + v I`` is not
    positive definite in float64; the gradient is then zero.
    """
    q, n = X.shape
    D = theta.shape[0] - 2
    gradient[:] = 0.0
    if n == 0:
        return 0.0
    height = _positive(theta[D])
    height *= height
    noise = _positive(theta[D + 1])
    if constants[0] == 2.0:
        noise *= noise
    t, b = _shape(n)
    Z = np.zeros((q, t * b))
    for d in range(q):
        inverse = 1.0 / _positive(theta[d if D > 1 else 0])
        for i in range(n):
            Z[d, i] = X[d, i] * inverse
    a = np.empty((t, t, b, b))
    w = np.empty((t, t, b, b))
    K = np.empty((t, t, b, b))
    for i in range(t):
        for j in range(i + 1):
            tile, kept = a[i, j], K[i, j]
            _squares(Z, i, j, b, kept)
            for r in range(b):
                for c in range(b):
                    far = kept[r, c] > _FAR  # NaN is not
                    kept[r, c] = 0.0 if far else height * exp(-0.5 * kept[r, c])
                    tile[r, c] = kept[r, c]
            if i == j:
                for r in range(b):
                    tile[r, r] += noise
            if (i + 1) * b > n:
                for r in range(n - i * b, b):
                    tile[r] = 0.0
                    kept[r] = 0.0
                    if i == j:
                        tile[:, r] = 0.0
                        kept[:, r] = 0.0
                        tile[r, r] = 1.0
    half_log_det = factor(a, w)
    z = np.zeros(t * b)
    z[:n] = y
    if not math.isnan(half_log_det):
        solve(a, w, z)
    square = 0.0
    for i in range(n):
        square += z[i] * z[i]
    value = -0.5 * square - half_log_det - 0.9189385332046728 * n
    if not abs(value) < math.inf:  # NaN too
        return -math.inf
    if order == 0:
        return value
    invert(a, w, z)
    trace = 0.0
    lengths = np.zeros(q)
    total = 0.0
    for i in range(n):
        trace += z[i] * z[i] - a[i // b, i // b, i % b, i % b]
    for i in range(t):
        for j in range(i + 1):
            tile, weight = K[i, j], 0.5 if i == j else 1.0
            for r in range(b):
                for c in range(b):
                    tile[r, c] *= weight * (z[i * b + r] * z[j * b + c] - a[i, j, r, c])
                    total += tile[r, c]
            _pull(Z, i, j, b, tile, lengths)
    for d in range(q):
        gradient[d if D > 1 else 0] += lengths[d]
    gradient[D] = 2.0 * total
    gradient[D + 1] = 0.5 * constants[0] * noise * trace
    return value
