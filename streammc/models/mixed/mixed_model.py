"""Mixed models: regressions with random effects of the groups of one column.

A row of group g has the linear predictor ``x . beta + offset + z . u_g``, ``u_g ~ Normal(0,
Sigma)``. The effects are integrated out, so that the likelihood is a product over groups, and a
group is to the rest of the package what a row is to a regression: its "predictors" are all of
theta, and its "design" are its rows (``protocols.Model.link``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

import numpy as np

from streammc import priors, registry
from streammc.errors import ConfigError, ModelError
from streammc.models.base import (
    CORRELATION,
    POSITIVE,
    LinearModel,
    Parameter,
    factor_blocks,
    predictors_at,
    slope_default,
    unit_default,
)
from streammc.models.mixed import group_constants
from streammc.models.mixed.effect_terms import Groups, formula_term
from streammc.models.mixed.group_constants import KINDS, MOST_NODES, PANELS
from streammc.models.mixed.group_link import link, table_constants, table_link
from streammc.models.table_scale import EFFECTS, INTERCEPT, ScaleBlock
from streammc.models.text_models import DensityModel
from streammc.priors import lkj
from streammc.priors.scaled import Level, shares, spread
from streammc.protocols import Index, Matrix, Model, Rows, Vector

NODES: Final = 15
"""Quadrature nodes of a random intercept; of two effects ``NODES_OF_TWO`` each."""
NODES_OF_TWO: Final = 9
_ONE: Final = "1"
"""The term of a random intercept."""
_START: Final = 0.5
"""Standard deviation of the effects to start from, in units of the linear predictor."""
_INSTEAD: Final = "half_student_t(3, 2.5)"


@dataclass(frozen=True)
class MixedModel(LinearModel):
    """A regression with random effects of the groups of a column; build it with :func:`mixed`."""

    inner: Model = field(kw_only=True)
    """The regression."""
    features: tuple[str, ...] = field(kw_only=True)
    column: str = field(kw_only=True)
    slope: str | None = field(default=None, kw_only=True)
    """Feature of the random slope."""
    correlated: bool = field(default=False, kw_only=True)
    nodes: int = field(default=NODES, kw_only=True)
    """Quadrature nodes per effect; 0: panels, see ``mixed.group_quadrature``."""
    automatic: bool = field(default=False, kw_only=True, compare=False)
    """Whether the data may still raise ``nodes``, see ``mode.quadrature.with_nodes``."""
    noise: tuple[float, ...] = field(default=(), kw_only=True, compare=False)
    """Noise of the marginal precision (see there) with which theta ends for :attr:`link`; empty:
    ``log tau``. It is a setting of the expansions, not of the model."""

    name: ClassVar[str] = "mixed"
    link_kernel: ClassVar[Any] = link
    separable: ClassVar[bool] = False

    advice: ClassVar[str] = "build the model again for the features of this store"

    @property
    def of_a_row(self) -> Any:
        """Return the regression."""
        return self.inner

    @property
    def n_features(self) -> int:
        """Return the number of features that it was built for."""
        return len(self.features)

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the terms of the random effects: ``Intercept``, and the slope's feature."""
        return (INTERCEPT,) if self.slope is None else (INTERCEPT, self.slope)

    @property
    def formula_term(self) -> str:
        """Return the random effects as a term of a formula: ``(1 + x || g)``."""
        return formula_term(self.column, self.effects, self.correlated)

    @property
    def group_parameters(self) -> tuple[Parameter, ...]:
        """Return the standard deviations of the effects and, if sampled, their correlation."""
        column = self.column
        if self.slope is None:
            return (_deviation(f"tau[{column}]", unit_default),)
        default = partial(slope_default, self.features.index(self.slope))
        stated = (
            _deviation(f"tau[{column}:{INTERCEPT}]", unit_default),
            _deviation(f"tau[{column}:{self.slope}]", default),
        )
        if not self.correlated:
            return stated
        return (*stated, Parameter(f"rho[{column}]", support=CORRELATION, default=lkj(2.0)))

    @property
    def n_covariance(self) -> int:
        """Return the number of scales and correlations of effects, which come last in theta."""
        return len(self.group_parameters)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the inner model's parameters, none of them linear, and those of the groups."""
        parameters: tuple[Parameter, ...] = self.inner.parameters  # type: ignore[attr-defined]
        own = tuple(replace(each, linear=False) if each.n_linear else each for each in parameters)
        return (*own, *self.group_parameters)

    @property
    def constants(self) -> Vector:
        """Return the constants of a group's link, see ``mixed.group_constants``."""
        kind = kind_of(self.inner)
        assert kind is not None
        return group_constants.group_constants(
            kind,
            self.n_features,
            self.inner.n_scalar,
            self.correlated,
            -1 if self.slope is None else self.features.index(self.slope),
            self.nodes,
            constants_of(self.inner),
            self.noise,
        )

    def level(self, rows: Rows) -> Level:
        """Return the level of the inner model's linear predictor."""
        level: Level = self.inner.level(rows)  # type: ignore[attr-defined]
        return level

    def table_scale(self, feature_names: Sequence[str]) -> tuple[ScaleBlock, ...]:
        """Return how the parameters go to the table's scale; one effect stays as it is."""
        blocks = super().table_scale(feature_names)
        if self.slope is None:
            return blocks
        labels = tuple(each.name for each in self.group_parameters)
        return (*blocks, ScaleBlock(EFFECTS, labels, self.slope))

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is no response of the inner model."""
        return self.inner.response_fault(y)

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of the inner model's predictors (1 + s, m).

        The first holds ``x . beta + offset + z . u`` of the row.
        """
        return self.inner.mean(eta)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of the inner model's predictors (1 + s, m)."""
        return self.inner.simulate(eta, rng)

    def start(self, rows: Rows) -> Vector:
        """Return the inner model's start, and effects of half the unit of its predictor.

        The design of ``rows`` (m, q) holds the features alone.
        """
        unit = self.level(rows).unit
        group = [math.log(_START * unit)]
        if self.slope is not None:
            _, sd, _ = spread(rows.X[:, self.features.index(self.slope)], shares(rows))
            group.append(math.log(_START * unit / (sd or 1.0)))
        if self.correlated:
            group.append(0.0)
        return np.append(self.inner.start(rows), group)

    def describe(self) -> dict[str, Any]:
        """Return inner model, groups, nodes and prior as JSON types."""
        inner = {key: value for key, value in self.inner.describe().items() if key != "prior"}
        return {
            "name": self.name,
            "inner": inner,
            "group": self.column,
            "effects": list(self.effects),
            "correlated": self.correlated,
            "nodes": self.nodes,
            "features": list(self.features),
            "prior": self.prior.describe(),
            **self.described_factors(),
        }


