"""Models with factors whose effects have a sampled scale, as columns of the design.

A factor of L levels has L + 1 columns: an indicator of each level, whose coefficient is the effect
``u_l ~ Normal(0, tau)``, and a column of zeros, whose coefficient is ``log tau``. So theta is as
long as the design is wide, and ``log tau`` enters no linear predictor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.models.parameters import COEFFICIENT
from streammc.models.stated_model import StatedModel
from streammc.models.table_scale import FACTOR, Block
from streammc.numerics.prior import COLUMNS, CONSTANT, EFFECT, KIND, LOCATION
from streammc.priors import densities
from streammc.priors.by_name import NamedPriors
from streammc.priors.either import refuse_flat
from streammc.priors.family import FamilyPrior
from streammc.priors.joint import JointNormal
from streammc.priors.names import choose
from streammc.priors.scaled import scale_prior
from streammc.protocols import Coding, Matrix, Rows

_INSTEAD: Final = "half_student_t(3, 2.5)"
_LOG_ROOT: Final = -0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class FactorBlock:
    """The columns of a factor in the design: its levels, and then a column of zeros."""

    column: str
    """Name of the factor, a column of the table."""
    first: int
    """Number of its first column in the design."""
    levels: int

    @property
    def scale(self) -> int:
        """Component of theta with the logarithm of the scale."""
        return self.first + self.levels

    @property
    def label(self) -> str:
        """Name of the scale, ``tau[origin]``."""
        return f"tau[{self.column}]"

    @property
    def columns(self) -> slice:
        """Columns of the design, that of zeros too."""
        return slice(self.first, self.scale + 1)


def factor_blocks(stated: Sequence[Mapping[str, Any]]) -> tuple[FactorBlock, ...]:
    """Return the blocks of the attribute ``factors`` of a store, or of a model's description."""
    return tuple(
        FactorBlock(str(each["column"]), int(each["first"]), int(each["levels"])) for each in stated
    )


@dataclass(frozen=True)
class FactorModel(StatedModel):
    """A model that states its parameters, some of which may be the effects of factors."""

    factors: tuple[FactorBlock, ...] = field(default=(), kw_only=True)
    """Factors with a sampled scale; their names are those of the columns of the design."""

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return one label per component of theta: ``u[origin=ATL]``, ``tau[origin]``."""
        labels = list(super().labels(feature_names))
        for block in self.factors:
            labels[block.columns] = feature_names[block.columns]
        return tuple(labels)

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reported parameters (..., d) of theta."""
        values = super().constrain(theta)
        at = [block.scale for block in self.factors]
        values[..., at] = np.exp(values[..., at])
        return values

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) of the reported parameters."""
        theta = super().unconstrain(values)
        at = [block.scale for block in self.factors]
        theta[..., at] = np.log(theta[..., at])
        return theta

    def positive_flags(self, labels: Sequence[str]) -> list[int]:
        """Return whether each parameter is positive, 2 for a correlation."""
        flags = super().positive_flags(labels)
        for block in self.factors:
            flags[block.scale] = densities.POSITIVE
        return flags

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior, a row per label.

        Raises
        ------
        ConfigError
            If the prior of a scale is improper, or an effect is given a prior.
        """
        if not self.factors:
            return super().prior_table(labels)
        free = self.without_effects(labels)
        names, flags = [labels[j] for j in free], self.positive_flags(labels)
        own = self.prior.table(names, [flags[j] for j in free], self.fixed_defaults(labels))
        joint = own.shape[1] > COLUMNS
        table = np.zeros((len(labels), COLUMNS + joint * len(labels)))
        table[free, :COLUMNS] = own[:, :COLUMNS]
        if joint:
            at = np.array(free)
            table[np.ix_(at, COLUMNS + at)] = own[:, COLUMNS:]
        for block in self.factors:
            effects = slice(block.first, block.scale)
            table[effects, KIND] = EFFECT
            table[effects, LOCATION] = block.scale
            table[effects, CONSTANT] = _LOG_ROOT
        instead = self._by_label(labels, lambda each: each.instead_of_flat)
        refuse_flat(labels, table, instead | {block.label: _INSTEAD for block in self.factors})
        return table

    def without_effects(self, labels: Sequence[str]) -> list[int]:
        """Return the components of theta that are no effects.

        Raises
        ------
        ConfigError
            If a prior by name is one of an effect.
        """
        of_effects = {
            labels[j]: block for block in self.factors for j in range(block.first, block.scale)
        }
        if isinstance(self.prior, NamedPriors):
            named = choose("the prior", [name for name, _ in self.prior.priors], labels)
            wrong = next((label for label in named if label in of_effects), None)
            if wrong is not None:
                block = of_effects[wrong]
                raise ConfigError(
                    f"expected priors of coefficients and of scales, found one of {wrong!r}, an "
                    f"effect of {block.column!r}, which is Normal(0, {block.label}): give "
                    f"{block.label!r} a prior"
                )
        return [j for j, label in enumerate(labels) if label not in of_effects]

    def default_priors(
        self,
        labels: Sequence[str],
        feature_names: Sequence[str],
        rows: Rows,
        coding: Coding | None,
    ) -> list[JointNormal | dict[str, FamilyPrior]]:
        """Return the default priors that scale with the data.

        A scale has half-Student-t(3, 2.5 units of the linear predictor).
        """
        if not self.factors:
            return super().default_priors(labels, feature_names, rows, coding)
        own = np.ones(len(feature_names), np.bool_)
        for block in self.factors:
            own[block.columns] = False
        names = [name for name, kept in zip(feature_names, own, strict=True) if kept]
        plain = self._of_features(names)
        kept_rows = Rows(np.ascontiguousarray(rows.X[:, own]), *rows[1:])
        if coding is not None:
            columns = tuple(each for each, kept in zip(coding.columns, own, strict=True) if kept)
            coding = Coding(columns, coding.sizes, coding.mean[own], coding.scale[own])
        found = plain.default_priors(plain.labels(names), names, kept_rows, coding)
        prior = scale_prior(self.level(rows).unit)
        return [*found, {block.label: prior for block in self.factors}]

    def _of_features(self, names: Sequence[str]) -> Self:
        """Return the model of these columns alone, without factors."""
        given: Any = self
        own = {"features": tuple(names)} if hasattr(self, "features") else {}
        return replace(given, factors=(), **own)  # type: ignore[no-any-return]

    def table_scale(self, feature_names: Sequence[str]) -> tuple[Block, ...]:
        """Return how the parameters go to the table's scale; those of factors stay as they are."""
        blocks = super().table_scale(feature_names)
        if not self.factors:
            return blocks
        q, labels = len(feature_names), self.labels(feature_names)
        own = tuple(labels[j] for block in self.factors for j in range(q)[block.columns])
        renamed = (
            each._replace(labels=labels[:q]) if each.rule == COEFFICIENT else each
            for each in blocks
        )
        return (*renamed, Block(FACTOR, own))

    def described_factors(self) -> dict[str, Any]:
        """Return the factors as a part of the description; empty without any."""
        found = [vars(block).copy() for block in self.factors]
        return {"factors": found} if found else {}
