"""The compiled loop of ``mintee``: steps and jumps of all levels, the hottest first.

Algorithm 2 of Li and Wong 2017. Level k has the density ``pi_k``, the prior times
``exp(-max(h_k, H_k) / T_k)``: ``h_k`` is the energy, minus the log-likelihood of the rows of the
level scaled to all rows, ``H_k`` its floor and ``T_k`` its temperature. Level 0 is the posterior. A
*step* is a random walk or a Langevin step of Metropolis-Hastings inside a level. A *jump* proposes
a state of level k + 1 from the ring that has the present energy ``h_(k + 1)`` between its bounds.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import Held, copy_held, log_likelihood
from streammc.likelihood.target import BASE_TYPE, Base
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    record_type,
    vector,
)
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common import statistics as column
from streammc.samplers.common import tuning
from streammc.samplers.common.proposals import TRIAL_TYPE, Trial, langevin_ratio, place, probability
from streammc.samplers.common.statistics import JUMP_ACCEPTED, JUMP_PROPOSED, RING

# Energy rings: past states of a level, by their energy, in bounded memory.
#
# A ring holds at most ``C`` states. They are a uniform sample, without replacement, of all that
# were ever added to it (reservoir sampling, Vitter 1985, Algorithm R).


RING_BYTES: Final = 2**30
"""Largest address space of the rings of one chain; pages without states take no memory."""


class Rings(NamedTuple):
    """Rings of every level: ``K`` levels, ``K`` energies, at most ``C`` states in each."""

    z: Annotated[NDArray[np.float64], 4]
    """(K, K, C, d) whitened positions."""
    value: Annotated[NDArray[np.float64], 3]
    """(K, K, C) their values ``V``: minus sums of terms, see ``energies``."""
    held: Annotated[NDArray[np.int64], 2]
    """(K, K) how many states there are."""
    seen: Annotated[NDArray[np.int64], 2]
    """(K, K) how many there have been."""


_counts: Any = types.Array(i8, 2, "C")
RINGS_TYPE: Any = record_type(Rings)


def allocate_rings(levels: int, capacity: int, d: int) -> Rings:
    """Return empty rings; where their room would exceed ``RING_BYTES`` they hold fewer."""
    most = RING_BYTES // (8 * (d + 1) * levels * levels)
    capacity = max(min(capacity, most), 1)
    counts = np.zeros((2, levels, levels), dtype=np.int64)
    shape = (levels, levels, capacity)
    return Rings(np.zeros((*shape, d)), np.zeros(shape), counts[0], counts[1])


def pack(rings: Rings) -> dict[str, NDArray[Any]]:
    """Return the states that are held, as arrays to be saved."""
    full = np.arange(rings.value.shape[2]) < rings.held[:, :, None]
    return {
        "ring_z": rings.z[full],
        "ring_value": rings.value[full],
        "ring_held": rings.held.copy(),
        "ring_seen": rings.seen.copy(),
    }


def unpack(rings: Rings, arrays: Any) -> None:
    """Write what :func:`pack` returned into ``rings``."""
    rings.held[...] = arrays["ring_held"]
    rings.seen[...] = arrays["ring_seen"]
    full = np.arange(rings.value.shape[2]) < rings.held[:, :, None]
    rings.z[full] = arrays["ring_z"]
    rings.value[full] = arrays["ring_value"]


def energy_levels(lowest: float, width: float, temperatures: Vector) -> Vector:
    """Return (K + 1,) ``H_0 < ... < H_K``: ``H_(k + 1) = H_k + c T_k``, the last infinite."""
    levels = lowest + width * np.concatenate([[0.0], np.cumsum(temperatures)])
    levels[-1] = math.inf
    return levels


@jit(i8(vector, f8), borrow=True)
def ring_of(levels, energy):  # type: ignore[no-untyped-def]
    """Return j with ``H_j <= energy < H_(j + 1)``; 0 below ``H_0``."""
    ring = 0
    for j in range(1, levels.shape[0] - 1):
        if energy >= levels[j]:
            ring = j
    return ring


@jit(types.void(RINGS_TYPE, i8, i8, vector, f8, f8), borrow=True)
def add(rings, level, ring, z, value, uniform):  # type: ignore[no-untyped-def]
    """Add a state to a ring; in a full one ``uniform`` in [0, 1) decides which it replaces."""
    capacity = rings.value.shape[2]
    rings.seen[level, ring] += 1
    slot = rings.held[level, ring]
    if slot < capacity:
        rings.held[level, ring] += 1
    else:
        slot = int(uniform * rings.seen[level, ring])
        if slot >= capacity:
            return
    for j in range(z.shape[0]):
        rings.z[level, ring, slot, j] = z[j]
    rings.value[level, ring, slot] = value


@inline
def truncated(energy, floor, temperature):  # type: ignore[no-untyped-def]
    """Return ``log pi_k`` without the prior: ``-max(h, H_k) / T_k``."""
    return -max(energy, floor) / temperature


@jit(f8(f8, f8, f8, f8, f8, f8, f8, f8), borrow=True)
def jump_ratio(now, now_above, new, new_above, floor, temperature, floor_above, temperature_above):  # type: ignore[no-untyped-def]
    """Return ``log pi_k(x') pi_(k+1)(x) / (pi_k(x) pi_(k+1)(x'))`` (Algorithm 2, line 19).

    ``now`` and ``new`` are the energies of x and x' under level k, ``now_above`` and
    ``new_above`` under level k + 1. The prior is that of both levels and cancels.
    """
    return (
        truncated(new, floor, temperature)
        - truncated(now, floor, temperature)
        + truncated(now_above, floor_above, temperature_above)
        - truncated(new_above, floor_above, temperature_above)
    )


SUBSET, FULL, SHARED, CARRIED = range(4)
"""Rows of an energy. ``SUBSET``: own rows of the level, drawn once, those of the level above first;
``FULL``: all; ``SHARED``: rows drawn at every step or jump for both of its ends; ``CARRIED``: rows
drawn for every proposal, the energy of the present state being kept. Level 0 always has all."""
KINDS: Final = {"subset": SUBSET, "full": FULL, "shared": SHARED, "carried": CARRIED}


class Levels(NamedTuple):
    """The levels of one chain; ``step`` and ``reference`` are written in place."""

    kind: int
    """Rows of an energy: ``SUBSET``, ``FULL``, ``SHARED`` or ``CARRIED``."""
    rows: Index
    """(K,) number of rows of an energy, m_k."""
    scale: Vector
    """(K,) ``n / m_k``."""
    temperature: Vector
    """(K,)."""
    floor: Vector
    """(K,) H_k; minus infinity for level 0, which is not truncated."""
    bounds: Vector
    """(K + 1,) H_0 to H_K, counted from the energy of the reference as all energies are."""
    reference: Vector
    """(K,) sums of ``r_i`` over the rows of a level that are always the same."""
    step: Vector
    """(K,)."""
    begin: Index
    """(K,) iteration in which a level starts."""
    opened: Index
    """(K,) iteration from which its states enter the rings."""
    jump_probability: float
    langevin: int
    """1 where steps follow the gradient, else 0."""
    inner_steps: int


LEVELS_TYPE: Any = record_type(Levels)


class States(NamedTuple):
    """Positions of the levels, their values and gradients; written in place."""

    z: Matrix
    """(K, d) whitened positions: ``theta = theta_star + S z``."""
    theta: Matrix
    """(K, d)."""
    slope: Matrix
    """(K, d) gradient of ``-h_k`` in theta."""
    prior_slope: Matrix
    """(K, d) gradient of the log prior in theta."""
    scalars: Matrix
    """(K, 5): V_k, V_(k + 1) of the same position, log prior, whether the level has started,
    and terms evaluated so far."""


STATES_TYPE: Any = record_type(States)
VALUE, ABOVE, PRIOR, STARTED, EVALUATED = range(5)


def allocate_states(levels: int, d: int) -> States:
    """Return states at 0, nothing computed."""
    z, theta, slope, prior_slope = (np.zeros((levels, d)) for _ in range(4))
    return States(z, theta, slope, prior_slope, np.zeros((levels, 5)))


class Counts(NamedTuple):
    """Counts of a chain since warm-up; written in place."""

    moves: Matrix
    """(K, 4) steps, the sum of their acceptance probabilities, jumps, and the sum of theirs."""
    rings: Matrix
    """(K, K) visits of a level's states to the energy rings."""