def _deviation(name: str, default: Any) -> Parameter:
    return Parameter(name, support=POSITIVE, default=default, instead_of_flat=_INSTEAD)


def mixed(
    inner: Model,
    groups: Groups,
    feature_names: Sequence[str],
    nodes: int | None = None,
) -> MixedModel:
    """Return a regression with random effects of the groups of a column, integrated out.

    Parameters are those of ``inner``, then ``tau[column]``, the standard deviation of a random
    intercept; or ``tau[column:Intercept]``, ``tau[column:feature]`` and, where they are
    correlated, ``rho[column]``. Their default priors are half-Student-t(3, 2.5 units of the
    linear predictor), of a slope divided by the scale of its column, and LKJ(2).

    Parameters
    ----------
    inner
        The regression; its prior may name the parameters of the groups.
    groups
        Grouping column, terms of the random effects, and whether they are correlated.
    feature_names
        Columns of the design.
    nodes
        Quadrature nodes per effect, 3 to 61; 0: of an intercept, as many as each integral needs,
        on panels that are halved until it is right. ``None``: 15, or 9 with a slope, until it is
        known what the data need. A Gaussian response needs no quadrature.

    Raises
    ------
    ConfigError
        If the likelihood of ``inner`` is none of those with a linear predictor, the terms are
        not an intercept and at most one slope of a feature, or ``nodes`` is out of range.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from streammc.models import logistic
    >>> groups = SimpleNamespace(column="carrier", terms=("1",), correlated=False)
    >>> mixed(logistic(), groups, ["Intercept", "hour"]).labels(["Intercept", "hour"])
    ('beta[Intercept]', 'beta[hour]', 'tau[carrier]')
    """
    name = inner.name
    if kind_of(inner) is None:
        raise ConfigError(
            f"expected one of {', '.join(KINDS)}, or a model stated as text, for the groups of "
            f"{groups.column!r}, found {_as_found(inner)}: "
            "its likelihood of a row cannot be integrated over group effects; choose one of these, "
            "or leave the groups out"
        )
    terms, features = tuple(groups.terms), tuple(feature_names)
    if not terms or terms[0] != _ONE or len(terms) > 2:
        raise ConfigError(
            f"expected a random intercept and at most one slope of {groups.column!r}, found the "
            f"terms {', '.join(terms) or 'none'}: write (1 | {groups.column}) or "
            f"(1 + x | {groups.column})"
        )
    slope = terms[1] if len(terms) == 2 else None
    if slope is not None and features.count(slope) != 1:
        raise ConfigError(
            f"expected the random slope of {groups.column!r} among the features, found {slope!r}, "
            f"which is none of {', '.join(features[:8])}: add the column {slope!r} to the formula"
        )
    default = NODES if slope is None else NODES_OF_TWO
    count = default if nodes is None else nodes
    least = f"3 to {MOST_NODES} quadrature nodes" + ", or 0 for panels" * (slope is None)
    whole = isinstance(count, int) and not isinstance(count, bool)
    if not (whole and (3 <= count <= MOST_NODES or (count == PANELS and slope is None))):
        raise ConfigError(f"expected {least}, found {nodes!r}: give one of these whole numbers")
    return MixedModel(
        inner.prior,
        inner=inner,
        features=features,
        column=groups.column,
        slope=slope,
        correlated=bool(groups.correlated and slope is not None),
        nodes=count,
        automatic=nodes is None and name != "gaussian",
    )


