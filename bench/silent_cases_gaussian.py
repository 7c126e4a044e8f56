"""Cases of ``gaussian`` and ``gaussian-mean``: units, few rows, perfect fits, columns, weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from silent_cases import Case, Data

WIDE = {"*": "normal(0, 10)", "sigma": "half_student_t(3, 10)"}


def mean_of(*y: float) -> Any:
    return lambda _: {"X": np.ones((len(y), 1)), "y": np.array(y)}


def around(centre: float, spread: float, n: int) -> Any:
    return lambda rng: {"X": np.ones((n, 1)), "y": centre + spread * rng.standard_normal(n)}


def line(n: int, slope: float = 1.0, unit: float = 1.0, shift: float = 0.0) -> Any:
    def make(rng: np.random.Generator) -> Data:
        x = shift + rng.standard_normal(n)
        y = unit * (1.0 + slope * (x - shift) + rng.standard_normal(n))
        return {"X": np.column_stack([np.ones(n), x]), "y": y}

    return make


def columns(change: Any, n: int = 40) -> Any:
    """Rows of an intercept, x and a column made of x."""

    def make(rng: np.random.Generator) -> Data:
        x = rng.standard_normal(n)
        other = change(x, rng)
        return {
            "X": np.column_stack([np.ones(n), x, other]),
            "y": 1.0 + x + 0.5 * other + rng.standard_normal(n),
        }

    return make


def weighted(change: Any, n: int = 40) -> Any:
    def make(rng: np.random.Generator) -> Data:
        return {**line(n)(rng), "weight": change(n, rng)}

    return make


def wide_rows(rng: np.random.Generator, n: int = 5, d: int = 8) -> Data:
    X = rng.standard_normal((n, d))
    return {"X": X, "y": X[:, 0] + 0.5 * rng.standard_normal(n)}


def exact_line(rng: np.random.Generator) -> Data:
    x = rng.standard_normal(20)
    return {"X": np.column_stack([np.ones(20), x]), "y": 2.0 + 3.0 * x}


def hidden_rows(n: int, rng: np.random.Generator) -> Any:
    """Weights of 0, a fraction and 1."""
    return np.resize([0.0, 0.3, 1.0], n)


def case(kind: str, data: Any, prior: Any = WIDE, sampler: str = "auto", **options: Any) -> Case:
    return Case(kind, "gaussian", sampler, data, prior, **options)


def default(kind: str, data: Any, centre: float, spread: float, sampler: str = "auto") -> Case:
    """All defaults, against a prior that is wide in the units of the data."""
    against = {
        "*": f"normal({centre!r}, {100.0 * spread!r})",
        "x1": f"normal(0, {100.0 * spread!r})",
        "sigma": f"half_student_t(3, {10.0 * spread!r})",
    }
    return Case(kind, "gaussian", sampler, data, None, against, 0.25)


def years(n: int) -> Any:
    """Make years and their squares, and a response that is curved around 2005."""

    def make(rng: np.random.Generator) -> Data:
        x = rng.integers(1990, 2021, n).astype(float)
        y = 2.0 + 0.1 * (x - 2005.0) + 0.0045 * (x - 2005.0) ** 2 + rng.standard_normal(n)
        return {"X": np.column_stack([np.ones(n), x, x**2]), "y": y}

    return make


def product_of(n: int) -> Any:
    """Make two columns far from 0 and their product."""

    def make(rng: np.random.Generator) -> Data:
        a, k = rng.uniform(60, 70, n), rng.uniform(290, 300, n)
        y = 0.03 * (a - 65.0) * (k - 295.0) + rng.standard_normal(n)
        return {"X": np.column_stack([np.ones(n), a, k, a * k]), "y": y}

    return make


def rare_reference(rng: np.random.Generator) -> Data:
    """Make indicators of 39 levels of 20 rows, and a reference of 12 rows that is far below."""
    g = np.repeat(np.arange(40), [12, *[20] * 39])
    ones = np.equal.outer(g, np.arange(1, 40)).astype(float)
    y = np.where(g == 0, -3.0, rng.standard_normal(40)[g]) + rng.standard_normal(len(g))
    return {"X": np.column_stack([np.ones(len(g)), ones]), "y": y}


FLAT = {"*": "normal(0, 1e8)", "sigma": "half_student_t(3, 30)"}


GAUSSIAN: dict[str, Case] = {
    "default-years": Case(
        "power of a column far from 0, all defaults", "gaussian", "auto", years(300), None, FLAT
    ),
    "default-product": Case(
        "product of columns far from 0, all defaults", "gaussian", "hmc", product_of(300), None,
        FLAT,
    ),
    "default-correlated": Case(
        "correlation 0.999, all defaults", "gaussian", "auto",
        columns(lambda x, rng: x + 0.045 * rng.standard_normal(len(x)), 300), None, FLAT,
    ),
    "default-reference": Case(
        "rare reference of 40 levels, all defaults", "gaussian", "auto", rare_reference, None, FLAT,
        0.25,
    ),
    "default-170": default("units, all defaults", around(170.0, 7.0, 30), 170.0, 7.0),
    "default-1e5": default("units, all defaults", around(1e5, 1.0, 30), 1e5, 1.0),
    "default-million": default(
        "y about 1e6, all defaults", line(40, unit=1e6), 1e6, 1e6, "hmc"
    ),
    "default-millionth": default("y about 1e-6, all defaults", line(40, unit=1e-6), 1e-6, 1e-6),
    "prior-170": case("narrow prior, two modes", around(170.0, 7.0, 30)),
    "prior-1800": case("narrow prior, two modes", around(1800.0, 7.0, 2000)),
    "prior-5000-hmc-ecs": case(
        "narrow prior, two modes", around(5000.0, 7.0, 2000), sampler="hmc-ecs"
    ),
    "gaussian-1": case("n = 1", mean_of(3.0)),
    "gaussian-2": case("n = 2", mean_of(3.0, 4.0), sampler="hmc"),
    "gaussian-5-of-8": case(
        "d >= n", wide_rows, {"*": "normal(0, 1)", "sigma": "half_student_t(3, 1)"}
    ),
    "gaussian-constant": case("constant response", mean_of(*[2.0] * 20), improper=True),
    "gaussian-constant-proper": case(
        "constant response", mean_of(*[2.0] * 20),
        {"*": "normal(0, 10)", "sigma": "inverse_gamma(3, 1)"},
    ),
    "gaussian-perfect": case("perfect fit", exact_line, sampler="hmc", improper=True),
    "gaussian-collinear": case(
        "collinear columns", columns(lambda x, rng: x + 1e-3 * rng.standard_normal(len(x)))
    ),
    "gaussian-duplicate": case("duplicated column", columns(lambda x, _: x), sampler="hmc"),
    "gaussian-zeros": case("column of zeros", columns(lambda x, _: 0.0 * x)),
    "gaussian-x-1e4": case("x about 1e4", line(40, shift=1e4), sampler="hmc"),
    "gaussian-weights": case("weights 0 and fractions", weighted(hidden_rows)),
    "gaussian-weight-1e12": case(
        "a weight of 1e12",
        weighted(lambda n, _: np.append(np.ones(n - 1), 1e12), 10),
        {"*": "normal(0, 10)", "sigma": "inverse_gamma(3, 1)"},
    ),
    "gaussian-conflict": case(
        "prior against likelihood", line(30, slope=3.0),
        {"*": "normal(0, 10)", "x1": "normal(0, 0.1)", "sigma": "half_student_t(3, 10)"},
    ),
    "gaussian-one-chain": case(
        "one chain, short", line(30), sampler="mh", run={"chains": 1, "draws": 200, "warmup": 100}
    ),
    "gaussian-mean-1e4": Case(
        "x about 1e4", "gaussian-mean", "auto",
        lambda rng: {"X": 1e4 + rng.standard_normal((5, 2))}, {"*": "normal(9000, 2000)"},
        density={"covariance": [[1.0, 0.5], [0.5, 2.0]]},
        model={"covariance": [[1.0, 0.5], [0.5, 2.0]]},
    ),
}  # fmt: skip
