"""A proposal of Metropolis-Hastings: its position, its density, its log Hastings ratio.

Everything that takes no terms of the acceptance test is evaluated here: prior, Taylor sums and
certainty rows at the proposal, and gradients from rows of their own.
"""

from __future__ import annotations

from numba import types

from streammc.likelihood.blocks import ROWS_TYPE, ExpansionPoint, expand
from streammc.likelihood.target import ROWS, UNITS, evaluate
from streammc.numerics.jit import GENERATOR_TYPE, LINK_TYPE, SUMS_TYPE, f8, i8, inline, jit
from streammc.samplers.common.proposals import (
    LANGEVIN,
    RANDOM_WALK,
    SGHMC,
    kick,
    langevin_ratio,
    prior_at,
    pulled,
    shaped,
)
from streammc.samplers.metropolis.acceptance.interface import ESTIMATED
from streammc.samplers.metropolis.workspace import (
    EVALUATED,
    NEW_PRIOR,
    RATIO,
    SHARED_TYPE,
    STEP,
    TAU,
    WORKSPACE_TYPE,
)


@inline
def units_ahead(moves):  # type: ignore[no-untyped-def]
    """Return the units of all gradients of a proposal, drawn ahead of those of the decision."""
    if moves.kind == RANDOM_WALK:
        return 0
    return moves.gradient_units * (moves.n_steps if moves.kind == SGHMC else 1)


@inline
def _evaluate(link, sums, shared, space, rows, start, point, units):  # type: ignore[no-untyped-def]
    """Evaluate density and gradient at ``point.z`` with ``units`` of ``rows`` from ``start``."""
    base, sub, work = shared.base, space.sub, space.work
    m = units * base.unit_rows
    if m > 0:
        star = ExpansionPoint(base.theta_star, base.constants, base.n_linear, base.order)
        expand(link, star, rows, start, m, sub, 0, work.scratch)
    point.used[UNITS], point.used[ROWS] = units, m
    evaluate(link, sums, base, shared.certain, sub, point, work)
    space.decision.where[EVALUATED] += shared.certain.y.shape[0] + m


@inline
def _half_drift(space, learnt):  # type: ignore[no-untyped-def]
    """Move the proposal by half of its velocity."""
    decision, z = space.decision, space.new.z
    shaped(decision.shape, learnt, decision.xi, decision.scratch)
    for j in range(z.shape[0]):
        z[j] += 0.5 * decision.scratch[j]


@inline
def _trajectory(link, sums, shared, space, rows, row, eps, rng):  # type: ignore[no-untyped-def]
    """Propose by SGHMC; write the log Hastings ratio."""
    moves, decision, new = shared.moves, space.decision, space.new
    tau = decision.values[TAU]
    for j in range(new.z.shape[0]):
        decision.xi[j] = eps * decision.momentum[j]
        new.z[j] = space.now.z[j]
    ratio = 0.0
    for _ in range(moves.n_steps):
        _half_drift(space, moves.learnt)
        _evaluate(link, sums, shared, space, rows, row, new, moves.gradient_units)
        row += moves.gradient_units * shared.base.unit_rows
        if tau != 1.0:
            prior_at(shared.base, new.z, decision.scratch, decision.other, decision.new_slope)
        pulled(
            decision.shape, moves.learnt, new.gradient, decision.new_slope, tau, decision.new_pull
        )
        ratio += kick(decision.xi, decision.new_pull, eps, moves.friction, rng)
        _half_drift(space, moves.learnt)
    decision.values[RATIO] = ratio
    _evaluate(link, sums, shared, space, rows, row, new, 0)


@inline
def _one_step(link, sums, shared, space, rows, row, eps, rng):  # type: ignore[no-untyped-def]
    """Propose by a random walk or a Langevin step, and evaluate the proposal."""
    moves, decision, now, new = shared.moves, space.decision, space.now, space.new
    d, shape, xi, other = now.z.shape[0], decision.shape, decision.xi, decision.other
    units = 0
    for j in range(d):
        xi[j] = rng.standard_normal()
    if moves.kind == LANGEVIN:
        units = moves.gradient_units
        if units > 0:
            _evaluate(link, sums, shared, space, rows, row, now, units)
        tau = decision.values[TAU]
        pulled(shape, moves.learnt, now.gradient, decision.slope, tau, decision.pull)
        for j in range(d):
            other[j] = 0.5 * eps * eps * decision.pull[j] + eps * xi[j]
    else:
        for j in range(d):
            other[j] = eps * xi[j]
    shaped(shape, moves.learnt, other, decision.scratch)
    for j in range(d):
        new.z[j] = now.z[j] + decision.scratch[j]
    _evaluate(link, sums, shared, space, rows, row, new, units)


@jit(
    types.void(
        LINK_TYPE, SUMS_TYPE, SHARED_TYPE, WORKSPACE_TYPE, ROWS_TYPE, i8, GENERATOR_TYPE
    ),
    borrow=True,
)  # fmt: skip
def propose(link, sums, shared, space, rows, row, rng):  # type: ignore[no-untyped-def]
    """Propose a position, evaluate it, and write log prior and log Hastings ratio.

    Gradients take units of ``rows`` from row ``row`` on.
    """
    moves, decision, new = shared.moves, space.decision, space.new
    values, xi = decision.values, decision.xi
    eps = values[STEP]
    still = moves.carried == 1 and decision.carried[ESTIMATED] == 0.0
    if still:
        eps = 0.0  # a step of no length: the position is estimated before anything moves
    values[RATIO] = 0.0
    if moves.kind == SGHMC:
        _trajectory(link, sums, shared, space, rows, row, eps, rng)
    else:
        _one_step(link, sums, shared, space, rows, row, eps, rng)
    values[NEW_PRIOR] = prior_at(
        shared.base, new.z, decision.scratch, decision.other, decision.new_slope
    )
    if moves.kind == LANGEVIN:
        pulled(
            decision.shape, moves.learnt, new.gradient, decision.new_slope, values[TAU],
            decision.new_pull,
        )  # fmt: skip
        values[RATIO] = langevin_ratio(xi, eps, decision.pull, decision.new_pull)
    if still:
        for j in range(xi.shape[0]):
            xi[j] = values[STEP] * decision.momentum[j]


@jit(f8(LINK_TYPE, SUMS_TYPE, SHARED_TYPE, WORKSPACE_TYPE), borrow=True)
def look_at_start(link, sums, shared, space):  # type: ignore[no-untyped-def]
    """Evaluate prior, Taylor sums and certainty rows at the position; return the log prior."""
    now, decision = space.now, space.decision
    now.used[UNITS] = now.used[ROWS] = 0
    evaluate(link, sums, shared.base, shared.certain, space.sub, now, space.work)
    return prior_at(shared.base, now.z, decision.scratch, decision.other, decision.slope)
