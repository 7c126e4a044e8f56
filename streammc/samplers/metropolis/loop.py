"""The compiled loop of Metropolis-Hastings with an acceptance test.

A test decides on a proposal from the terms of some units, and may ask for more, or for a sweep:
the terms of all units. The first units of a decision are drawn ahead, with those of the gradients
of the proposal. Where others are needed, the loop returns; the kernel gathers their rows, calls
again, and the same decision goes on. Tests are function pointers (``acceptance.interface``).
"""

from __future__ import annotations

import math

from streammc.likelihood.blocks import ExpansionPoint, expand
from streammc.numerics.jit import GENERATOR_TYPE, LINK_TYPE, SUMS_TYPE, i8, inline, jit
from streammc.samplers.common import tuning
from streammc.samplers.common.statistics import ACCEPTANCE_RATE
from streammc.samplers.metropolis.acceptance.interface import (
    KNOWN,
    MORE,
    REJECT,
    SWEPT,
    TEST_TYPE,
    VARIANCE,
    WANTED,
)
from streammc.samplers.metropolis.decision import add, begin, end, sweep
from streammc.samplers.metropolis.proposal import propose, units_ahead
from streammc.samplers.metropolis.workspace import (
    BATCH_TYPE,
    BATCHED,
    EVALUATED,
    GATHERED_TYPE,
    HEAT,
    ITERATION,
    LEFT,
    PHASE,
    SHARED_TYPE,
    STEP,
    SWEPT_UNITS,
    TAKEN,
    TAU,
    WORKSPACE_TYPE,
)

DONE, NEED_TERMS, NEED_SWEEP = range(3)
"""Answers of the loop: the batch is done, or rows are needed to go on."""
PROPOSE, ASK, DRAW, SWEEPING = range(4)
"""Phases of an iteration: make a proposal, ask the test, add the terms it wants, or all terms."""
_EXHAUSTED = -1
"""No gathered units are left: in place of the number of those used."""


@inline
def _propose(link, sums, shared, space, gathered, batch, rng):  # type: ignore[no-untyped-def]
    """Begin an iteration: a proposal, and a decision on it."""
    moves, where, values = shared.moves, space.decision.where, space.decision.values
    values[TAU] = batch.tempering[where[ITERATION]] * values[HEAT]
    where[EVALUATED] = 0
    units = units_ahead(moves) + moves.first_units
    row = where[ITERATION] * units * shared.base.unit_rows
    propose(link, sums, shared, space, gathered.ahead, row, rng)
    begin(shared, space, rng)
    where[PHASE] = ASK


@inline
def _tune(moves, decision, batch, acceptance):  # type: ignore[no-untyped-def]
    """Tune the step size in warm-up, by the acceptance of the last proposal."""
    aimed = batch.target
    if moves.carried == 1:  # 2 Phi(-sqrt(jump + 2 v) / 2): see records.Moves.jump
        aimed = math.erfc(math.sqrt((moves.jump + 2.0 * decision.reply[VARIANCE]) / 8.0))
    tuning.update(batch.adapt, acceptance, aimed, math.inf)
    decision.values[STEP] = math.exp(batch.adapt[tuning.LOG_STEP])


@inline
def _request(moves, decision):  # type: ignore[no-untyped-def]
    """Begin to add the terms that the test wants; begin a sweep if all units have been drawn."""
    where = decision.where
    where[PHASE] = DRAW
    where[LEFT] = int(decision.reply[WANTED])
    decision.values[BATCHED] = 0.0
    if moves.finite == 1:
        where[LEFT] = min(where[LEFT], moves.population - where[TAKEN])
    if where[LEFT] <= 0:
        where[PHASE] = SWEEPING


@inline
def _ask(decide, shared, space, batch):  # type: ignore[no-untyped-def]
    """Ask the test for its verdict; draw terms, sweep, or end the iteration."""
    moves, decision = shared.moves, space.decision
    where, facts = decision.where, decision.facts
    # Outside the support: rejected without the test, but one that carries must write its reply.
    verdict = REJECT
    if math.isfinite(facts[KNOWN]) or moves.carried == 1:
        verdict = decide(
            batch.settings, facts, decision.terms, decision.draws, decision.memory,
            decision.carried, decision.reply, shared.table,
        )  # fmt: skip
    if verdict == MORE:
        _request(moves, decision)
    elif verdict > MORE:
        where[PHASE] = SWEEPING
    else:
        t = where[ITERATION]
        end(shared, space, verdict, batch.final, batch.theta[t], batch.statistics[t])
        if batch.target > 0.0:
            _tune(moves, decision, batch, batch.statistics[t, ACCEPTANCE_RATE])
        where[PHASE] = PROPOSE
        where[ITERATION] += 1


