"""A decision of Metropolis-Hastings: its state, what begins it, what adds to it, what ends it.

Written in place by the compiled loop, which may leave and come back at any point.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import TILE
from streammc.likelihood.difference import remainder_values
from streammc.likelihood.target import (
    CERTAIN,
    REST,
    copy_point,
    displace,
)
from streammc.numerics.jit import (
    f8,
    i8,
    index_vector,
    inline,
    matrix,
    vector,
)
from streammc.protocols import Index, Matrix, Vector
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
    N_CARRIED,
    N_DRAWS,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
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

DONE, NEED_TERMS, NEED_SWEEP = range(3)
"""What the loop returns: a batch is done, or rows are needed to go on."""
PROPOSE, ASK, DRAW, SWEEPING = range(4)
ITERATION, PHASE, TAKEN, LEFT, SWEPT_UNITS, EVALUATED = range(6)
STEP, HEAT, TAU, RATIO, PRIOR, NEW_PRIOR, SUM, NEW_SUM, SWEPT_SUM, NEW_SWEPT_SUM, BATCHED = range(
    11
)


class Moves(NamedTuple):
    """Settings of the loop."""

    kind: int
    n_steps: int
    friction: float
    gradient_units: int
    """Of each gradient."""
    first_units: int
    """That a decision asks for first."""
    population: int
    """U."""
    bound: float
    """B of ``|x_j| <= B max(|delta|, |delta'|)^order |theta' - theta|``; infinite: not known."""
    learnt: int
    """Whether the steps have a shape of their own."""
    finite: int
    """Whether terms are drawn without replacement."""
    carried: int = 0
    """Whether the estimate at the position is carried, and terms are of the proposal alone."""
    jump: float = 0.0
    """Variance of Delta along the way of steps that are accepted as often as is aimed at; with that
    of two estimates, 2 v, ``2 Phi(-sqrt(jump + 2 v) / 2)`` are (Sherlock et al. 2015)."""

    @property
    def gradients(self) -> int:
        """Gradients of a decision that have rows of their own."""
        return (0, 1, self.n_steps)[self.kind] if self.gradient_units else 0

    @property
    def decision_units(self) -> int:
        """Units that are drawn ahead for a decision."""
        return self.gradients * self.gradient_units + self.first_units


MOVES_TYPE: Any = types.NamedTuple((i8, i8, f8, i8, i8, i8, f8, i8, i8, i8, f8), Moves)


class Decision(NamedTuple):
    """Where the chain is within a decision; written in place."""

    where: Index
    """(6,) iteration of the batch, phase, units drawn, units left to draw, units swept, and
    log-likelihoods evaluated."""
    values: Vector
    """(11,) step size, heat, temperature relative to the final one, log Hastings ratio, log
    priors, sums of remainders at both ends of what was drawn and of what was swept, and terms
    of the request under way."""
    facts: Vector
    terms: Vector
    draws: Vector
    memory: Vector
    carried: Vector
    reply: Vector
    momentum: Vector
    """(d,) of an SGHMC proposal, over the step size."""
    xi: Vector
    """(d,) noise of the proposal, or its velocity."""
    slope: Vector
    """(d,) whitened gradient of the log prior at the position."""
    new_slope: Vector
    pull: Vector
    """(d,) gradient in ``w`` at the position."""
    new_pull: Vector
    delta: Vector
    """(d,) position minus theta_star."""
    new_delta: Vector
    scratch: Vector
    other: Vector
    now: Vector
    """(rows,) remainders at the position."""
    new: Vector
    """(rows,) remainders at the proposal."""
    totals: Vector
    """(rows,) their differences, by unit."""
    shape: Matrix
    """(d, d) lower triangular L, or (0, 0)."""


DECISION_TYPE: Any = types.NamedTuple((index_vector, *(vector,) * 20, matrix), Decision)


def allocate_decision(d: int, rows: int, *, learnt: bool) -> Decision:
    """Return the start of a chain; the largest block that is compared has ``rows`` rows."""
    sizes = (11, N_FACTS, N_TERMS, N_DRAWS, N_MEMORY, N_CARRIED, N_REPLY, *(d,) * 10, *(rows,) * 3)
    arrays = [np.zeros(size) for size in sizes]
    at = Decision._make([np.zeros(6, dtype=np.int64), *arrays, np.eye(d if learnt else 0)])
    at.values[HEAT] = 1.0
    return at


@inline
def compare(link, base, block, lo, n_units, work, at, carried):  # type: ignore[no-untyped-def]
    """Write ``D_j(theta') - D_j(theta)`` of ``n_units`` from row ``lo``; return both sums.

    Without ``D_j(theta)``, which stays 0, where an estimate of it is ``carried``.
    """
    b = base.unit_rows
    constants, n_linear, scratch = base.constants, base.n_linear, work.scratch
    end = lo + n_units * b
    for start in range(lo, end, TILE):
        stop = min(start + TILE, end)
        if carried == 0:
            remainder_values(
                link, constants, block, at.delta, n_linear, start, stop, scratch, at.now
            )
        remainder_values(
            link, constants, block, at.new_delta, n_linear, start, stop, scratch, at.new
        )
    before = after = 0.0
    for j in range(n_units):
        first = second = 0.0
        for i in range(lo + j * b, lo + (j + 1) * b):
            first += at.now[i]
            second += at.new[i]
        at.totals[j] = second - first
        before += first
        after += second
    return before, after


@inline
def begin(base, now, new, at, moves, rng):  # type: ignore[no-untyped-def]
    """Tell the test what is known of the proposal before any term is."""
    d = now.z.shape[0]
    values, facts, reply = at.values, at.facts, at.reply
    for j in range(facts.shape[0]):
        facts[j] = 0.0
    for j in range(at.memory.shape[0]):
        at.memory[j] = 0.0
    for j in range(reply.shape[0]):
        reply[j] = 0.0
    reply[STEP_FACTOR] = reply[HEAT_FACTOR] = 1.0
    for j in range(SUM, BATCHED + 1):
        values[j] = 0.0
    at.where[TAKEN] = at.where[SWEPT_UNITS] = 0
    displace(base.factor, now.z, at.delta)
    displace(base.factor, new.z, at.new_delta)
    distance = first = second = 0.0
    for j in range(d):
        distance += (at.new_delta[j] - at.delta[j]) ** 2
        first += at.delta[j] ** 2
        second += at.new_delta[j] ** 2
    before = now.scalars[REST] - values[PRIOR]
    after = new.scalars[REST] - values[NEW_PRIOR]
    prior = values[NEW_PRIOR] - values[PRIOR]
    if moves.carried == 1:
        before += at.carried[ESTIMATE]
    facts[KNOWN] = (after - before) / values[TAU] + prior + values[RATIO]
    facts[POPULATION] = moves.population
    facts[BOUND] = math.inf
    if moves.bound < math.inf:
        power = 0.5 * max(base.order, 0)
        facts[BOUND] = moves.bound * math.sqrt(distance) * max(first, second) ** power / values[TAU]
    at.draws[UNIFORM] = 1.0 - rng.random()  # never 0
    at.draws[NORMAL] = rng.standard_normal()
    at.draws[UNIFORM2] = 1.0 - rng.random()


@inline
def add(moves, at, n, before, after):  # type: ignore[no-untyped-def]
    """Add ``n`` terms to what the test sees; a request may come in several pieces."""
    values, facts = at.values, at.facts
    batch = facts[BATCH]
    add_terms(at.totals, n, moves.population / values[TAU], facts, at.terms)
    values[BATCHED] += n
    facts[BATCH] = batch + (facts[BATCH] - batch) * n / values[BATCHED]
    values[SUM] += before
    values[NEW_SUM] += after


@inline
def sweep(link, base, block, lo, n, work, at, moves):  # type: ignore[no-untyped-def]
    """Sweep ``n`` units of ``block``."""
    values, where = at.values, at.where
    before, after = compare(link, base, block, lo, n, work, at, moves.carried)
    factor = moves.population / values[TAU]
    sweep_terms(at.totals, n, factor, float(where[SWEPT_UNITS]), at.facts)
    values[SWEPT_SUM] += before
    values[NEW_SWEPT_SUM] += after
    where[SWEPT_UNITS] += n
    where[EVALUATED] += (2 - moves.carried) * n * base.unit_rows


@inline
def end(base, verdict, now, new, at, moves, final, theta, row):  # type: ignore[no-untyped-def]
    """Move or stay, and record it."""
    values, reply, where = at.values, at.reply, at.where
    d = now.z.shape[0]
    accepted = verdict == ACCEPT
    remainder = values[SUM] * moves.population / max(at.facts[COUNT], 1.0)
    if moves.carried == 1:
        remainder = at.carried[ESTIMATE]
    swept = at.facts[SWEPT] == 1.0
    if swept and moves.carried == 0:
        remainder = values[SWEPT_SUM]
    if accepted:
        remainder = values[NEW_SUM] * moves.population / max(at.facts[COUNT], 1.0)
        if swept:
            remainder = values[NEW_SWEPT_SUM]
        if moves.carried == 1:
            at.carried[ESTIMATE] = remainder
        copy_point(new, now)
        values[PRIOR] = values[NEW_PRIOR]
        for j in range(d):
            at.slope[j] = at.new_slope[j]
            at.delta[j] = at.new_delta[j]
            at.momentum[j] = at.xi[j] / values[STEP]
    else:
        for j in range(d):
            at.momentum[j] = -at.momentum[j]
    for j in range(d):
        theta[j] = base.theta_star[j] + at.delta[j]
    tau = values[TAU]
    lp = (now.scalars[REST] - values[PRIOR] + remainder) / tau + values[PRIOR]
    row[0] = lp
    row[1] = 1.0 if accepted else 0.0
    row[2] = 0.0
    row[3] = -lp
    row[4] = values[STEP]
    row[5] = moves.n_steps
    row[6] = reply[VARIANCE]
    row[7] = 1.0
    row[8] = where[EVALUATED]
    row[9] = now.scalars[CERTAIN] + remainder
    row[10] = reply[USED] * base.unit_rows
    row[11] = reply[ERROR]
    row[12] = reply[FORCED]
    row[13] = tau * final
    values[STEP] *= reply[STEP_FACTOR]
    values[HEAT] *= reply[HEAT_FACTOR]