COUNTS_TYPE: Any = record_type(Counts)
STEPS, STEP_ACCEPTANCE, JUMPS, JUMP_ACCEPTANCE = range(4)
"""Columns of ``Counts.moves``."""


class Scratch(NamedTuple):
    """Scratch of a step or a jump."""

    trial: Trial
    """The position under evaluation."""
    pull: Matrix
    """(2, d) whitened gradients at both ends of a step."""
    noise: Vector
    """(d,)."""
    above: Vector
    """(1,) ``V_(k + 1)`` at the trial position."""
    chosen: Index
    """Rows that were drawn for an energy."""


SCRATCH_TYPE: Any = record_type(Scratch)


class Ensemble(NamedTuple):
    """Levels of one chain, their rows, states and rings; written in place."""

    base: Base
    full: Held
    """Every row."""
    own: Held
    """Rows of the levels above 0: always the same, or drawn anew."""
    terms: Vector
    """(n,) terms at the reference, ``r_i``: a point of low energy, or a constant."""
    levels: Levels
    states: States
    rings: Rings
    counts: Counts
    scratch: Scratch


ENSEMBLE_TYPE: Any = record_type(Ensemble)


# Energy of a position at one level: the negative log-likelihood of that level's rows.
#
# With ``r_i`` the term of row i at a reference, or a constant, and ``m_k`` rows ``S_k``,
#
#     V_k(theta) = -sum_{i in S_k} (l_i(theta) - r_i),    h_k(theta) = (n / m_k) V_k(theta),
#
# so that energies are counted from that of the reference. Chains carry ``V``, and rings keep it,
# since ``V`` of more rows is a sum.


