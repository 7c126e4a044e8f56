"""The compiled loop of Metropolis-Hastings with an acceptance test.

A test decides on a proposal from the terms of some units, and may ask for more, or for a sweep:
the terms of all units. The first units of a decision are drawn ahead, with those of the gradients
of the proposal. Where others are needed, the loop returns; the kernel gathers their rows, calls
again, and the same decision goes on. Tests are function pointers; their terms ``x_j``, the log
ratio Delta and the arguments ``facts``, ``terms``, ``draws``, ``memory``, ``carried`` and ``reply``
are those of ``metropolis.acceptance``. Proposals are in the coordinates ``w`` of
``common.proposals``, ``z = L w``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import from_dtype, types

from streammc.likelihood.blocks import ROWS_TYPE, TILE, Block, ExpansionPoint, expand
from streammc.likelihood.estimators import remainder_values
from streammc.likelihood.target import (
    CERTAIN,
    REST,
    ROWS,
    UNITS,
    Base,
    Point,
    Work,
    copy_point,
    displace,
    evaluate,
)
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_TYPE,
    SUMS_TYPE,
    f8,
    i8,
    inline,
    jit,
    record_type,
)
from streammc.protocols import Matrix, Rows, Vector
from streammc.samplers.common import statistics as column
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
from streammc.samplers.common.statistics import (
    ACCEPTANCE_RATE,
    DECISION_ERROR,
    TEMPERATURE,
    TEST_ROWS,
    WAS_FORCED,
)
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    BATCH,
    BOUND,
    COUNT,
    ERROR,
    ESTIMATE,
    ESTIMATED,
    FORCED,
    HEAT_FACTOR,
    KNOWN,
    MORE,
    N_CARRIED,
    N_DRAWS,
    N_FACTS,
    N_MEMORY,
    N_REPLY,
    N_TERMS,
    NORMAL,
    POPULATION,
    REJECT,
    STEP_FACTOR,
    SWEPT,
    TEST_TYPE,
    UNIFORM,
    UNIFORM2,
    USED,
    VARIANCE,
    WANTED,
    add_terms,
    sweep_terms,
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
    """B of ``|x_j| <= B max(|delta|, |delta'|)^order |theta' - theta|``, with delta and delta'
    position and proposal minus theta_star; infinite: not known."""
    learnt: int
    """Whether warm-up learns the shape of the steps."""
    finite: int
    """Whether terms are drawn without replacement."""
    carried: int = 0
    """Whether the estimate at the position is carried, and terms are of the proposal alone."""
    jump: float = 0.0
    """Variance of Delta over steps whose acceptance rate is the target. Where the estimate is
    carried, with the variance v of each of two estimates, the rate is ``2 Phi(-sqrt(jump + 2 v) /
    2)`` (Sherlock et al. 2015)."""

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

COUNTS: Final = np.dtype(
    [
        ("iteration", np.int64),  # of the batch
        ("phase", np.int64),
        ("drawn", np.int64),  # units drawn
        ("left", np.int64),  # units left to draw
        ("swept", np.int64),  # units swept
        ("evaluated", np.int64),  # log-likelihoods, since the iteration began
    ],
    align=True,
)
"""Where the decision under way stands."""
VALUES: Final = np.dtype(
    [
        ("step", np.float64),  # step size
        ("heat", np.float64),  # factor on the temperature, from the replies of the test
        ("temperature", np.float64),  # relative to the final one
        ("ratio", np.float64),  # log Hastings ratio
        ("prior", np.float64),  # log prior at the position
        ("new_prior", np.float64),  # and at the proposal
        ("total", np.float64),  # remainders of the units drawn, at the position
        ("new_total", np.float64),
        ("swept_total", np.float64),  # those of the units swept
        ("new_swept_total", np.float64),
        ("requested", np.float64),  # terms of the request under way
    ],
    align=True,
)
"""Numbers of a chain and of its decision under way; a checkpoint has them in this order."""


class Decision(NamedTuple):
    """State of the decision under way, and scratch; written in place."""

    counts: Annotated[Any, types.Array(from_dtype(COUNTS), 1, "C")]
    """(1,) of :data:`COUNTS`."""
    values: Annotated[Any, types.Array(from_dtype(VALUES), 1, "C")]
    """(1,) of :data:`VALUES`."""
    facts: Vector
    """This and the next five: what an acceptance test takes and returns."""
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
    """(d,) gradient of the log density in ``w`` at the position."""
    new_pull: Vector
    delta: Vector
    """(d,) position minus theta_star."""
    new_delta: Vector
    scratch: Vector
    other: Vector
    remainders: Vector
    """(rows,) remainders at the position."""
    new_remainders: Vector
    differences: Vector
    """(rows,) sums of their differences, by unit."""
    shape: Matrix
    """(d, d) lower triangular L, or (0, 0)."""


DECISION_TYPE: Any = record_type(Decision)


def allocate_decision(d: int, rows: int, *, learnt: bool) -> Decision:
    """Return the start of a chain; the largest block that is compared has ``rows`` rows."""
    values = np.zeros(1, VALUES)
    values["heat"] = 1.0
    of_test = (N_FACTS, N_TERMS, N_DRAWS, N_MEMORY, N_CARRIED, N_REPLY)
    sizes = dict(
        zip(("facts", "terms", "draws", "memory", "carried", "reply"), of_test, strict=True)
    )
    sizes |= dict.fromkeys(("remainders", "new_remainders", "differences"), rows)
    vectors = {name: np.zeros(sizes.get(name, d)) for name in Decision._fields[2:-1]}
    shape = np.eye(d if learnt else 0)
    return Decision(counts=np.zeros(1, COUNTS), values=values, shape=shape, **vectors)


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


# A proposal of Metropolis-Hastings: its position, its density, its log Hastings ratio.
#
# Everything that takes no terms of the acceptance test is evaluated here: prior, Taylor sums and
# certainty rows at the proposal, and gradients from rows of their own.


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
    space.decision.counts[0].evaluated += shared.certain.y.shape[0] + m


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
    tau = decision.values[0].temperature
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
    decision.values[0].ratio = ratio
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
        tau = decision.values[0].temperature
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
    values, xi = decision.values[0], decision.xi
    eps = values.step
    still = moves.carried == 1 and decision.carried[ESTIMATED] == 0.0
    if still:
        eps = 0.0  # there is no estimate to carry yet: the position itself is proposed, to get one
    values.ratio = 0.0
    if moves.kind == SGHMC:
        _trajectory(link, sums, shared, space, rows, row, eps, rng)
    else:
        _one_step(link, sums, shared, space, rows, row, eps, rng)
    values.new_prior = prior_at(
        shared.base, new.z, decision.scratch, decision.other, decision.new_slope
    )
    if moves.kind == LANGEVIN:
        pulled(
            decision.shape, moves.learnt, new.gradient, decision.new_slope, values.temperature,
            decision.new_pull,
        )  # fmt: skip
        values.ratio = langevin_ratio(xi, eps, decision.pull, decision.new_pull)
    if still:  # such a move keeps the momentum: ``_move`` divides by the step size
        for j in range(xi.shape[0]):
            xi[j] = values.step * decision.momentum[j]


@jit(f8(LINK_TYPE, SUMS_TYPE, SHARED_TYPE, WORKSPACE_TYPE), borrow=True)
def look_at_start(link, sums, shared, space):  # type: ignore[no-untyped-def]
    """Evaluate prior, Taylor sums and certainty rows at the position; return the log prior."""
    now, decision = space.now, space.decision
    now.used[UNITS] = now.used[ROWS] = 0
    evaluate(link, sums, shared.base, shared.certain, space.sub, now, space.work)
    return prior_at(shared.base, now.z, decision.scratch, decision.other, decision.slope)


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
                decision.remainders,
            )  # fmt: skip
        remainder_values(
            link, constants, block, decision.new_delta, n_linear, start, stop, scratch,
            decision.new_remainders,
        )  # fmt: skip
    before = after = 0.0
    for j in range(n_units):
        first = second = 0.0
        for i in range(lo + j * b, lo + (j + 1) * b):
            first += decision.remainders[i]
            second += decision.new_remainders[i]
        decision.differences[j] = second - first
        before += first
        after += second
    decision.counts[0].evaluated += (2 - shared.moves.carried) * n_units * b
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
    values, counts = decision.values[0], decision.counts[0]
    values.total = values.new_total = values.swept_total = values.new_swept_total = 0.0
    values.requested = 0.0
    counts.drawn = counts.swept = 0


@inline
def begin(shared, space, rng):  # type: ignore[no-untyped-def]
    """Pass the log prior and proposal ratio to the acceptance test, before any likelihood term."""
    base, moves, decision, now, new = (
        shared.base, shared.moves, space.decision, space.now, space.new,
    )  # fmt: skip
    values, facts = decision.values[0], decision.facts
    _clear(decision)
    displace(base.factor, now.z, decision.delta)
    displace(base.factor, new.z, decision.new_delta)
    distance = first = second = 0.0
    for j in range(now.z.shape[0]):
        distance += (decision.new_delta[j] - decision.delta[j]) ** 2
        first += decision.delta[j] ** 2
        second += decision.new_delta[j] ** 2
    before = now.scalars[REST] - values.prior
    after = new.scalars[REST] - values.new_prior
    prior = values.new_prior - values.prior
    if moves.carried == 1:
        before += decision.carried[ESTIMATE]
    facts[KNOWN] = (after - before) / values.temperature + prior + values.ratio
    facts[POPULATION] = moves.population
    facts[BOUND] = math.inf
    if moves.bound < math.inf:
        power = 0.5 * max(base.order, 0)
        facts[BOUND] = (
            moves.bound * math.sqrt(distance) * max(first, second) ** power / values.temperature
        )
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
    values, facts = decision.values[0], decision.facts
    batch = facts[BATCH]
    add_terms(decision.differences, n, moves.population / values.temperature, facts, decision.terms)
    values.requested += n
    facts[BATCH] = batch + (facts[BATCH] - batch) * n / values.requested
    values.total += before
    values.new_total += after


@inline
def sweep(link, shared, space, block, lo, n):  # type: ignore[no-untyped-def]
    """Add ``n`` units of ``block`` from row ``lo`` on to the moments of all terms."""
    before, after = compare(link, shared, space, block, lo, n)
    decision = space.decision
    values, counts = decision.values[0], decision.counts[0]
    factor = shared.moves.population / values.temperature
    sweep_terms(decision.differences, n, factor, float(counts.swept), decision.facts)
    values.swept_total += before
    values.new_swept_total += after
    counts.swept += n


@inline
def _remainder(moves, decision, accepted):  # type: ignore[no-untyped-def]
    """Return the sum of all remainders where the chain now is, or its estimate."""
    values, facts = decision.values[0], decision.facts
    swept = facts[SWEPT] == 1.0
    if accepted:
        if swept:
            return values.new_swept_total
        return values.new_total * moves.population / max(facts[COUNT], 1.0)
    if moves.carried == 1:
        return decision.carried[ESTIMATE]
    if swept:
        return values.swept_total
    return values.total * moves.population / max(facts[COUNT], 1.0)


@inline
def _move(space):  # type: ignore[no-untyped-def]
    """Move to the proposal."""
    decision, values = space.decision, space.decision.values[0]
    copy_point(space.new, space.now)
    values.prior = values.new_prior
    for j in range(decision.slope.shape[0]):
        decision.slope[j] = decision.new_slope[j]
        decision.delta[j] = decision.new_delta[j]
        decision.momentum[j] = decision.xi[j] / values.step


@inline
def end(shared, space, verdict, final, theta, row):  # type: ignore[no-untyped-def]
    """Move or stay; write the draw ``theta`` (d,) and its statistics ``row`` (14,)."""
    base, moves, decision, now = shared.base, shared.moves, space.decision, space.now
    values, reply = decision.values[0], decision.reply
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
    tau = values.temperature
    lp = (now.scalars[REST] - values.prior + remainder) / tau + values.prior
    row[column.LP] = lp
    row[column.ACCEPTANCE_RATE] = 1.0 if accepted else 0.0
    row[column.DIVERGING] = 0.0
    row[column.ENERGY] = -lp
    row[column.STEP_SIZE] = values.step
    row[column.N_STEPS] = moves.n_steps
    row[column.LOG_LIK_VARIANCE] = reply[VARIANCE]
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = decision.counts[0].evaluated
    row[column.LOG_LIK_REMAINDER] = now.scalars[CERTAIN] + remainder
    row[TEST_ROWS] = reply[USED] * base.unit_rows
    row[DECISION_ERROR] = reply[ERROR]
    row[WAS_FORCED] = reply[FORCED]
    row[TEMPERATURE] = tau * final
    values.step *= reply[STEP_FACTOR]
    values.heat *= reply[HEAT_FACTOR]


DONE, NEED_TERMS, NEED_SWEEP = range(3)
"""Answers of the loop: the batch is done, or rows are needed to go on."""
PROPOSE, ASK, DRAW, SWEEPING = range(4)
"""Phases of an iteration: make a proposal, ask the test, add the terms it wants, or all terms."""
_EXHAUSTED = -1
"""No gathered units are left: in place of the number of those used."""


@inline
def _propose(link, sums, shared, space, gathered, batch, rng):  # type: ignore[no-untyped-def]
    """Begin an iteration: a proposal, and a decision on it."""
    moves, counts, values = shared.moves, space.decision.counts[0], space.decision.values[0]
    values.temperature = batch.tempering[counts.iteration] * values.heat
    counts.evaluated = 0
    units = units_ahead(moves) + moves.first_units
    row = counts.iteration * units * shared.base.unit_rows
    propose(link, sums, shared, space, gathered.ahead, row, rng)
    begin(shared, space, rng)
    counts.phase = ASK


@inline
def _tune(moves, decision, batch, acceptance):  # type: ignore[no-untyped-def]
    """Tune the step size in warm-up, by the acceptance of the last proposal."""
    aimed = batch.target
    if moves.carried == 1:  # 2 Phi(-sqrt(jump + 2 v) / 2): see ``Moves.jump``
        aimed = math.erfc(math.sqrt((moves.jump + 2.0 * decision.reply[VARIANCE]) / 8.0))
    tuning.update(batch.adapt, acceptance, aimed, math.inf)
    decision.values[0].step = math.exp(batch.adapt[tuning.LOG_STEP])


@inline
def _request(moves, decision):  # type: ignore[no-untyped-def]
    """Begin to add the terms that the test wants; begin a sweep if all units have been drawn."""
    counts = decision.counts[0]
    counts.phase = DRAW
    counts.left = int(decision.reply[WANTED])
    decision.values[0].requested = 0.0
    if moves.finite == 1:
        counts.left = min(counts.left, moves.population - counts.drawn)
    if counts.left <= 0:
        counts.phase = SWEEPING


@inline
def _ask(decide, shared, space, batch):  # type: ignore[no-untyped-def]
    """Ask the test for its verdict; draw terms, sweep, or end the iteration."""
    moves, decision = shared.moves, space.decision
    counts, facts = decision.counts[0], decision.facts
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
        counts.phase = SWEEPING
    else:
        t = counts.iteration
        end(shared, space, verdict, batch.final, batch.theta[t], batch.statistics[t])
        if batch.target > 0.0:
            _tune(moves, decision, batch, batch.statistics[t, ACCEPTANCE_RATE])
        counts.phase = PROPOSE
        counts.iteration += 1


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
    moves, counts, b = shared.moves, space.decision.counts[0], shared.base.unit_rows
    n = min(counts.left, space.sub.y.shape[0] // b)
    if counts.drawn < moves.first_units:
        n = min(n, moves.first_units - counts.drawn)
        before = units_ahead(moves)
        units = counts.iteration * (before + moves.first_units) + before + counts.drawn
        _expand(link, shared.base, space, gathered.ahead, units * b, n)
    else:
        n = min(n, gathered.extra_units - used)
        if n <= 0:
            return _EXHAUSTED
        _expand(link, shared.base, space, gathered.extra, used * b, n)
        used += n
    add(link, shared, space, n)
    counts.drawn += n
    counts.left -= n
    if counts.left == 0:
        counts.phase = ASK
    return used


@inline
def _sweep(link, shared, space, gathered, used):  # type: ignore[no-untyped-def]
    """Add the terms of the next units of a sweep; return as :func:`_draw` does."""
    moves, decision, b = shared.moves, space.decision, shared.base.unit_rows
    swept = decision.counts[0].swept
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
    if decision.counts[0].swept == moves.population:
        decision.facts[SWEPT] = 1.0
        decision.counts[0].phase = ASK
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
    counts = space.decision.counts[0]
    used = 0
    while counts.iteration < batch.theta.shape[0]:
        phase = counts.phase
        if phase == PROPOSE:
            _propose(link, sums, shared, space, gathered, batch, rng)
        elif phase == ASK:
            _ask(decide, shared, space, batch)
            if counts.phase != DRAW:  # extra rows that are left were for terms of this decision
                used = gathered.extra_units
        elif phase == DRAW:
            used = _draw(link, shared, space, gathered, used)
            if used == _EXHAUSTED:
                return NEED_TERMS
        else:
            used = _sweep(link, shared, space, gathered, used)
            if used == _EXHAUSTED:
                return NEED_SWEEP
    return DONE
