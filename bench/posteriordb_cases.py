"""The posteriors of posteriordb that streammc's models express, and why the other is not sampled.

Designs are as the Stan programs make them, nothing standardised; ``names`` maps labels to
those of the reference draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streammc import models, priors
from streammc.stores.memory import from_arrays

Data = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One posterior: how the rows are made, the model, and the priors in words."""

    columns: Callable[[Data], tuple[list[Any], Any]]
    """data -> columns of the design, response, ``None`` where the column is what is modelled."""
    model: str
    prior: Any
    stan_prior: str
    ours: str
    names: str = "beta[{}]"
    """How the reference numbers its coefficients; counted from one."""
    trials: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Of the model."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Names in the reference of parameters that are no coefficients."""
    samplers: tuple[str, ...] = ("hmc", "hmc-ecs")


def column(data: Data, name: str) -> np.ndarray:
    return np.asarray(data[name], dtype=np.float64)


def logs(data: Data) -> dict[str, np.ndarray]:
    d1, d2, height = (column(data, name) for name in ("diam1", "diam2", "canopy_height"))
    return {
        "volume": np.log(d1 * d2 * height),
        "area": np.log(d1 * d2),
        "shape": np.log(d1 / d2),
        "total": np.log(column(data, "total_height")),
        "density": np.log(column(data, "density")),
        "diam1": np.log(d1),
        "diam2": np.log(d2),
        "height": np.log(height),
        "group": column(data, "group"),
    }


def mesquite(*names: str) -> Callable[[Data], tuple[list[Any], Any]]:
    return lambda data: (
        [1.0, *(logs(data)[name] for name in names)],
        np.log(column(data, "weight")),
    )


def plain(response: str, *names: str, change: Any = None) -> Callable[[Data], Any]:
    def make(data: Data) -> tuple[list[Any], Any]:
        y = column(data, response)
        return [1.0, *(column(data, name) for name in names)], y if change is None else change(y)

    return make


def interaction(data: Data) -> tuple[list[Any], Any]:
    height, male = column(data, "height"), column(data, "male")
    return [1.0, height, male, height * male], np.log(column(data, "earn"))


def nes(data: Data) -> tuple[list[Any], Any]:
    age = column(data, "age_discrete")
    ages = [(age == level).astype(float) for level in (2, 3, 4)]
    rest = [column(data, name) for name in ("educ1", "gender", "income")]
    first = [column(data, "real_ideo"), column(data, "race_adj")]
    return [1.0, *first, *ages, *rest], column(data, "partyid7")


def autoregression(data: Data) -> tuple[list[Any], Any]:
    y, lags = column(data, "y"), int(data["K"])
    return [1.0, *(y[lags - k - 1 : -k - 1] for k in range(lags))], y[lags:]


def wells(*names: str) -> Callable[[Data], tuple[list[Any], Any]]:
    def make(data: Data) -> tuple[list[Any], Any]:
        distance, arsenic = column(data, "dist"), column(data, "arsenic")
        d, a = (distance - distance.mean()) / 100.0, arsenic - arsenic.mean()
        known = {
            "dist": distance,
            "dist100": distance / 100.0,
            "d": d,
            "a": a,
            "da": d * a,
            "educ4": column(data, "educ") / 4.0,
        }
        return [1.0, *(known[name] for name in names)], column(data, "switched")

    return make


def years(power: int) -> Callable[[Data], tuple[list[Any], Any]]:
    def make(data: Data) -> tuple[list[Any], Any]:
        year = column(data, "year")
        return [year**k for k in range(power + 1)], column(data, "C")

    return make


def alone(name: str) -> Callable[[Data], tuple[list[Any], Any]]:
    return lambda data: ([column(data, name)], None)


FLAT = priors.flat()
IMPROPER = {"*": FLAT, "sigma": FLAT}
CAUCHY = {"*": FLAT, "sigma": priors.half_cauchy(scale=2.5)}
FLAT_WORDS = ("flat on beta and sigma", "flat() on each; on sigma itself, not its log")
CAUCHY_WORDS = ("sigma ~ cauchy(0, 2.5), sigma > 0; flat on beta", "half_cauchy(2.5); flat()")


