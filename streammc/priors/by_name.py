"""Priors by name or pattern, and the defaults of what is not named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.priors.densities import JointNormal
from streammc.priors.families import (
    NO_DEFAULTS,
    REST,
    Defaults,
    FamilyPrior,
    assemble,
    choose,
    positive_flags,
)
from streammc.protocols import Matrix, Prior
from streammc.shown import Shown

PriorOption: TypeAlias = Prior | Mapping[str, FamilyPrior]
"""What a model takes: one prior for all coefficients, or priors by name."""

BY_NAME: Final = "by_name"
SCALED: Final = "scaled"
"""``family`` in the description of :class:`NamedPriors` and of :class:`ScaledPriors`."""
RULE: Final = 1
"""Number of the rule by which ``priors.scaled.coefficients`` makes joint priors. A run records it:
another rule would give its rows another prior."""
_SHOWN: Final = 6
"""Priors in the text of an object."""
_MOST: Final = 20
"""Priors in its table of a notebook."""


@dataclass(frozen=True, repr=False)
class NamedPriors(Shown):
    """A prior per parameter, with fixed defaults for the others."""

    priors: tuple[tuple[str, FamilyPrior], ...]
    """Names or patterns with their priors."""
    scaled: tuple[str, ...] = ()
    """Labels whose prior is a default that was scaled with the data; in ``priors`` too."""
    joint: tuple[JointNormal, ...] = field(default=(), compare=False)
    """Those of them that are jointly normal; ``priors`` has the prior of each alone. Not compared:
    they follow from the rows."""

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[int] = (),
        defaults: Defaults = NO_DEFAULTS,
    ) -> Matrix:
        """Return the prior table (d, 5), with joint priors (d, 5 + d); see ``FamilyPrior.table``.

        ``"*"`` is for the coefficients that are not named; positive parameters that are not
        named take their defaults. ConfigError if a name, pattern or family does not fit.
        """
        flags = positive_flags(labels, positive)
        table = assemble(labels, flags, self.each(labels, flags), defaults)
        if self.joint:
            table = np.hstack([table, np.zeros((len(labels), len(labels)))])
        for each in self.joint:
            each.write(table, labels)
        return table

    def __repr__(self) -> str:
        """Return the first priors by name, and how many there are."""
        shown = ", ".join(f"{name!r}: {prior!r}" for name, prior in self.priors[:_SHOWN])
        more = f", ... {len(self.priors)} in all" if len(self.priors) > _SHOWN else ""
        return f"{type(self).__name__}({{{shown}{more}}})"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return the priors by name for a notebook, and which were scaled with the data."""
        facts: dict[str, Any] = {name: repr(prior) for name, prior in self.priors[:_MOST]}
        if len(self.priors) > _MOST:
            facts["..."] = f"{len(self.priors)} in all"
        return type(self).__name__, {**facts, "scaled with the data": list(self.scaled) or None}

    def each(self, labels: Sequence[str], positive: Sequence[int]) -> list[FamilyPrior | None]:
        """Return the prior of every label; ``None``: its default."""
        priors = dict(self.priors)
        rest = priors.pop(REST, None)
        chosen = choose("the prior", priors, labels)
        return [
            priors[chosen[label]] if label in chosen else None if flag else rest
            for label, flag in zip(labels, positive, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return the priors by name as JSON types; covariances follow from the rows."""
        return {
            "family": BY_NAME,
            "priors": {name: prior.describe() for name, prior in self.priors},
            **({"scaled": list(self.scaled)} if self.scaled else {}),
            **({"joint_rule": RULE} if self.joint else {}),
        }


@dataclass(frozen=True, repr=False)
class ScaledPriors(NamedPriors):
    """Priors of some parameters by name; the defaults of the others scale with the data.

    It has no numbers before it has met the data: ``priors.scaled.with_defaults`` turns it
    into :class:`NamedPriors`. The entry points of the library do so.
    """

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[int] = (),
        defaults: Defaults = NO_DEFAULTS,
    ) -> Matrix:
        """Return the (d, 5) table; ConfigError if the prior of a parameter depends on the data."""
        flags = positive_flags(labels, positive)
        for label, prior in zip(labels, self.each(labels, flags), strict=True):
            if prior is None and label not in defaults:
                raise ConfigError(
                    f"expected a prior of {label!r} with its numbers, found a default that scales "
                    "with the data: name it, or call streammc.control_variates.resolved(model, "
                    "dataset)"
                )
        return super().table(labels, positive, defaults)

    def describe(self) -> dict[str, Any]:
        """Return the priors by name as JSON types."""
        return {**super().describe(), "family": SCALED}


@documented()
def as_prior(option: object) -> Prior:
    """Return what a model was given as a prior; a mapping gives one per name.

    One prior for all coefficients, or a mapping with ``"*"``, leaves nothing to the data:
    positive parameters that are not named then have fixed defaults.

    Parameters
    ----------
    option : prior, mapping from names to priors, or None
        A prior, or a mapping from names and patterns to priors: ``distance`` stands for
        ``beta[distance]``, ``*`` in a pattern for any text, ``"*"`` alone for the other
        coefficients. ``None``, and what a mapping without ``"*"`` does not name, is the
        default of the model, which scales with the data.

    Raises
    ------
    ConfigError
        If it is neither.

    Examples
    --------
    >>> from streammc.priors import as_prior, laplace, normal
    >>> prior = as_prior({"beta[C(day)*": laplace(scale=0.5), "*": normal(5.0)})
    >>> prior.table(["beta[Intercept]", "beta[C(day)[Mo]]", "sigma"], [False, False, True])[:, 2]
    array([ 5. ,  0.5, 10. ])
    """
    if option is None:
        return ScaledPriors(())
    if isinstance(option, Mapping):
        if not option:
            raise ConfigError(
                "prior must name at least one parameter, found an empty mapping"
                ": name one, or leave prior out"
            )
        for name, prior in option.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(
                    f"prior must have names as keys, found {name!r}"
                    ': write names, such as "beta[age]"'
                )
            if not isinstance(prior, FamilyPrior):
                raise ConfigError(_not_a_prior(f"prior of {name!r}", prior))
        kind = NamedPriors if REST in option else ScaledPriors
        return kind(tuple(sorted(option.items(), key=lambda pair: pair[0])))
    if not (hasattr(option, "table") and hasattr(option, "describe")):
        raise ConfigError(_not_a_prior("prior", option))
    return option


@documented()
def fixed_priors(option: Mapping[str, FamilyPrior]) -> NamedPriors:
    """Return priors by name; what is not named has a fixed default.

    Parameters
    ----------
    option
        Names or patterns and their priors, as :func:`as_prior` takes them.
    """
    prior = as_prior(option)
    assert isinstance(prior, NamedPriors)
    return NamedPriors(prior.priors)


def _not_a_prior(what: str, value: object) -> str:
    return (
        f"{what} must be built by streammc.priors, found {type(value).__name__}: "
        "write priors.normal(scale=10.0)"
    )
