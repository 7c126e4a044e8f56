"""Latent variables of 0/1 responses: their distributions, and the joint distribution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from crossed_tables import priors_of
from scipy.special import expit, ndtr
from scipy.stats import kstest, truncnorm

from streammc.diagnostics.summary import summarize_draws
from streammc.samplers.crossed import augmented
from streammc.samplers.crossed.augmented import LOGIT, PROBIT, above_zero, polya_gamma
from streammc.samplers.crossed.sweep import State
from streammc.samplers.crossed.table import Piece, ordered, summed

DRAWS = 20_000


def as_sum_of_gammas(c: float, rng: np.random.Generator, draws: int) -> Any:
    """Return draws of PG(1, c) by its definition, with the mean of what the sum leaves out."""
    k = np.arange(1, 201) - 0.5
    rate = k**2 + (c / (2.0 * np.pi)) ** 2
    total = rng.standard_exponential((draws, len(k))) @ (0.5 / np.pi**2 / rate)
    mean = 0.25 if c == 0.0 else np.tanh(0.5 * c) / (2.0 * c)
    return total + mean - (0.5 / np.pi**2 / rate).sum()


@pytest.mark.parametrize("c", [0.0, 1.3, -4.0, 9.0])
def test_polya_gamma_is_a_sum_of_gammas(c: float) -> None:
    rng = np.random.default_rng(8)
    own = np.array([polya_gamma(c, rng) for _ in range(DRAWS)])
    other = as_sum_of_gammas(c, rng, 10_000)
    assert kstest(own, other).pvalue > 1e-3
    assert kstest(1.2 * own, other).pvalue < 1e-6
    variance = (np.sinh(c) - c) / (4.0 * c**3) / np.cosh(0.5 * c) ** 2 if c else 1.0 / 24.0
    mean = np.tanh(0.5 * c) / (2.0 * c) if c else 0.25
    assert abs(own.mean() - mean) < 4.5 * np.sqrt(variance / DRAWS)


def test_polya_gamma_far_out_has_its_mean() -> None:
    rng = np.random.default_rng(9)
    for c in (40.0, 300.0, 5000.0):
        own = np.array([polya_gamma(c, rng) for _ in range(4000)])
        assert abs(own.mean() - 0.5 / c) < 4.5 * np.sqrt(0.5 / c**3 / 4000)


@pytest.mark.parametrize("mean", [-9.0, -1.0, -0.4, 2.0])
def test_a_normal_above_zero_is_truncated(mean: float) -> None:
    rng = np.random.default_rng(10)
    own = np.array([above_zero(mean, rng) for _ in range(DRAWS)])
    assert kstest(own, truncnorm(-mean, np.inf, loc=mean).cdf).pvalue > 1e-3


def joint_z(kind: int, broken: bool, iterations: int = 8000) -> Any:
    """Return z of moments of successive-conditional draws against the prior (Geweke 2004)."""
    rng = np.random.default_rng(17)
    n, sizes = 24, np.array([5, 4])
    levels = np.stack([rng.integers(0, size, n) for size in sizes])
    codes = np.ascontiguousarray(levels.T, dtype=np.uint32)
    X = np.c_[np.ones(n), rng.normal(size=n)].astype(np.float32).astype(np.float64)
    trials, offset = rng.integers(1, 3, n).astype(float), 0.5 * rng.normal(size=n)
    priors = priors_of(2)
    priors = priors._replace(table=priors.table[:2])
    cov = np.linalg.inv(priors.precision)

    def prior_draws(count: int) -> Any:
        beta = rng.multivariate_normal(cov @ priors.shift, cov, count)
        return np.c_[beta, np.log(np.abs(rng.standard_t(3.0, (count, 2))))]

    first = prior_draws(1)[0]
    effects = np.concatenate([
        np.exp(t) * rng.normal(size=size) for t, size in zip(first[2:], sizes, strict=True)
    ])  # fmt: skip
    state = State(
        first[:2].copy(), np.append(first[2:], 0.0), effects, np.zeros(2), np.zeros((2, 9))
    )
    places = np.array([0, sizes[0]])
    kept = np.empty((iterations, 4))
    table, rows = None, None
    for t in range(iterations):
        eta = offset + X @ state.beta + state.effects[places[:, None] + levels].sum(axis=0)
        y = rng.binomial(trials.astype(int), expit(eta) if kind == LOGIT else ndtr(eta)) / trials
        piece = Piece(X, y, trials + broken, codes, offset)
        pieces = partial(iter, [piece])
        if table is None:
            table = summed(pieces, sizes, 2, True)
        rows = ordered(pieces, table, 2, "float32", True)
        augmented.sweep(table, *rows, kind, priors, state, rng)
        kept[t] = np.append(state.beta, state.log_scale[:2])
    kept[:, 2:] = np.clip(kept[:, 2:], -4.0, 3.0)
    prior = prior_draws(200_000)
    prior[:, 2:] = np.clip(prior[:, 2:], -4.0, 3.0)
    both = [np.c_[each, each**2] for each in (kept, prior)]
    rows = summarize_draws(both[0][None], [str(j) for j in range(8)])
    error = [row["mcse_mean"] for row in rows.values()]
    away = both[0].mean(axis=0) - both[1].mean(axis=0)
    return away / np.hypot(error, both[1].std(axis=0) / np.sqrt(len(prior)))


@pytest.mark.parametrize("kind", [LOGIT, PROBIT])
def test_a_sweep_leaves_the_joint_distribution_invariant(kind: int) -> None:
    assert np.max(np.abs(joint_z(kind, False))) < 4.5


@pytest.mark.parametrize("kind", [LOGIT, PROBIT])
def test_a_trial_too_many_is_caught(kind: int) -> None:
    assert np.max(np.abs(joint_z(kind, True, 4000))) > 6.0
