"""Cases of binary, count and heavy-tailed responses: separation, spikes, imbalance, few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from silent_cases import Case, Data

WIDE = {"*": "normal(0, 10)"}
MILD = {"*": "normal(0, 2.5)"}
COUNTS_PRIOR = {"*": "normal(0, 10)", "phi": "half_student_t(3, 10)"}


def binary(n: int, intercept: float = 0.0, slope: float = 1.0, heavy: bool = False) -> Any:
    def make(rng: np.random.Generator) -> Data:
        x = rng.standard_cauchy(n) if heavy else rng.standard_normal(n)
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-intercept - slope * x))
        return {"X": np.column_stack([np.ones(n), x]), "y": y.astype(float)}

    return make


def given(x: Any, y: Any) -> Any:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    return lambda _: {"X": np.column_stack([np.ones(len(x)), x]), "y": y}


def only(y: Any, **more: Any) -> Any:
    y = np.asarray(y, dtype=float)
    return lambda _: {"X": np.ones((len(y), 1)), "y": y, **more}


AMOUNTS = only([0.2, 3.0, 1.0, 40.0, 7.0])


def rare(rng: np.random.Generator) -> Data:
    y = np.zeros(2000)
    y[[100, 900, 1700]] = 1.0
    return {"X": np.column_stack([np.ones(2000), rng.standard_normal(2000)]), "y": y}


def few_rows(rng: np.random.Generator) -> Data:
    return {"X": rng.standard_normal((5, 8)), "y": np.array([0.0, 1.0, 1.0, 0.0, 1.0])}


def exposed(rng: np.random.Generator) -> Data:
    n, log_exposure = 40, rng.normal(15.0, 1.0, 40)
    x = rng.standard_normal(n)
    y = rng.poisson(np.exp(log_exposure - 14.0 + 0.3 * x)).astype(float)
    return {"X": np.column_stack([np.ones(n), x]), "y": y, "offset": log_exposure}


def large_counts(rng: np.random.Generator) -> Data:
    x = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    y = rng.poisson(np.exp(14.0 + 0.2 * x)).astype(float)
    return {"X": np.column_stack([np.ones(5), x]), "y": y}


def many_trials(rng: np.random.Generator) -> Data:
    x, trials = np.array([-1.0, 0.0, 1.0, 2.0]), np.array([1e6, 2e6, 5e5, 1e6])
    y = rng.binomial(trials.astype(int), 1.0 / (1.0 + np.exp(3.0 - x))).astype(float)
    return {"X": np.column_stack([np.ones(4), x]), "y": y, "trials": trials}


def poisson_counts(rate: float, n: int) -> Any:
    return lambda rng: {"X": np.ones((n, 1)), "y": rng.poisson(rate, n).astype(float)}


def outliers(rng: np.random.Generator) -> Data:
    n = 30
    x, noise = rng.standard_normal(n), rng.standard_t(2.0, n)
    noise[:2] = 40.0, -25.0
    return {"X": np.column_stack([np.ones(n), x]), "y": 1.0 + x + noise}


def half_weights(rng: np.random.Generator) -> Data:
    return {**binary(100)(rng), "weight": np.resize([0.0, 0.5, 0.0, 2.5], 100)}


def late_years(rng: np.random.Generator) -> Data:
    """Make decades since 1900 and their squares, and events that are frequent at both ends."""
    x = rng.integers(90, 121, 3000) / 10.0
    y = rng.logistic(size=3000) < 0.45 * (x - 10.5) ** 2 - 1.0
    return {"X": np.column_stack([np.ones(3000), x, x**2]), "y": y.astype(float)}


HALF = np.arange(10) >= 5

COUNTS: dict[str, Case] = {
    "default-late-years": Case(
        "power of a column far from 0, all defaults", "logistic", "auto", late_years, None,
        {"*": "normal(0, 1000)"},
    ),
    "logistic-1": Case("n = 1", "logistic", "auto", only([1.0]), WIDE),
    "logistic-5-of-8": Case("d >= n", "logistic", "auto", few_rows, {"*": "normal(0, 1)"}),
    "logistic-ones": Case("constant response", "logistic", "hmc", only(np.ones(20)), WIDE),
    "logistic-separated": Case(
        "complete separation", "logistic", "auto", given(np.arange(10) - 4.5, HALF), MILD
    ),
    "logistic-quasi": Case(
        "quasi-separation", "logistic", "hmc", given(HALF, HALF & (np.arange(10) != 7)),
        {"*": "student_t(3, 0, 2.5)"},
    ),
    "logistic-spike": Case(
        "spike prior", "logistic", "auto", binary(2048, 0.2, 0.27),
        {"*": "normal(0, 10)", "x1": "student_t(3, 0, 0.001)"},
    ),
    "logistic-spike-hmc-ecs": Case(
        "spike prior", "logistic", "hmc-ecs", binary(2048, -0.2, 0.27),
        {"*": "normal(0, 10)", "x1": "student_t(3, 0, 0.001)"},
    ),
    "logistic-rare": Case("3 events in 2000", "logistic", "auto", rare, WIDE),
    "logistic-rare-hmc-ecs": Case("3 events in 2000", "logistic", "hmc-ecs", rare, WIDE),
    "logistic-heavy-x": Case(
        "heavy-tailed x", "logistic", "hmc-ecs", binary(1000, slope=0.3, heavy=True), WIDE
    ),
    "logistic-conflict": Case(
        "prior against likelihood", "logistic", "auto", binary(40, -2.0),
        {"*": "normal(0, 10)", "x0": "normal(4, 0.3)"},
    ),
    "logistic-weights": Case("weights 0 and fractions", "logistic", "auto", half_weights, MILD),
    "logistic-default": Case(
        "all defaults", "logistic", "auto", binary(500), None, {"*": "normal(0, 10)"}, 0.25
    ),
    "probit-separated": Case(
        "complete separation", "probit", "auto", given(np.arange(10) - 4.5, HALF), MILD
    ),
    "probit-2": Case("n = 2", "probit", "hmc", only([0.0, 1.0]), MILD),
    "binomial-trials": Case("weights of 1e6", "binomial", "auto", many_trials, WIDE),
    "binomial-none": Case(
        "perfect response", "binomial", "hmc", only([0.0, 0.0], trials=[50.0, 50.0]), WIDE
    ),
    "poisson-offset": Case("large offsets", "poisson", "auto", exposed, {"*": "normal(0, 20)"}),
    "poisson-zeros": Case("constant response", "poisson", "auto", only(np.zeros(10)), WIDE),
    "poisson-million": Case(
        "counts of 1e6", "poisson", "hmc", large_counts, {"*": "normal(0, 20)"}
    ),
    "negative-binomial-poisson": Case(
        "phi has no upper end", "negative-binomial", "auto", poisson_counts(5.0, 2000),
        COUNTS_PRIOR,
    ),
    "negative-binomial-poisson-ecs": Case(
        "phi has no upper end", "negative-binomial", "hmc-ecs", poisson_counts(5.0, 5000),
        COUNTS_PRIOR,
    ),
    "gamma-5": Case(
        "n = 5", "gamma", "hmc", AMOUNTS,
        {"*": "normal(0, 10)", "shape": "half_student_t(3, 10)"},
    ),
    "inverse-gaussian-5": Case(
        "n = 5", "inverse-gaussian", "hmc", AMOUNTS,
        {"*": "normal(0, 10)", "shape": "half_student_t(3, 10)"},
    ),
    "lognormal-5": Case(
        "n = 5", "lognormal", "auto", AMOUNTS,
        {"*": "normal(0, 10)", "sigma": "half_student_t(3, 5)"},
    ),
    "weibull-5": Case(
        "n = 5", "weibull", "hmc", AMOUNTS,
        {"*": "normal(0, 10)", "shape": "half_student_t(3, 10)"},
    ),
    "beta-5": Case(
        "n = 5", "beta", "hmc", only([0.02, 0.3, 0.5, 0.99, 0.7]),
        {"*": "normal(0, 5)", "phi": "half_student_t(3, 30)"},
    ),
    "zero-inflated-poisson-none": Case(
        "no zero", "zero-inflated-poisson", "auto", only([1.0, 3.0, 1.0, 4.0, 7.0, 2.0]),
        {"*": "normal(0, 1.5)"},
    ),
    "zero-inflated-poisson-all": Case(
        "all zeros", "zero-inflated-poisson", "hmc", only(np.zeros(8)), {"*": "normal(0, 1.5)"},
    ),
    "zero-inflated-negative-binomial-9": Case(
        "n = 9", "zero-inflated-negative-binomial", "hmc",
        only([0.0, 3.0, 0.0, 40.0, 7.0, 0.0, 0.0, 1.0, 2.0]),
        {"*": "normal(0, 1.5)", "phi": "half_student_t(3, 10)"},
    ),
    "hurdle-poisson-7": Case(
        "n = 7", "hurdle-poisson", "hmc", only([0.0, 3.0, 1.0, 4.0, 0.0, 0.0, 2.0]),
        {"*": "normal(0, 1.5)"},
    ),
    "tweedie-8": Case(
        "n = 8", "tweedie", "hmc", only([0.0, 3.0, 0.0, 1.2, 0.0, 0.0, 7.5, 0.4]),
        {"*": "normal(0, 1.5)", "phi": "half_student_t(3, 10)"},
    ),
    "quantile-9": Case(
        "n = 9", "quantile", "hmc", only([0.2, 3.0, 1.0, 4.0, 7.0, -2.0, 2.5, 1.7, 0.9]),
        {"*": "normal(0, 10)", "sigma": "half_student_t(3, 5)"},
    ),
    "beta-binomial-5": Case(
        "n = 5", "beta-binomial", "hmc",
        only([1.0, 9.0, 4.0, 0.0, 30.0], trials=[10.0, 10.0, 5.0, 3.0, 40.0]),
        {"*": "normal(0, 5)", "phi": "half_student_t(3, 30)"},
    ),
    "multinomial-6": Case(
        "n = 6", "multinomial", "hmc", only([0.0, 2.0, 1.0, 2.0, 0.0, 2.0]), {"*": "normal(0, 5)"},
    ),
    "ordinal-6": Case(
        "n = 6", "ordinal", "hmc", only([0.0, 2.0, 1.0, 2.0, 0.0, 2.0]),
        {"*": "normal(0, 5)", "gap*": "half_student_t(3, 10)"},
    ),
    "exponential-5": Case(
        "n = 5", "exponential", "hmc", AMOUNTS, {"*": "normal(0, 10)"},
    ),
    "negative-binomial-5": Case(
        "n = 5", "negative-binomial", "hmc", only([0.0, 3.0, 1.0, 40.0, 7.0]), COUNTS_PRIOR
    ),
    "negative-binomial-default": Case(
        "all defaults", "negative-binomial", "auto",
        lambda rng: {"X": np.ones((500, 1)), "y": rng.negative_binomial(2, 0.3, 500) * 1.0},
        None, {"*": "normal(0, 10)", "phi": "half_student_t(3, 10)"}, 0.25,
    ),
    "student-t-outliers": Case(
        "outliers", "student-t", "auto", outliers,
        {"*": "normal(0, 10)", "sigma": "half_student_t(3, 10)", "nu": "gamma(2, 0.1)"},
    ),
    "student-t-apart": Case(
        "two modes", "student-t", "auto", only([-10.0, -9.5, 10.0, 9.0]),
        {"*": "normal(0, 10)", "sigma": "half_normal(0.3)"}, model={"df": 1.0}, density={"df": 1.0},
    ),
}  # fmt: skip
