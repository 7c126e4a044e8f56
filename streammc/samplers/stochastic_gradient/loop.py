"""Compiled loop of ``sgld`` and ``sghmc``, which accept every step.

Each step evaluates the gradient of ``l^ + log p`` at the new position with newly drawn
units (Dang et al. 2019, section 6.2, in the coordinates ``z`` of
``theta = theta_star + S z``). Without momentum a step is

    z' = z + (eps / 2) g(z) + N(0, eps I)

and with momentum, which is renewed at the start of an iteration,

    z' = z + eps q,    q' = q + eps g(z') - eps C q + N(0, 2 eps (C - B^)).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE, Block, ExpansionPoint, expand
from streammc.likelihood.estimators import mean_and_scatter, predictor_step
from streammc.likelihood.target import (
    BASE_TYPE,
    CERTAIN,
    DENSITY,
    REST,
    Point,
    Work,
    displace,
    evaluate,
)
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    SUMS_TYPE,
    i8,
    inline,
    jit,
    matrix,
    record_type,
)
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common import statistics as column
from streammc.samplers.common.statistics import NOISE_CLIPPED_COLUMN


class Dynamics(NamedTuple):
    """Settings of the loop."""

    momentum: int
    """1 with momentum, else 0."""
    friction: float
    """Friction C, a multiple of the identity."""
    variance_factor: float
    """``U^2 / (k (k - 1))``: factor from the scatter of unit totals to a variance."""
    estimate_noise: int
    """1 if B^ is estimated from the units of each step, else 0."""


DYNAMICS_TYPE: Any = record_type(Dynamics)


class Noise(NamedTuple):
    """Scratch of the noise estimate."""

    factor: Vector
    """(d d,) columns of S, one after the other."""
    step: Matrix
    """(1, m) products of the rows with one column of S."""
    pull: Vector
    """(m,) one coordinate of the whitened gradient of each row."""
    totals: Vector
    """(k,) the same coordinate of the gradient of each unit."""
    variance: Vector
    """(d,) variance of the gradient; zeros if not estimated."""


NOISE_TYPE: Any = record_type(Noise)


def allocate_noise(factor: Matrix, k: int, m: int, *, used: bool) -> Noise:
    """Return the scratch of the noise estimate; nearly empty unless ``used``."""
    columns = np.ascontiguousarray(factor.T).ravel() if used else np.zeros(0)
    m, k = (m, k) if used else (0, 0)
    return Noise(columns, np.zeros((1, m)), np.zeros(m), np.zeros(k), np.zeros(len(factor)))


class Place(NamedTuple):
    """Progress of a batch between calls, and the schedule of its iterations."""

    where: Index
    """(3,) current iteration of the schedule, its steps so far, its clipped coordinates."""
    step_sizes: Vector
    """(n,) step size of each iteration."""
    n_steps: Index
    """(n,) number of steps of each iteration."""


PLACE_TYPE: Any = record_type(Place)
ITERATION, STEP, CLIPPED = range(3)


@inline
def noise_variance(base, sub, point, noise, factor):  # type: ignore[no-untyped-def]
    """Write the estimated variance of each coordinate of the whitened gradient.

    It is ``U^2 / (k (k - 1)) sum_j (G_j - mean G)^2``, ``factor`` times the scatter, with
    ``G_j`` the gradient of unit ``j``.
    """
    p, m = point.slope.shape
    d = noise.variance.shape[0]
    k = noise.totals.shape[0]
    b, n_linear, q = base.unit_rows, base.n_linear, sub.design.shape[0]
    for j in range(d):
        for i in range(m):
            noise.pull[i] = 0.0
        for a in range(p):
            if a < n_linear:
                predictor_step(sub.design, noise.factor, j * d + a * q, 0, m, noise.step, 0)
                for i in range(m):
                    noise.pull[i] += point.slope[a, i] * noise.step[0, i]
            else:
                entry = noise.factor[j * d + n_linear * q + a - n_linear]
                for i in range(m):
                    noise.pull[i] += point.slope[a, i] * entry
        for u in range(k):
            total = 0.0
            for i in range(u * b, (u + 1) * b):
                total += noise.pull[i]
            noise.totals[u] = total
        _, scatter = mean_and_scatter(noise.totals, k)
        noise.variance[j] = factor * scatter


class Buffers(NamedTuple):
    """State and scratch of one chain; written in place."""

    sub: Block
    """Rows of the step."""
    point: Point
    work: Work
    noise: Noise


BUFFERS_TYPE: Any = record_type(Buffers)


@inline
def record(row, density, remainder, variance, energy, eps, where, rows, d):  # type: ignore[no-untyped-def]
    """Write the statistics of a completed iteration; ``rows`` is the number of rows of a step."""
    steps = where[STEP]
    row[column.LP] = density
    row[column.ACCEPTANCE_RATE] = 1.0
    row[column.DIVERGING] = 0.0
    row[column.ENERGY] = energy
    row[column.STEP_SIZE] = eps
    row[column.N_STEPS] = steps
    row[column.LOG_LIK_VARIANCE] = variance
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = steps * rows
    row[column.LOG_LIK_REMAINDER] = remainder
    if row.shape[0] > NOISE_CLIPPED_COLUMN:
        row[NOISE_CLIPPED_COLUMN] = where[CLIPPED] / (d * steps)


@jit(
    i8(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BUFFERS_TYPE, PLACE_TYPE, ROWS_TYPE,
        DYNAMICS_TYPE, GENERATOR_TYPE, types.UniTuple(matrix, 2),
    ),
    reassociate=True,
    borrow=True,
)  # fmt: skip
def run(link, sums, base, certain, buffers, place, ahead, dynamics, rng, draws):  # type: ignore[no-untyped-def]
    """Make steps, which may begin and end within iterations.

    ``ahead`` holds the rows of the units of these steps, in order; ``buffers.point`` the position
    and, without momentum, its gradient. Positions and statistics of completed iterations are
    written to ``draws``. Returns 0, or 1 if position or density is no longer finite.
    """
    theta, statistics = draws
    sub, point, work, noise = buffers.sub, buffers.point, buffers.work, buffers.noise
    d, m = point.z.shape[0], point.value.shape[0]
    where, momentum, delta = place.where, work.momentum, work.delta
    star = ExpansionPoint(base.theta_star, base.constants, base.n_linear, base.order)
    rows = m + certain.y.shape[0] + (m if base.order >= 0 else 0)
    for g in range(ahead.y.shape[0] // m):
        t = where[ITERATION]
        eps = place.step_sizes[t]
        if dynamics.momentum == 1:
            for j in range(d):
                if where[STEP] == 0:
                    momentum[j] = rng.standard_normal()
                point.z[j] += eps * momentum[j]
        else:
            spread = math.sqrt(eps)
            for j in range(d):
                point.z[j] += 0.5 * eps * point.gradient[j] + spread * rng.standard_normal()
        expand(link, star, ahead, g * m, m, sub, 0, work.scratch)
        evaluate(link, sums, base, certain, sub, point, work)
        density = point.scalars[DENSITY]
        check = density
        for j in range(d):
            check += point.z[j]
        if not math.isfinite(check):
            return 1
        if dynamics.momentum == 1:
            if dynamics.estimate_noise == 1:
                noise_variance(base, sub, point, noise, dynamics.variance_factor)
            for j in range(d):
                old = momentum[j]
                new = old + eps * (point.gradient[j] - dynamics.friction * old)
                added = 2.0 * eps * dynamics.friction - eps * eps * noise.variance[j]
                if added > 0.0:
                    new += math.sqrt(added) * rng.standard_normal()
                elif noise.variance[j] > 0.0:
                    where[CLIPPED] += 1
                momentum[j] = new
        where[STEP] += 1
        if where[STEP] < place.n_steps[t]:
            continue

        displace(base.factor, point.z, delta)
        energy = -density
        for j in range(d):
            theta[t, j] = base.theta_star[j] + delta[j]
            energy += 0.5 * momentum[j] * momentum[j] * dynamics.momentum
        _, scatter = mean_and_scatter(point.totals, point.totals.shape[0])
        variance = dynamics.variance_factor * scatter
        remainder = density - point.scalars[REST] + point.scalars[CERTAIN]
        record(statistics[t], density, remainder, variance, energy, eps, where, rows, d)
        where[ITERATION] += 1
        where[STEP] = 0
        where[CLIPPED] = 0
    return 0
