"""Explorers: kernels that move a replica and leave the density of its level invariant.

    acceptance = explore(link, joint, base, held, ladder, m, replicas, r, draws, trial)

moves replica ``r`` at level ``m`` and returns the acceptance probability of the move, NaN if
it diverged. ``draws`` (d + 2,) are all random numbers of the move: d standard normals, a
uniform in (0, 1] for the acceptance, and a uniform for the jitter. Both kernels are
reversible, which tempered transitions need.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import SCRATCH_TYPE, Scratch, allocate_scratch
from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.density import log_likelihood
from streammc.likelihood.positions import displace
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit, vector
from streammc.numerics.prior import log_prior
from streammc.numerics.records import record_type
from streammc.protocols import Vector
from streammc.samplers.common.ladder import (
    EVALUATED,
    GRADIENT_STALE,
    LADDER_TYPE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    STALE,
)

N_UNIFORMS: Final = 2
"""Uniform numbers of a transition, after its d normals: for acceptance and jitter."""
DIVERGED: Final = 1000.0
"""Largest rise of the energy of a trajectory that has not diverged (Betancourt 2017)."""


class Trial(NamedTuple):
    """Scratch of a transition."""

    z: Vector
    theta: Vector
    slope: Vector
    prior_slope: Vector
    momentum: Vector
    pull: Vector
    """(d,) whitened gradient."""
    scratch: Scratch


TRIAL_TYPE: Any = record_type(Trial)


def allocate_trial(d: int, p: int) -> Trial:
    """Return scratch for positions (d,) and ``p`` predictors."""
    z, theta, slope, prior_slope, momentum, pull = np.zeros((6, d))
    return Trial(z, theta, slope, prior_slope, momentum, pull, allocate_scratch(p))


EXPLORER_SIGNATURE: Any = f8(
    LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, i8, REPLICAS_TYPE, i8, vector,
    TRIAL_TYPE,
)  # fmt: skip
EXPLORER_TYPE: Any = types.FunctionType(EXPLORER_SIGNATURE)


@jit(types.void(BASE_TYPE, vector, vector), borrow=True)
def place(base, z, theta):  # type: ignore[no-untyped-def]
    """Write ``theta = theta_star + S z``."""
    displace(base.factor, z, theta)
    for j in range(z.shape[0]):
        theta[j] += base.theta_star[j]


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, i8, REPLICAS_TYPE, i8, i8,
        SCRATCH_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def refresh(link, joint, base, held, ladder, m, replicas, r, order, scratch):  # type: ignore[no-untyped-def]
    """Compute the stale log-likelihood, log prior and gradients of replica ``r`` at level ``m``."""
    scalars = replicas.scalars
    if scalars[r, STALE] == 0.0 or (order == 0 and scalars[r, STALE] == GRADIENT_STALE):
        return
    theta, slope, prior_slope = replicas.theta[r], replicas.slope[r], replicas.prior_slope[r]
    place(base, replicas.z[r], theta)
    lo, hi = ladder.lo[m], ladder.hi[m]
    scalars[r, LOG_LIK] = log_likelihood(
        link, joint, base, held, lo, hi, theta, order, slope, scratch
    )
    for j in range(theta.shape[0]):
        prior_slope[j] = 0.0
    scalars[r, LOG_PRIOR] = log_prior(theta, base.prior, prior_slope)
    scalars[r, STALE] = 0.0
    scalars[r, EVALUATED] += hi - lo


@inline
def log_density(ladder, m, log_lik, prior):  # type: ignore[no-untyped-def]
    """Return ``log h_m``; at power 0 the log-likelihood is ignored, even minus infinity."""
    total = ladder.prior_power[m] * prior
    if ladder.power[m] != 0.0:
        total += ladder.power[m] * log_lik
    return total


@inline
def _pulled(base, ladder, m, slope, prior_slope, pull):  # type: ignore[no-untyped-def]
    """Write the whitened gradient ``S' grad log h_m``."""
    d = slope.shape[0]
    for j in range(d):
        pull[j] = 0.0
    for i in range(d):
        g = ladder.prior_power[m] * prior_slope[i]
        if ladder.power[m] != 0.0:  # as in log_density
            g += ladder.power[m] * slope[i]
        for j in range(i + 1):
            pull[j] += base.factor[i, j] * g