@inline
def _expand(link, base, space, rows, row, n_units):  # type: ignore[no-untyped-def]
    """Expand ``n_units`` units of ``rows`` from ``row`` on into the workspace."""
    star = ExpansionPoint(base.theta_star, base.constants, base.n_linear, base.order)
    expand(link, star, rows, row, n_units * base.unit_rows, space.sub, 0, space.work.scratch)


@inline
def _draw(link, shared, space, gathered, used):  # type: ignore[no-untyped-def]
    """Add some of the terms wanted, from the rows drawn ahead and then from ``gathered.extra``.

    Returns the units of ``gathered.extra`` used so far, or ``_EXHAUSTED``.
    """
    moves, where, b = shared.moves, space.decision.where, shared.base.unit_rows
    n = min(where[LEFT], space.sub.y.shape[0] // b)
    if where[TAKEN] < moves.first_units:
        n = min(n, moves.first_units - where[TAKEN])
        before = units_ahead(moves)
        units = where[ITERATION] * (before + moves.first_units) + before + where[TAKEN]
        _expand(link, shared.base, space, gathered.ahead, units * b, n)
    else:
        n = min(n, gathered.extra_units - used)
        if n <= 0:
            return _EXHAUSTED
        _expand(link, shared.base, space, gathered.extra, used * b, n)
        used += n
    add(link, shared, space, n)
    where[TAKEN] += n
    where[LEFT] -= n
    if where[LEFT] == 0:
        where[PHASE] = ASK
    return used


@inline
def _sweep(link, shared, space, gathered, used):  # type: ignore[no-untyped-def]
    """Add the terms of the next units of a sweep; return as :func:`_draw` does."""
    moves, decision, b = shared.moves, space.decision, shared.base.unit_rows
    swept = decision.where[SWEPT_UNITS]
    n = min(space.sub.y.shape[0] // b, moves.population - swept)
    if shared.held.y.shape[0] > 0:
        sweep(link, shared, space, shared.held, swept * b, n)
    else:
        n = min(n, gathered.extra_units - used)
        if n <= 0:
            return _EXHAUSTED
        _expand(link, shared.base, space, gathered.extra, used * b, n)
        sweep(link, shared, space, space.sub, 0, n)
        used += n
    if decision.where[SWEPT_UNITS] == moves.population:
        decision.facts[SWEPT] = 1.0
        decision.where[PHASE] = ASK
    return used


@jit(
    i8(
        LINK_TYPE, SUMS_TYPE, TEST_TYPE, SHARED_TYPE, WORKSPACE_TYPE, GATHERED_TYPE, BATCH_TYPE,
        GENERATOR_TYPE,
    ),
    reassociate=True,
    borrow=True,
)  # fmt: skip
def run(link, sums, decide, shared, space, gathered, batch, rng):  # type: ignore[no-untyped-def]
    """Iterate until every row of ``batch.theta`` is written, or rows must be gathered.

    Returns ``DONE``, ``NEED_TERMS`` or ``NEED_SWEEP``; ``rng`` is the chain's own.
    """
    where = space.decision.where
    used = 0
    while where[ITERATION] < batch.theta.shape[0]:
        phase = where[PHASE]
        if phase == PROPOSE:
            _propose(link, sums, shared, space, gathered, batch, rng)
        elif phase == ASK:
            _ask(decide, shared, space, batch)
            if where[PHASE] != DRAW:
                used = gathered.extra_units  # the rest were further terms of this decision
        elif phase == DRAW:
            used = _draw(link, shared, space, gathered, used)
            if used == _EXHAUSTED:
                return NEED_TERMS
        else:
            used = _sweep(link, shared, space, gathered, used)
            if used == _EXHAUSTED:
                return NEED_SWEEP
    return DONE