def starts(rows: Index, warmup: int) -> tuple[Index, Index]:
    """Return the iterations in which the levels start and their rings open, level 0 first.

    Every level has a stage of warm-up before the next starts, level 0 two; its ring opens
    half-way. A stage in which ``r`` rows are evaluated is proportional to ``r^(-1/2)``: hot levels
    cost little, and a mode that they miss is not found by a colder level.
    """
    share = 1.0 / np.sqrt(np.cumsum(rows[::-1], dtype=np.float64))
    ends = warmup * np.cumsum(share) / (share.sum() + share[-1])
    begin = np.concatenate([[0.0], ends[:-1]])
    opened = 0.5 * (begin + ends)
    return begin[::-1].astype(np.int64), opened[::-1].astype(np.int64)


@jit(types.void(GENERATOR_TYPE, ENSEMBLE_TYPE, i8), borrow=True)
def draw_rows(rng, ensemble, count):  # type: ignore[no-untyped-def]
    """Draw ``count`` rows with replacement into ``ensemble.own``."""
    chosen, n = ensemble.scratch.chosen, ensemble.full.y.shape[0]
    for i in range(count):
        chosen[i] = int(rng.random() * n)
    copy_held(ensemble.full, chosen, 0, count, ensemble.own, 0)


@jit(f8(vector, index_vector, i8), borrow=True)
def referred(terms, chosen, count):  # type: ignore[no-untyped-def]
    """Return the sum of ``r_i`` over rows that were drawn."""
    total = 0.0
    for i in range(count):
        total += terms[chosen[i]]
    return total


@jit(f8(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, i8, i8), borrow=True)
def value_at(link, joint, ensemble, k, order):  # type: ignore[no-untyped-def]
    """Return ``V_k`` at ``trial.theta``, and write ``V_(k + 1)`` to ``scratch.above[0]``.

    Where rows are drawn, they are those in ``ensemble.own``. For ``order`` 1 ``trial.slope``
    becomes the gradient of ``-h_k``.
    """
    base, full, levels, scratch = (
        ensemble.base, ensemble.full, ensemble.levels, ensemble.scratch,
    )  # fmt: skip
    trial, above = scratch.trial, scratch.above
    d, kind, last = trial.theta.shape[0], levels.kind, levels.rows.shape[0] - 1
    m = levels.rows[k]
    drawn = kind >= SHARED and k > 0
    table = ensemble.own if k > 0 and kind != FULL else full
    split = levels.rows[k + 1] if kind == SUBSET and 0 < k < last and full.joint == 0 else m
    ensemble.states.scalars[k, EVALUATED] += m
    total = log_likelihood(
        link, joint, base, table, 0, split, trial.theta, order, trial.slope, trial.scratch
    )
    if split < m:
        above[0] = levels.reference[k + 1] - total
        total += log_likelihood(
            link, joint, base, table, split, m, trial.theta, order, trial.pull, trial.scratch
        )
        if order >= 1:
            for j in range(d):
                trial.slope[j] += trial.pull[j]
    if order >= 1:
        for j in range(d):
            trial.slope[j] *= levels.scale[k]
    referred_to = levels.reference[k]
    if drawn:
        referred_to = referred(ensemble.terms, scratch.chosen, m)
    value = referred_to - total
    if kind == FULL or k == last:
        above[0] = value
    elif kind != SUBSET:
        above[0] = value * levels.scale[k] / levels.scale[k + 1]
    return value


