"""The two moves of a level of ``mintee``: a Metropolis-Hastings step and an equi-energy jump."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.density import log_likelihood
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    matrix,
    vector,
)
from streammc.protocols import Matrix, Vector
from streammc.samplers.common.explorers import TRIAL_TYPE, probability
from streammc.samplers.common.proposals import langevin_ratio
from streammc.samplers.equi_energy.energies import (
    ABOVE,
    CARRIED,
    EVALUATED,
    FULL,
    LEVELS_TYPE,
    PRIOR,
    SHARED,
    STATES_TYPE,
    SUBSET,
    VALUE,
    draw_rows,
    prior_at,
    referred,
    take,
    value_at,
)
from streammc.samplers.equi_energy.rings import RINGS_TYPE, jump_ratio, ring_of, truncated


class Counts(NamedTuple):
    """What is counted, and scratch; written in place."""

    moves: Matrix
    """(K, 4) steps, the sum of their acceptance probabilities, jumps, and the sum of theirs."""
    rings: Matrix
    """(K, K) visits of a level's states to the energy rings."""
    pull: Matrix
    """(2, d) whitened gradients at both ends of a step."""
    noise: Vector
    """(d,)."""
    above: Vector
    """(1,)."""


COUNTS_TYPE: Any = types.NamedTuple((matrix, matrix, matrix, vector, vector), Counts)


def allocate_counts(levels: int, d: int) -> Counts:
    """Return counts of nothing."""
    return Counts(
        np.zeros((levels, 4)),
        np.zeros((levels, levels)),
        np.zeros((2, d)),
        np.zeros(d),
        np.zeros(1),
    )


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


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, vector, index_vector, LEVELS_TYPE,
        i8, STATES_TYPE, TRIAL_TYPE, COUNTS_TYPE, GENERATOR_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def step(link, joint, base, full, own, terms, chosen, levels, k, states, trial, counts, rng):  # type: ignore[no-untyped-def]
    """Make a Metropolis-Hastings step of level ``k``; return its acceptance probability."""
    d, order = trial.z.shape[0], levels.langevin
    eps, floor, heat = levels.step[k], levels.floor[k], levels.temperature[k]
    above, xi = counts.above, counts.noise
    if levels.kind >= SHARED and k > 0:
        draw_rows(rng, levels.rows[k], full, chosen, own)
        if levels.kind == SHARED:
            _stand(states, k, trial)
            prior = prior_at(base, trial)
            value = value_at(
                link, joint, base, full, own, terms, chosen, levels, k, order, states, trial, above
            )
            take(states, k, trial, value, above[0], prior)
    now = _energy(levels, k, states.scalars[k, VALUE])
    pull, pull_new = counts.pull[0], counts.pull[1]
    if order == 1:
        _pulled(base, levels, k, now, states.slope[k], states.prior_slope[k], pull)
    for j in range(d):
        xi[j] = rng.standard_normal()
        trial.z[j] = states.z[k, j] + eps * xi[j]
        if order == 1:
            trial.z[j] += 0.5 * eps * eps * pull[j]
    prior = prior_at(base, trial)
    value = value_at(
        link, joint, base, full, own, terms, chosen, levels, k, order, states, trial, above
    )
    new = _energy(levels, k, value)
    change = truncated(new, floor, heat) - truncated(now, floor, heat)
    change += prior - states.scalars[k, PRIOR]
    if order == 1:
        _pulled(base, levels, k, new, trial.slope, trial.prior_slope, pull_new)
        change += langevin_ratio(xi, eps, pull, pull_new)
    accepted = probability(change)
    if rng.random() < accepted:
        take(states, k, trial, value, above[0], prior)
    return accepted


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, vector, index_vector, LEVELS_TYPE,
        i8, STATES_TYPE, RINGS_TYPE, TRIAL_TYPE, COUNTS_TYPE, GENERATOR_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def jump(  # type: ignore[no-untyped-def]
    link, joint, base, full, own, terms, chosen, levels, k, states, rings, trial, counts, rng
):
    """Propose a state of the ring above; return its probability, or -1 where that is empty."""
    d, kind, m, m_above = trial.z.shape[0], levels.kind, levels.rows[k], levels.rows[k + 1]
    above, scalars = counts.above, states.scalars
    apart = kind == SUBSET and (k == 0 or full.joint == 1)
    if apart:
        scalars[k, ABOVE] = levels.reference[k + 1] - log_likelihood(
            link, joint, base, own, 0, m_above, states.theta[k], 0, trial.slope, trial.scratch
        )
        scalars[k, EVALUATED] += m_above
    ring = ring_of(levels.bounds, _energy(levels, k + 1, scalars[k, ABOVE]))
    held = rings.held[k + 1, ring]
    if held == 0:
        return -1.0
    slot = int(rng.random() * held)
    order = levels.langevin
    now, now_above = scalars[k, VALUE], scalars[k, ABOVE]
    if kind == SHARED and k > 0:
        draw_rows(rng, m, full, chosen, own)
        _stand(states, k, trial)
        prior_at(base, trial)
        now = value_at(
            link, joint, base, full, own, terms, chosen, levels, k, 0, states, trial, above
        )
        now_above = above[0]
    for j in range(d):
        trial.z[j] = rings.z[k + 1, ring, slot, j]
    new_above = rings.value[k + 1, ring, slot]
    prior = prior_at(base, trial)
    if kind == FULL:
        new = new_above
    elif kind != SHARED and k > 0 and not apart:
        # The rows that the level above has not seen.
        first, extra = m_above, m - m_above
        if kind == CARRIED:
            draw_rows(rng, extra, full, chosen, own)
            first = 0
            new = new_above + referred(terms, chosen, extra)
        else:
            new = new_above + levels.reference[k] - levels.reference[k + 1]
        new -= log_likelihood(
            link, joint, base, own, first, first + extra, trial.theta,
            order if kind == CARRIED else 0, trial.slope, trial.scratch,
        )  # fmt: skip
        scalars[k, EVALUATED] += extra
        if kind == CARRIED:
            for j in range(d):
                trial.slope[j] *= full.y.shape[0] / extra
    else:
        new = value_at(
            link, joint, base, full, own, terms, chosen, levels, k, 0, states, trial, above
        )
    accepted = probability(
        jump_ratio(
            _energy(levels, k, now), _energy(levels, k + 1, now_above), _energy(levels, k, new),
            _energy(levels, k + 1, new_above), levels.floor[k], levels.temperature[k],
            levels.floor[k + 1], levels.temperature[k + 1],
        )
    )  # fmt: skip
    if rng.random() < accepted:
        if order == 1 and (kind != CARRIED or k == 0):
            new = value_at(
                link, joint, base, full, own, terms, chosen, levels, k, 1, states, trial, above
            )
        if kind >= SHARED:
            new_above = new * levels.scale[k] / levels.scale[k + 1]
        take(states, k, trial, new, new_above, prior)
    return accepted


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, vector, index_vector, LEVELS_TYPE,
        i8, STATES_TYPE, TRIAL_TYPE, COUNTS_TYPE, GENERATOR_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def refresh(link, joint, base, full, own, terms, chosen, levels, k, states, trial, counts, rng):  # type: ignore[no-untyped-def]
    """Compute what is to be known of the position of level ``k``."""
    if levels.kind >= SHARED and k > 0:
        draw_rows(rng, levels.rows[k], full, chosen, own)
    _stand(states, k, trial)
    prior = prior_at(base, trial)
    value = value_at(
        link, joint, base, full, own, terms, chosen, levels, k, 1, states, trial, counts.above
    )
    take(states, k, trial, value, counts.above[0], prior)
