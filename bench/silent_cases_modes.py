"""Cases with several modes, mixtures and networks, and the samplers that have a ladder."""

from __future__ import annotations

from typing import Any

import numpy as np
from silent_cases import Case, Data, at_points, by_first_column, by_order

UNEQUAL = {"mu[0, x0]": "normal(-2, 6)", "mu[1, x0]": "normal(0, 6)", "mu[2, x0]": "normal(2, 6)"}
POINTS = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]])
GP_PRIOR = {
    "length_scale[x0]": "lognormal(0.5, 1)", "sigma_f": "gamma(4, 1)", "sigma_n": "gamma(2, 2)",
}  # fmt: skip


def blobs(*centres: float, each: int = 60) -> Any:
    """``each`` rows around every centre, in one column."""
    return lambda rng: {"X": np.concatenate([c + rng.standard_normal((each, 1)) for c in centres])}


def plane(rng: np.random.Generator) -> Data:
    """Two components of 40 rows in two columns."""
    centres = np.array([[-2.0, 1.0], [2.0, -1.0]])
    return {"X": np.concatenate([c + rng.standard_normal((40, 2)) for c in centres])}


def halves(rng: np.random.Generator) -> Data:
    spread = np.repeat([0.7, 1.5], 40)
    return {"X": (np.repeat([-1.5, 2.0], 40) + spread * rng.standard_normal(80))[:, None]}


def bent(rng: np.random.Generator) -> Data:
    x = rng.uniform(-2.0, 2.0, 40)
    y = rng.random(40) < np.where(np.abs(x) < 1.0, 0.85, 0.15)
    return {"X": np.column_stack([np.ones(40), x]), "y": y.astype(float)}


def wave(n: int) -> Any:
    def make(rng: np.random.Generator) -> Data:
        x = np.linspace(-2.0, 2.0, n) if n > 1 else np.zeros(1)
        return {"X": x[:, None], "y": np.sin(2.0 * x) + 0.3 * rng.standard_normal(n)}

    return make


def six(sampler: str) -> Case:
    """Three components 4 sd apart: six modes of unequal mass."""
    return Case(
        "six modes", "gaussian-mixture", sampler, blobs(-4.0, 0.0, 4.0), UNEQUAL,
        model={"components": 3, "covariance": 1.0},
        density={"components": 3, "variance": 1.0}, extra=by_order(3),
    )  # fmt: skip


def two(sampler: str, prior: dict[str, str]) -> Case:
    return Case(
        "two modes", "gaussian-mixture", sampler, blobs(-2.0, 2.0, each=30), prior,
        model={"components": 2, "covariance": 1.0},
        density={"components": 2, "variance": 1.0}, extra=by_order(2),
    )  # fmt: skip


def tied(sampler: str, **run: Any) -> Case:
    def make(rng: np.random.Generator) -> Data:
        return {"X": (np.where(rng.random(100) < 0.5, 0.0, 3.0) + 1.4 * rng.standard_normal(100))
                [:, None]}  # fmt: skip

    return Case(
        "two modes", "gaussian-mixture-tied", sampler, make,
        {"theta1": "normal(0, 3.1622776601683795)", "theta2": "normal(0, 1)"}, run=run,
        extra=lambda theta: {"is theta2 > 0": (theta[:, 1] > 0.0).astype(float)},
    )  # fmt: skip


FREE = Case(
    "five parameters", "gaussian-mixture-free", "hmc", halves,
    {"mu*": "normal(0, 5)", "sigma*": "inverse_gamma(3, 2)", "weight*": "uniform(0, 1)"},
)  # fmt: skip
NETWORK = Case(
    "exchangeable units", "network", "auto", bent, {"*": "normal(0, 1)"},
    model={"hidden": [2]}, density={"units": 2}, extra=at_points(2, POINTS), draws=400_000,
)  # fmt: skip

MODES: dict[str, Case] = {
    "mixture-six-auto": six("auto"),
    "mixture-six-mh": six("mh"),
    "mixture-six-pt": six("pt"),
    "mixture-six-tt": six("tt"),
    "mixture-two-spt": two("spt", {"mu[0, x0]": "normal(1, 3)", "mu[1, x0]": "normal(0, 3)"}),
    "mixture-two-mintee": two("mintee", {"*": "normal(0, 5)"}),
    "mixture-plane-pt": Case(
        "two modes, two columns", "gaussian-mixture", "pt", plane,
        {"mu[0, x0]": "normal(1, 3)", "*": "normal(0, 4)"},
        model={"components": 2, "covariance": 1.0, "dim": 2},
        density={"components": 2, "variance": 1.0}, extra=by_first_column(2),
    ),
    "tied-hmc": tied("hmc"),
    "tied-stt": tied("stt"),
    "mixture-free-hmc": FREE,
    "network-auto": NETWORK,
    "process-pt": Case("joint", "gaussian-process", "pt", wave(12), GP_PRIOR),
    "process-1-tt": Case("n = 1", "gaussian-process", "tt", wave(1), GP_PRIOR),
}  # fmt: skip