@jit(f8(BASE_TYPE, TRIAL_TYPE), borrow=True)
def prior_at(base, trial):  # type: ignore[no-untyped-def]
    """Place ``trial.theta``; return the log prior there and write its gradient."""
    place(base, trial.z, trial.theta)
    for j in range(trial.z.shape[0]):
        trial.prior_slope[j] = 0.0
    return log_prior(trial.theta, base.prior, trial.prior_slope)


@jit(types.void(STATES_TYPE, i8, TRIAL_TYPE, f8, f8, f8), borrow=True)
def take(states, k, trial, value, above, prior):  # type: ignore[no-untyped-def]
    """Move level ``k`` to the trial position."""
    for j in range(trial.z.shape[0]):
        states.z[k, j] = trial.z[j]
        states.theta[k, j] = trial.theta[j]
        states.slope[k, j] = trial.slope[j]
        states.prior_slope[k, j] = trial.prior_slope[j]
    states.scalars[k, VALUE] = value
    states.scalars[k, ABOVE] = above
    states.scalars[k, PRIOR] = prior


EMPTY = -1.0
"""Answer of a jump where the ring above has no states."""


@inline
def _energy(levels, k, value):  # type: ignore[no-untyped-def]
    return levels.scale[k] * value


@inline
def _pulled(base, levels, k, energy, slope, prior_slope, pull):  # type: ignore[no-untyped-def]
    """Write the whitened gradient of ``log pi_k``, of length ``2 d^(1/3) / eps`` at most.

    Below ``H_k`` it is that of the prior. With the jump of the gradient there, steps that suit
    the plain below would never pass its edge (measured in one dimension), hence the bound
    (Roberts and Tweedie 1996). A Langevin step in d dimensions is seldom pulled so far.
    """
    d = slope.shape[0]
    for j in range(d):
        pull[j] = 0.0
    for i in range(d):
        g = prior_slope[i]
        if energy > levels.floor[k]:
            g += slope[i] / levels.temperature[k]
        for j in range(i + 1):
            pull[j] += base.factor[i, j] * g
    square = 0.0
    for j in range(d):
        square += pull[j] * pull[j]
    most = 2.0 * d ** (1.0 / 3.0) / levels.step[k]
    if square > most * most:
        for j in range(d):
            pull[j] *= most / math.sqrt(square)


@inline
def _stand(states, k, trial):  # type: ignore[no-untyped-def]
    """Make the position of level ``k`` the trial position."""
    for j in range(trial.z.shape[0]):
        trial.z[j] = states.z[k, j]


@inline
def _propose(ensemble, k, now, rng):  # type: ignore[no-untyped-def]
    """Write the trial position of a step of level ``k``, whose energy is ``now``."""
    levels, states, scratch = ensemble.levels, ensemble.states, ensemble.scratch
    trial, xi, pull = scratch.trial, scratch.noise, scratch.pull[0]
    eps, langevin = levels.step[k], levels.langevin == 1
    if langevin:
        _pulled(ensemble.base, levels, k, now, states.slope[k], states.prior_slope[k], pull)
    for j in range(trial.z.shape[0]):
        xi[j] = rng.standard_normal()
        trial.z[j] = states.z[k, j] + eps * xi[j]
        if langevin:
            trial.z[j] += 0.5 * eps * eps * pull[j]


