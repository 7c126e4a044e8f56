"""Collapsed Gibbs sampling of factors that cross, against the dense marginal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crossed_tables import effects_of, priors_of
from scipy import linalg

from streammc.diagnostics.summary import summarize_draws
from streammc.numerics.prior import LKJ, log_prior
from streammc.priors import as_prior, half_normal, lkj
from streammc.samplers.crossed.sweep import (
    Crossed,
    Scales,
    State,
    draw_covariance,
    log_density_of_effects,
    sweep,
)
from streammc.samplers.crossed.table import Piece, Term, summed


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


def sums_of(
    X: Any, y: Any, levels: Any, sizes: Any, weight: Any, terms: tuple[Term, ...] = ()
) -> Crossed:
    """Return the sums of rows in memory, in two pieces."""
    w = np.ones(len(y)) if weight is None else weight
    codes = np.ascontiguousarray(levels.T, dtype=np.uint32)
    half = len(y) // 2

    def pieces() -> Iterator[Piece]:
        for part in (slice(0, half), slice(half, len(y))):
            yield Piece(X[part], y[part], w[part], codes[part], 0.0 * y[part])

    return summed(pieces, sizes, X.shape[1], weight is not None, terms)


def start_of(table: Crossed, seed: Any = 0) -> State:
    """Return a state without effects, of scales around 0.7."""
    scales = -0.4 + np.random.default_rng(seed).normal(size=table.parameter[-1] + 1)
    return state_of(table, np.zeros(len(table.cross)), scales, np.zeros(table.effect[-1]))


def state_of(table: Crossed, beta: Any, scales: Any, effects: Any) -> State:
    F, E = len(table.first) - 1, len(effects)
    return State(beta, scales, effects, np.zeros(F), np.zeros((2, E)), np.zeros(E))


def sweeps(
    table: Crossed, priors: Scales, state: State, rng: np.random.Generator, skip: int, draws: Any
) -> None:
    """Write draws of beta and of the logarithms of the scales, after ``skip`` others."""
    for t in range(-skip, len(draws)):
        sweep(table, priors, state, rng)
        if t >= 0:
            draws[t] = np.r_[state.beta, state.scales]


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


PLAIN = (Term(), Term(), Term())
SLOPES = (Term((-1, 1, 2), True), Term((1, 2), False), Term())
"""Three correlated effects of a level, two slopes by themselves, and an intercept."""


def priors_of_terms(terms: tuple[Term, ...], q: int) -> Scales:
    """Half-normal(1) scales, LKJ(2) correlations, normal coefficients."""
    names, flags = [], []
    for f, term in enumerate(terms):
        k = len(term.columns)
        names += [f"s{f}.{c}" for c in range(k)]
        flags += [1] * k
        if term.correlated:
            names += [f"r{f}.{c}" for c in range(k * (k - 1) // 2)]
            flags += [2] * (k * (k - 1) // 2)
    given = {"s*": half_normal(1.0)} | ({"r*": lkj(2.0)} if 2 in flags else {})
    prior = as_prior(given)
    table = prior.table([*names, "s"], [*flags, 1])
    P = 0.4 * np.eye(q) + 0.05
    return Scales(np.ascontiguousarray(table[:, :5]), P, P @ np.linspace(0.2, 0.1, q))


def joint_z(broken: str, terms: tuple[Term, ...] = PLAIN, iterations: int = 8000) -> Any:
    """Return z of moments of successive-conditional draws against the prior (Geweke 2004)."""
    rng = np.random.default_rng(7)
    n, sizes, q = 30, np.array([6, 4, 3]), 2 if terms == PLAIN else 3
    levels = np.stack([rng.integers(0, size, n) for size in sizes])
    levels[0][levels[0] == 0] = 1  # a level without rows
    X = np.c_[np.ones(n), rng.normal(size=(n, q - 1))]
    priors = priors_of_terms(terms, q)
    cov = np.linalg.inv(priors.precision)
    prior_mean = cov @ priors.shift
    scale = priors.table[:, 0] != LKJ

    def prior_draws(count: int) -> Any:
        beta = rng.multivariate_normal(prior_mean, cov, count)
        scales = np.log(np.abs(rng.normal(size=(count, len(scale)))))
        scales[:, ~scale] = np.arctanh(2.0 * rng.beta(2.0, 2.0, (count, (~scale).sum())) - 1.0)
        return np.c_[beta, scales]

    first = prior_draws(1)[0]
    table = sums_of(X, np.zeros(n), levels, sizes, None, terms)
    effects = np.concatenate([
        effects_of(first[q:][table.parameter[f] : table.parameter[f + 1]], len(term.columns),
                   sizes[f], rng).ravel()
        for f, term in enumerate(terms)
    ])  # fmt: skip
    state = state_of(table, first[:q].copy(), first[q:].copy(), effects)
    Z = [np.c_[tuple(np.ones(n) if j < 0 else X[:, j] for j in term.columns)] for term in terms]
    out, kept = np.empty((1, len(first))), np.empty((iterations, len(first)))
    for t in range(iterations):
        eta = X @ state.beta
        for f, z in enumerate(Z):
            own = state.effects[table.effect[f] : table.effect[f + 1]].reshape(sizes[f], -1)
            if broken == "slope" and f == 0:
                own = own * [1.0, 1.0, 0.5]
            eta += (z * own[levels[f]]).sum(axis=1)
        y = eta + np.exp(state.scales[-1]) * rng.normal(size=n)
        table = sums_of(X, y, levels, sizes, None, terms)
        if broken == "rows":
            table = table._replace(total=table.total - 3.0)
        elif broken == "level":  # as if no factor had a level without rows
            table = table._replace(own=np.maximum(table.own, 4.0))
        sweeps(table, priors, state, rng, 0, out)
        kept[t] = out[0]
    prior = prior_draws(200_000)
    for each in (kept, prior):
        each[:, q:] = np.clip(each[:, q:], -4.0, 3.0)
    both = [np.c_[each, each**2] for each in (kept, prior)]
    rows = summarize_draws(both[0][None], [str(j) for j in range(both[0].shape[1])])
    error = [row["mcse_mean"] for row in rows.values()]
    away = both[0].mean(axis=0) - both[1].mean(axis=0)
    return away / np.hypot(error, both[1].std(axis=0) / np.sqrt(len(prior)))


@pytest.mark.parametrize("terms", [PLAIN, SLOPES])
def test_three_factors_leave_the_joint_distribution_invariant(terms: tuple[Term, ...]) -> None:
    assert np.max(np.abs(joint_z("", terms, 16_000))) < 4.5


@pytest.mark.parametrize(
    ("broken", "terms"), [("rows", PLAIN), ("level", PLAIN), ("slope", SLOPES)]
)
def test_a_broken_sweep_is_caught(broken: str, terms: tuple[Term, ...]) -> None:
    assert np.max(np.abs(joint_z(broken, terms))) > 6.0


@pytest.mark.parametrize("more", [0.0, 2.0])
def test_covariances_are_drawn_from_their_density_given_effects(more: float) -> None:
    """Beside sums on a grid of two scales and a correlation; the partner has two levels more."""
    table = priors_of_terms((Term((-1, 1), True),), 1).table[:3].copy()
    levels, scatter = 6.0, np.array([[5.0, 1.6], [1.6, 0.8]])
    axes = [np.linspace(-2.6, 2.4, 44), np.linspace(-3.4, 1.6, 44), np.linspace(-2.6, 2.6, 44)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    slope = np.zeros(3)
    log_p = np.array([
        log_density_of_effects(own, 2, levels, scatter) + log_prior(own, table, slope)
        for own in grid
    ])  # fmt: skip
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    expected = weight @ np.c_[grid, grid**2]
    rng, own = np.random.default_rng(6), np.zeros(3)
    root, kept = np.linalg.cholesky(scatter), np.empty((20_000, 3))
    for draw in kept:
        draw_covariance(own, 2, levels + more, root, table, 0, rng)
        draw[:] = own
    rows = summarize_draws(np.c_[kept, kept**2][None], list("abcdef"))
    z = [
        (row["mean"] - exact) / row["mcse_mean"]
        for row, exact in zip(rows.values(), expected, strict=True)
    ]
    assert (np.max(np.abs(z)) < 4.5) == (more == 0.0)
    assert len(np.unique(kept[:, 0])) > 0.2 * len(kept)
