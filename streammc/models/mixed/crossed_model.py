"""Regressions with random effects of factors that cross, such as users and items.

A row has the linear predictor ``x . beta + offset + sum_f z_f . u_f[l_f]``, ``u_f[l] ~ Normal(0,
Sigma_f)``, where ``z_f`` are an intercept and columns of x. Where two factors have many levels, no
product over groups is left once effects are integrated out, and an integral over many slopes of one
factor is as hard: the likelihood of theta alone is known to no sampler here but ``gibbs``, which
draws the effects with theta. So this model has no link, and what needs one refuses it.

``Sigma_f = D R D`` has scales and, where they are sampled, correlations. In theta these are partial
correlations, each effect with every one before it given those between them: of an LKJ prior of R
they are independent (Lewandowski, Kurowicka and Joe 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from streammc import priors, registry
from streammc.errors import ConfigError, ModelError
from streammc.models.base import (
    CORRELATION,
    POSITIVE,
    LinearModel,
    Parameter,
    slope_default,
    unit_default,
)
from streammc.models.table_scale import (
    EFFECTS,
    INTERCEPT,
    ScaleBlock,
    correlation_roots,
    correlations,
    pairs_of,
)
from streammc.numerics.prior import COLUMNS, KIND, LKJ, SHAPE
from streammc.priors import densities, lkj
from streammc.priors.scaled import Level, shares, spread
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

_INSTEAD = "half_student_t(3, 2.5)"


@dataclass(frozen=True)
class CrossedModel(LinearModel):
    """A regression with random effects of factors that cross; its prior is that of ``inner``.

    Parameters are those of ``inner``, then those of each factor: ``tau[factor]``, the standard
    deviation of a random intercept; or ``tau[factor:Intercept]``, ``tau[factor:x]``, .. and, where
    they are correlated, ``rho[factor]``, of more than two effects ``rho[factor:x,z]``.

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
    terms: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)
    """Effects of each factor, ``("1", "x")``; empty: random intercepts alone."""
    correlated: tuple[bool, ...] = field(default=(), kw_only=True)
    """Whether the effects of each factor are correlated; empty: none are."""
    features: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns of the design; empty: any, where there are no slopes."""

    name: ClassVar[str] = "crossed"

    def __post_init__(self) -> None:
        """Refuse a regression of which ``gibbs`` cannot draw the effects; ConfigError."""
        inner: Any = self.inner
        for name, effects in zip(self.crossed, self.effects, strict=True):
            for each in effects:
                if each != INTERCEPT and self.features.count(each) != 1:
                    raise ConfigError(
                        f"expected the random slopes of {name!r} among the features, found "
                        f"{each!r}, which is none of {', '.join(self.features[:8])}: add the "
                        f"column {each!r} to the formula"
                    )
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
    def n_features(self) -> int | None:
        """Return the number of columns that the model is for; ``None``: any."""
        return len(self.features) or None

    @property
    def effects(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of the effects of each factor, as in the columns of the design."""
        if not self.terms:
            return ((INTERCEPT,),) * len(self.crossed)
        return tuple(tuple(INTERCEPT if e == "1" else e for e in each) for each in self.terms)

    def _samples_correlations(self, f: int) -> bool:
        return bool(self.correlated and self.correlated[f] and len(self.effects[f]) > 1)

    @property
    def columns_of_effects(self) -> list[tuple[tuple[int, ...], bool]]:
        """Return columns of the effects of factors, -1 of an intercept, and if correlated."""
        return [
            (
                tuple(-1 if e == INTERCEPT else self.features.index(e) for e in effects),
                self._samples_correlations(f),
            )
            for f, effects in enumerate(self.effects)
        ]

    def group_parameters(self, f: int) -> tuple[Parameter, ...]:
        """Return the standard deviations of the effects of a factor, and their correlations."""
        name, effects = self.crossed[f], self.effects[f]
        deviations = tuple(
            Parameter(
                f"tau[{name}]" if effects == (INTERCEPT,) else f"tau[{name}:{each}]",
                support=POSITIVE,
                default=unit_default
                if each == INTERCEPT
                else partial(slope_default, self.features.index(each)),
                instead_of_flat=_INSTEAD,
            )
            for each in effects
        )
        if not self._samples_correlations(f):
            return deviations
        return deviations + tuple(
            Parameter(label, support=CORRELATION, default=lkj(2.0))
            for label in correlations(name, effects)
        )

    @property
    def n_covariance(self) -> int:
        """Return the number of scales and correlations of effects, which come last in theta."""
        return sum(len(self.group_parameters(f)) for f in range(len(self.crossed)))

    def _correlations(self, d: int) -> list[tuple[int, int]]:
        """Return the position of the first correlation of factors that have some, and k."""
        found, at = [], d - self.n_covariance
        for f, effects in enumerate(self.effects):
            if self._samples_correlations(f):
                found.append((at + len(effects), len(effects)))
            at += len(self.group_parameters(f))
        return found

    def covariances(self, theta: Matrix) -> tuple[NDArray[np.float64], ...]:
        """Return covariances (S, k, k) of the effects of factors at draws (S, d) of theta."""
        values, at = self.constrain(theta), theta.shape[-1] - self.n_covariance
        found = []
        for f, effects in enumerate(self.effects):
            k, count = len(effects), len(self.group_parameters(f))
            own, pairs = values[:, at : at + k], np.zeros((len(theta), k * (k - 1) // 2))
            pairs[:, : count - k] = values[:, at + k : at + count]
            root = own[:, :, None] * correlation_roots(pairs, k)
            found.append(np.einsum("scm,sdm->scd", root, root))
            at += count
        return tuple(found)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the inner model's parameters, and those of each factor."""
        inner: Any = self.inner
        own = (self.group_parameters(f) for f in range(len(self.crossed)))
        return (*inner.parameters, *(each for part in own for each in part))

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reported parameters (..., d) of theta."""
        values = super().constrain(theta)
        for at, k in self._correlations(values.shape[-1]):
            root = np.zeros((*values.shape[:-1], k, k))
            left = np.ones((*values.shape[:-1], k))
            for n, (i, j) in enumerate(pairs_of(k)):
                partial_correlation = values[..., at + n]
                root[..., i, j] = partial_correlation * left[..., i]
                left[..., i] *= np.sqrt(1.0 - partial_correlation**2)
            root[..., range(k), range(k)] = left
            for n, (i, j) in enumerate(pairs_of(k)):
                values[..., at + n] = np.einsum("...m,...m->...", root[..., i, :], root[..., j, :])
        return values

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) of the reported parameters."""
        values = np.array(values, dtype=np.float64)
        for at, k in self._correlations(values.shape[-1]):
            root = correlation_roots(values[..., at : at + k * (k - 1) // 2], k)
            left = np.ones((*values.shape[:-1], k))
            for n, (i, j) in enumerate(pairs_of(k)):
                values[..., at + n] = root[..., i, j] / left[..., i]
                left[..., i] *= np.sqrt(1.0 - values[..., at + n] ** 2)
        return super().unconstrain(values)

    def prior_table(self, labels: Sequence[str]) -> Any:
        """Return the table of the prior, a row per label.

        ``lkj`` of the correlations of a factor is a prior of all together: its partial correlation
        of an effect with the effect number j, from 0 on, of k has ``lkj(shape + (k - 2 - j) / 2)``.
        ConfigError if they have different ones.
        """
        table = super().prior_table(labels)
        for at, k in self._correlations(len(labels)):
            own = table[at : at + k * (k - 1) // 2]
            if k == 2:
                continue
            if (own[:, KIND] != LKJ).any() or np.ptp(own[:, SHAPE]):
                raise ConfigError(
                    f"expected one prior lkj(shape) of all correlations of a factor, found several "
                    f"of {labels[at]} to {labels[at + len(own) - 1]}: give them the same"
                )
            shape = own[0, SHAPE]
            for row, (_, j) in zip(own, pairs_of(k), strict=True):
                made = lkj(float(shape + 0.5 * (k - 2 - j)))
                row[:COLUMNS] = made.rows(["rho"], [densities.CORRELATION])[0]
        return table

    def table_scale(self, feature_names: Sequence[str]) -> tuple[ScaleBlock, ...]:
        """Return how the parameters go to the table's scale; one intercept stays as it is."""
        blocks = super().table_scale(feature_names)
        for f, effects in enumerate(self.effects):
            if effects != (INTERCEPT,):
                labels = tuple(each.name for each in self.group_parameters(f))
                blocks = (*blocks, ScaleBlock(EFFECTS, labels, effects=effects))
        return blocks

    @property
    def link(self) -> NoReturn:
        """Refuse: the likelihood of theta alone is not known; ModelError."""
        raise ModelError(
            f"expected a likelihood that is a product over rows or groups, found factors that "
            f"cross ({', '.join(self.crossed)}), which have none without the effects of all their "
            "levels: sample with gibbs; of its runs there are summaries, effects, predictions and "
            "averages"
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
        unit, own = self.level(rows).unit / 3.0, shares(rows)
        found = []
        for columns, correlated in self.columns_of_effects:
            widths = [1.0 if j < 0 else spread(rows.X[:, j], own)[1] or 1.0 for j in columns]
            found += [np.log(unit / each) for each in widths]
            found += [0.0] * (correlated * len(pairs_of(len(columns))))
        return np.append(self.inner.start(rows), found)

    def describe(self) -> dict[str, Any]:
        """Return inner model, factors and prior as JSON types."""
        inner = {key: value for key, value in self.inner.describe().items() if key != "prior"}
        return {
            "name": self.name,
            "inner": inner,
            "crossed": list(self.crossed),
            "prior": self.prior.describe(),
            **self._described_slopes(),
        }

    def _described_slopes(self) -> dict[str, Any]:
        if not self.features:  # as in the runs from before there were slopes
            return {}
        terms = [list(each) for each in self.terms]
        own = {"terms": terms, "correlated": list(self.correlated)}
        return {**own, "features": list(self.features)}


def with_crossed(model: Any, dataset: Dataset) -> Any:
    """Return a model of a table with factors that cross; one that knows them is unchanged.

    ModelError if rows do not identify the scale of a factor.
    """
    factors = dataset.table.crossed
    if isinstance(model, CrossedModel):
        return model
    slopes: dict[str, Any] = {}
    if any(each.terms != ("1",) for each in factors):
        slopes = {
            "terms": tuple(each.terms for each in factors),
            "correlated": tuple(each.correlated for each in factors),
            "features": tuple(dataset.table.attributes["features"]),
        }
    names = tuple(each.column for each in factors)
    made = CrossedModel(model.prior, inner=model, crossed=names, **slopes)
    for each in factors:
        k = len(each.terms)
        if model.name == "gaussian" and k > 1 and each.n_groups * k >= dataset.n_rows:
            raise ModelError(
                f"gaussian: expected more rows than effects of a factor, found {dataset.n_rows:,} "
                f"rows and {each.n_groups:,} levels of {each.column!r} with {k} effects each: "
                "sigma and the scales are not told apart; leave slopes out"
            )
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
    return CrossedModel(
        prior,
        inner=made,
        crossed=tuple(described["crossed"]),
        terms=tuple(tuple(each) for each in described.get("terms", ())),
        correlated=tuple(described.get("correlated", ())),
        features=tuple(described.get("features", ())),
    )
