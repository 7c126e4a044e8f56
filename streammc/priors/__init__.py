"""Prior densities over the parameters, on the store's scale.

A prior is a small description; ``numerics.prior`` evaluates it, compiled, from a table
with one row per component of theta.
"""

from __future__ import annotations

from streammc.priors.by_name import NamedPriors, PriorOption, ScaledPriors, as_prior, fixed_priors
from streammc.priors.families import (
    FamilyPrior,
    exponential,
    flat,
    gamma,
    half_cauchy,
    half_normal,
    half_student_t,
    inverse_gamma,
    laplace,
    lkj,
    lognormal,
    normal,
    student_t,
    uniform,
)
from streammc.priors.text import from_description, parse, parse_item

__all__ = [
    "FamilyPrior",
    "NamedPriors",
    "PriorOption",
    "ScaledPriors",
    "as_prior",
    "exponential",
    "fixed_priors",
    "flat",
    "from_description",
    "gamma",
    "half_cauchy",
    "half_normal",
    "half_student_t",
    "inverse_gamma",
    "laplace",
    "lkj",
    "lognormal",
    "normal",
    "parse",
    "parse_item",
    "student_t",
    "uniform",
]
