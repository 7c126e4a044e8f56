"""What follows from the parameters that a model states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from itertools import groupby
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.html_repr import Shown, options_of
from streammc.models.parameters import (
    COEFFICIENT,
    CORRELATION,
    POSITIVE,
    REAL,
    SIMPLEX,
    SUPPORTS,
    Parameter,
)
from streammc.models.table_scale import Block, parameter_blocks
from streammc.priors import densities
from streammc.priors.either import refuse_flat
from streammc.priors.family import FamilyPrior
from streammc.priors.joint import JointNormal
from streammc.priors.scaled import Level, coefficients
from streammc.protocols import Coding, Matrix, Prior, Rows

_FLAGS: Final = {POSITIVE: densities.POSITIVE, CORRELATION: densities.CORRELATION}


def unknown_level(rows: Rows) -> Level:
    """Return the level of a linear predictor where the link is not known."""
    return Level()


class StatedModel(Shown, ABC):
    """A model that states its parameters, in the order of theta: coefficients come first."""

    prior: Prior
    level: ClassVar[Any] = staticmethod(unknown_level)
    """Location and scale of a linear predictor, from rows: see ``priors.scaled.Level``."""
    advice: ClassVar[str] = "ingest it alone, with --no-intercept"
    """What to do about a store with another number of columns."""

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return parameters, prior and the options that are not the defaults, for a notebook."""
        facts: dict[str, Any] = {
            "parameters": [
                f"{each.name}, one per column" if each.per_feature else each.name
                for each in self.parameters
            ],
            "prior": repr(self.prior),
        }
        if is_dataclass(self):
            options = options_of(self)
            options.pop("prior", None)
            facts |= options
        return f"Model {getattr(self, 'name', type(self).__name__)}", facts

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the named parameters."""

    @property
    def n_features(self) -> int | None:
        """Return the number of columns that the model is for; ``None``: any."""
        return None

    @property
    def n_linear(self) -> int:
        """Return the number of linear predictors."""
        return sum(parameter.n_linear for parameter in self.parameters)

    @property
    def n_scalar(self) -> int:
        """Return the number of parameters that are no coefficients: all rows share them."""
        q = self.n_features or 0
        return sum(each.size(q) for each in self.parameters if not each.n_linear)

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the labels of the positive parameters that are not per feature."""
        positive = (p for p in self.parameters if p.support == POSITIVE and not p.per_feature)
        return tuple(label for each in positive for labels in each.labels(()) for label in labels)

    def dim(self, n_features: int) -> int:
        """Return the length of theta."""
        q = n_features if self.n_features is None else self.n_features
        return sum(parameter.size(q) for parameter in self.parameters)

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return one label per component of theta.

        Raises
        ------
        ConfigError
            If the model is for another number of columns.
        """
        n, found = self.n_features, len(feature_names)
        if n is not None and found != n:
            raise ConfigError(
                f"expected {'one column' if n == 1 else f'{n} columns'}, found {found} "
                f"({', '.join([*feature_names[:5], *(['...'] * (found > 5))])}): {self.advice}"
            )
        components = (each for p in self.parameters for each in p.labels(feature_names))
        return tuple(label for labels in components for label in labels)

    def table_scale(self, feature_names: Sequence[str]) -> tuple[Block, ...]:
        """Return how the parameters go to the table's scale."""
        return parameter_blocks(self.parameters, feature_names)

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reported parameters (..., d) of theta."""
        values = np.array(theta, dtype=np.float64)
        for support, at in self._transformed(values.shape[-1]):
            SUPPORTS[support].constrain(values[..., at])
        return values

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) of the reported parameters."""
        theta = np.array(values, dtype=np.float64)
        for support, at in self._transformed(theta.shape[-1]):
            SUPPORTS[support].unconstrain(theta[..., at])
        return theta

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior, a row per label."""
        table = self.prior.table(labels, self.positive_flags(labels), self.fixed_defaults(labels))
        refuse_flat(labels, table, self._by_label(labels, lambda p: p.instead_of_flat))
        return table

    def positive_flags(self, labels: Sequence[str]) -> list[int]:
        """Return whether each parameter is positive, 2 for a correlation.

        Those with a prior by name come first.
        """
        stated = self._each(len(labels))
        return [_FLAGS.get(each.support, 0) for each in stated if each.support != SIMPLEX]

    def fixed_defaults(self, labels: Sequence[str]) -> dict[str, FamilyPrior]:
        """Return the default priors that do not scale with the data, by label."""
        return self._by_label(
            labels, lambda p: p.default if isinstance(p.default, FamilyPrior) else None
        )

    def default_priors(
        self,
        labels: Sequence[str],
        feature_names: Sequence[str],
        rows: Rows,
        coding: Coding | None,
    ) -> list[JointNormal | dict[str, FamilyPrior]]:
        """Return the default priors that scale with the data.

        Those of the coefficients of a linear predictor are jointly normal, others by label.
        ``rows`` stand for all rows, those with an invalid response left out; ``coding`` is what the
        columns are.
        """
        level, q, at = self.level(rows), len(feature_names), 0
        found: list[JointNormal | dict[str, FamilyPrior]] = []
        for parameter in self.parameters:
            own = labels[at : at + parameter.size(q)]
            at += len(own)
            if not own or isinstance(parameter.default, FamilyPrior):
                continue
            if parameter.default is not None:
                each = parameter.default(rows, feature_names, level)
                found.append(dict(zip(own, each * (len(own) // len(each)), strict=True)))
            elif parameter.table_scale == COEFFICIENT:
                for first in range(0, len(own), q):
                    one = own[first : first + q]
                    found.append(coefficients(one, rows, feature_names, level, coding))
        return found

    def _each(self, d: int) -> list[Parameter]:
        """Return the parameter of each of the d components of theta."""
        fixed = sum(each.size(0) for each in self.parameters)
        wide = sum(each.n_components for each in self.parameters if each.per_feature)
        q = (d - fixed) // wide if wide else 0
        return [each for each in self.parameters for _ in range(each.size(q))]

    def _by_label(self, labels: Sequence[str], value: Callable[[Parameter], Any]) -> dict[str, Any]:
        """Return a property of the parameter of each label, where there is one."""
        pairs = zip(labels, self._each(len(labels)), strict=False)
        return {label: found for label, each in pairs if (found := value(each))}

    def _transformed(self, d: int) -> Iterator[tuple[str, slice]]:
        """Yield the supports with a transform and where in theta; neighbours that fit together."""
        at = 0
        for (support, _), group in groupby(self._each(d), lambda each: each.transformed_with):
            size = sum(1 for _ in group)
            if support != REAL:
                yield support, slice(at, at + size)
            at += size
