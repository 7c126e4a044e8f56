"""Energy of a position at one level: the negative log-likelihood of that level's rows.

With ``r_i`` the term of row i at a reference, or a constant, and ``m_k`` rows ``S_k``,

    V_k(theta) = -sum_{i in S_k} (l_i(theta) - r_i),    h_k(theta) = (n / m_k) V_k(theta),

so that energies are counted from that of the reference. Chains carry ``V``, and rings keep it,
since ``V`` of more rows is a sum.
"""

from __future__ import annotations

import numpy as np
from numba import types

from streammc.likelihood.contiguous_rows import copy_held
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
    vector,
)
from streammc.numerics.prior import log_prior
from streammc.protocols import Index
from streammc.samplers.common.explorers import TRIAL_TYPE, place
from streammc.samplers.equi_energy.chain_state import (
    ABOVE,
    ENSEMBLE_TYPE,
    EVALUATED,
    FULL,
    PRIOR,
    SHARED,
    STATES_TYPE,
    SUBSET,
    VALUE,
)


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
