"""A prior of one family: what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS, CONSTANT, KIND, LOCATION, SCALE, SHAPE
from streammc.priors.per_coefficient import Option, Setting, brief, describe, expand, freeze
from streammc.protocols import Matrix, Vector

Rows = Callable[..., Matrix]
"""``rows(labels, **settings)``: settings (k,) by name to rows (k, 5) of the table."""

HALF_LOG_2PI: Final = 0.9189385332046728


@dataclass(frozen=True)
class Family:
    """A family of densities; its builder is the function of that name in ``priors``."""

    name: str
    parameters: tuple[str, ...] = ()
    """In the order of the text form."""
    above_zero: tuple[str, ...] = ()
    coefficient: Rows | None = None
    """Rows for a parameter that is sampled as it is; ``None`` where it does not fit."""
    positive: Rows | None = None
    """Rows for a positive parameter, sampled as its log."""
    rest: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What a mapping without ``"*"`` means for the labels that it does not name."""


@dataclass(frozen=True, repr=False)
class FamilyPrior:
    """One family for every parameter it is given to; build it with ``streammc.priors``."""

    family: Family
    settings: tuple[tuple[str, Setting], ...]

    def rows(self, labels: Sequence[str], positive: Sequence[bool]) -> Matrix:
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
        for flag, rows in ((False, family.coefficient), (True, family.positive)):
            at = [j for j, each in enumerate(positive) if bool(each) is flag]
            if not at:
                continue
            if rows is None:
                raise ConfigError(_misfit(family.name, labels[at[0]], flag))
            out[at] = rows([labels[j] for j in at], **{k: v[at] for k, v in values.items()})
        return out

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[bool] = (),
        defaults: Mapping[str, FamilyPrior] | None = None,
    ) -> Matrix:
        """Return the (d, 5) table of a model whose coefficients have this prior.

        Parameters
        ----------
        labels
            One per component of theta.
        positive
            True where it is a positive parameter, sampled as its log: those take
            their defaults. Empty: none is.
        defaults
            Those that the model has for its own positive parameters, by the name before
            ``[``; the others are half-Student-t(3, 10).

        Raises
        ------
        ConfigError
            If the settings do not match the labels, or the family does not fit.
        """
        from streammc.priors.by_name import assemble

        flags = positive_flags(labels, positive)
        return assemble(labels, flags, [None if flag else self for flag in flags], defaults or {})

    def __repr__(self) -> str:
        """Return the call that makes it, long sequences cut."""
        order = self.family.parameters
        shown = sorted(self.settings, key=lambda pair: order.index(pair[0]))
        return f"{self.family.name}({', '.join(f'{name}={brief(v)}' for name, v in shown)})"

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


def table_rows(
    kind: int,
    *,
    location: Vector | float = 0.0,
    scale: Vector | float = 0.0,
    shape: Vector | float = 0.0,
    constant: Vector | float = 0.0,
    size: int,
) -> Matrix:
    """Return ``size`` rows of the table."""
    out = np.zeros((size, COLUMNS))
    out[:, KIND] = kind
    for column, value in (
        (LOCATION, location),
        (SCALE, scale),
        (SHAPE, shape),
        (CONSTANT, constant),
    ):
        out[:, column] = value
    return out


def positive_flags(labels: Sequence[str], positive: Sequence[bool]) -> list[bool]:
    """Return a flag per label."""
    flags = [bool(flag) for flag in positive] or [False] * len(labels)
    if len(flags) != len(labels):
        raise ConfigError(
            f"expected positive to have a flag for each of {len(labels)} labels, found {len(flags)}"
            ": give one for each label"
        )
    return flags


def _misfit(name: str, label: str, positive: bool) -> str:
    if positive:
        return (
            f"the prior of {label!r} must be a density of a positive number, found {name}: "
            "write half_normal, half_student_t, half_cauchy, lognormal, gamma, inverse_gamma, "
            "exponential or uniform"
        )
    return (
        f"the prior of {label!r} must be a density on the whole line, found {name}: "
        "write normal, student_t, laplace, uniform or flat"
    )
