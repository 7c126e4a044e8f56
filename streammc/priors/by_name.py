"""Priors by name or pattern, and the defaults of what is not named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS
from streammc.priors.coefficients import normal
from streammc.priors.family import FamilyPrior, positive_flags
from streammc.priors.names import REST, choose
from streammc.priors.scales import gamma, half_student_t, lognormal
from streammc.protocols import Matrix, Prior

PriorOption: TypeAlias = Prior | Mapping[str, FamilyPrior]
"""What a model takes: one prior for all coefficients, or priors by name."""

DEFAULT: Final = normal(scale=10.0)
"""Of a coefficient."""
DEFAULT_POSITIVE: Final = half_student_t(df=3.0, scale=10.0)
"""Of a positive parameter, such as ``sigma`` and ``phi``."""
DEFAULT_OF: Final = {
    "nu": gamma(shape=2.0, rate=0.1),
    "length_scale": lognormal(location=0.5, scale=1.0),
    "sigma_f": gamma(shape=4.0, rate=1.0),
    "sigma_n": gamma(shape=2.0, rate=2.0),
    "variance_n": gamma(shape=2.0, rate=2.0),
}
"""Of positive parameters with a default of their own: degrees of freedom ``nu``, and those of
a Gaussian process (van de Meent, Paige and Wood 2014)."""


@dataclass(frozen=True)
class NamedPriors:
    """A prior per parameter; build it by giving a model a mapping."""

    priors: tuple[tuple[str, FamilyPrior], ...]

    def table(self, labels: Sequence[str], positive: Sequence[bool] = ()) -> Matrix:
        """Return the (d, 5) table; see ``FamilyPrior.table``.

        ``"*"`` is for the coefficients that are not named; positive parameters that are
        not named take their defaults.

        Raises
        ------
        ConfigError
            If a name or pattern does not fit (``names.choose``), or a family does not.
        """
        priors = dict(self.priors)
        rest = priors.pop(REST, None)
        flags = positive_flags(labels, positive)
        chosen = choose("the prior", priors, labels)
        return assemble(
            labels,
            flags,
            [
                priors[chosen[label]] if label in chosen else None if flag else rest
                for label, flag in zip(labels, flags, strict=True)
            ],
        )

    def describe(self) -> dict[str, Any]:
        """Return the priors by name as JSON types."""
        return {
            "family": "by_name",
            "priors": {name: prior.describe() for name, prior in self.priors},
        }


def assemble(
    labels: Sequence[str], positive: Sequence[bool], priors: Sequence[FamilyPrior | None]
) -> Matrix:
    """Return the (d, 5) table of one prior per label; ``None`` is the default.

    Labels with the same prior object share its settings: a sequence has one number for
    each of them.
    """
    groups: dict[int, tuple[FamilyPrior, list[int]]] = {}
    for j, prior in enumerate(priors):
        if prior is None:
            prior = _default(labels[j]) if positive[j] else DEFAULT
        groups.setdefault(id(prior), (prior, []))[1].append(j)
    out = np.zeros((len(labels), COLUMNS))
    for prior, at in groups.values():
        out[at] = prior.rows([labels[j] for j in at], [positive[j] for j in at])
    return out


def as_prior(option: object) -> Prior:
    """Return what a model was given as a prior; a mapping gives one per name.

    Parameters
    ----------
    option
        A prior, or a mapping from names and patterns to priors: ``distance`` stands for
        ``beta[distance]``, ``*`` in a pattern for any text, ``"*"`` alone for the other
        coefficients.

    Raises
    ------
    ConfigError
        If it is neither.

    Examples
    --------
    >>> from streammc.priors import as_prior, half_cauchy, laplace, normal
    >>> prior = as_prior({"beta[C(day)*": laplace(scale=0.5), "sigma": half_cauchy(2.5)})
    >>> prior.table(["beta[Intercept]", "beta[C(day)[Mo]]", "sigma"], [False, False, True])[:, 2]
    array([10. ,  0.5,  2.5])
    """
    if isinstance(option, Mapping):
        if not option:
            raise ConfigError("prior must name at least one parameter, found an empty mapping")
        for name, prior in option.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(f"prior must have names as keys, found {name!r}")
            if not isinstance(prior, FamilyPrior):
                raise ConfigError(_not_a_prior(f"prior of {name!r}", prior))
        return NamedPriors(tuple(sorted(option.items(), key=lambda pair: pair[0])))
    if not (hasattr(option, "table") and hasattr(option, "describe")):
        raise ConfigError(_not_a_prior("prior", option))
    return option


def _not_a_prior(what: str, found: object) -> str:
    return (
        f"{what} must be built by streammc.priors, found {type(found).__name__}: "
        "write priors.normal(scale=10.0)"
    )


def _default(label: str) -> FamilyPrior:
    return DEFAULT_OF.get(label.partition("[")[0], DEFAULT_POSITIVE)
