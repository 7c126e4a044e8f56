"""Compiled loop of ``smh``: rotations of a Gaussian, accepted by factors of single rows.

Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet 2019, Scalable Metropolis-Hastings for
exact Bayesian inference with large datasets, with rows that were drawn ahead of the chain.

With ``q_i`` the expansion of second order of ``l_i`` at theta_star and ``R_i = l_i - q_i``, the
posterior is ``exp(sum_i q_i) p`` times ``prod_i exp(R_i)``. Positions are ``theta = theta_star + C
eps`` with ``C C'`` the inverse of minus the Hessian of the log posterior, so that a row changes its
predictor by ``z_i . eps``, ``z_i = C'x_i``. The Gaussian ``N(-offset, I)`` of ``u = eps - offset``
approximates the first factor. An iteration

1. proposes ``u' = cos(angle) u + sin(angle) N(0, I)``, which leaves ``N(0, I)`` invariant, and
   rejects it where ``|eps'|`` is beyond the radius;
2. accepts with ``min(1, exp(Delta))``, Delta the change of all that is evaluated always: Taylor
   sums and prior over the Gaussian, and the remainders of the rows in memory;
3. accepts with ``prod_i min(1, exp(Delta_i))``, ``Delta_i = R_i(theta') - R_i(theta)``, over all
   other rows.

Each of the three is reversible with respect to its own factor, and so is the product with respect
to the posterior, within the radius. The third evaluates few rows: Taylor's theorem gives
``|Delta_i| <= bound_i f`` with

    bound_i = w_i sup|l_i'''| |z_i|^3,
    f = min((|eps|^3 + |eps'|^3) / 6, max(|eps|, |eps'|)^2 |eps' - eps| / 2),

so that a Poisson number of rows, of mean ``f sum_i bound_i``, drawn with probabilities proportional
to their bounds, where each rejects with probability ``max(0, -Delta_i) / (bound_i f)``, rejects
never with probability ``exp(sum_i min(0, Delta_i))``. These rows depend on no position: they are
taken one after another from rows that a read drew before.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import TILE
from streammc.numerics.addresses import matrix_view
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
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector

LP, ACCEPTANCE_RATE, N_ROWS, ANGLE, DISTANCE = range(5)
"""Columns of the statistics of a draw, as the options name them."""
CHECKED: Final = 16
"""Rows of the third step that are evaluated together: those after a rejection were in vain."""


class PoolRows(NamedTuple):
    """``m`` whitened rows, with their expansions at theta_star and their bounds."""

    z: Matrix
    """(m, d) ``C'x``."""
    y: Vector
    weight: Vector
    eta: Vector
    """(m,) predictors at theta_star."""
    expansion: Matrix
    """(m, 3) weighted log-likelihood and its first two derivatives at theta_star."""
    bound: Vector
    """(m,) ``w sup|l'''| |z|^3``, above 0."""


class Target(NamedTuple):
    """Constants of the posterior that no row enters."""

    theta_star: Vector
    log_lik: float
    gradient: Vector
    hessian: Matrix
    factor: Matrix
    """(d, d) lower triangular C."""
    offset: Vector
    """(d,) ``eps`` of the centre of the Gaussian."""
    prior: Matrix
    """Table of the prior."""
    constants: Vector
    radius: float
    """Largest ``|eps|``."""
    total: float
    """Sum of the bounds of all rows that are drawn."""
    most: int
    """Rows that an iteration takes at most, but for a chance below 1e-20."""


class State(NamedTuple):
    """A chain; written in place."""

    u: Vector
    """(d,) position."""
    trial: Vector
    """(d,) proposed position."""
    eps: Matrix
    """(2, d) ``eps`` of the position and of the proposed one."""
    delta: Vector
    """(d,) scratch, as the next two."""
    theta: Vector
    slope: Vector
    scalars: Vector
    """(3,) log density of what is always evaluated, over the Gaussian; the same without the
    Gaussian; ``|eps|``."""
    at: Index
    """(1,) the next row of the pool."""
    tuning: Vector
    """(4,) angle, its average over the warm-up, iterations of the warm-up, acceptance aimed at."""
    buffer: Vector
    """(3 TILE,) scratch of a tile."""
    before: Vector
    """(CHECKED,) remainders at the position."""