@jit(f8(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, i8, GENERATOR_TYPE), borrow=True)
def step(link, joint, ensemble, k, rng):  # type: ignore[no-untyped-def]
    """Make a Metropolis-Hastings step of level ``k``; return its acceptance probability."""
    base, levels, states, scratch = (
        ensemble.base, ensemble.levels, ensemble.states, ensemble.scratch,
    )  # fmt: skip
    trial, above, order = scratch.trial, scratch.above, levels.langevin
    floor, heat = levels.floor[k], levels.temperature[k]
    if levels.kind >= SHARED and k > 0:
        draw_rows(rng, ensemble, levels.rows[k])
        if levels.kind == SHARED:
            _stand(states, k, trial)
            prior = prior_at(base, trial)
            value = value_at(link, joint, ensemble, k, order)
            take(states, k, trial, value, above[0], prior)
    now = _energy(levels, k, states.scalars[k, VALUE])
    _propose(ensemble, k, now, rng)
    prior = prior_at(base, trial)
    value = value_at(link, joint, ensemble, k, order)
    new = _energy(levels, k, value)
    change = truncated(new, floor, heat) - truncated(now, floor, heat)
    change += prior - states.scalars[k, PRIOR]
    if order == 1:
        _pulled(base, levels, k, new, trial.slope, trial.prior_slope, scratch.pull[1])
        change += langevin_ratio(scratch.noise, levels.step[k], scratch.pull[0], scratch.pull[1])
    accepted = probability(change)
    if rng.random() < accepted:
        take(states, k, trial, value, above[0], prior)
    return accepted


@inline
def _value_of_more_rows(link, joint, ensemble, k, above, rng):  # type: ignore[no-untyped-def]
    """Return ``V_k`` at the trial position, where ``above`` is ``V_(k + 1)`` there.

    Only the rows that the level above has not evaluated are.
    """
    levels, scratch = ensemble.levels, ensemble.scratch
    trial, carried = scratch.trial, levels.kind == CARRIED
    first = levels.rows[k + 1]
    extra = levels.rows[k] - first
    if carried:
        draw_rows(rng, ensemble, extra)
        first = 0
        value = above + referred(ensemble.terms, scratch.chosen, extra)
    else:
        value = above + levels.reference[k] - levels.reference[k + 1]
    value -= log_likelihood(
        link, joint, ensemble.base, ensemble.own, first, first + extra, trial.theta,
        levels.langevin if carried else 0, trial.slope, trial.scratch,
    )  # fmt: skip
    ensemble.states.scalars[k, EVALUATED] += extra
    if carried:
        for j in range(trial.slope.shape[0]):
            trial.slope[j] *= ensemble.full.y.shape[0] / extra
    return value


@inline
def _ratio(levels, k, now, now_above, new, new_above):  # type: ignore[no-untyped-def]
    """Return the log ratio of a jump of level ``k`` between the values of both levels."""
    return jump_ratio(
        _energy(levels, k, now), _energy(levels, k + 1, now_above), _energy(levels, k, new),
        _energy(levels, k + 1, new_above), levels.floor[k], levels.temperature[k],
        levels.floor[k + 1], levels.temperature[k + 1],
    )  # fmt: skip