def gaussian(columns: Any, prior: Any = IMPROPER, words: Any = FLAT_WORDS) -> Case:
    return Case(columns, "gaussian", prior, *words)


def logistic(columns: Any) -> Case:
    return Case(columns, "logistic", FLAT, "flat", "flat()")


CASES: dict[str, Case] = {
    "arK-arK": Case(
        autoregression,
        "gaussian",
        {"*": priors.normal(scale=10.0), "sigma": priors.half_cauchy(scale=2.5)},
        "alpha, beta ~ normal(0, 10); sigma ~ cauchy(0, 2.5), sigma > 0",
        "normal(0, 10); half_cauchy(2.5)",
        "alpha beta[{}]",
    ),
    "earnings-log10earn_height": gaussian(plain("earn", "height", change=np.log10)),
    "earnings-logearn_height": gaussian(plain("earn", "height", change=np.log)),
    "earnings-logearn_height_male": gaussian(plain("earn", "height", "male", change=np.log)),
    "earnings-logearn_interaction": gaussian(interaction),
    "kidiq-kidscore_momhs": gaussian(plain("kid_score", "mom_hs"), CAUCHY, CAUCHY_WORDS),
    "kidiq-kidscore_momhsiq": gaussian(
        plain("kid_score", "mom_hs", "mom_iq"), CAUCHY, CAUCHY_WORDS
    ),
    "kidiq-kidscore_momiq": gaussian(plain("kid_score", "mom_iq"), CAUCHY, CAUCHY_WORDS),
    "mesquite-logmesquite": gaussian(
        mesquite("diam1", "diam2", "height", "total", "density", "group")
    ),
    "mesquite-logmesquite_logva": gaussian(mesquite("volume", "area", "group")),
    "mesquite-logmesquite_logvas": gaussian(
        mesquite("volume", "area", "shape", "total", "density", "group")
    ),
    "mesquite-logmesquite_logvolume": gaussian(mesquite("volume")),
    "nes1972-nes": gaussian(nes),
    "nes1976-nes": gaussian(nes),
    "nes1980-nes": gaussian(nes),
    "nes1984-nes": gaussian(nes),
    "sblri-blr": Case(
        lambda data: (list(np.asarray(data["X"]).T), column(data, "y")),
        "gaussian",
        {"*": priors.normal(scale=10.0), "sigma": priors.half_normal(scale=10.0)},
        "beta ~ normal(0, 10); sigma ~ normal(0, 10), sigma > 0",
        "normal(0, 10); half_normal(10)",
    ),
    "radon_all-radon_pooled": Case(
        plain("log_radon", "floor_measure"),
        "gaussian",
        {"*": priors.normal(scale=10.0), "sigma": priors.half_normal(scale=1.0)},
        "alpha, beta ~ normal(0, 10); sigma_y ~ normal(0, 1), sigma_y > 0",
        "normal(0, 10); half_normal(1)",
    ),
    "nes_logit_data-nes_logit_model": logistic(plain("vote", "income")),
    "wells_data-wells_dist": logistic(wells("dist")),
    "wells_data-wells_dist100_model": logistic(wells("dist100")),
    "wells_data-wells_dae_c_model": logistic(wells("d", "a", "da", "educ4")),
    "wells_data-wells_interaction_c_model": logistic(wells("d", "a", "da")),
    "GLM_Poisson_Data-GLM_Poisson_model": Case(
        years(3),
        "poisson",
        {"x0": priors.uniform(-20.0, 20.0), "*": priors.uniform(-10.0, 10.0)},
        "alpha in [-20, 20], beta in [-10, 10], flat there",
        "uniform(-20, 20); uniform(-10, 10)",
    ),
    "GLM_Binomial_data-GLM_Binomial_model": Case(
        years(2),
        "binomial",
        priors.normal(scale=100.0),
        "normal(0, 100)",
        "normal(0, 100)",
        trials="N",
    ),
    "low_dim_gauss_mix-low_dim_gauss_mix": Case(
        alone("y"),
        "gaussian_mixture_free",
        {"*": priors.normal(scale=2.0), "sigma*": priors.half_normal(scale=2.0)},
        "mu ~ normal(0, 2), ordered; sigma ~ normal(0, 2), sigma > 0; theta ~ beta(5, 5)",
        "normal(0, 2); half_normal(2); concentration 5",
        options={"concentration": 5.0},
        renamed={
            "mu[0]": "mu[1]",
            "mu[1]": "mu[2]",
            "sigma[0]": "sigma[1]",
            "sigma[1]": "sigma[2]",
            "weight[0]": "theta",
        },
    ),
    "low_dim_gauss_mix_collapse-low_dim_gauss_mix_collapse": Case(
        alone("y"),
        "gaussian_mixture_free",
        {"*": priors.normal(scale=2.0), "sigma*": priors.half_normal(scale=2.0)},
        "the same, not ordered: two modes that mirror each other",
        "the same, ordered: one of them",
        options={"concentration": 5.0},
        samplers=("hmc",),
    ),
    "normal_2-normal_mixture": Case(
        alone("y"),
        "gaussian_mixture_free",
        priors.normal(scale=10.0),
        "mu ~ normal(0, 10), not ordered; theta ~ uniform(0, 1); sigma = 1",
        "normal(0, 10), ordered: one of two mirrored modes; concentration 1; scale 1",
        options={"scale": 1.0},
    ),
    "gp_pois_regr-gp_regr": Case(
        lambda data: ([column(data, "x")], column(data, "y")),
        "gaussian_process",
        {
            "length_scale": priors.gamma(shape=25.0, rate=4.0),
            "sigma_f": priors.half_normal(scale=2.0),
            "variance_n": priors.half_normal(scale=1.0),
        },
        "rho ~ gamma(25, 4); alpha ~ normal(0, 2); sigma ~ normal(0, 1), a variance; all > 0",
        "gamma(25, 4); half_normal(2); half_normal(1)",
        options={"noise": "variance", "ard": False},
        renamed={"length_scale": "rho", "sigma_f": "alpha", "variance_n": "sigma"},
        samplers=("pt",),
    ),
}

