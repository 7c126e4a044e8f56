"""Tables of two factors that cross, and what made them."""

from __future__ import annotations

from typing import Any

import numpy as np

import streammc

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
    if family == "gaussian":
        table["y"] = eta + 0.8 * rng.normal(size=n)
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
