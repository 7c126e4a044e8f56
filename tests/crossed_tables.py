"""Tables of two factors that cross, what made them, and samplers that need none."""

from __future__ import annotations

from typing import Any

import numpy as np

import streammc
from streammc import registry
from streammc.priors import as_prior, half_student_t
from streammc.samplers.crossed.sweep import Scales

SAMPLERS_OF_ROWS = [
    name for name in registry.SAMPLERS if not registry.sampler(name)().draws_crossed
]
"""Samplers of tables without factors that cross."""
FORMULA = "y ~ x + (1 | user) + (1 | item)"
CROSSED = {"user": "crossed", "item": "crossed"}


def crossed_table(
    family: str, seed: int = 3, n: int = 600, users: int = 40, items: int = 25
) -> Any:
    """Return a table of unbalanced factors, with levels of one row, and its effects."""
    rng = np.random.default_rng(seed)
    user = np.concatenate([np.arange(users), rng.integers(0, users // 2, n - users)])
    item = np.minimum((rng.pareto(1.0, n) * 3).astype(int), items - 1)
    item[:items] = np.arange(items)
    x = rng.normal(size=n)
    u, v = 0.9 * rng.normal(size=users), 0.4 * rng.normal(size=items)
    eta = -0.3 + 0.6 * x + u[user] + v[item]
    table = {"x": x, "user": user, "item": np.array([f"m{k}" for k in item])}
    if family in ("gaussian", "student_t"):
        table["y"] = eta + 0.8 * rng.normal(size=n)
    elif family in ("poisson", "negative_binomial"):  # of levels far from their common mean
        table["y"] = rng.poisson(np.exp(3.0 + 1.5 * eta) * rng.gamma(5.0, 0.2, n))
    elif family == "probit":
        table["y"] = (rng.normal(size=n) < eta).astype(int)
    elif family == "binomial":
        table["m"] = rng.integers(1, 4, n)
        table["y"] = rng.binomial(table["m"], 1.0 / (1.0 + np.exp(-eta)))
    else:
        table["y"] = (rng.logistic(size=n) < eta).astype(int)
    return table, u, v


def data_of(table: Any, way: str = "crossed", **options: Any) -> Any:
    """Return the rows in memory, factors as columns or such that cross."""
    if "m" in table:
        options["trials"] = "m"
    ways = dict.fromkeys(CROSSED, way)
    return streammc.from_table(table, formula=FORMULA, group_as=ways, **options)


def summary(tree: Any) -> Any:
    """Return the summary of the parameters of a run by label."""
    from streammc.diagnostics.summary import draws_and_labels, summarize_draws

    return summarize_draws(*draws_and_labels(tree))


def correlations_of(partial: Any, k: int) -> Any:
    """Return correlations (k, k) by artanh of partial ones, by the recursion of one given another.

    Those of i and j given all before j come in the order (1, 0), (2, 0), (2, 1), ..
    """
    R = np.eye(k)
    pairs = [(i, j) for i in range(k) for j in range(i)]
    p = dict(zip(pairs, np.tanh(partial), strict=True))
    for i in range(k):
        for j in range(i):
            r = p[i, j]
            for m in range(j - 1, -1, -1):  # of i and j given those before j, one less each time
                r = r * np.sqrt((1 - p[i, m] ** 2) * (1 - p[j, m] ** 2)) + p[i, m] * p[j, m]
            R[i, j] = R[j, i] = r
    return R


def effects_of(own: Any, k: int, levels: int, rng: np.random.Generator) -> Any:
    """Return effects (levels, k) by logarithms of scales and artanh of partial correlations."""
    root = np.linalg.cholesky(correlations_of(own[k:], k)) if len(own) > k else np.eye(k)
    return rng.normal(size=(levels, k)) @ (np.exp(own[:k])[:, None] * root).T


def priors_of(F: int) -> Scales:
    """Half-Student-t(3, 1) scales, as rows of the table of logarithms; normal coefficients."""
    prior = as_prior({"s*": half_student_t(3.0, 1.0)})
    table = prior.table([f"s{i}" for i in range(F + 1)], [1] * (F + 1))
    P = np.array([[0.3, 0.05], [0.05, 0.5]])
    return Scales(np.ascontiguousarray(table[:, :5]), P, P @ np.array([0.2, 0.1]))
