"""Mixed models: regressions with random effects of the groups of one column.

A row of group g has the linear predictor ``x . beta + offset + z . u_g``, ``u_g ~ Normal(0,
Sigma)``. The effects are integrated out, so that the likelihood is a product over groups, and a
group is to the rest of the package what a row is to a regression: its "predictors" are all of
theta, and its "design" are its rows (``protocols.Model.link``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from streammc import priors, registry
from streammc.errors import ConfigError
from streammc.models.factor_model import factor_blocks
from streammc.models.linear import LinearModel
from streammc.models.mixed import group_constants
from streammc.models.mixed.effect_terms import Groups, formula_term
from streammc.models.mixed.families import KINDS, MOST_NODES, of_family
from streammc.models.mixed.group_constants import PANELS
from streammc.models.mixed.group_link import link
from streammc.models.parameters import CORRELATION, POSITIVE, Parameter, unit_default
from streammc.models.table_scale import EFFECTS, INTERCEPT, Block
from streammc.priors import FamilyPrior, half_student_t, lkj
from streammc.priors.scaled import WIDTH, Level, rounded, shares, spread
from streammc.protocols import Index, Matrix, Model, Rows, Vector

NODES: Final = 15
"""Quadrature nodes of a random intercept; of two effects ``NODES_OF_TWO`` each."""
NODES_OF_TWO: Final = 9
_ONE: Final = "1"
"""The term of a random intercept."""
_START: Final = 0.5
"""Standard deviation of the effects to start from, in units of the linear predictor."""
_INSTEAD: Final = "half_student_t(3, 2.5)"


def _slope_default(
    j: int, rows: Rows, feature_names: Sequence[str], level: Level
) -> list[FamilyPrior]:
    """Return half-Student-t(3, 2.5 unit / scale) of a slope of column ``j``, as for its mean."""
    _, sd, ends = spread(rows.X[:, j], shares(rows))
    return [half_student_t(3.0, rounded(WIDTH * level.unit / (ends or sd or 1.0)))]


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
    """Quadrature nodes per effect; 0: panels, see ``mixed.group_panels``."""
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
        return formula_term(self.column, self.slope, self.correlated)

    @property
    def group_parameters(self) -> tuple[Parameter, ...]:
        """Return the standard deviations of the effects and, if sampled, their correlation."""
        column = self.column
        if self.slope is None:
            return (_deviation(f"tau[{column}]", unit_default),)
        default = partial(_slope_default, self.features.index(self.slope))
        stated = (
            _deviation(f"tau[{column}:{INTERCEPT}]", unit_default),
            _deviation(f"tau[{column}:{self.slope}]", default),
        )
        if not self.correlated:
            return stated
        return (*stated, Parameter(f"rho[{column}]", support=CORRELATION, default=lkj(2.0)))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the inner model's parameters, none of them linear, and those of the groups."""
        given: tuple[Parameter, ...] = self.inner.parameters  # type: ignore[attr-defined]
        own = tuple(replace(each, linear=False) if each.n_linear else each for each in given)
        return (*own, *self.group_parameters)

    @property
    def constants(self) -> Vector:
        """Return the constants of a group's link, see ``mixed.group_constants``."""
        kind = KINDS[self.inner.name]
        if kind == group_constants.STUDENT_T and len(self.inner.constants):
            kind = group_constants.STUDENT_T_FIXED
        return group_constants.group_constants(
            kind,
            self.n_features,
            self.inner.n_scalar,
            self.correlated,
            -1 if self.slope is None else self.features.index(self.slope),
            self.nodes,
            self.inner.constants,
            self.noise,
        )

    def level(self, rows: Rows) -> Level:
        """Return the level of the inner model's linear predictor."""
        found: Level = self.inner.level(rows)  # type: ignore[attr-defined]
        return found

    def table_scale(self, feature_names: Sequence[str]) -> tuple[Block, ...]:
        """Return how the parameters go to the table's scale; one effect stays as it is."""
        blocks = super().table_scale(feature_names)
        if self.slope is None:
            return blocks
        labels = tuple(each.name for each in self.group_parameters)
        return (*blocks, Block(EFFECTS, labels, self.slope))

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
    name = getattr(inner, "name", None)
    if not of_family(inner):
        raise ConfigError(
            f"expected one of {', '.join(KINDS)} for the groups of {groups.column!r}, found "
            f"{'another model of the name ' * (name in KINDS)}{name or inner!r}: its likelihood "
            "of a row cannot be integrated over group effects; choose one of these, or leave the "
            "groups out"
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


def from_description(described: Mapping[str, Any]) -> MixedModel:
    """Return the model with this description by :meth:`MixedModel.describe`.

    Raises
    ------
    ConfigError, KeyError, TypeError
        If the description is not complete, or its inner model is not registered.
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
