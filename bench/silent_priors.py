"""Priors of small posteriors as SciPy knows them, by the texts that ``--prior`` takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats

Array = np.ndarray
POSITIVE = (
    "sigma",
    "phi",
    "nu",
    "shape",
    "gap",
    "tau",
    "length_scale",
    "sigma_f",
    "sigma_n",
    "variance_n",
)


class HalfStudentT:
    """The absolute value of a Student t."""

    def __init__(self, df: float, scale: float) -> None:
        self.both = stats.t(df, 0.0, scale)

    def logpdf(self, x: Array) -> Array:
        """Return the log density at positive x."""
        return math.log(2.0) + self.both.logpdf(x)

    def rvs(self, size: int, random_state: np.random.Generator) -> Array:
        """Return draws."""
        return np.abs(self.both.rvs(size=size, random_state=random_state))


PRIORS: dict[str, Callable[..., Any]] = {
    "normal": stats.norm,
    "student_t": stats.t,
    "laplace": stats.laplace,
    "uniform": lambda low, high: stats.uniform(low, high - low),
    "half_normal": lambda scale: stats.halfnorm(0.0, scale),
    "half_cauchy": lambda scale: stats.halfcauchy(0.0, scale),
    "half_student_t": HalfStudentT,
    "gamma": lambda shape, rate: stats.gamma(shape, scale=1.0 / rate),
    "exponential": lambda rate: stats.expon(0.0, 1.0 / rate),
    "inverse_gamma": lambda shape, scale: stats.invgamma(shape, scale=scale),
    "lognormal": lambda location, scale: stats.lognorm(scale, scale=math.exp(location)),
}


def prior_of(text: str) -> Any:
    """Return the distribution of a text such as ``normal(0, 10)``."""
    name, numbers = re.fullmatch(r"(\w+)\((.*)\)", text).groups()  # type: ignore[union-attr]
    return PRIORS[name](*(float(number) for number in numbers.split(",")))


def kind_of(label: str) -> str:
    """Return ``log``, ``logit`` or ``as is``: how theta holds the parameter of this label."""
    name = label.split("[")[0]
    return "log" if name in POSITIVE else "logit" if name == "weight" else "as is"


def transformed(label: str, values: Array) -> Array:
    """Return values as reported, as theta holds them."""
    kind = kind_of(label)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"log": np.log, "logit": special.logit, "as is": np.asarray}[kind](values)


def prior_text(label: str, prior: dict[str, str]) -> str:
    """Return the prior of a label: by its name, by its beginning before ``*``, else ``"*"``."""
    short = re.sub(r"^beta\[(.*)\]$", r"\1", label)
    for key in (label, short):
        if key in prior:
            return prior[key]
    fitting = [key for key in prior if key.endswith("*") and label.startswith(key[:-1])]
    if not fitting or (max(fitting, key=len) == "*" and kind_of(label) == "log"):
        raise KeyError(f"no prior of {label} in {prior}")
    return prior[max(fitting, key=len)]
