"""One iteration of hmc-ecs as plain loops over arrays, for ``bench/iteration.py``.

It does the arithmetic in the coordinates of theta, without certainty rows, units and records: one
predictor, Normal(0, 10) priors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def pull(value, slope, weighted, X, scale, c, sums):
    """Write the gradient of the estimate; return the total and the scatter."""
    d, m = X.shape
    total = 0.0
    for j in range(m):
        total += value[j]
    mean = total / m
    scatter = 0.0
    for j in range(m):
        scatter += (value[j] - mean) * (value[j] - mean)
        weighted[j] = slope[j] * (scale - c * (value[j] - mean))
    i = 0
    while i + 4 <= d:
        s0 = s1 = s2 = s3 = 0.0
        for j in range(m):
            w = weighted[j]
            s0 += w * X[i, j]
            s1 += w * X[i + 1, j]
            s2 += w * X[i + 2, j]
            s3 += w * X[i + 3, j]
        sums[i], sums[i + 1], sums[i + 2], sums[i + 3] = s0, s1, s2, s3
        i += 4
    while i < d:
        s0 = 0.0
        for j in range(m):
            s0 += weighted[j] * X[i, j]
        sums[i] = s0
        i += 1
    return total, scatter


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def push(X, delta, shift):
    """Write ``shift = delta' X``."""
    d, m = X.shape
    for j in range(m):
        shift[j] = 0.0
    i = 0
    while i + 4 <= d:
        w0, w1, w2, w3 = delta[i], delta[i + 1], delta[i + 2], delta[i + 3]
        for j in range(m):
            shift[j] += w0 * X[i, j] + w1 * X[i + 1, j] + w2 * X[i + 2, j] + w3 * X[i + 3, j]
        i += 4
    while i < d:
        w0 = delta[i]
        for j in range(m):
            shift[j] += w0 * X[i, j]
        i += 1


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def whiten(S, rest, sums, gz):
    """Write ``S' (rest + sums)``."""
    gz[:] = 0.0
    for i in range(gz.shape[0]):
        w = rest[i] + sums[i]
        for j in range(i + 1):
            gz[j] += S[i, j] * w


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def bare(
    link,
    constants,
    X,
    y,
    eta_star,
    taylor,
    all_X,
    all_y,
    units,
    star,
    g0,
    H,
    S,
    z,
    rng,
    steps,
    step,
    n,
):
    """HMC-ECS on plain arrays: X (d, m), n rows of the subsample proposed an iteration."""
    d, m = X.shape
    value, slope, weighted = np.zeros(m), np.zeros(m), np.zeros(m)
    eta, shift, out = np.zeros((1, m)), np.zeros(m), np.zeros((3, m))
    eta1, out1, y1 = np.zeros((1, 1)), np.zeros((3, 1)), np.zeros(1)
    X1 = np.zeros((d, 1))
    trial, fresh = np.zeros(m), np.zeros((n, 5))
    value0, slope0 = np.zeros(m), np.zeros(m)
    p, sums = np.zeros(d), np.zeros(d)
    delta, rest, gz = np.zeros(d), np.zeros(d), np.zeros(d)
    delta0, rest0, gz0, z0 = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    scale, c = all_X.shape[0] / m, all_X.shape[0] ** 2 / (m * (m - 1.0))
    density = quadratic = 0.0
    for t in range(units.shape[0] // n):
        # the subsample: expand n rows at theta_star, remainders at theta, accept or not
        trial[:] = value
        for f in range(n):
            row, slot = units[t * n + f], (t * n + f) % m
            e_star = s = 0.0
            for i in range(d):
                x = all_X[row, i]
                e_star += x * star[i]
                s += x * delta[i]
            eta1[0, 0] = e_star
            y1[0] = all_y[row]
            link(eta1, X1, y1, constants, 2, out1)
            l0, l1, l2 = out1[0, 0], out1[1, 0], out1[2, 0]
            eta1[0, 0] = e_star + s
            link(eta1, X1, y1, constants, 1, out1)
            trial[slot] = out1[0, 0] - l0 - l1 * s - 0.5 * l2 * s * s
            fresh[f, 0], fresh[f, 1], fresh[f, 2], fresh[f, 3] = e_star, l0, l1, l2
            fresh[f, 4] = out1[1, 0] - l1 - l2 * s
        mean_old = value.sum() / m
        mean_new = trial.sum() / m
        old_scatter = new_scatter = 0.0
        for i in range(m):
            old_scatter += (value[i] - mean_old) * (value[i] - mean_old)
            new_scatter += (trial[i] - mean_new) * (trial[i] - mean_new)
        ratio = scale * m * (mean_new - mean_old) - 0.5 * c * (new_scatter - old_scatter)
        if math.log(rng.random()) < ratio:
            value[:] = trial
            for f in range(n):
                row, slot = units[t * n + f], (t * n + f) % m
                for i in range(d):
                    X[i, slot] = all_X[row, i]
                y[slot] = all_y[row]
                eta_star[slot] = fresh[f, 0]
                for i in range(3):
                    taylor[i, slot] = fresh[f, 1 + i]
                slope[slot] = fresh[f, 4]
            # the new rows enter the density and the gradient at the same position
            total, scatter = pull(value, slope, weighted, X, scale, c, sums)
            density = quadratic + scale * total - 0.5 * c * scatter
            whiten(S, rest, sums, gz)
        kinetic = 0.0
        for i in range(d):
            p[i] = rng.standard_normal()
            kinetic += 0.5 * p[i] * p[i]
            z0[i], gz0[i], delta0[i], rest0[i] = z[i], gz[i], delta[i], rest[i]
        for j in range(m):
            value0[j], slope0[j] = value[j], slope[j]
        density0, quadratic0 = density, quadratic
        for _ in range(steps):
            for i in range(d):
                p[i] += 0.5 * step * gz[i]
                z[i] += step * p[i]
            for i in range(d):
                total = 0.0
                for j in range(i + 1):
                    total += S[i, j] * z[j]
                delta[i] = total
            quadratic = 0.0
            for i in range(d):
                curve = 0.0
                for j in range(d):
                    curve += H[i, j] * delta[j]
                theta = star[i] + delta[i]
                rest[i] = g0[i] + curve - theta / 100.0
                quadratic += delta[i] * (g0[i] + 0.5 * curve) - theta * theta / 200.0
            push(X, delta, shift)
            for j in range(m):
                eta[0, j] = eta_star[j] + shift[j]
            link(eta, X, y, constants, 1, out)
            for j in range(m):
                s = shift[j]
                value[j] = out[0, j] - taylor[0, j] - taylor[1, j] * s - 0.5 * taylor[2, j] * s * s
                slope[j] = out[1, j] - taylor[1, j] - taylor[2, j] * s
            total, scatter = pull(value, slope, weighted, X, scale, c, sums)
            density = quadratic + scale * total - 0.5 * c * scatter
            whiten(S, rest, sums, gz)
            moved = 0.0
            for i in range(d):
                p[i] += 0.5 * step * gz[i]
                moved += 0.5 * p[i] * p[i]
        if not math.log(rng.random()) < density - moved - density0 + kinetic:
            for i in range(d):
                z[i], gz[i], delta[i], rest[i] = z0[i], gz0[i], delta0[i], rest0[i]
            for j in range(m):
                value[j], slope[j] = value0[j], slope0[j]
            density, quadratic = density0, quadratic0
    return density