_PACKAGE: Final = "streammc.models.glm."
"""Package of these models: another model of the same name has another likelihood."""


def kind_of(model: Any) -> int | None:
    """Return the code of the likelihood of a row; ``None`` if groups cannot integrate it.

    It is one of the package's regressions, or stated as text, with one linear predictor.
    """
    if isinstance(model, DensityModel):
        return group_constants.AT_ADDRESS if model.n_linear == 1 else None
    known = model.name in KINDS and type(model).__module__.startswith(_PACKAGE)
    kind = KINDS[model.name] if known else None
    return (
        group_constants.STUDENT_T_FIXED
        if kind == group_constants.STUDENT_T and len(model.constants)
        else kind
    )


def constants_of(model: Any) -> Vector:
    """Return the constants of the inner link: of one that is stated as text its address."""
    if kind_of(model) != group_constants.AT_ADDRESS:
        constants: Vector = model.constants
        return constants
    return np.array([float(model.link.__wrapper_address__())])


def from_description(described: Mapping[str, Any]) -> MixedModel:
    """Return the model with this description by :meth:`MixedModel.describe`.

    ConfigError, KeyError or TypeError if it is not complete, or its inner model not registered.
    """
    inner, effects = dict(described["inner"]), list(described["effects"])
    prior = priors.from_description(described["prior"])
    return MixedModel(
        prior,
        inner=registry.model(inner.pop("name"))(prior=prior, **inner),
        features=tuple(described["features"]),
        column=described["group"],
        slope=effects[1] if len(effects) > 1 else None,
        correlated=bool(described["correlated"]),
        nodes=int(described["nodes"]),
        factors=factor_blocks(described.get("factors", ())),
    )


_START_ROWS: Final = 2**16
_TRIALS: Final = ("logistic", "probit", "binomial", "ordinal")
"""Models in which a row of weight 1 is one trial; of an ordinal one, a wider latent variable."""


