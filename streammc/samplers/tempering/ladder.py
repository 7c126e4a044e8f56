"""Levels of a ladder, replicas that move between them, and inner kernels."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import SCRATCH_TYPE
from streammc.likelihood.contiguous_rows import HELD_TYPE, Held, log_likelihood
from streammc.likelihood.target import BASE_TYPE, Base
from streammc.numerics.jit import (
    JOINT_TYPE,
    LINK_TYPE,
    f8,
    i8,
    inline,
    jit,
    matrix,
    record_type,
    vector,
)
from streammc.numerics.prior import log_prior
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.proposals import TRIAL_TYPE, Trial, place, probability


class Ladder(NamedTuple):
    """``L = M + 1`` levels: ``h_m = p(X_m|theta)^power_m p(theta)^prior_power_m``."""

    beta: Vector
    """(L,) inverse temperatures, falling from 1."""
    power: Vector
    """(L,) power of the likelihood: 1 if a level has a subset of the rows instead."""
    prior_power: Vector
    """(L,) power of the prior."""
    lo: Index
    """(L,) index of the first row of every level."""
    hi: Index
    """(L,) index after the last row of every level."""
    step: Vector
    """(L,) step sizes."""
    n_steps: int
    """Leapfrog steps of a trajectory."""
    jitter: float
    """Half-width of the uniform factor on a step size."""
    own: int
    """1 if the levels above 0 have rows of their own, else 0."""


LADDER_TYPE: Any = record_type(Ladder)


class Replicas(NamedTuple):
    """States of the replicas, each at a level of the ladder; written in place."""

    z: Matrix
    """(R, d) whitened positions: ``theta = theta_star + S z``."""
    theta: Matrix
    """(R, d) positions theta."""
    slope: Matrix
    """(R, d) gradient of the log-likelihood in theta."""
    prior_slope: Matrix
    """(R, d) gradient of the log prior in theta."""
    scalars: Matrix
    """(R, 4) log-likelihood, log prior, stale values (0: none, 1: all, 2: the gradient, after a
    change of rows), and number of log-likelihoods of rows evaluated so far."""


REPLICAS_TYPE: Any = record_type(Replicas)
LOG_LIK, LOG_PRIOR, STALE, EVALUATED = range(4)
GRADIENT_STALE = 2.0


def allocate_replicas(n: int, d: int) -> Replicas:
    """Return ``n`` replicas at 0, with all values stale."""
    z, theta, slope, prior_slope = (np.zeros((n, d)) for _ in range(4))
    replicas = Replicas(z, theta, slope, prior_slope, np.zeros((n, 4)))
    replicas.scalars[:, STALE] = 1.0
    return replicas


@inline
def at_prior(ladder, m):  # type: ignore[no-untyped-def]
    """Return whether level ``m`` is the prior, from which every iteration draws anew."""
    return m > 0 and ladder.beta[m] == 0.0


def geometric(n_levels: int, beta_min: float) -> Vector:
    """Return (L,) inverse temperatures of a geometric ladder, ``beta_m = beta_min^(m / M)``.

    If the ladder ends at the prior (``beta_min`` 0), the other levels are a geometric ladder:
    every level is hotter than the one before by a factor of at most about 3, down to beta 1e-6.
    """
    if n_levels == 1:
        return np.ones(1)
    if beta_min > 0.0:
        return np.asarray(beta_min ** (np.arange(n_levels) / (n_levels - 1)))
    least = 10.0 ** -min(0.5 * (n_levels - 1), 6.0)
    return np.append(geometric(n_levels - 1, least) if n_levels > 2 else np.ones(1), 0.0)


# Explorers: kernels that move a replica and leave the density of its level invariant.
#
#     acceptance = explore(link, joint, base, held, ladder, m, replicas, r, draws, trial)
#
# moves replica ``r`` at level ``m`` and returns the acceptance probability of the move, NaN if
# it diverged. ``draws`` (d + 2,) are all random numbers of the move: d standard normals, a
# uniform in (0, 1] for the acceptance, and a uniform for the jitter. Both kernels are
# reversible, which tempered transitions need.


N_UNIFORMS: Final = 2
"""Uniform numbers of a transition, after its d normals: for acceptance and jitter."""
DIVERGED: Final = 1000.0
"""Largest rise of the energy of a trajectory that has not diverged (Betancourt 2017)."""


EXPLORER_SIGNATURE: Any = f8(
    LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, i8, REPLICAS_TYPE, i8, vector,
    TRIAL_TYPE,
)  # fmt: skip
EXPLORER_TYPE: Any = types.FunctionType(EXPLORER_SIGNATURE)


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


class Ensemble(NamedTuple):
    """Levels and replicas of one chain with the rows that they evaluate; written in place."""

    base: Base
    full: Held
    """Every row: those of level 0, and of every level of a ladder of powers."""
    own: Held
    """Rows of the levels above 0 where these have rows of their own."""
    ladder: Ladder
    replicas: Replicas
    trial: Trial
    adapt: Matrix
    """(L, 7) state of ``common.tuning`` of every level."""


ENSEMBLE_TYPE: Any = record_type(Ensemble)


@inline
def rows_of(ensemble, m):  # type: ignore[no-untyped-def]
    """Return the table that holds the rows of level ``m``."""
    return ensemble.own if ensemble.ladder.own != 0 and m > 0 else ensemble.full


# One visit of a replica to a level: the inner kernel, or a new draw where the level is the prior.
#
# Independent draws at the prior are what makes a ladder forget: a state that comes down from there
# to level 0 owes nothing to any earlier state of the chain, a restart (Syed et al. 2021).


LONGEST = 1e300
RATES: Any = types.UniTuple(f8, 2)


@inline
def whiten(base, theta, z):  # type: ignore[no-untyped-def]
    """Write ``z = S^-1 (theta - theta_star)``, one row of the triangle after the other."""
    for i in range(z.shape[0]):
        total = theta[i] - base.theta_star[i]
        for j in range(i):
            total -= base.factor[i, j] * z[j]
        z[i] = total / base.factor[i, i]


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, i8, REPLICAS_TYPE, i8, vector,
        SCRATCH_TYPE,
    ),
    borrow=True,
)  # fmt: skip
def restart(link, joint, base, held, ladder, m, replicas, r, theta, scratch):  # type: ignore[no-untyped-def]
    """Put replica ``r`` at ``theta`` (d,), a draw from the prior; its gradient is not known yet."""
    whiten(base, theta, replicas.z[r])
    replicas.scalars[r, STALE] = 1.0
    refresh(link, joint, base, held, ladder, m, replicas, r, 0, scratch)
    replicas.scalars[r, STALE] = GRADIENT_STALE


@inline
def learn(ensemble, m, acceptance, target):  # type: ignore[no-untyped-def]
    """Let the step size of level ``m`` follow the acceptance of its kernel, in warm-up."""
    if target > 0.0:
        tuning.update(ensemble.adapt[m], acceptance, target, LONGEST)
        ensemble.ladder.step[m] = math.exp(ensemble.adapt[m, tuning.LOG_STEP])


@jit(
    RATES(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, i8, i8, matrix, vector, f8
    ),
    borrow=True,
)  # fmt: skip
def explore_level(link, joint, explore, ensemble, r, m, draws, fresh, target):  # type: ignore[no-untyped-def]
    """Run the inner kernel of replica ``r`` at level ``m``, once for every row of ``draws``.

    Where the level is the prior, the replica takes ``fresh`` (d,) instead. ``target`` above 0
    tunes the step size. Returns the mean acceptance probability, and 1 where a transition
    diverged, else 0. Touches the rows of that replica and that level only, so that levels may
    run in threads.
    """
    base, ladder, replicas, trial = (
        ensemble.base, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    held = rows_of(ensemble, m)
    if at_prior(ladder, m):
        restart(link, joint, base, held, ladder, m, replicas, r, fresh, trial.scratch)
        return 1.0, 0.0
    n = draws.shape[0]
    rate = diverged = 0.0
    for i in range(n):
        a = explore(link, joint, base, held, ladder, m, replicas, r, draws[i], trial)
        if a != a:
            a = 0.0
            diverged = 1.0
        rate += a
        learn(ensemble, m, a, target)
    return rate / n, diverged
