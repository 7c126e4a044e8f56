"""Cases of few groups, of groups that agree, of outliers, and of tables of a few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from silent_cases import Case, Data

TAU = "half_student_t(3, 2.5)"
PRIOR = {
    "*": "normal(0, 5)", "sigma": TAU, "phi": TAU, "shape": "half_student_t(3, 10)",
    "nu": "gamma(2, 0.1)", "tau[group]": TAU,
}  # fmt: skip
USED = {"gaussian": ["sigma"], "gamma": ["shape"], "student-t": ["sigma", "nu"]}


def prior_of(family: str, groups: bool = True) -> dict[str, str]:
    """Return the priors of a family, without those that it does not have."""
    names = ["*", *USED.get(family, []), *(["tau[group]"] if groups else [])]
    return {name: PRIOR[name] for name in names}


def few(family: str, groups: int, rows: int, tau: float = 1.0) -> Case:
    """Return a case of few groups."""

    def make(rng: np.random.Generator) -> Data:
        group = np.repeat(np.arange(groups), rows)
        x = (rng.random(len(group)) < 0.5).astype(float)
        eta = 0.3 + 0.5 * x + tau * rng.standard_normal(groups)[group]
        y = {
            "gaussian": lambda: rng.normal(eta, 1.0),
            "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
            "logistic": lambda: (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float),
        }[family]()
        return {"X": np.column_stack([np.ones(len(eta)), x]), "y": y, "groups": group}

    # Tails of a power: the sd of 1,000 draws a chain is known to 5 %.
    run = {"draws": 4000}
    return Case(f"{groups} groups", family, "auto", make, prior_of(family), run=run)


def agreeing(groups: int, rows: int, tau: float | None = None) -> Callable[..., Data]:
    """Return rows of 0 and 1 that agree within groups: all of them, or as ``tau`` has it."""

    def make(rng: np.random.Generator) -> Data:
        group = np.repeat(np.arange(groups), rows)
        y = (rng.random(groups) < 0.4)[group]
        if tau is not None:
            eta = 0.3 + tau * rng.standard_normal(groups)[group]
            y = rng.random(len(group)) < 1.0 / (1.0 + np.exp(-eta))
        return {"X": np.ones((len(group), 1)), "y": y.astype(float), "groups": group}

    return make


def outliers(groups: int, rows: int, count: int, far: float) -> Callable[..., Data]:
    """Return numbers in groups, a few of them far away."""

    def make(rng: np.random.Generator) -> Data:
        group = np.repeat(np.arange(groups), rows)
        y = 1.0 + rng.standard_normal(groups)[group] + 0.5 * rng.standard_t(3, len(group))
        y[rng.choice(len(y), count, replace=False)] += far * rng.choice([-1.0, 1.0], count)
        return {"X": np.ones((len(group), 1)), "y": y, "groups": group}

    return make


def constant(rng: np.random.Generator) -> Data:
    group = np.repeat(np.arange(5), 4)
    y = rng.gamma(3.0, 1.0, 5)[group]
    return {"X": np.column_stack([np.ones(20), rng.standard_normal(20)]), "y": y, "groups": group}


def zeros(rng: np.random.Generator) -> Data:
    group = np.repeat(np.arange(6), 5)
    y = rng.poisson(2.0, 30) * (group < 2).astype(float)
    return {"X": np.ones((30, 1)), "y": y, "groups": group}


def tiny(family: str, rows: int, columns: int) -> Case:
    """Return a table of a few rows for ``laplace``."""

    def make(rng: np.random.Generator) -> Data:
        X = np.column_stack([np.ones(rows), rng.standard_normal((rows, columns - 1))])
        eta = X.sum(axis=1) / 2.0
        y = {
            "gaussian": lambda: rng.normal(eta, 1.0),
            "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3.0),
            "student-t": lambda: eta + rng.standard_t(4, rows),
        }[family]()
        return {"X": X, "y": y}

    return Case("a few rows", family, "laplace", make, prior_of(family, groups=False))


def refused(family: str) -> Case:
    return Case("constant in groups", family, "auto", constant, prior_of(family), improper=True)


def of_one(kind: str, family: str, data: Any) -> Case:
    return Case(kind, family, "auto", data, prior_of(family))


def of_known_df(kind: str, data: Any, df: float) -> Case:
    """Return a case of Student t errors whose degrees of freedom are given and have no prior."""
    prior = {name: each for name, each in prior_of("student-t").items() if name != "nu"}
    known = {"df": df}
    return Case(kind, "student-t", "auto", data, prior, model=known, density=known)


GROUPS: dict[str, Case] = {
    "groups-3-gaussian": few("gaussian", 3, 12),
    "groups-3-poisson": few("poisson", 3, 12),
    "groups-3-logistic": few("logistic", 3, 12),
    "groups-2-gaussian": few("gaussian", 2, 30),
    "groups-2-poisson": few("poisson", 2, 30),
    "groups-2-logistic": few("logistic", 2, 30),
    "groups-tau-0": few("gaussian", 6, 8, 0.0),
    "twins-agree": of_one("pairs that agree", "logistic", agreeing(24, 2)),
    "twins-tau-8": of_one("pairs, tau 8", "logistic", agreeing(60, 2, 8.0)),
    "triples-agree-probit": of_one("triples that agree", "probit", agreeing(16, 3)),
    "groups-of-zeros": of_one("groups of zeros", "poisson", zeros),
    "groups-outliers": of_one("outliers", "student-t", outliers(8, 6, 3, 30.0)),
    "groups-outliers-far": of_known_df("outliers", outliers(8, 3, 4, 200.0), 4.0),
    "groups-constant-gaussian": refused("gaussian"),
    "groups-constant-student-t": refused("student-t"),
    "groups-constant-gamma": refused("gamma"),
    "laplace-gaussian-6": tiny("gaussian", 6, 1),
    "laplace-gaussian-10": tiny("gaussian", 10, 2),
    "laplace-gamma-6": tiny("gamma", 6, 1),
    "laplace-gamma-10": tiny("gamma", 10, 2),
    "laplace-student-t-12": tiny("student-t", 12, 1),
}

FEW_ROWS: dict[str, Case] = {
    f"few-rows-{k}": tiny(("gaussian", "gamma", "student-t")[k % 3], 4 + k % 9, 1 + k % 2)
    for k in range(200)
}
"""Tables of 4 to 12 rows for ``laplace``, whose tails normal proposals do not reach."""
