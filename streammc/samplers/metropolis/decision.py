"""A decision of Metropolis-Hastings: how it begins, how terms are added, how it ends."""

from __future__ import annotations

import math

from streammc.likelihood.blocks import TILE
from streammc.likelihood.difference import remainder_values
from streammc.likelihood.positions import displace
from streammc.likelihood.target import CERTAIN, REST, copy_point
from streammc.numerics.jit import inline
from streammc.samplers.common import statistics as column
from streammc.samplers.metropolis.acceptance.interface import (
    ACCEPT,
    BATCH,
    BOUND,
    COUNT,
    ERROR,
    ESTIMATE,
    FORCED,
    HEAT_FACTOR,
    KNOWN,
    NORMAL,
    POPULATION,
    STEP_FACTOR,
    SWEPT,
    UNIFORM,
    UNIFORM2,
    USED,
    VARIANCE,
)
from streammc.samplers.metropolis.acceptance.moments import add_terms, sweep_terms
from streammc.samplers.metropolis.options import DECISION_ERROR, TEMPERATURE, TEST_ROWS, WAS_FORCED
from streammc.samplers.metropolis.workspace import (
    BATCHED,
    EVALUATED,
    HEAT,
    NEW_PRIOR,
    NEW_SUM,
    NEW_SWEPT_SUM,
    PRIOR,
    RATIO,
    STEP,
    SUM,
    SWEPT_SUM,
    SWEPT_UNITS,
    TAKEN,
    TAU,
)


@inline
def compare(link, shared, space, block, lo, n_units):  # type: ignore[no-untyped-def]
    """Write ``D_j(theta') - D_j(theta)`` of ``n_units`` from row ``lo``; return both sums.

    Without ``D_j(theta)``, which stays 0, where an estimate of it is carried.
    """
    base, decision, scratch = shared.base, space.decision, space.work.scratch
    b, constants, n_linear = base.unit_rows, base.constants, base.n_linear
    end = lo + n_units * b
    for start in range(lo, end, TILE):
        stop = min(start + TILE, end)
        if shared.moves.carried == 0:
            remainder_values(
                link, constants, block, decision.delta, n_linear, start, stop, scratch,
                decision.now,
            )  # fmt: skip
        remainder_values(
            link, constants, block, decision.new_delta, n_linear, start, stop, scratch,
            decision.new,
        )  # fmt: skip
    before = after = 0.0
    for j in range(n_units):
        first = second = 0.0
        for i in range(lo + j * b, lo + (j + 1) * b):
            first += decision.now[i]
            second += decision.new[i]
        decision.totals[j] = second - first
        before += first
        after += second
    decision.where[EVALUATED] += (2 - shared.moves.carried) * n_units * b
    return before, after


@inline
def _clear(decision):  # type: ignore[no-untyped-def]
    """Forget the last decision."""
    for j in range(decision.facts.shape[0]):
        decision.facts[j] = 0.0
    for j in range(decision.memory.shape[0]):
        decision.memory[j] = 0.0
    for j in range(decision.reply.shape[0]):
        decision.reply[j] = 0.0
    decision.reply[STEP_FACTOR] = decision.reply[HEAT_FACTOR] = 1.0
    for j in range(SUM, BATCHED + 1):
        decision.values[j] = 0.0
    decision.where[TAKEN] = decision.where[SWEPT_UNITS] = 0


@inline
def begin(shared, space, rng):  # type: ignore[no-untyped-def]
    """Pass the log prior and proposal ratio to the acceptance test, before any likelihood term."""
    base, moves, decision, now, new = (
        shared.base, shared.moves, space.decision, space.now, space.new,
    )  # fmt: skip
    values, facts = decision.values, decision.facts
    _clear(decision)
    displace(base.factor, now.z, decision.delta)
    displace(base.factor, new.z, decision.new_delta)
    distance = first = second = 0.0
    for j in range(now.z.shape[0]):
        distance += (decision.new_delta[j] - decision.delta[j]) ** 2
        first += decision.delta[j] ** 2
        second += decision.new_delta[j] ** 2
    before = now.scalars[REST] - values[PRIOR]
    after = new.scalars[REST] - values[NEW_PRIOR]
    prior = values[NEW_PRIOR] - values[PRIOR]
    if moves.carried == 1:
        before += decision.carried[ESTIMATE]
    facts[KNOWN] = (after - before) / values[TAU] + prior + values[RATIO]
    facts[POPULATION] = moves.population
    facts[BOUND] = math.inf
    if moves.bound < math.inf:
        power = 0.5 * max(base.order, 0)
        facts[BOUND] = moves.bound * math.sqrt(distance) * max(first, second) ** power / values[TAU]
    decision.draws[UNIFORM] = 1.0 - rng.random()  # never 0
    decision.draws[NORMAL] = rng.standard_normal()
    decision.draws[UNIFORM2] = 1.0 - rng.random()


