"""A prior of one family, and the table of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from streammc.errors import ConfigError
from streammc.html_repr import Shown
from streammc.numerics.prior import COLUMNS
from streammc.priors.densities import (
    ANY_SIGN,
    CORRELATION,
    HALF_STUDENT_T_FAMILY,
    LKJ_FAMILY,
    NORMAL_FAMILY,
    POSITIVE,
    Family,
)
from streammc.priors.per_coefficient import Option, Setting, brief, describe, expand, freeze
from streammc.protocols import Matrix


@dataclass(frozen=True, repr=False)
class FamilyPrior(Shown):
    """One family for every parameter it is given to; build it with ``streammc.priors``."""

    family: Family
    settings: tuple[tuple[str, Setting], ...]

    def rows(self, labels: Sequence[str], positive: Sequence[int]) -> Matrix:
        """Return the rows (k, 5) of these labels, each of which has this prior.

        Raises
        ------
        ConfigError
            If the settings do not match the labels, or the family does not fit one.
        """
        family = self.family
        values = {
            name: expand(f"prior {name}", setting, labels, family.rest.get(name))
            for name, setting in self.settings
        }
        out = np.zeros((len(labels), COLUMNS))
        for flag, rows in (
            (ANY_SIGN, family.coefficient),
            (POSITIVE, family.positive),
            (CORRELATION, family.correlation),
        ):
            at = [j for j, each in enumerate(positive) if each == flag]
            if not at:
                continue
            if rows is None:
                raise ConfigError(_misfit(family.name, labels[at[0]], flag))
            out[at] = rows([labels[j] for j in at], **{k: v[at] for k, v in values.items()})
        return out

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[int] = (),
        defaults: Mapping[str, FamilyPrior] = MappingProxyType({}),
    ) -> Matrix:
        """Return the (d, 5) table of a model whose coefficients have this prior.

        Parameters
        ----------
        labels
            One per component of theta.
        positive
            True where it is a positive parameter, sampled as its log, and 2 where it is a
            correlation, sampled as its artanh: those take their defaults. Empty: none is.
        defaults
            Those that the model gives to such parameters of its own, by label; the
            others are half-Student-t(3, 10), of a correlation LKJ(2).

        Raises
        ------
        ConfigError
            If the settings do not match the labels, or the family does not fit.
        """
        flags = positive_flags(labels, positive)
        return assemble(labels, flags, [None if flag else self for flag in flags], defaults)

    def __repr__(self) -> str:
        """Return the call that makes it, long sequences cut."""
        order = self.family.parameters
        shown = sorted(self.settings, key=lambda pair: order.index(pair[0]))
        return f"{self.family.name}({', '.join(f'{name}={brief(v)}' for name, v in shown)})"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return the settings of the prior for a notebook."""
        return f"Prior {self.family.name}", {name: brief(value) for name, value in self.settings}

    def describe(self) -> dict[str, Any]:
        """Return the family and its settings as JSON types."""
        return {
            "family": self.family.name,
            **{name: describe(setting) for name, setting in self.settings},
        }


def build(family: Family, **options: Option | None) -> FamilyPrior:
    """Check the options of a family and return the prior.

    Raises
    ------
    ConfigError
        If a number is not finite, or not above 0 where it must be.
    """
    settings = tuple(
        (name, freeze(f"prior {name}", value, positive=name in family.above_zero))  # type: ignore[arg-type]
        for name, value in options.items()
    )
    return FamilyPrior(family, settings)


DEFAULT: Final = build(NORMAL_FAMILY, scale=10.0, location=0.0)
"""Of a parameter of any sign whose default does not scale with the data."""
DEFAULT_POSITIVE: Final = build(HALF_STUDENT_T_FAMILY, df=3.0, scale=10.0)
"""Of a positive parameter whose default does not scale with the data, such as ``phi``."""
DEFAULT_CORRELATION: Final = build(LKJ_FAMILY, shape=2.0)
_DEFAULTS: Final = {ANY_SIGN: DEFAULT, POSITIVE: DEFAULT_POSITIVE, CORRELATION: DEFAULT_CORRELATION}
Defaults: TypeAlias = Mapping[str, FamilyPrior]
"""Fixed defaults that a model gives to parameters of its own, by label."""
NO_DEFAULTS: Final[Defaults] = MappingProxyType({})


def assemble(
    labels: Sequence[str],
    positive: Sequence[int],
    priors: Sequence[FamilyPrior | None],
    defaults: Defaults = NO_DEFAULTS,
) -> Matrix:
    """Return the (d, 5) table of one prior per label; ``None`` is the fixed default.

    Labels with the same prior object share its settings: a sequence has one number for
    each of them.
    """
    out = np.zeros((len(labels), COLUMNS))
    for prior, at in grouped(labels, positive, priors, defaults):
        out[at] = prior.rows([labels[j] for j in at], [positive[j] for j in at])
    return out


def grouped(
    labels: Sequence[str],
    positive: Sequence[int],
    priors: Sequence[FamilyPrior | None],
    defaults: Defaults = NO_DEFAULTS,
) -> list[tuple[FamilyPrior, list[int]]]:
    """Return each prior object with the places of its labels; ``None`` is the fixed default."""
    groups: dict[int, tuple[FamilyPrior, list[int]]] = {}
    for j, prior in enumerate(priors):
        if prior is None:
            prior = defaults.get(labels[j], _DEFAULTS[int(positive[j])])
        groups.setdefault(id(prior), (prior, []))[1].append(j)
    return list(groups.values())


def positive_flags(labels: Sequence[str], positive: Sequence[int]) -> list[int]:
    """Return a flag per label."""
    flags = [int(flag) for flag in positive] or [ANY_SIGN] * len(labels)
    if len(flags) != len(labels):
        raise ConfigError(
            f"expected positive to have a flag for each of {len(labels)} labels, found {len(flags)}"
            ": give one for each label"
        )
    return flags


def _misfit(name: str, label: str, flag: int) -> str:
    if flag == CORRELATION:
        return (
            f"the prior of {label!r} must be a density of a correlation, found {name}: "
            "write lkj(2), or lkj(1) for a uniform one"
        )
    if flag == POSITIVE:
        return (
            f"the prior of {label!r} must be a density of a positive number, found {name}: "
            "write half_normal, half_student_t, half_cauchy, lognormal, gamma, inverse_gamma, "
            "exponential or uniform"
        )
    return (
        f"the prior of {label!r} must be a density on the whole line, found {name}: "
        "write normal, student_t, laplace, uniform or flat"
    )
