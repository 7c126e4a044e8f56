"""``pt`` and ``spt`` keep the joint distribution of theta and y.

theta from the prior, y from the likelihood, the states of the levels above 0 from their
densities given y (all are Gaussian), and the subsets, where they are exchanged, in proportion
to the evidence of their rows. After some iterations of the production loop theta at level 0
must still be a draw from the prior, and from the posterior given y. One partner counts the
prior twice at level 0, the other swaps by the powers of another ladder.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numba import types
from pointers import pointer
from quick import quick

from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.models import logistic
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    JOINT_TYPE,
    LINK_SIGNATURE,
    LINK_TYPE,
    i8,
    jit,
    matrix,
    vector,
)
from streammc.priors import normal
from streammc.samplers import pt, spt
from streammc.samplers.common.statistics import SWAP_ACCEPTED, TEMPERED_STATISTICS
from streammc.samplers.tempering.ladder import EXPLORER_SIGNATURE, EXPLORER_TYPE, STALE
from streammc.samplers.tempering.loop import BATCH_TYPE, PARALLEL_TYPE, Batch, run
from streammc.samplers.tempering.problem import tempering
from streammc.stores.memory import from_arrays

PAIRS, STEPS, LIMIT = 40_000, 3, 4.5
X = np.array([0.9, 1.6, -1.2, 1.1])
FIXED = {"n_levels": 3, "beta_min": 0.25, "ladder": "geometric", "n_steps": 3, "step_size": 0.7}
KINDS = {
    "pt": pt(**FIXED),
    "pt, posterior, sweep": pt(**FIXED, path="posterior", swaps="sweep", explorer="random-walk"),
    "pt, random walk": pt(**FIXED, explorer="random-walk"),
    "spt": spt(**FIXED),
    "spt, random walk, sweep": spt(**FIXED, explorer="random-walk", swaps="sweep"),
    "spt, independent": spt(**FIXED, subsets="independent"),
    "spt, rows exchanged": spt(**FIXED, resample=2),
    "spt, rows exchanged, random walk": spt(**FIXED, resample=1, explorer="random-walk"),
}


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        residual = y[i] - eta[0, i]
        out[0, i] = -0.5 * residual * residual - 0.5 * math.log(2.0 * math.pi)
        if order >= 1:
            out[1, i] = residual


@jit(EXPLORER_SIGNATURE)
def stay(link, joint, base, held, ladder, m, replicas, r, draws, trial):
    return 1.0


@jit()
def evidence(x, y, rows):
    """Log marginal likelihood of some rows, but for what does not depend on which they are."""
    xx, xy, yy = 1.0, 0.0, 0.0
    for i in rows:
        xx += x[i] * x[i]
        xy += x[i] * y[i]
        yy += y[i] * y[i]
    return -0.5 * math.log(xx) - 0.5 * (yy - xy * xy / xx)


@jit(
    types.void(
        pointer(run), LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, PARALLEL_TYPE, BATCH_TYPE, vector,
        vector, types.Array(i8, 2, "C"), GENERATOR_TYPE, matrix,
    )
)  # fmt: skip
def pairs(run, link, joint, explore, chain, batch, power, prior_power, choices, rng, out):
    base, full, own = chain.ensemble.base, chain.ensemble.full, chain.ensemble.own
    ladder, replicas, places = chain.ensemble.ladder, chain.ensemble.replicas, chain.places
    draws, uniforms, exchanges = batch.draws, batch.uniforms, batch.exchanges
    n, levels = full.y.shape[0], power.shape[0]
    x, y, order = full.design[0], full.y, chain.subsets.orders
    weight = np.empty(choices.shape[0])
    for pair in range(out.shape[0]):
        truth = rng.standard_normal()
        for i in range(n):
            y[i] = x[i] * truth + rng.standard_normal()
        if choices.shape[0] > 0:
            for c in range(choices.shape[0]):
                weight[c] = 0.0
                for m in range(1, levels):
                    weight[c] += evidence(x, y, choices[c, : ladder.hi[m]])
            weight[:] = np.cumsum(np.exp(weight - weight.max()))
            order[0, :] = choices[np.searchsorted(weight, rng.random() * weight[-1])]
        for m in range(1, levels):
            if ladder.own == 1 and (m == 1 or ladder.lo[m] > 0):
                chosen = order[0] if ladder.lo[levels - 1] == 0 else order[m - 1]
                for i in range(own.y.shape[0] - ladder.lo[m]):
                    if i < n:
                        own.y[ladder.lo[m] + i] = y[chosen[i]]
                        own.design[0, ladder.lo[m] + i] = x[chosen[i]]
        for m in range(levels):
            value = truth
            if m > 0:
                xx = xy = 0.0
                held = own if ladder.own == 1 else full
                for i in range(ladder.lo[m], ladder.hi[m]):
                    xx += held.design[0, i] ** 2
                    xy += held.design[0, i] * held.y[i]
                precision = prior_power[m] + power[m] * xx
                value = power[m] * xy / precision + rng.standard_normal() / math.sqrt(precision)
            r = places.replica_at[m]
            replicas.z[r, 0] = (value - base.theta_star[0]) / base.factor[0, 0]
            replicas.theta[r, 0] = value
            replicas.scalars[r, STALE] = 1.0
            log_lik = 0.0
            held = own if ladder.own == 1 and m > 0 else full
            for i in range(ladder.lo[m], ladder.hi[m]):
                log_lik -= 0.5 * (held.y[i] - held.design[0, i] * value) ** 2
                log_lik -= 0.5 * math.log(2.0 * math.pi)
            replicas.scalars[r, 0] = log_lik
            replicas.scalars[r, 1] = -0.5 * value * value - 0.5 * math.log(2.0 * math.pi)
        for t in range(draws.shape[0]):
            for r in range(levels):
                draws[t, r, 0, 0] = rng.standard_normal()
                draws[t, r, 0, 1] = 1.0 - rng.random()
                draws[t, r, 0, 2] = 1.0 - rng.random()
            for m in range(levels - 1):
                uniforms[t, m] = 1.0 - rng.random()
                for k in range(exchanges.shape[2]):
                    exchanges[t, m, k] = rng.random()
        run(link, joint, explore, chain, batch)
        last, precision, pull = batch.theta[-1, 0], 1.0, 0.0
        for i in range(n):
            precision += x[i] * x[i]
            pull += x[i] * y[i]
        out[pair, 0] = last
        out[pair, 1] = last * last - 1.0
        out[pair, 2] = precision * (last - pull / precision) ** 2 - 1.0
        out[pair, 3] = last * (pull - (precision - 1.0) * last)
        out[pair, 4] = batch.statistics[:, SWAP_ACCEPTED].mean()


def z_scores(sampler, seed, *, explore=None, power=None, prior_power=1.0, n=PAIRS):
    data = from_arrays(X[:, None], np.zeros(len(X)))
    model = logistic(prior=normal(1.0))
    problem = tempering(data, model, without_pass(bind(data, model), None), sampler)
    kernel = replace(problem, link=link).kernel(2, 0)
    kernel.initialise()
    ladder = kernel.ladder
    right = ladder.power.copy(), ladder.prior_power.copy()
    ladder.prior_power[0] = prior_power
    ladder.power[:] = ladder.power if power is None else power
    choices = np.zeros((0, len(X)), dtype=np.int64)
    if getattr(sampler, "resample", 0):
        one, two = (int(ladder.hi[m]) for m in (1, 2))
        found = {
            (frozenset(order[:one]), frozenset(order[:two])): order
            for order in itertools.permutations(range(len(X)))
        }
        choices = np.array([*found.values()])
    levels = len(ladder.beta)
    out = np.empty((n, 5))
    batch = Batch(
        0, kernel._schedule, 0.0, np.zeros((STEPS, levels, 1, 3)), np.zeros((STEPS, 1)),
        np.zeros((STEPS, levels - 1)),
        np.zeros((STEPS, levels - 1, 2 + getattr(sampler, "resample", 0))),
        np.zeros((STEPS, 1)), np.zeros((STEPS, len(TEMPERED_STATISTICS))),
    )  # fmt: skip
    pairs(
        run, link, problem.joint, explore or problem.explore, kernel.parallel(), batch, *right,
        choices, np.random.default_rng(seed), out,
    )  # fmt: skip
    accepted = out[:, 4].mean()
    assert min(accepted, 1.0 - accepted) > 0.02
    return out[:, :4].mean(axis=0) / (out[:, :4].std(axis=0, ddof=1) / math.sqrt(n))


@pytest.mark.parametrize("kind", quick(KINDS, *[kind for kind in KINDS if kind != "pt"]))
def test_the_joint_distribution_is_left_invariant(kind):
    z = z_scores(KINDS[kind], 31)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.parametrize("kind", ["pt", "spt"])
def test_swaps_alone_leave_the_joint_distribution_invariant(kind):
    z = z_scores(KINDS[kind], 32, explore=stay)
    assert np.abs(z).max() < LIMIT, z


def test_swaps_by_other_powers_are_caught():
    z = z_scores(KINDS["pt"], 33, explore=stay, power=np.array([1.0, 0.8, 0.25]), n=4 * PAIRS)
    assert np.abs(z).max() > LIMIT, z


@pytest.mark.parametrize("kind", ["pt", "spt", "spt, rows exchanged"])
def test_a_prior_counted_twice_is_caught(kind):
    assert np.abs(z_scores(KINDS[kind], 34, prior_power=2.0)).max() > LIMIT