@inline
def _try(link, joint, base, held, ladder, m, replicas, r, order, trial):  # type: ignore[no-untyped-def]
    """Evaluate the trial position; return log-likelihood and log prior."""
    place(base, trial.z, trial.theta)
    lo, hi = ladder.lo[m], ladder.hi[m]
    log_lik = log_likelihood(
        link, joint, base, held, lo, hi, trial.theta, order, trial.slope, trial.scratch
    )
    for j in range(trial.z.shape[0]):
        trial.prior_slope[j] = 0.0
    prior = log_prior(trial.theta, base.prior, trial.prior_slope)
    replicas.scalars[r, EVALUATED] += hi - lo
    return log_lik, prior


@inline
def _take(replicas, r, trial, log_lik, prior, order):  # type: ignore[no-untyped-def]
    """Move replica ``r`` to the trial position, with its values and gradients."""
    for j in range(trial.z.shape[0]):
        replicas.z[r, j] = trial.z[j]
        replicas.theta[r, j] = trial.theta[j]
        replicas.prior_slope[r, j] = trial.prior_slope[j]
        if order >= 1:
            replicas.slope[r, j] = trial.slope[j]
    replicas.scalars[r, LOG_LIK] = log_lik
    replicas.scalars[r, LOG_PRIOR] = prior


@inline
def probability(change):  # type: ignore[no-untyped-def]
    """Return ``min(1, exp(change))``; 0 if ``change`` is NaN."""
    return min(1.0, math.exp(min(change, 0.0))) if change == change else 0.0


@jit(EXPLORER_SIGNATURE, borrow=True)
def random_walk(link, joint, base, held, ladder, m, replicas, r, draws, trial):  # type: ignore[no-untyped-def]
    """Move a replica by Metropolis, with a Gaussian step of standard deviation ``step`` in z."""
    d = trial.z.shape[0]
    refresh(link, joint, base, held, ladder, m, replicas, r, 0, trial.scratch)
    scalars = replicas.scalars
    before = log_density(ladder, m, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR])
    for j in range(d):
        trial.z[j] = replicas.z[r, j] + ladder.step[m] * draws[j]
    log_lik, prior = _try(link, joint, base, held, ladder, m, replicas, r, 0, trial)
    change = log_density(ladder, m, log_lik, prior) - before
    accepted = probability(change)
    if draws[d] <= accepted and accepted > 0.0:
        _take(replicas, r, trial, log_lik, prior, 0)
    return accepted


@jit(EXPLORER_SIGNATURE, borrow=True)
def hmc(link, joint, base, held, ladder, m, replicas, r, draws, trial):  # type: ignore[no-untyped-def]
    """Move a replica by HMC: ``n_steps`` leapfrog steps, unit mass in z (Neal 2011, 5.2)."""
    d = trial.z.shape[0]
    refresh(link, joint, base, held, ladder, m, replicas, r, 1, trial.scratch)
    scalars = replicas.scalars
    step = ladder.step[m] * (1.0 + ladder.jitter * (2.0 * draws[d + 1] - 1.0))
    energy = -log_density(ladder, m, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR])
    momentum, pull = trial.momentum, trial.pull
    _pulled(base, ladder, m, replicas.slope[r], replicas.prior_slope[r], pull)
    for j in range(d):
        energy += 0.5 * draws[j] * draws[j]
        trial.z[j] = replicas.z[r, j]
        momentum[j] = draws[j] + 0.5 * step * pull[j]
    log_lik = prior = -math.inf
    for s in range(ladder.n_steps):
        for j in range(d):
            trial.z[j] += step * momentum[j]
        log_lik, prior = _try(link, joint, base, held, ladder, m, replicas, r, 1, trial)
        if not math.isfinite(log_density(ladder, m, log_lik, prior)):
            return math.nan
        _pulled(base, ladder, m, trial.slope, trial.prior_slope, pull)
        kick = step if s < ladder.n_steps - 1 else 0.5 * step
        for j in range(d):
            momentum[j] += kick * pull[j]
    change = energy + log_density(ladder, m, log_lik, prior)
    for j in range(d):
        change -= 0.5 * momentum[j] * momentum[j]
    if not change > -DIVERGED:
        return math.nan
    accepted = probability(change)
    if draws[d] <= accepted and accepted > 0.0:
        _take(replicas, r, trial, log_lik, prior, 1)
    return accepted


EXPLORERS: Final = {"random-walk": random_walk, "hmc": hmc}
