"""The two moves of a level of ``mintee``: a Metropolis-Hastings step and an equi-energy jump."""

from __future__ import annotations

import math

from numba import types

from streammc.likelihood.density import log_likelihood
from streammc.numerics.jit import GENERATOR_TYPE, JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit
from streammc.samplers.common.explorers import probability
from streammc.samplers.common.proposals import langevin_ratio
from streammc.samplers.equi_energy.chain_state import (
    ABOVE,
    CARRIED,
    ENSEMBLE_TYPE,
    EVALUATED,
    FULL,
    PRIOR,
    SHARED,
    SUBSET,
    VALUE,
)
from streammc.samplers.equi_energy.energies import draw_rows, prior_at, referred, take, value_at
from streammc.samplers.equi_energy.rings import jump_ratio, ring_of, truncated

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