VALUE, LOG_POSTERIOR, NORM = range(3)
CURRENT_ANGLE, AVERAGE, COUNT, AIM = range(4)
DONE, NEEDS_ROWS, BEYOND_BOUND, TOO_MANY = range(4)
ROUNDING: Final = 1e-12
"""Of a log-likelihood and its remainder, relative to the log-likelihood."""


def allocate_state(d: int, aim: float) -> State:
    """Return the state of a chain of ``d`` parameters that aims at an acceptance rate."""
    vectors = [np.zeros(d) for _ in range(5)]
    return State(
        u=vectors[0],
        trial=vectors[1],
        eps=np.zeros((2, d)),
        delta=vectors[2],
        theta=vectors[3],
        slope=vectors[4],
        scalars=np.zeros(3),
        at=np.zeros(1, np.int64),
        tuning=np.array([0.5 * math.pi, 0.0, 0.0, aim]),
        buffer=np.zeros(3 * TILE),
        before=np.zeros(CHECKED),
    )


@inline(reassociate=True)
def remainders(link, constants, rows, first, count, eps, buffer):  # type: ignore[no-untyped-def]
    """Write ``R_i`` of at most ``TILE`` rows from ``first`` on at ``eps`` into ``buffer``."""
    if first < 0:  # never true: tells the compiler that no index is negative
        return
    d = eps.shape[0]
    z, expansion = rows.z, rows.expansion
    value = matrix_view(buffer, 1, count)
    eta = matrix_view(buffer[TILE : 2 * TILE], 1, count)
    step = buffer[2 * TILE :]
    for i in range(count):
        total = 0.0
        for j in range(d):
            total += z[first + i, j] * eps[j]
        step[i] = total
        eta[0, i] = rows.eta[first + i] + total
    design = z[first : first + count].T
    link(eta, design, rows.y[first : first + count], constants, 0, value)
    for i in range(count):
        at, s = first + i, step[i]
        quadratic = s * (expansion[at, 1] + 0.5 * expansion[at, 2] * s)
        value[0, i] = rows.weight[at] * value[0, i] - expansion[at, 0] - quadratic


@inline
def evaluated_always(link, sums, target, certain, eps, u, state):  # type: ignore[no-untyped-def]
    """Return the log density of sums, prior and rows in memory, and that over the Gaussian."""
    d = eps.shape[0]
    delta, theta = state.delta, state.theta
    square = 0.0
    for i in range(d):
        total = 0.0
        for j in range(i + 1):
            total += target.factor[i, j] * eps[j]
        delta[i] = total
        theta[i] = target.theta_star[i] + total
        square += u[i] * u[i]
    value = sums(
        target.log_lik, target.gradient, target.hessian, target.theta_star, delta, state.slope
    )
    value += log_prior(theta, target.prior, state.slope)
    for first in range(0, certain.y.shape[0], TILE):
        count = min(TILE, certain.y.shape[0] - first)
        remainders(link, target.constants, certain, first, count, eps, state.buffer)
        for i in range(count):
            value += state.buffer[i]
    return value, value + 0.5 * square


POOL_TYPE: Any = record_type(PoolRows)
TARGET_TYPE: Any = record_type(Target)
STATE_TYPE: Any = record_type(State)


@jit(types.void(LINK_TYPE, SUMS_TYPE, TARGET_TYPE, POOL_TYPE, STATE_TYPE), borrow=True)
def place(link, sums, target, certain, state):  # type: ignore[no-untyped-def]
    """Evaluate the position ``state.u``."""
    square = 0.0
    for j in range(state.u.shape[0]):
        state.eps[0, j] = target.offset[j] + state.u[j]
        square += state.eps[0, j] * state.eps[0, j]
    density, value = evaluated_always(link, sums, target, certain, state.eps[0], state.u, state)
    state.scalars[VALUE], state.scalars[LOG_POSTERIOR] = value, density
    state.scalars[NORM] = math.sqrt(square)


@inline
def tune(tuning, accepted):  # type: ignore[no-untyped-def]
    """Change the angle towards the acceptance aimed at (Robbins and Monro 1951)."""
    tuning[COUNT] += 1.0
    count = tuning[COUNT]
    change = (accepted - tuning[AIM]) / (count + 20.0) ** 0.6 * 3.0
    angle = min(tuning[CURRENT_ANGLE] * math.exp(change), 0.5 * math.pi)
    tuning[CURRENT_ANGLE] = angle
    weight = min(1.0, 4.0 / (count + 3.0))
    tuning[AVERAGE] += weight * (angle - tuning[AVERAGE])


