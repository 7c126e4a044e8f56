"""Records of a chain of Metropolis-Hastings, which the compiled loop reads and writes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammc.likelihood.blocks import Block
from streammc.likelihood.target import Base, Point, Work
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix, Rows, Vector
from streammc.samplers.metropolis.acceptance.interface import (
    N_CARRIED,
    N_DRAWS,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
)


class Moves(NamedTuple):
    """Settings of proposals and decisions."""

    kind: int
    """``RANDOM_WALK``, ``LANGEVIN`` or ``SGHMC`` of ``common.proposals``."""
    n_steps: int
    friction: float
    gradient_units: int
    """Units of each gradient; 0: gradients take no units."""
    first_units: int
    """Units that a decision asks for first."""
    population: int
    """Units of the data set, U."""
    bound: float
    """B of ``|x_j| <= B max(|delta|, |delta'|)^order |theta' - theta|``; infinite: not known."""
    learnt: int
    """Whether warm-up learns the shape of the steps."""
    finite: int
    """Whether terms are drawn without replacement."""
    carried: int = 0
    """Whether the estimate at the position is carried, and terms are of the proposal alone."""
    jump: float = 0.0
    """Variance of Delta over steps whose acceptance rate is the target; with that
    of two estimates, 2 v, the rate is ``2 Phi(-sqrt(jump + 2 v) / 2)`` (Sherlock et al. 2015)."""

    @property
    def gradients(self) -> int:
        """Number of gradients of a decision that have rows of their own."""
        return (0, 1, self.n_steps)[self.kind] if self.gradient_units else 0

    @property
    def decision_units(self) -> int:
        """Units that are drawn ahead for a decision."""
        return self.gradients * self.gradient_units + self.first_units


MOVES_TYPE: Any = record_type(Moves)


class Shared(NamedTuple):
    """Arrays and settings that all chains of a run share."""

    base: Base
    certain: Block
    held: Block
    """All rows, certainty rows counting 0 times; or none: then a sweep has them gathered."""
    moves: Moves
    table: Matrix
    """Table of the acceptance test."""


SHARED_TYPE: Any = record_type(Shared)

ITERATION, PHASE, TAKEN, LEFT, SWEPT_UNITS, EVALUATED = range(6)
STEP, HEAT, TAU, RATIO, PRIOR, NEW_PRIOR, SUM, NEW_SUM, SWEPT_SUM, NEW_SWEPT_SUM, BATCHED = range(
    11
)


class Decision(NamedTuple):
    """State of the decision under way, and scratch; written in place."""

    where: Index
    """(6,) iteration of the batch, phase, units drawn, units left to draw, units swept, and
    log-likelihoods evaluated."""
    values: Vector
    """(11,) step size, heat, temperature relative to the final one, log Hastings ratio, log
    priors, sums of remainders at both ends of the units drawn and of the units swept, and terms
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


DECISION_TYPE: Any = record_type(Decision)


def allocate_decision(d: int, rows: int, *, learnt: bool) -> Decision:
    """Return the start of a chain; the largest block that is compared has ``rows`` rows."""
    sizes = (11, N_FACTS, N_TERMS, N_DRAWS, N_MEMORY, N_CARRIED, N_REPLY, *(d,) * 10, *(rows,) * 3)
    arrays = [np.zeros(size) for size in sizes]
    decision = Decision._make([np.zeros(6, dtype=np.int64), *arrays, np.eye(d if learnt else 0)])
    decision.values[HEAT] = 1.0
    return decision


class Workspace(NamedTuple):
    """State and scratch of one chain; written in place."""

    sub: Block
    """Rows under evaluation, expanded."""
    now: Point
    """The position."""
    new: Point
    """The proposal."""
    work: Work
    decision: Decision


WORKSPACE_TYPE: Any = record_type(Workspace)


class Gathered(NamedTuple):
    """Rows of a batch that are in memory."""

    ahead: Rows
    """Rows drawn ahead for every iteration, those of gradients first."""
    extra: Rows
    """Rows that the loop stopped for, or more: the next units of the same decision."""
    extra_units: int


GATHERED_TYPE: Any = record_type(Gathered)


class Batch(NamedTuple):
    """Settings and results of the iterations that are handed to the loop at once."""

    settings: Vector
    """Settings of the acceptance test."""
    tempering: Vector
    """(n,) temperatures relative to ``final``."""
    final: float
    """Last temperature of the schedule, times that of the sampler."""
    target: float
    """Mean acceptance probability to which the step size is tuned; 0: it stays."""
    adapt: Vector
    """State of ``common.tuning``."""
    theta: Matrix
    """(n, d) draws."""
    statistics: Matrix
    """(n, 14) columns of ``METROPOLIS_STATISTICS``."""


BATCH_TYPE: Any = record_type(Batch)