@dataclass(frozen=True)
class TableModel(MixedModel):
    """A mixed model of the groups of a table, whose rows are ``(first row, number of rows)``."""

    table: Any = field(kw_only=True, compare=False, repr=False)
    """``protocols.Dataset`` of single rows, kept so that the addresses of its arrays stay valid."""

    link_kernel: ClassVar[Any] = table_link

    @property
    def constants(self) -> Vector:
        """Return the places of the table's arrays, and the constants of a group's link."""
        rows = self.table.rows()
        table = table_constants(self.n_features, rows.arrays, rows.codes, rows.columns)
        return np.concatenate([table, super().constants])

    def start(self, rows: Rows) -> Vector:
        """Return the start from up to 65,536 rows of the groups; see ``MixedModel.start``."""
        return super().start(self.rows_of(rows.X)[0])

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return ``None``: a group has no response; its rows are seen by :meth:`fault`."""
        return None

    def fault(self, X: Matrix) -> tuple[Index, Vector, str] | None:
        """Return rows with an invalid response, the responses, and what was expected.

        ``X`` (m, 2) holds the first row and the number of rows of groups.
        """
        response = self.table.rows().arrays[1]
        if not response.size or not len(X):
            return None
        at = _rows_in(*X.astype(np.int64).T)
        y = np.asarray(response[at], dtype=np.float64)
        fault = super().response_fault(y)
        if fault is None and not self.table.attributes.get("trials"):
            weight = self.table.rows().arrays[3]
            fault = self.inner.share_fault(y, weight[at] if weight.size else np.ones(len(at)))
        return None if fault is None else (at[fault[0]], y[fault[0]], fault[1])

    def rows_of(self, places: Matrix) -> tuple[Rows, Index]:
        """Return rows of groups with at most about 65,536 rows, and the group (m,) of each.

        ``places`` (K, 2) holds the first row and the number of rows of groups; groups are numbered
        from 0 on. Of one group with more rows than that, the first are taken.
        """
        first, count = places.astype(np.int64).T
        used = max(int(np.searchsorted(np.cumsum(count), _START_ROWS)), 1)
        first, count = first[:used], np.minimum(count[:used], _START_ROWS)
        at = _rows_in(first, count)
        m = len(at)
        out = Rows(np.empty((m, self.n_features)), np.empty(m), np.empty(m), np.empty(m))
        self.table.rows().gather(at, 1, out)
        return out, np.repeat(np.arange(len(count)), count)


def _rows_in(first: Index, count: Index) -> Index:
    """Return the numbers of the rows of runs of ``count`` rows from ``first``."""
    before = np.repeat(np.cumsum(count) - count, count)
    rows: Index = np.repeat(first, count) + np.arange(int(count.sum())) - before
    return rows


def bound(model: MixedModel, table: Any) -> TableModel:
    """Return a mixed model of the groups of ``table``.

    ModelError if the groups do not identify the standard deviation of their effects.
    """
    _check_identified(model, table)
    options = {each.name: getattr(model, each.name) for each in fields(MixedModel)}
    return TableModel(**options, table=table)


def _check_identified(model: MixedModel, table: Any) -> None:
    """Refuse groups of one row each whose response shows no variation between groups."""
    if table.groups.n_groups < table.n_rows:
        return
    inner, weight = model.inner.name, table.rows().arrays[3]
    label = model.group_parameters[0].name
    if inner in _TRIALS and (not weight.size or float(np.max(weight)) <= 1.0):
        why = f"one trial a group says nothing about {label}"
    elif inner == "gaussian":
        why = f"only sigma^2 + {label}^2 is identified"
    else:
        return
    raise ModelError(
        f"{inner}: expected groups of several rows in column {model.column!r}, found "
        f"{table.groups.n_groups} groups of one row each: {why}; leave the groups out, or name a "
        "coarser column"
    )


def _as_found(model: Any) -> str:
    """Return what a message says of a model that groups cannot integrate."""
    if model.n_linear > 1:
        return f"{model.name!r} with {model.n_linear} linear predictors"
    return f"{'another model of the name ' * (model.name in KINDS)}{model.name!r}"


M = TypeVar("M")


def with_factors(model: M, attributes: Mapping[str, Any]) -> M:
    """Return the model with the factors of a store, whose effects have a sampled scale.

    ``attributes`` are those of the store. A model that has its factors, and one for a store without
    any, is returned unchanged. ConfigError if it is none of the package's regressions.
    """
    stated, untyped = attributes.get("factors"), cast(Any, model)
    if not stated or untyped.factors:
        return model
    regression = untyped.inner if isinstance(model, MixedModel) else untyped
    if kind_of(regression) is None:
        raise ConfigError(
            f"expected one of {', '.join(KINDS)}, or a model stated as text, for the effects of "
            f"{stated[0]['column']!r}, found {_as_found(regression)}: columns of levels need one "
            "linear predictor; choose one of these, or make the store without the factor"
        )
    return replace(untyped, factors=factor_blocks(stated))  # type: ignore[no-any-return]


def typical_noise(model: TableModel, rows: Rows, group: Index, theta: Vector) -> Vector:
    """Return the covariance (s,) of the noise with which groups see their effects.

    A group's information about its effects is ``I_g = sum_i w_i z_i z_i'``, with ``w_i`` minus the
    second derivative of the log-likelihood of row i in its predictor, at effects of 0. At ``theta``
    (d,) groups count by how much they say about the effects' variance: by the square of ``tau^2 /
    (tau^2 + 1 / I_g)``. Of an intercept the result is the weighted median of ``1 / I_g``, of two
    effects the inverse of the weighted mean of ``I_g``; empty where groups have no information. It
    is what ``numerics.effect_positions`` takes. ``group`` (m,) numbers the groups of ``rows`` from
    0 on.
    """
    q, effects = model.n_features, len(model.effects)
    curve = np.maximum(row_curvature(model, rows, theta), 0.0)
    total = int(group.max(initial=-1)) + 1
    tau2 = np.exp(2.0 * theta[q + model.inner.n_scalar :][:effects])
    first = np.bincount(group, curve, total)
    seen = first > 0.0
    if not np.any(seen):
        return np.zeros(0)
    if effects == 1:
        noise = 1.0 / first[seen]
        weight = np.square(tau2[0] / (tau2[0] + noise))
        order = np.argsort(noise)
        half = np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())
        return np.array([noise[order][min(half, len(order) - 1)]])
    x = rows.X[:, model.features.index(model.slope or "")]
    both = [np.bincount(group, curve * part, total) for part in (np.ones(len(x)), x * x, x)]
    shrunk = [tau2[0] * both[0], tau2[1] * both[1]]
    weight = np.square(sum(part / (1.0 + part) for part in shrunk) / 2.0)
    mean = [np.average(part, weights=weight) for part in both] if weight.sum() > 0.0 else [0.0] * 3
    if not mean[0] * mean[1] > (1.0 + 1e-9) * mean[2] ** 2:
        return np.zeros(0)
    if not model.correlated:
        return np.array([1.0 / mean[0], 1.0 / mean[1]])
    inverse: Matrix = np.linalg.inv(np.array([[mean[0], mean[2]], [mean[2], mean[1]]]))
    return np.array([inverse[0, 0], inverse[1, 1], inverse[0, 1]])


def row_curvature(model: TableModel, rows: Rows, theta: Vector) -> Vector:
    """Return minus the weighted second derivative of each row (m,) in its linear predictor."""
    q, scalars = model.n_features, model.inner.n_scalar
    m, p = len(rows.y), 1 + scalars
    eta = predictors_at(model.inner, rows, theta[: q + scalars])
    out = np.empty((1 + p + p * (p + 1) // 2, m))
    inner: Any = model.inner
    inner.link(eta, rows.X.T, rows.y, inner.constants, 2, out)
    curvature: Vector = np.where(rows.weight != 0.0, -rows.weight * out[1 + p], 0.0)
    return curvature
