"""The compiled loop of Metropolis-Hastings with an acceptance test.

A decision takes rows as it goes. The first are drawn ahead, with those of the gradients of
the proposal; where a test asks for more, or for all, the loop returns to have them
gathered, and goes on where it was. Tests are function pointers (``acceptance.interface``).
"""

from __future__ import annotations

import math

from numba import types

from streammc.likelihood.blocks import BLOCK_TYPE, ROWS_TYPE, expand
from streammc.likelihood.target import (
    BASE_TYPE,
    POINT_TYPE,
    ROWS,
    UNITS,
    WORK_TYPE,
    evaluate,
)
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    SUMS_TYPE,
    f8,
    i8,
    jit,
    matrix,
    vector,
)
from streammc.samplers.common import tuning
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
from streammc.samplers.metropolis.acceptance.interface import (
    ESTIMATED,
    KNOWN,
    MORE,
    REJECT,
    SWEPT,
    TEST_TYPE,
    VARIANCE,
    WANTED,
)
from streammc.samplers.metropolis.decision import (
    ASK,
    BATCHED,
    DECISION_TYPE,
    DONE,
    DRAW,
    EVALUATED,
    HEAT,
    ITERATION,
    LEFT,
    MOVES_TYPE,
    NEED_SWEEP,
    NEED_TERMS,
    NEW_PRIOR,
    PHASE,
    PROPOSE,
    RATIO,
    STEP,
    SWEEPING,
    SWEPT_UNITS,
    TAKEN,
    TAU,
    add,
    begin,
    compare,
    end,
    sweep,
)


@jit(
    types.void(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BLOCK_TYPE, ROWS_TYPE, i8, POINT_TYPE,
        WORK_TYPE, i8,
    ),
    borrow=True,
)  # fmt: skip
def _look(link, sums, base, certain, sub, rows, start, point, work, units):  # type: ignore[no-untyped-def]
    """Evaluate density and gradient at ``point.z`` with ``units`` of ``rows`` from ``start``."""
    m = units * base.unit_rows
    if m > 0:
        n, order, star = base.n_linear, base.order, base.theta_star
        expand(link, base.constants, star, n, order, rows, start, m, sub, 0, work.scratch)
    point.used[UNITS], point.used[ROWS] = units, m
    evaluate(link, sums, base, certain, sub, point, work)