@jit(f8(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, i8, GENERATOR_TYPE), borrow=True)
def jump(link, joint, ensemble, k, rng):  # type: ignore[no-untyped-def]
    """Propose a state of the ring above; return its probability, or ``EMPTY`` without states."""
    base, levels, states, rings, scratch = (
        ensemble.base, ensemble.levels, ensemble.states, ensemble.rings, ensemble.scratch,
    )  # fmt: skip
    trial, kind, scalars = scratch.trial, levels.kind, states.scalars
    apart = kind == SUBSET and (k == 0 or ensemble.full.joint == 1)
    if apart:
        m_above = levels.rows[k + 1]
        scalars[k, ABOVE] = levels.reference[k + 1] - log_likelihood(
            link, joint, base, ensemble.own, 0, m_above, states.theta[k], 0, trial.slope,
            trial.scratch,
        )  # fmt: skip
        scalars[k, EVALUATED] += m_above
    ring = ring_of(levels.bounds, _energy(levels, k + 1, scalars[k, ABOVE]))
    held = rings.held[k + 1, ring]
    if held == 0:
        return EMPTY
    slot = int(rng.random() * held)
    now, now_above = scalars[k, VALUE], scalars[k, ABOVE]
    if kind == SHARED and k > 0:
        draw_rows(rng, ensemble, levels.rows[k])
        _stand(states, k, trial)
        prior_at(base, trial)
        now = value_at(link, joint, ensemble, k, 0)
        now_above = scratch.above[0]
    for j in range(trial.z.shape[0]):
        trial.z[j] = rings.z[k + 1, ring, slot, j]
    new_above = rings.value[k + 1, ring, slot]
    prior = prior_at(base, trial)
    if kind == FULL:
        new = new_above
    elif kind != SHARED and k > 0 and not apart:
        new = _value_of_more_rows(link, joint, ensemble, k, new_above, rng)
    else:
        new = value_at(link, joint, ensemble, k, 0)
    accepted = probability(_ratio(levels, k, now, now_above, new, new_above))
    if rng.random() < accepted:
        if levels.langevin == 1 and (kind != CARRIED or k == 0):
            new = value_at(link, joint, ensemble, k, 1)
        if kind >= SHARED:
            new_above = new * levels.scale[k] / levels.scale[k + 1]
        take(states, k, trial, new, new_above, prior)
    return accepted


@jit(types.void(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, i8, GENERATOR_TYPE), borrow=True)
def refresh(link, joint, ensemble, k, rng):  # type: ignore[no-untyped-def]
    """Compute value, log prior and gradients at the position of level ``k``."""
    levels, states, trial = ensemble.levels, ensemble.states, ensemble.scratch.trial
    if levels.kind >= SHARED and k > 0:
        draw_rows(rng, ensemble, levels.rows[k])
    _stand(states, k, trial)
    prior = prior_at(ensemble.base, trial)
    value = value_at(link, joint, ensemble, k, 1)
    take(states, k, trial, value, ensemble.scratch.above[0], prior)


LONGEST = 1e300


class Batch(NamedTuple):
    """Settings and results of the iterations that are handed to the loop at once."""

    iteration: int
    """Number of the first iteration."""
    target: float
    """Mean acceptance probability to which step sizes are tuned; 0: they stay."""
    counting: int
    """1 after warm-up: moves and visits are counted."""
    adapt: Matrix
    """(K, 7) state of ``common.tuning`` of every level."""
    theta: Matrix
    """(n, d) draws."""
    statistics: Matrix
    """(n, 13) columns of ``EQUI_ENERGY_STATISTICS``."""
    path: Annotated[NDArray[np.float64], 3]
    """(n, K, d) states of all levels; (0, K, d): they are not kept."""
    energies: Matrix
    """(n, K) their energies, or (0, K)."""


BATCH_TYPE: Any = record_type(Batch)


@inline
def _evaluated(states):  # type: ignore[no-untyped-def]
    """Return the terms evaluated so far, by all levels."""
    return states.scalars[:, EVALUATED].sum()


@inline
def _start(link, joint, ensemble, batch, k, rng):  # type: ignore[no-untyped-def]
    """Start level ``k`` at the state of the level above, with its step at this temperature."""
    levels, states, adapt = ensemble.levels, ensemble.states, batch.adapt
    states.scalars[k, STARTED] = 1.0
    if k < levels.rows.shape[0] - 1:
        for j in range(states.z.shape[1]):
            states.z[k, j] = states.z[k + 1, j]
        if batch.target > 0.0:
            cooler = levels.temperature[k] / levels.temperature[k + 1]
            log_step = adapt[k + 1, tuning.LOG_AVERAGE] + 0.5 * math.log(cooler)
            adapt[k, tuning.LOG_STEP] = log_step
            adapt[k, tuning.LOG_AVERAGE] = log_step
            adapt[k, tuning.SHRINK_TO] = log_step
            levels.step[k] = math.exp(log_step)
    refresh(link, joint, ensemble, k, rng)


