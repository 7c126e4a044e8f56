"""Collapsed Gibbs sampling of factors that cross, against the dense marginal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crossed_tables import priors_of
from scipy import linalg

from streammc.diagnostics.summary import summarize_draws
from streammc.numerics.prior import log_prior
from streammc.samplers.crossed.sweep import Crossed, Scales, State, sweep
from streammc.samplers.crossed.table import Piece, summed


def made(seed: int, n: int, sizes: tuple[int, ...], weighted: bool, rare: bool) -> Any:
    rng = np.random.default_rng(seed)
    levels = np.stack([rng.integers(0, size, n) for size in sizes])
    if rare:  # a level of a single row, and one without any
        levels[0][levels[0] == 0] = 1
        levels[0][levels[0] == 2] = 1
        levels[0][5] = 2
    X = np.c_[np.ones(n), rng.normal(size=n)]
    taus = (0.8, 0.4, 0.05)[: len(sizes)]
    y = X @ [0.5, -0.4]
    for own, size, tau in zip(levels, sizes, taus, strict=True):
        y = y + (tau * rng.normal(size=size))[own]
    weight = rng.choice([0.5, 1.0, 2.0], n) if weighted else None
    y = y + 0.7 * rng.normal(size=n) / np.sqrt(1.0 if weight is None else weight)
    return X, y, levels, np.array(sizes), weight


def sums_of(X: Any, y: Any, levels: Any, sizes: Any, weight: Any) -> Crossed:
    """Return the sums of rows in memory, in two pieces."""
    w = np.ones(len(y)) if weight is None else weight
    codes = np.ascontiguousarray(levels.T, dtype=np.uint32)
    half = len(y) // 2

    def pieces() -> Iterator[Piece]:
        for part in (slice(0, half), slice(half, len(y))):
            yield Piece(X[part], y[part], w[part], codes[part], 0.0 * y[part])

    return summed(pieces, sizes, X.shape[1], weight is not None)


def start_of(table: Crossed, seed: Any = 0) -> State:
    """Return a state without effects, of scales around 0.7."""
    F, L = len(table.first) - 1, len(table.weight)
    scales = -0.4 + np.random.default_rng(seed).normal(size=F + 1)
    return State(np.zeros(len(table.cross)), scales, np.zeros(L), np.zeros(F), np.zeros((2, L)))


def sweeps(
    table: Crossed, priors: Scales, state: State, rng: np.random.Generator, skip: int, draws: Any
) -> None:
    """Write draws of beta and of the logarithms of the scales, after ``skip`` others."""
    for t in range(-skip, len(draws)):
        sweep(table, priors, state, rng)
        if t >= 0:
            draws[t] = np.r_[state.beta, state.log_scale]


def exact_moments(data: Any, priors: Scales, grid: Any) -> tuple[Any, Any]:
    """Return means and sds of beta and the scales by a grid, beta integrated out."""
    X, y, levels, sizes, weight = data
    n = len(y)
    w = np.ones(n) if weight is None else weight
    blocks = [
        (own[:, None] == np.arange(size)).astype(float)
        for own, size in zip(levels, sizes, strict=True)
    ]
    kernels = [Z @ Z.T for Z in blocks]
    prior_mean = np.linalg.solve(priors.precision, priors.shift)
    prior_cov = np.linalg.inv(priors.precision)
    points = np.stack([each.ravel() for each in np.meshgrid(*grid, indexing="ij")], axis=1)
    logs, means, seconds = [], [], []
    for point in points:
        V = np.diag(np.exp(2 * point[-1]) / w)
        for t, K in zip(point[:-1], kernels, strict=True):
            V = V + np.exp(2 * t) * K
        root = linalg.cho_factor(V, lower=True)
        VX, Vr = linalg.cho_solve(root, X), linalg.cho_solve(root, y - X @ prior_mean)
        A = priors.precision + X.T @ VX
        b = X.T @ Vr
        cov = np.linalg.inv(A)
        value = -np.log(np.diag(root[0])).sum() - 0.5 * np.linalg.slogdet(prior_cov @ A)[1]
        value += -0.5 * (y - X @ prior_mean) @ Vr + 0.5 * b @ cov @ b
        value -= (w.sum() - n) * point[-1]  # weights are powers of the density
        value += log_prior(point, priors.table, np.zeros(len(point)))
        mean = prior_mean + cov @ b
        logs.append(value)
        scales = np.exp(point)
        means.append(np.r_[mean, scales])
        seconds.append(np.r_[mean**2 + np.diag(cov), scales**2])
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    mean = p @ np.array(means)
    return mean, np.sqrt(p @ np.array(seconds) - mean**2)


def drawn(data: Any, priors: Scales, seed: int, draws: int, chains: int = 4) -> Any:
    table = sums_of(*data)
    found = []
    for chain in range(chains):
        out = np.empty((draws, len(table.cross) + len(table.first)))
        state = start_of(table)
        sweeps(table, priors, state, np.random.default_rng([seed, chain]), 200, out)
        found.append(out)
    return np.array(found)


GRIDS = {
    "two": [np.linspace(-2.0, 2.0, 27), np.linspace(-6.5, 2.0, 37), np.linspace(-0.9, 0.1, 17)],
}


@pytest.mark.trust(2)
@pytest.mark.parametrize(("weighted", "rare"), [(False, False), (True, True)])
def test_two_factors_are_those_of_the_dense_likelihood(weighted: bool, rare: bool) -> None:
    data = made(1, 70, (8, 6), weighted, rare)
    priors = priors_of(2)
    mean, sd = exact_moments(data, priors, GRIDS["two"])
    draws = drawn(data, priors, 1, 20_000)
    draws[:, :, 2:] = np.exp(draws[:, :, 2:])
    table = summarize_draws(draws, ["b0", "b1", "t0", "t1", "s"])
    z = [(row["mean"] - m) / row["mcse_mean"] for row, m in zip(table.values(), mean, strict=True)]
    assert np.max(np.abs(z)) < 4.5, z
    np.testing.assert_allclose([row["sd"] for row in table.values()], sd, rtol=0.05)
    assert min(row["ess_bulk"] for row in table.values()) > 4000


def joint_z(broken: str, iterations: int = 8000) -> Any:
    """Return z of moments of successive-conditional draws against the prior (Geweke 2004)."""
    rng = np.random.default_rng(7)
    n, sizes = 30, np.array([6, 4, 3])
    levels = np.stack([rng.integers(0, size, n) for size in sizes])
    levels[0][levels[0] == 0] = 1  # a level without rows
    X = np.c_[np.ones(n), rng.normal(size=n)]
    priors = priors_of(3)
    cov = np.linalg.inv(priors.precision)
    prior_mean = cov @ priors.shift

    def prior_draws(count: int) -> Any:
        beta = rng.multivariate_normal(prior_mean, cov, count)
        return np.c_[beta, np.log(np.abs(rng.standard_t(3.0, (count, 4))))]

    first = prior_draws(1)[0]
    effects = np.concatenate([np.exp(t) * rng.normal(size=size)
                              for t, size in zip(first[2:5], sizes, strict=True)])  # fmt: skip
    state = State(
        first[:2].copy(), first[2:].copy(), effects, np.zeros(3), np.zeros((2, len(effects)))
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    out, kept = np.empty((1, 6)), np.empty((iterations, 6))
    for t in range(iterations):
        eta = X @ state.beta + state.effects[offsets[:, None] + levels].sum(axis=0)
        y = eta + np.exp(state.log_scale[3]) * rng.normal(size=n)
        table = sums_of(X, y, levels, sizes, None)
        if broken == "rows":
            table = table._replace(total=table.total - 3.0)
        elif broken == "level":  # as if no factor had a level without rows
            table = table._replace(weight=np.maximum(table.weight, 1.0))
        sweeps(table, priors, state, rng, 0, out)
        kept[t] = out[0]
    kept[:, 2:] = np.clip(kept[:, 2:], -4.0, 3.0)
    prior = prior_draws(200_000)
    prior[:, 2:] = np.clip(prior[:, 2:], -4.0, 3.0)
    both = [np.c_[each, each**2] for each in (kept, prior)]
    rows = summarize_draws(both[0][None], [str(j) for j in range(12)])
    error = [row["mcse_mean"] for row in rows.values()]
    away = both[0].mean(axis=0) - both[1].mean(axis=0)
    return away / np.hypot(error, both[1].std(axis=0) / np.sqrt(len(prior)))


def test_three_factors_leave_the_joint_distribution_invariant() -> None:
    assert np.max(np.abs(joint_z(""))) < 4.5


@pytest.mark.parametrize("broken", ["rows", "level"])
def test_a_broken_sweep_is_caught(broken: str) -> None:
    assert np.max(np.abs(joint_z(broken))) > 6.0