@jit(
    types.UniTuple(i8, 2)(
        LINK_TYPE, SUMS_TYPE, TARGET_TYPE, POOL_TYPE, POOL_TYPE, STATE_TYPE, i8, GENERATOR_TYPE,
        types.UniTuple(matrix, 2),
    ),
    borrow=True,
)  # fmt: skip
def run(link, sums, target, certain, pool, state, warmup, rng, draws):  # type: ignore[no-untyped-def]
    """Make iterations as long as the pool has rows for another one.

    Positions and statistics go to ``draws``. Returns a code and the number of iterations: ``DONE``,
    ``NEEDS_ROWS``, ``BEYOND_BOUND`` where a remainder exceeds its bound, ``TOO_MANY`` where an
    iteration takes more than ``most`` rows.
    """
    out, statistics = draws
    u, trial, scalars, tuning = state.u, state.trial, state.scalars, state.tuning
    eps, eps_new = state.eps[0], state.eps[1]
    d, drawn, at = u.shape[0], pool.y.shape[0], state.at
    always = certain.y.shape[0]
    for t in range(out.shape[0]):
        if target.total > 0.0 and drawn - at[0] < target.most:
            return NEEDS_ROWS, t
        angle = tuning[CURRENT_ANGLE]
        cosine, sine = math.cos(angle), math.sin(angle)
        square = moved = 0.0
        for j in range(d):
            trial[j] = cosine * u[j] + sine * rng.standard_normal()
            eps_new[j] = target.offset[j] + trial[j]
            square += eps_new[j] * eps_new[j]
            moved += (eps_new[j] - eps[j]) ** 2
        norm, rows = math.sqrt(square), 0
        accepted = norm <= target.radius
        density = value = 0.0
        if accepted:
            density, value = evaluated_always(link, sums, target, certain, eps_new, trial, state)
            rows += always
            accepted = math.log(rng.random()) < value - scalars[VALUE]
        if accepted and target.total > 0.0:
            old = scalars[NORM]
            far = max(old, norm)
            size = min((old**3 + norm**3) / 6.0, 0.5 * far * far * math.sqrt(moved))
            mean = size * target.total
            clock = -math.log(1.0 - rng.random())
            while accepted and clock <= mean:  # a Poisson number of rows, as they arrive
                count, first = 0, at[0]
                while count < CHECKED and clock <= mean:
                    count += 1
                    clock -= math.log(1.0 - rng.random())
                if count > drawn - first:
                    return TOO_MANY, t
                remainders(link, target.constants, pool, first, count, eps, state.buffer)
                for i in range(count):
                    state.before[i] = state.buffer[i]
                remainders(link, target.constants, pool, first, count, eps_new, state.buffer)
                for i in range(count):
                    change = state.buffer[i] - state.before[i]
                    limit = pool.bound[first + i] * size
                    rounding = ROUNDING * (
                        abs(pool.expansion[first + i, 0]) + pool.weight[first + i]
                    )
                    at[0] += 1
                    rows += 1
                    if not abs(change) <= limit * (1.0 + ROUNDING) + rounding:
                        return BEYOND_BOUND, t
                    if rng.random() * limit < -change:
                        accepted = False
                        break
        if accepted:
            for j in range(d):
                u[j], eps[j] = trial[j], eps_new[j]
            scalars[VALUE], scalars[LOG_POSTERIOR], scalars[NORM] = value, density, norm
        if warmup == 1:
            tune(tuning, 1.0 if accepted else 0.0)
        for i in range(d):
            total = target.theta_star[i]
            for j in range(i + 1):
                total += target.factor[i, j] * eps[j]
            out[t, i] = total
        row = statistics[t]
        row[LP] = scalars[LOG_POSTERIOR]
        row[ACCEPTANCE_RATE] = 1.0 if accepted else 0.0
        row[N_ROWS] = rows
        row[ANGLE] = angle
        row[DISTANCE] = scalars[NORM] / target.radius
    return DONE, out.shape[0]
