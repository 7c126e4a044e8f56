"""Rows in whitened coordinates: one product with ``S`` a row, none an evaluation.

Positions are ``theta = theta_star + S z`` with ``S`` lower triangular. For a model with one linear
predictor, ``W`` is the block of ``S`` of its q coefficients, the first components of theta. A row
``x`` enters the subsample as ``W'x``, and its predictor changes by ``(W'x)'z``. So displacements
and gradients are in the coordinates ``u = (z_1 .. z_q, (S z)_q+1 .. (S z)_d)``: those of z, but for
parameters that all rows share. Taylor sums and Normal priors are in the same coordinates, as one
quadratic; it is diagonal where ``S S'`` is the inverse of minus its Hessian.
"""

from __future__ import annotations

import numpy as np
from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE
from streammc.likelihood.difference import pull_back, remainders, subtract_expansions
from streammc.numerics.jit import i8, inline, jit, matrix, vector
from streammc.numerics.matrix_view import matrix_view
from streammc.numerics.prior import log_prior
from streammc.numerics.row_products import add_row_sums, row_products


@jit(types.void(matrix, ROWS_TYPE, i8, i8, BLOCK_TYPE, i8, vector), borrow=True)
def whiten_rows(whitening, rows, start, count, block, shift, buffer):  # type: ignore[no-untyped-def]
    """Write ``W'x`` of ``count`` rows from ``start`` on into the design of ``block``.

    They are its rows from ``shift`` on. ``buffer`` has q or more numbers. The bits of a row do not
    depend on its place: a resumed chain whitens its rows again.
    """
    q = whitening.shape[0]
    design = block.design
    for i in range(count):
        row_products(whitening, 0, q, rows.X[start + i], 0, buffer, 0)
        for j in range(q):
            design[j, shift + i] = buffer[j]


@inline(reassociate=True)
def displace_whitened(base, z, delta):  # type: ignore[no-untyped-def]
    """Write the coordinates ``u`` of the whitened position ``z``."""
    q, factor = base.whitening.shape[0], base.factor
    for i in range(q):
        delta[i] = z[i]
    for i in range(q, z.shape[0]):
        total = 0.0
        for j in range(i + 1):
            total += factor[i, j] * z[j]
        delta[i] = total


@inline(reassociate=True)
def theta_of_whitened(base, z, theta):  # type: ignore[no-untyped-def]
    """Write ``theta = theta_star + S z``."""
    d = z.shape[0]
    for i in range(d):
        theta[i] = base.theta_star[i]
    add_row_sums(base.factor, 0, d, z, 0, theta, 0)


@inline(reassociate=True)
def without_rows(sums, base, z, work, rest):  # type: ignore[no-untyped-def]
    """Return the log density of Taylor sums and prior at ``z``; write their gradient in ``u``.

    Theta is formed only for a prior that is not part of the Taylor sums.
    """
    delta, gradient, diagonal = work.delta, base.gradient, base.diagonal
    d = z.shape[0]
    displace_whitened(base, z, delta)
    if diagonal.shape[0] > 0:
        density = base.log_lik
        for i in range(d):
            curve = diagonal[i] * delta[i]
            rest[i] = gradient[i] + curve
            density += delta[i] * (gradient[i] + 0.5 * curve)
    else:
        density = sums(base.log_lik, gradient, base.hessian, base.theta_star, delta, rest)
    if base.prior.shape[0] > 0:
        density += _add_prior(base, z, work, rest)
    return density


@inline(reassociate=True)
def _add_prior(base, z, work, rest):  # type: ignore[no-untyped-def]
    """Return the log prior density at ``z``, and add its gradient to ``rest``."""
    whitening, theta, slope = base.whitening, work.theta, work.gradient
    q, d = whitening.shape[0], z.shape[0]
    for i in range(d):
        slope[i] = 0.0
    theta_of_whitened(base, z, theta)
    value = log_prior(theta, base.prior, slope)
    for i in range(q):
        for j in range(i + 1):
            rest[j] += whitening[i, j] * slope[i]
    for i in range(q, d):
        rest[i] += slope[i]
    return value


@inline(reassociate=True)
def remainders_of(link, base, block, delta, lo, hi, scratch, value, slope):  # type: ignore[no-untyped-def]
    """Write remainders and derivatives of the rows of a block in the coordinates of ``base``.

    As :func:`likelihood.difference.remainders`, which does it in the coordinates of theta.
    """
    if lo < 0:  # never true: tells the compiler that no index is negative
        return
    constants = base.constants
    if base.whitening.shape[0] == 0:
        n_linear = base.n_linear
        remainders(link, constants, block, delta, n_linear, lo, hi, scratch, value, slope)
        return
    eta_star = block.eta_star
    p, q, w = eta_star.shape[0], block.design.shape[0], hi - lo
    size = block.expansion.shape[0]
    eta = matrix_view(scratch.eta, p, w)
    step = matrix_view(scratch.step, p, w)
    out = matrix_view(scratch.out, size, w)
    row_products(block.design, lo, w, delta, 0, scratch.step, 0)
    for a in range(1, p):
        for i in range(w):
            step[a, i] = delta[q + a - 1]
    first = np.uint64(lo)  # a negative index would count from the end: the loop stays scalar
    for a in range(p):
        for i in range(np.uint64(w)):
            eta[a, i] = eta_star[a, first + i] + step[a, i]
    link(eta, block.design[:, lo:hi], block.y[lo:hi], constants, 1, out)
    subtract_expansions(block, step, out, lo, w, value, slope)


@inline(reassociate=True)
def pull_back_of(base, block, slope, lo, hi, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of rows in the coordinates of ``base``.

    As :func:`likelihood.difference.pull_back`, which does it in the coordinates of theta.
    """
    if base.whitening.shape[0] == 0:
        pull_back(block, slope, base.n_linear, lo, hi, gradient)
        return
    q = block.design.shape[0]
    add_row_sums(block.design, lo, hi - lo, slope[0], lo, gradient, 0)
    for a in range(1, slope.shape[0]):
        total = 0.0
        for i in range(lo, hi):
            total += slope[a, i]
        gradient[q + a - 1] += total


@inline(reassociate=True)
def pull_to_z(base, slope, gradient):  # type: ignore[no-untyped-def]
    """Add a gradient in ``u`` to ``gradient``, that in z."""
    q, factor = base.whitening.shape[0], base.factor
    for i in range(q):
        gradient[i] += slope[i]
    for i in range(q, slope.shape[0]):
        for j in range(i + 1):
            gradient[j] += factor[i, j] * slope[i]