LEFT_OUT: dict[str, str] = {
    "normal_5-normal_mixture_k": "`gaussian-mixture-free` with components 5 expresses it, but it "
    "has 120 modes that mirror each other, and more: chains of hmc do not agree (R-hat 3), and "
    "there are no reference draws",
}


def problem(name: str, folder: Path) -> tuple[Any, Any]:
    """Return the rows in memory and the model of a case."""
    case = CASES[name]
    data = json.loads((folder / name / "data.json").read_text())
    columns, y = case.columns(data)
    shape = np.broadcast_shapes(*(np.shape(part) for part in columns), np.shape(y))
    design = np.column_stack([np.broadcast_to(part, shape) for part in columns])
    names = [f"x{j}" for j in range(design.shape[1])]
    trials = column(data, case.trials) if case.trials else None
    store = from_arrays(design, y, trials=trials, feature_names=names)
    return store, getattr(models, case.model)(prior=case.prior, **case.options)


def reference(name: str, folder: Path, labels: list[str]) -> np.ndarray | None:
    """Return the reference draws (chain, draw, d) in the order of ``labels``, or ``None``.

    A parameter that was not recorded is left out of both: NaN.
    """
    path = folder / name / "reference_draws.npz"
    if not path.exists():
        return None
    stored = np.load(path, allow_pickle=False)
    names = [str(label) for label in stored["names"]]
    case = CASES[name]
    pattern = case.names
    out = np.full((*stored["draws"].shape[:2], len(labels)), np.nan)
    for at, label in enumerate(labels):
        if not label.startswith("beta["):
            wanted = case.renamed.get(label, label)
        elif pattern.startswith("alpha "):
            wanted = "alpha" if at == 0 else pattern.split()[1].format(at)
        else:
            wanted = pattern.format(at + 1)
        if wanted in names:
            out[:, :, at] = stored["draws"][:, :, names.index(wanted)]
    return out
