"""Regressions with random intercepts of factors that cross, such as users and items.

A row has the linear predictor ``x . beta + offset + sum_f u_f[l_f]``, ``u_f[l] ~ Normal(0,
tau_f)``. Where two factors have many levels, no product over groups is left once effects are
integrated out: the likelihood of theta alone is known to no sampler here but ``gibbs``, which draws
the effects with theta. So this model has no link, and what needs one refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from streammc import priors, registry
from streammc.errors import ConfigError, ModelError
from streammc.models.base import POSITIVE, LinearModel, Parameter, unit_default
from streammc.priors.scaled import Level
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

_INSTEAD = "half_student_t(3, 2.5)"


@dataclass(frozen=True)
class CrossedModel(LinearModel):
    """A regression with random intercepts of factors that cross; its prior is that of ``inner``.

    Parameters are those of ``inner``, then ``tau[factor]`` of each factor, the standard deviation
    of its effects.

    Examples
    --------
    >>> from streammc.models import gaussian
    >>> inner = gaussian()
    >>> CrossedModel(inner.prior, inner=inner, crossed=("user", "item")).labels(["Intercept"])
    ('beta[Intercept]', 'sigma', 'tau[user]', 'tau[item]')
    """

    inner: Model = field(kw_only=True)
    """The regression."""
    crossed: tuple[str, ...] = field(kw_only=True)
    """Columns of the factors."""

    name: ClassVar[str] = "crossed"

    def __post_init__(self) -> None:
        """Refuse a regression of which ``gibbs`` cannot draw the effects; ConfigError."""
        inner: Any = self.inner
        if inner.n_linear != 1 or inner.joint is not None or inner.sees_columns or inner.designs:
            raise ConfigError(
                "expected a family with one linear predictor, such as gaussian or logistic, for "
                f"factors that cross ({', '.join(self.crossed)}), found {inner.name!r}: choose "
                "another, or leave the factors out"
            )

    @property
    def of_a_row(self) -> Any:
        """Return the regression."""
        return self.inner

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the inner model's parameters, and a standard deviation for each factor."""
        inner: Any = self.inner
        scales = tuple(
            Parameter(
                f"tau[{name}]", support=POSITIVE, default=unit_default, instead_of_flat=_INSTEAD
            )
            for name in self.crossed
        )
        return (*inner.parameters, *scales)

    @property
    def link(self) -> NoReturn:
        """Refuse: the likelihood of theta alone is not known; ModelError."""
        raise ModelError(
            f"expected a likelihood that is a product over rows or groups, found factors that "
            f"cross ({', '.join(self.crossed)}), which have none without the effects of all their "
            "levels: sample with gibbs; of its runs there are summaries, effects and predictions"
        )

    def level(self, rows: Rows) -> Level:
        """Return the level of the inner model's linear predictor."""
        level: Level = self.inner.level(rows)  # type: ignore[attr-defined]
        return level

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is no response of the inner model."""
        return self.inner.response_fault(y)

    def mean(self, eta: Matrix) -> Vector:
        """Refuse, as :attr:`link`: a predictor without effects is not that of a row."""
        return self.link

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Refuse, as :meth:`mean`."""
        return self.link

    def start(self, rows: Rows) -> Vector:
        """Return the inner model's start, and effects of a third of its unit."""
        scale = np.log(self.level(rows).unit / 3.0)
        return np.append(self.inner.start(rows), np.full(len(self.crossed), scale))

    def describe(self) -> dict[str, Any]:
        """Return inner model, factors and prior as JSON types."""
        inner = {key: value for key, value in self.inner.describe().items() if key != "prior"}
        return {
            "name": self.name,
            "inner": inner,
            "crossed": list(self.crossed),
            "prior": self.prior.describe(),
        }


def with_crossed(model: Any, dataset: Dataset) -> Any:
    """Return a model of a table with factors that cross; one that knows them is unchanged.

    ModelError if rows do not identify the scale of a factor.
    """
    factors = dataset.table.crossed
    if isinstance(model, CrossedModel):
        return model
    made = CrossedModel(model.prior, inner=model, crossed=tuple(each.column for each in factors))
    for each in factors:
        if each.n_groups < dataset.n_rows or dataset.table.attributes.get("trials"):
            continue
        why = f"one trial a level says nothing about tau[{each.column}]"
        if model.name == "gaussian":
            why = f"only sigma^2 + tau[{each.column}]^2 is identified"
        raise ModelError(
            f"{model.name}: expected factors with several rows of a level, found "
            f"{each.n_groups:,} levels of {each.column!r} of one row each: {why}; leave it out"
        )
    return made


def from_description(described: Mapping[str, Any]) -> CrossedModel:
    """Return the model with this description by :meth:`CrossedModel.describe`."""
    inner = dict(described["inner"])
    prior = priors.from_description(described["prior"])
    made = registry.model(inner.pop("name"))(prior=prior, **inner)
    return CrossedModel(prior, inner=made, crossed=tuple(described["crossed"]))