@inline
def add(link, shared, space, n):  # type: ignore[no-untyped-def]
    """Add the first ``n`` units of the workspace to the terms that were drawn.

    A request of the test may come in several pieces.
    """
    before, after = compare(link, shared, space, space.sub, 0, n)
    moves, decision = shared.moves, space.decision
    values, facts = decision.values, decision.facts
    batch = facts[BATCH]
    add_terms(decision.totals, n, moves.population / values[TAU], facts, decision.terms)
    values[BATCHED] += n
    facts[BATCH] = batch + (facts[BATCH] - batch) * n / values[BATCHED]
    values[SUM] += before
    values[NEW_SUM] += after


@inline
def sweep(link, shared, space, block, lo, n):  # type: ignore[no-untyped-def]
    """Add ``n`` units of ``block`` from row ``lo`` on to the moments of all terms."""
    before, after = compare(link, shared, space, block, lo, n)
    decision = space.decision
    values, where = decision.values, decision.where
    factor = shared.moves.population / values[TAU]
    sweep_terms(decision.totals, n, factor, float(where[SWEPT_UNITS]), decision.facts)
    values[SWEPT_SUM] += before
    values[NEW_SWEPT_SUM] += after
    where[SWEPT_UNITS] += n


@inline
def _remainder(moves, decision, accepted):  # type: ignore[no-untyped-def]
    """Return the sum of all remainders where the chain now is, or its estimate."""
    values, facts = decision.values, decision.facts
    swept = facts[SWEPT] == 1.0
    if accepted:
        if swept:
            return values[NEW_SWEPT_SUM]
        return values[NEW_SUM] * moves.population / max(facts[COUNT], 1.0)
    if moves.carried == 1:
        return decision.carried[ESTIMATE]
    if swept:
        return values[SWEPT_SUM]
    return values[SUM] * moves.population / max(facts[COUNT], 1.0)


@inline
def _move(space):  # type: ignore[no-untyped-def]
    """Move to the proposal."""
    decision, values = space.decision, space.decision.values
    copy_point(space.new, space.now)
    values[PRIOR] = values[NEW_PRIOR]
    for j in range(decision.slope.shape[0]):
        decision.slope[j] = decision.new_slope[j]
        decision.delta[j] = decision.new_delta[j]
        decision.momentum[j] = decision.xi[j] / values[STEP]


@inline
def end(shared, space, verdict, final, theta, row):  # type: ignore[no-untyped-def]
    """Move or stay; write the draw ``theta`` (d,) and its statistics ``row`` (14,)."""
    base, moves, decision, now = shared.base, shared.moves, space.decision, space.now
    values, reply = decision.values, decision.reply
    accepted = verdict == ACCEPT
    remainder = _remainder(moves, decision, accepted)
    if accepted:
        if moves.carried == 1:
            decision.carried[ESTIMATE] = remainder
        _move(space)
    else:
        for j in range(decision.momentum.shape[0]):
            decision.momentum[j] = -decision.momentum[j]
    for j in range(theta.shape[0]):
        theta[j] = base.theta_star[j] + decision.delta[j]
    tau = values[TAU]
    lp = (now.scalars[REST] - values[PRIOR] + remainder) / tau + values[PRIOR]
    row[column.LP] = lp
    row[column.ACCEPTANCE_RATE] = 1.0 if accepted else 0.0
    row[column.DIVERGING] = 0.0
    row[column.ENERGY] = -lp
    row[column.STEP_SIZE] = values[STEP]
    row[column.N_STEPS] = moves.n_steps
    row[column.LOG_LIK_VARIANCE] = reply[VARIANCE]
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = decision.where[EVALUATED]
    row[column.LOG_LIK_REMAINDER] = now.scalars[CERTAIN] + remainder
    row[TEST_ROWS] = reply[USED] * base.unit_rows
    row[DECISION_ERROR] = reply[ERROR]
    row[WAS_FORCED] = reply[FORCED]
    row[TEMPERATURE] = tau * final
    values[STEP] *= reply[STEP_FACTOR]
    values[HEAT] *= reply[HEAT_FACTOR]