@jit(
    types.void(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BLOCK_TYPE, ROWS_TYPE, i8, POINT_TYPE,
        POINT_TYPE, WORK_TYPE, DECISION_TYPE, MOVES_TYPE, GENERATOR_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def _propose(link, sums, base, certain, sub, rows, row, now, new, work, at, moves, rng):  # type: ignore[no-untyped-def]
    """Propose ``new``, evaluate what takes no terms there, and write the Hastings ratio."""
    d = now.z.shape[0]
    eps, tau, learnt = at.values[STEP], at.values[TAU], moves.learnt
    still = moves.carried == 1 and at.carried[ESTIMATED] == 0.0
    if still:
        eps = 0.0  # a step of no length: the position is estimated before anything moves
    units = moves.gradient_units
    xi, scratch, shape = at.xi, at.scratch, at.shape
    looks = 1
    ratio = 0.0
    if moves.kind == SGHMC:
        for j in range(d):
            xi[j] = eps * at.momentum[j]
            new.z[j] = now.z[j]
        for _ in range(moves.n_steps):
            shaped(shape, learnt, xi, scratch)
            for j in range(d):
                new.z[j] += 0.5 * scratch[j]
            _look(link, sums, base, certain, sub, rows, row, new, work, units)
            row += units * base.unit_rows
            if tau != 1.0:
                prior_at(base, new.z, scratch, at.other, at.new_slope)
            pulled(shape, learnt, new.gradient, at.new_slope, tau, at.new_pull)
            ratio += kick(xi, at.new_pull, eps, moves.friction, rng)
            shaped(shape, learnt, xi, scratch)
            for j in range(d):
                new.z[j] += 0.5 * scratch[j]
        looks += moves.n_steps
        _look(link, sums, base, certain, sub, rows, row, new, work, 0)
    else:
        for j in range(d):
            xi[j] = rng.standard_normal()
        if moves.kind == LANGEVIN:
            if units > 0:
                _look(link, sums, base, certain, sub, rows, row, now, work, units)
                looks += 1
            pulled(shape, learnt, now.gradient, at.slope, tau, at.pull)
            for j in range(d):
                at.other[j] = 0.5 * eps * eps * at.pull[j] + eps * xi[j]
        else:
            units = 0
            for j in range(d):
                at.other[j] = eps * xi[j]
        shaped(shape, learnt, at.other, scratch)
        for j in range(d):
            new.z[j] = now.z[j] + scratch[j]
        _look(link, sums, base, certain, sub, rows, row, new, work, units)
    at.values[NEW_PRIOR] = prior_at(base, new.z, scratch, at.other, at.new_slope)
    if moves.kind == LANGEVIN:
        pulled(shape, learnt, new.gradient, at.new_slope, tau, at.new_pull)
        ratio = langevin_ratio(xi, eps, at.pull, at.new_pull)
    if still:
        for j in range(d):
            xi[j] = at.values[STEP] * at.momentum[j]
    at.values[RATIO] = ratio
    gradients = looks - 1 if moves.kind == SGHMC else looks
    at.where[EVALUATED] += looks * certain.y.shape[0] + gradients * units * base.unit_rows


@jit(
    f8(
        LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE, BLOCK_TYPE, POINT_TYPE, WORK_TYPE,
        DECISION_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def look_at_start(link, sums, base, certain, sub, now, work, at):  # type: ignore[no-untyped-def]
    """Evaluate what takes no rows at ``now.z``; return the log prior there."""
    now.used[UNITS] = now.used[ROWS] = 0
    evaluate(link, sums, base, certain, sub, now, work)
    return prior_at(base, now.z, at.scratch, at.other, at.slope)


@jit(
    i8(
        LINK_TYPE, SUMS_TYPE, TEST_TYPE, BASE_TYPE, BLOCK_TYPE, BLOCK_TYPE, ROWS_TYPE, ROWS_TYPE,
        i8, BLOCK_TYPE, POINT_TYPE, POINT_TYPE, WORK_TYPE, DECISION_TYPE, MOVES_TYPE, vector,
        matrix, vector, f8, vector, f8, GENERATOR_TYPE, matrix, matrix,
    ),
    reassociate=True,
    borrow=True,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    link, sums, decide, base, certain, held, ahead, extra, extra_units, sub, now, new, work, at,
    moves, settings, table, tempering, final, adapt, target, rng, theta, statistics,
):  # fmt: skip
    """Go on until every row of ``theta`` is written, or rows are needed.

    ``ahead`` holds the rows of every iteration, those of gradients first; ``extra`` what was
    asked for last, or more: the following units of the same decision. ``held`` holds all rows,
    or none. ``tempering`` (n,) are temperatures relative to ``final``, ``adapt`` the state of
    ``common.tuning`` where ``target`` is not 0.
    """
    where, values = at.where, at.values
    b = base.unit_rows
    chunk = sub.y.shape[0] // b
    ahead_units = 0
    if moves.gradient_units > 0 and moves.kind != RANDOM_WALK:
        ahead_units = moves.gradient_units * (1 if moves.kind == LANGEVIN else moves.n_steps)
    per_iteration = ahead_units + moves.first_units
    used = 0
    while where[ITERATION] < theta.shape[0]:
        t = where[ITERATION]
        if where[PHASE] == PROPOSE:
            values[TAU] = tempering[t] * values[HEAT]
            where[EVALUATED] = 0
            row = t * per_iteration * b
            _propose(link, sums, base, certain, sub, ahead, row, now, new, work, at, moves, rng)
            begin(base, now, new, at, moves, rng)
            where[PHASE] = ASK
        elif where[PHASE] == ASK:
            verdict = REJECT
            if math.isfinite(at.facts[KNOWN]) or moves.carried == 1:
                verdict = decide(
                    settings, at.facts, at.terms, at.draws, at.memory, at.carried, at.reply, table
                )
            if verdict == MORE:
                where[PHASE] = DRAW
                where[LEFT] = int(at.reply[WANTED])
                values[BATCHED] = 0.0
                if moves.finite == 1:
                    where[LEFT] = min(where[LEFT], moves.population - where[TAKEN])
                if where[LEFT] <= 0:
                    where[PHASE] = SWEEPING
            elif verdict > MORE:
                where[PHASE] = SWEEPING
            else:
                end(base, verdict, now, new, at, moves, final, theta[t], statistics[t])
                if target > 0.0:
                    aimed = target
                    if moves.carried == 1:
                        aimed = math.erfc(math.sqrt((moves.jump + 2.0 * at.reply[VARIANCE]) / 8.0))
                    tuning.update(adapt, statistics[t, 1], aimed, math.inf)
                    values[STEP] = math.exp(adapt[tuning.LOG_STEP])
                where[PHASE] = PROPOSE
                where[ITERATION] += 1
            if where[PHASE] != DRAW:
                used = extra_units  # what is left over belongs to this decision's draws
        elif where[PHASE] == DRAW:
            n = min(where[LEFT], chunk)
            if where[TAKEN] < moves.first_units:
                n = min(n, moves.first_units - where[TAKEN])
                row = (t * per_iteration + ahead_units + where[TAKEN]) * b
                rows = ahead
            else:
                n = min(n, extra_units - used)
                row = used * b
                rows = extra
                used += n
            if n <= 0:
                return NEED_TERMS
            expand(
                link, base.constants, base.theta_star, base.n_linear, base.order, rows, row, n * b,
                sub, 0, work.scratch,
            )  # fmt: skip
            before, after = compare(link, base, sub, 0, n, work, at, moves.carried)
            add(moves, at, n, before, after)
            where[EVALUATED] += (2 - moves.carried) * n * b
            where[TAKEN] += n
            where[LEFT] -= n
            if where[LEFT] == 0:
                where[PHASE] = ASK
        else:
            left = moves.population - where[SWEPT_UNITS]
            if held.y.shape[0] > 0:
                lo = where[SWEPT_UNITS] * b
                sweep(link, base, held, lo, min(chunk, left), work, at, moves)
            else:
                n = min(min(chunk, left), extra_units - used)
                if n <= 0:
                    return NEED_SWEEP
                expand(
                    link, base.constants, base.theta_star, base.n_linear, base.order, extra,
                    used * b, n * b, sub, 0, work.scratch,
                )  # fmt: skip
                sweep(link, base, sub, 0, n, work, at, moves)
                used += n
            if where[SWEPT_UNITS] == moves.population:
                at.facts[SWEPT] = 1.0
                where[PHASE] = ASK
    return DONE