@inline
def _step(link, joint, ensemble, batch, k, rng):  # type: ignore[no-untyped-def]
    """Make a step of level ``k``, count it and tune its size; return its acceptance."""
    moves, adapt = ensemble.counts.moves, batch.adapt
    a = step(link, joint, ensemble, k, rng)
    if batch.counting == 1:
        moves[k, STEPS] += 1.0
        moves[k, STEP_ACCEPTANCE] += a
    if batch.target > 0.0:
        tuning.update(adapt[k], a, batch.target, LONGEST)
        ensemble.levels.step[k] = math.exp(adapt[k, tuning.LOG_STEP])
    return a


@inline
def _move(link, joint, ensemble, batch, k, row, rng):  # type: ignore[no-untyped-def]
    """Make the steps and jumps of level ``k``; return their mean acceptance.

    ``row`` gets the jumps of level 0.
    """
    levels, moves = ensemble.levels, ensemble.counts.moves
    rate = 0.0
    for _ in range(levels.inner_steps):
        a = -1.0
        if k < levels.rows.shape[0] - 1 and rng.random() < levels.jump_probability:
            a = jump(link, joint, ensemble, k, rng)
        if a >= 0.0:
            if batch.counting == 1:
                moves[k, JUMPS] += 1.0
                moves[k, JUMP_ACCEPTANCE] += a
            if k == 0:
                row[JUMP_PROPOSED] += 1.0
                row[JUMP_ACCEPTED] += a
        else:
            a = _step(link, joint, ensemble, batch, k, rng)
        rate += a / levels.inner_steps
    return rate


@inline
def _keep(ensemble, batch, k, t, rng):  # type: ignore[no-untyped-def]
    """Add the state of level ``k`` to its ring, and to the path in iteration ``t``."""
    levels, states = ensemble.levels, ensemble.states
    value = states.scalars[k, VALUE]
    energy = levels.scale[k] * value
    ring = ring_of(levels.bounds, energy)
    if batch.counting == 1:
        ensemble.counts.rings[k, ring] += 1.0
    if k > 0 and batch.iteration + t >= levels.opened[k]:
        add(ensemble.rings, k, ring, states.z[k], value, rng.random())
    if batch.path.shape[0] > 0:
        batch.energies[t, k] = energy
        for j in range(states.theta.shape[1]):
            batch.path[t, k, j] = states.theta[k, j]


@inline
def _record(ensemble, rate, evaluations, theta, row):  # type: ignore[no-untyped-def]
    """Write the state of level 0 and the statistics of an iteration, but for its jumps."""
    levels, states = ensemble.levels, ensemble.states
    for j in range(theta.shape[0]):
        theta[j] = states.theta[0, j]
    value = levels.reference[0] - states.scalars[0, VALUE]
    lp = value + states.scalars[0, PRIOR]
    row[column.LP] = lp
    row[column.ACCEPTANCE_RATE] = rate
    row[column.DIVERGING] = 0.0
    row[column.ENERGY] = -lp
    row[column.STEP_SIZE] = levels.step[0]
    row[column.N_STEPS] = 1.0
    row[column.LOG_LIK_VARIANCE] = 0.0
    row[column.SUBSAMPLE_ACCEPTED] = 1.0
    row[column.N_ROWS] = evaluations
    row[column.LOG_LIK_REMAINDER] = value
    row[RING] = float(ring_of(levels.bounds, states.scalars[0, VALUE]))


@jit(
    types.void(LINK_TYPE, JOINT_TYPE, ENSEMBLE_TYPE, BATCH_TYPE, GENERATOR_TYPE), borrow=True
)  # fmt: skip
def run(link, joint, ensemble, batch, rng):  # type: ignore[no-untyped-def]
    """Make an iteration of every level for each row of ``batch.theta``."""
    levels, states = ensemble.levels, ensemble.states
    for t in range(batch.theta.shape[0]):
        row = batch.statistics[t]
        row[JUMP_PROPOSED] = row[JUMP_ACCEPTED] = 0.0
        before = _evaluated(states)
        rate = 0.0
        for k in range(levels.rows.shape[0] - 1, -1, -1):
            if batch.iteration + t < levels.begin[k]:
                rate = 1.0
                continue
            if states.scalars[k, STARTED] == 0.0:
                _start(link, joint, ensemble, batch, k, rng)
            rate = _move(link, joint, ensemble, batch, k, row, rng)
            _keep(ensemble, batch, k, t, rng)
        _record(ensemble, rate, _evaluated(states) - before, batch.theta[t], row)
