"""What a level knows of the energy of a position: minus a sum of terms over some rows.

With ``r_i`` the term of row i at a reference, or a constant, and ``m_k`` rows ``S_k``,

    V_k(theta) = -sum_{i in S_k} (l_i(theta) - r_i),    h_k(theta) = (n / m_k) V_k(theta),

so that energies are counted from that of the reference. ``V`` is what is carried and kept:
that of more rows is a sum.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.contiguous_rows import HELD_TYPE, copy_held
from streammc.likelihood.density import log_likelihood
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    jit,
    matrix,
    vector,
)
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common.explorers import TRIAL_TYPE, place

SUBSET, FULL, SHARED, CARRIED = range(4)
KINDS: Final = {"subset": SUBSET, "full": FULL, "shared": SHARED, "carried": CARRIED}


class Levels(NamedTuple):
    """The levels of one chain; ``step`` and ``reference`` are written in place."""

    kind: int
    rows: Index
    """(K,) m_k, of which an energy is made."""
    scale: Vector
    """(K,) ``n / m_k``."""
    temperature: Vector
    """(K,)."""
    floor: Vector
    """(K,) H_k; minus infinity for level 0, which is not truncated."""
    bounds: Vector
    """(K + 1,) H_0 to H_K, from the energy of the reference."""
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
    inner_steps: int


LEVELS_TYPE: Any = types.NamedTuple(
    (
        i8, index_vector, vector, vector, vector, vector, vector, vector, index_vector,
        index_vector, f8, i8, i8,
    ),
    Levels,
)  # fmt: skip


def starts(rows: Index, warmup: int) -> tuple[Index, Index]:
    """Return the iterations in which the levels start and their rings open, level 0 first.

    Every level has a stage of warm-up before the next starts, level 0 two; its ring opens
    half-way. A stage in which ``r`` rows are evaluated is proportional to ``r^(-1/2)``: hot levels
    cost little, and what they have not found nobody will.
    """
    share = 1.0 / np.sqrt(np.cumsum(rows[::-1], dtype=np.float64))
    ends = warmup * np.cumsum(share) / (share.sum() + share[-1])
    begin = np.concatenate([[0.0], ends[:-1]])
    opened = 0.5 * (begin + ends)
    return begin[::-1].astype(np.int64), opened[::-1].astype(np.int64)


class States(NamedTuple):
    """Where the levels are; written in place."""

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


STATES_TYPE: Any = types.NamedUniTuple(matrix, 5, States)
VALUE, ABOVE, PRIOR, STARTED, EVALUATED = range(5)


def allocate_states(levels: int, d: int) -> States:
    """Return states at 0, nothing computed."""
    z, theta, slope, prior_slope = (np.zeros((levels, d)) for _ in range(4))
    return States(z, theta, slope, prior_slope, np.zeros((levels, 5)))


@jit(types.void(GENERATOR_TYPE, i8, HELD_TYPE, index_vector, HELD_TYPE), borrow=True)
def draw_rows(rng, count, full, chosen, own):  # type: ignore[no-untyped-def]
    """Draw ``count`` rows with replacement into ``own``."""
    n = full.y.shape[0]
    for i in range(count):
        chosen[i] = int(rng.random() * n)
    copy_held(full, chosen, 0, count, own, 0)


@jit(f8(vector, index_vector, i8), borrow=True)
def referred(terms, chosen, count):  # type: ignore[no-untyped-def]
    """Return the sum of ``r_i`` over rows that were drawn."""
    total = 0.0
    for i in range(count):
        total += terms[chosen[i]]
    return total


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, vector, index_vector, LEVELS_TYPE,
        i8, i8, STATES_TYPE, TRIAL_TYPE, vector,
    ),
    borrow=True,
)  # fmt: skip
def value_at(link, joint, base, full, own, terms, chosen, levels, k, order, states, trial, above):  # type: ignore[no-untyped-def]
    """Return ``V_k`` at ``trial.theta``, and write ``V_(k + 1)`` to ``above[0]``.

    Where rows are drawn, they are those in ``own``. For ``order`` 1 ``trial.slope`` becomes the
    gradient of ``-h_k``.
    """
    d, kind, last = trial.theta.shape[0], levels.kind, levels.rows.shape[0] - 1
    m = levels.rows[k]
    drawn = kind >= SHARED and k > 0
    table = own if k > 0 and kind != FULL else full
    split = levels.rows[k + 1] if kind == SUBSET and 0 < k < last and full.joint == 0 else m
    states.scalars[k, EVALUATED] += m
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
    value = (referred(terms, chosen, m) if drawn else levels.reference[k]) - total
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
