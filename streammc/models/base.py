"""Base classes of models: stated parameters, effects of factors, linear predictors.

Of models with factors whose effects have a sampled scale (:class:`FactorModel`): a factor of L
levels has L + 1 columns: an indicator of each level, whose coefficient is the effect ``u_l ~
Normal(0, tau)``, and a column of zeros, whose coefficient is ``log tau``. So theta is as long as
the design is wide, and ``log tau`` enters no linear predictor.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from itertools import groupby, product
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from streammc.errors import ConfigError, ModelError
from streammc.models.table_scale import (
    COEFFICIENT,
    FACTOR,
    INTERCEPT,
    RULES,
    UNCHANGED,
    ScaleBlock,
)
from streammc.numerics.prior import (
    COLUMNS,
    CONSTANT,
    EFFECT,
    KIND,
    LOCATION,
    LOGIT_BETA,
    SCALE,
    SHAPE,
)
from streammc.priors import as_prior, densities
from streammc.priors.by_name import NamedPriors
from streammc.priors.densities import JointNormal
from streammc.priors.families import FamilyPrior, choose, refuse_flat
from streammc.priors.scaled import Level, coefficients, scale_prior, shares, spread
from streammc.protocols import Coding, Index, Matrix, Model, Prior, Rows, Vector
from streammc.shown import Shown, options_of

Array: TypeAlias = NDArray[np.float64]
T = TypeVar("T")
DataDefault: TypeAlias = Callable[[Rows, Sequence[str], Level], list[FamilyPrior]]
"""Default priors that scale with the data: ``(rows, feature names, level)`` to one per feature,
or to one for every component."""

# Supports of a parameter, which decide how it is sampled.
REAL: Final = "real"
POSITIVE: Final = "positive"
"""Sampled as its logarithm."""
SIMPLEX: Final = "simplex"
"""Weights that add up to 1, the last one left out; sampled as log odds ``u_k`` by which a stick is
broken: weight k is ``v_k = 1 / (1 + exp(-u_k))`` of what the weights before it leave of 1."""
CORRELATION: Final = "correlation"
"""Between -1 and 1; sampled as its artanh."""
ORDERED: Final = "ordered"
"""Two numbers, the smaller first; sampled as their centre and the log of their distance."""


class Support(NamedTuple):
    """Transform between theta and the values of a parameter; both return new arrays."""

    constrain: Callable[[Array], Array]
    unconstrain: Callable[[Array], Array]


_LEAST = 1e-300
"""Weights below it are moved to it: their logarithms are finite."""


def weights_of(u: Array) -> Array:
    """Return the first K - 1 weights (..., K - 1) of the log odds (..., K - 1)."""
    broken = -np.logaddexp(0.0, -u)
    left = np.cumsum(-np.logaddexp(0.0, u), axis=-1)
    broken[..., 1:] += left[..., :-1]
    weights: Array = np.exp(broken)
    return weights


def log_odds_of(weights: Array) -> Array:
    """Return the log odds (..., K - 1) of the first K - 1 weights; inverse of weights_of."""
    left = np.maximum(1.0 - np.cumsum(weights, axis=-1), _LEAST)
    u: Array = np.log(np.maximum(weights, _LEAST)) - np.log(left)
    return u


def _ends(values: Array) -> Array:
    half = 0.5 * np.exp(values[..., 1])
    return np.stack([values[..., 0] - half, values[..., 0] + half], axis=-1)


def _centre_and_distance(values: Array) -> Array:
    apart = values[..., 1] - values[..., 0]
    return np.stack([values[..., 0] + 0.5 * apart, np.log(apart)], axis=-1)


SUPPORTS: Final = {
    REAL: Support(np.positive, np.positive),
    POSITIVE: Support(np.exp, np.log),
    CORRELATION: Support(np.tanh, np.arctanh),
    SIMPLEX: Support(weights_of, log_odds_of),
    ORDERED: Support(_ends, _centre_and_distance),
}


def unit_default(rows: Rows, feature_names: Sequence[str], level: Level) -> list[FamilyPrior]:
    """Return the default prior of a standard deviation in the units of the response."""
    return [scale_prior(level.unit)]


def slope_default(
    j: int, rows: Rows, feature_names: Sequence[str], level: Level
) -> list[FamilyPrior]:
    """Return the default prior of the deviation of slopes of column ``j``, as for their mean."""
    _, sd, ends = spread(rows.X[:, j], shares(rows))
    return [scale_prior(level.unit / (ends or sd or 1.0))]


@dataclass(frozen=True)
class Parameter:
    """A named parameter: one number, or one per feature, per component, or per both.

    Parameters
    ----------
    name
        Name in labels: ``sigma``, ``mu[age]`` per feature, ``mu[0]`` per component, or
        ``mu[0, age]``.
    per_feature
        Whether it has a number for each column of the design.
    components
        How many components there are, along each of their dimensions.
    first
        Number of the first component of each dimension.
    support
        ``"real"``; ``"positive"``, sampled as its logarithm; ``"correlation"``, sampled as
        its artanh; ``"simplex"``, weights without the last; or ``"ordered"``, two numbers,
        the smaller first.
    default
        Default prior, on the store's scale; ``None``: that of a coefficient scales with the
        data, any other is Normal(0, 10), or half-Student-t(3, 10) of a positive parameter.
    instead_of_flat
        A proper prior, as text, where a flat one makes the posterior improper.
    table_scale
        How it goes from the scale of a standardised store to that of its table:
        ``"coefficient"`` of a linear predictor, ``"place"`` in a column, ``"distance"`` in it,
        or unchanged, the empty text.
    linear
        Whether a coefficient multiplies its column in a linear predictor of each row; false for
        those of a likelihood of several rows, to which they are as any parameter.
    exponential
        What the exponential of a coefficient is, such as ``odds ratio``; ``None``: nothing.

    Raises
    ------
    ConfigError
        If an option is none of these, or they contradict each other.
    """

    name: str
    per_feature: bool = False
    components: tuple[int, ...] = ()
    support: str = REAL
    default: FamilyPrior | DataDefault | None = None
    instead_of_flat: str = ""
    table_scale: str = UNCHANGED
    exponential: str | None = None
    linear: bool = True
    first: int = 0

    def __post_init__(self) -> None:
        """Refuse a support, a rule or an exponential that is none."""
        if self.support not in SUPPORTS or self.table_scale not in RULES:
            raise ConfigError(
                f"expected a support of {', '.join(SUPPORTS)} and a table_scale of "
                f"{', '.join(RULES[1:])} or '', found {self.support!r} and {self.table_scale!r} of "
                f"{self.name!r}: choose from these"
            )
        if not isinstance(self.exponential, str | None):
            raise ConfigError(
                f"expected the meaning of an exponential as text, found {self.exponential!r:.60}: "
                "write one such as 'odds ratio'"
            )
        linear = self.table_scale == COEFFICIENT
        if linear and not (self.per_feature and self.support == REAL):
            raise ConfigError(
                f"expected a coefficient for each feature, of any sign, found {self.name!r} "
                f"otherwise: give per_feature=True and support={REAL!r}"
            )
        if self.exponential and not linear:
            raise ConfigError(
                f"expected an exponential of a coefficient, found {self.exponential!r} of "
                f"{self.name!r}, which is none: leave it out, or give table_scale={COEFFICIENT!r}"
            )

    @property
    def n_components(self) -> int:
        """Return the number of components; 1 where there are no components."""
        return math.prod(self.components)

    @property
    def n_linear(self) -> int:
        """Return the number of linear predictors that it has the coefficients of."""
        return self.n_components if self.linear and self.table_scale == COEFFICIENT else 0

    @property
    def transformed_with(self) -> tuple[str, str]:
        """Return the key of neighbours in theta that one call transforms.

        The support; also the name, if the numbers of the parameter depend on each other.
        """
        return self.support, "" if self.support in (POSITIVE, CORRELATION) else self.name

    def size(self, n_features: int) -> int:
        """Return how many numbers it is."""
        return self.n_components * (n_features if self.per_feature else 1)

    def labels(self, feature_names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the labels of each component: one per feature, or a single one."""
        features = [(name,) for name in feature_names] if self.per_feature else [()]
        numbers = (range(self.first, self.first + count) for count in self.components)
        places = product(*(map(str, each) for each in numbers))
        return tuple(tuple(self._label((*at, *own)) for own in features) for at in places)

    def describe(self) -> dict[str, Any]:
        """Return the statement as JSON types; of a default prior its description."""
        prior = self.default.describe() if isinstance(self.default, FamilyPrior) else None
        stated = {**vars(self), "components": list(self.components), "default": prior}
        if self.linear:  # as in the runs from before it could be stated
            del stated["linear"]
        if self.first == 0:
            del stated["first"]
        return stated

    def _label(self, index: tuple[str, ...]) -> str:
        return f"{self.name}[{', '.join(index)}]" if index else self.name


def predictor(
    name: str = "beta", exponential: str | None = None, components: tuple[int, ...] = ()
) -> Parameter:
    """Return the coefficients of a linear predictor, or of one per component."""
    return Parameter(
        name,
        per_feature=True,
        components=components,
        table_scale=COEFFICIENT,
        exponential=exponential,
    )


def dirichlet_rows(concentration: Sequence[float]) -> Matrix:
    """Return the (K - 1, 5) rows of the prior table for the log odds of Dirichlet weights."""
    a = np.asarray(concentration, dtype=np.float64)
    rest = np.cumsum(a[::-1])[::-1][1:]
    table = np.zeros((len(a) - 1, COLUMNS))
    table[:, KIND] = LOGIT_BETA
    table[:, SHAPE] = a[:-1]
    table[:, SCALE] = a[:-1] + rest
    table[:, CONSTANT] = -betaln(a[:-1], rest)
    return table


def parameter_blocks(
    parameters: Iterable[Parameter], features: Sequence[str]
) -> tuple[ScaleBlock, ...]:
    """Return a block per component of every parameter that a change of scale moves."""
    blocks = []
    for parameter in parameters:
        linear = parameter.table_scale == COEFFICIENT
        wider = parameter.labels((INTERCEPT, *features))
        for labels, (intercept, *_) in zip(parameter.labels(features), wider, strict=True):
            if parameter.table_scale and labels:
                implied = intercept if linear and INTERCEPT not in features else ""
                exponential = parameter.exponential or ""
                blocks.append(ScaleBlock(parameter.table_scale, labels, implied, exponential))
    return tuple(blocks)


_FLAGS: Final = {POSITIVE: densities.POSITIVE, CORRELATION: densities.CORRELATION}
"""Flag by which priors know a support; of all others 0."""


def unknown_level(rows: Rows) -> Level:
    """Return the level of a linear predictor where the link is not known."""
    return Level()


def sums_of_responses(model: object) -> str | None:
    """Return ``sufficient`` of a model, if its class states it.

    A class that is made of another may have another likelihood.
    """
    stated: str | None = vars(type(model)).get("sufficient")
    return stated


class ResidualScale(NamedTuple):
    """Scale of the residuals of a response, as a power of a parameter."""

    label: str
    """Name of the parameter."""
    power: float
    """1 of a standard deviation, -1 / 2 of what divides a variance."""
    transform: Callable[[Vector], Vector]
    """Returns responses (n,) on the scale of the predictor."""


def of_columns(
    rows: Rows, coding: Coding | None, columns: Sequence[int]
) -> tuple[Rows, Coding | None]:
    """Return rows with some columns of the design, and what these are."""
    own = list(columns)
    if coding is not None:
        kept = tuple(coding.columns[j] for j in own)
        coding = coding._replace(columns=kept, mean=coding.mean[own], scale=coding.scale[own])
    return Rows(np.ascontiguousarray(rows.X[:, own]), *rows[1:]), coding


class StatedModel(Shown, ABC):
    """A model that states its parameters, in the order of theta: coefficients come first."""

    name: ClassVar[str]
    prior: Prior
    level: ClassVar[Any] = staticmethod(unknown_level)
    """Location and scale of a linear predictor, from rows: see ``priors.scaled.Level``."""
    advice: ClassVar[str] = "ingest it alone, with --no-intercept"
    """What to do about a store with another number of columns."""

    analytic: ClassVar[bool] = False
    """Whether the log-likelihood of a row is an analytic function of its only predictor."""
    separable: ClassVar[bool] = True
    """Whether coefficients may go to infinity where the columns determine the response."""
    log_concave: ClassVar[bool] = False
    """Whether the log-likelihood is concave in theta, so that most priors leave one mode."""
    location_scale: ClassVar[bool] = False
    """Whether a response fitted without error leaves the first scale to its prior alone."""
    residual_scale: ClassVar[ResidualScale | None] = None
    """What a transformed response that is fitted without error leaves to its prior alone."""
    heavy_tailed: ClassVar[bool] = False
    """Whether rows far from their predictor count little: most rows may leave a scale at 0."""
    multimodal: ClassVar[bool] = False
    """Whether components or units may be exchanged, so that chains that agree prove little."""
    derivative_bounds: ClassVar[tuple[float, ...]] = ()
    """Known bounds on the absolute derivatives of the log-likelihood of a row in its linear
    predictor, of order 1, 2, ..."""
    third_derivative: ClassVar[Any] = None
    """Compiled bound on the third derivative of the log-likelihood of a row in its only predictor,
    see ``models.third_derivative``; ``None``: none is known."""
    exchangeable: ClassVar[bool] = False
    """Whether :meth:`relabelled` returns all positions of the same density."""
    sufficient: ClassVar[str | None] = None
    """Sums of the responses of equal rows that decide their likelihood, beside their number:
    ``mean``, the sum; ``counts``, that of whole numbers, up to a constant; ``moments``, the sum and
    the sum of squares. ``None``: none are known."""
    if_overdispersed: ClassVar[str] = ""
    """What to do where responses vary more than this family without a scale has them vary."""
    caveat: ClassVar[str] = ""
    """What every posterior of this family is not, as a note of the run."""
    takes_trials: ClassVar[bool] = False
    """Whether the weight of a row counts trials: see :meth:`share_fault`, :meth:`log_constant` and
    :meth:`simulate_trials`."""
    sees_trials: ClassVar[bool] = False
    """Whether the response that the link sees is ``2^26 trials + successes``, of shares that a
    store has with their trials as weights: see ``likelihood.data_views.CountedTrials``."""
    takes_censored: ClassVar[bool] = False
    """Whether a response below 0 can be minus a time that is censored."""
    mean_by_draw: ClassVar[bool] = False
    """Whether the mean response depends on shared parameters, beside the predictor."""
    takes_levels: ClassVar[bool] = False
    """Whether the response is the number of one of ``levels`` categories."""
    most_levels: ClassVar[int] = 0
    """Most categories of such a family."""
    nominal: ClassVar[bool] = False
    """Whether these categories have no order, so that there is no mean response."""
    takes_offset: ClassVar[bool] = True
    """Whether rows may have an offset, which is that of the first linear predictor."""
    censored: bool = False
    """Whether the data have times that are censored, which a family has to take."""
    levels: int | None = None
    """Number of categories; ``None`` where it is open, and of a model without."""
    df: float | None = None
    """Fixed degrees of freedom of a heavy-tailed family."""
    nodes: int | None = None
    """Quadrature nodes of a mixed model; ``None`` of any other."""
    automatic: bool = False
    """Whether ``nodes`` is open: the data may still raise it."""
    factors: tuple[FactorBlock, ...] = ()
    """Factors whose effects have a sampled scale."""
    crossed: tuple[str, ...] = ()
    """Columns of factors that cross, whose effects are drawn with theta."""
    designs: tuple[tuple[int, ...], ...] = ()
    """Columns of the design that each linear predictor has, ascending; empty: each has them all."""

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
        return f"Model {self.name}", facts

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the named parameters."""

    @property
    def n_covariance(self) -> int:
        """Return the number of scales and correlations of effects, which come last in theta."""
        return 0

    @cached_property
    def _stated(self) -> tuple[Parameter, ...]:
        return tuple(self.parameters)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached: a prior of a parameter may be a function of its own."""
        return {name: value for name, value in vars(self).items() if name != "_stated"}

    @property
    def n_features(self) -> int | None:
        """Return the number of columns that the model is for; ``None``: any."""
        return None

    @property
    def of_a_row(self) -> Any:
        """Return the model of a row: this one, or the regression of a mixed model."""
        return self

    @property
    def sees_columns(self) -> bool:
        """Return whether the link uses the columns of rows, and not their predictors alone."""
        return self.n_linear == 0

    def varied(self, names: Sequence[str]) -> Any:
        """Return the model whose parameters ``names`` depend on the columns.

        ModelError if the family has none that can.
        """
        raise ModelError(
            f"{self.name}: expected a family with parameters that formulas of their own can drive, "
            f"such as gaussian with sigma, for {names[0]!r}, found none: choose another family, or "
            "make the store without --formula-for"
        )

    def relabelled(self, theta: Vector) -> list[Vector]:
        """Return the positions of the same density, where components may be exchanged."""
        return []

    def share_fault(self, y: Vector, trials: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is no share of these trials; ``None`` of a model without trials."""
        return None

    def log_constant(self, y: Vector, trials: Vector) -> float | None:
        """Return what the log-likelihood omits; ``None``: that is not known."""
        return 0.0

    def simulate_trials(self, eta: Matrix, trials: Vector, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m), of these trials (m,) if it has any."""
        return self.simulate(eta, rng)

    @abstractmethod
    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m)."""

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m); ModelError without one."""
        raise ModelError(
            f"expected the model {self.name!r} to have a mean response, found none: it cannot "
            "predict; use a model that has one"
        )

    def predictor_level(self, rows: Rows, component: int) -> Level:
        """Return the level of a linear predictor of several."""
        level: Level = self.level(rows)
        return level

    @property
    def n_linear(self) -> int:
        """Return the number of linear predictors."""
        return sum(parameter.n_linear for parameter in self._stated)

    @property
    def n_scalar(self) -> int:
        """Return the number of parameters that are no coefficients: all rows share them."""
        q = self.n_features or 0
        return sum(each.size(q) for each in self._stated if not each.n_linear)

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the labels of the positive parameters that are not per feature."""
        positive = (p for p in self._stated if p.support == POSITIVE and not p.per_feature)
        return tuple(label for each in positive for labels in each.labels(()) for label in labels)

    def dim(self, n_features: int) -> int:
        """Return the length of theta."""
        q = n_features if self.n_features is None else self.n_features
        own = self._own(range(q))
        return sum(each.size(len(columns)) for each, columns in own)

    def _own(self, features: Sequence[T]) -> list[tuple[Parameter, Sequence[T]]]:
        """Return each parameter with those of the columns that it has."""
        if not self.designs:
            return [(each, features) for each in self._stated]
        own = [[features[j] for j in columns] for columns in self.designs]
        return [(each, own[a] if a < len(own) else features) for a, each in enumerate(self._stated)]

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return one label per component of theta; ConfigError for another number of columns."""
        n, count = self.n_features, len(feature_names)
        if n is not None and count != n:
            raise ConfigError(
                f"expected {'one column' if n == 1 else f'{n} columns'}, found {count} "
                f"({', '.join([*feature_names[:5], *(['...'] * (count > 5))])}): {self.advice}"
            )
        components = (each for p, own in self._own(feature_names) for each in p.labels(own))
        return tuple(label for labels in components for label in labels)

    def table_scale(self, feature_names: Sequence[str]) -> tuple[ScaleBlock, ...]:
        """Return how the parameters go to the table's scale."""
        blocks = []
        for a, (parameter, own) in enumerate(self._own(feature_names)):
            columns = self.designs[a] if a < len(self.designs) else ()
            found = parameter_blocks([parameter], own)
            blocks += [each._replace(columns=columns) for each in found]
        return tuple(blocks)

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reported parameters (..., d) of theta."""
        values = np.array(theta, dtype=np.float64)
        for support, at in self._transformed(values.shape[-1]):
            values[..., at] = SUPPORTS[support].constrain(values[..., at])
        return values

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) of the reported parameters."""
        theta = np.array(values, dtype=np.float64)
        for support, at in self._transformed(theta.shape[-1]):
            theta[..., at] = SUPPORTS[support].unconstrain(theta[..., at])
        return theta

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior, a row per label."""
        table = self.prior.table(labels, self.support_flags(labels), self.fixed_defaults(labels))
        refuse_flat(labels, table, self._by_label(labels, lambda p: p.instead_of_flat))
        return table

    def support_flags(self, labels: Sequence[str]) -> list[int]:
        """Return the flag of each parameter: 1 if positive, 2 for a correlation, else 0.

        Weights of a simplex, which come last, have none: their prior is not given by name.
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
        level, at, predictors = self.level(rows), 0, 0
        defaults: list[JointNormal | dict[str, FamilyPrior]] = []
        for parameter, names in self._own(feature_names):
            q = len(names)
            own = labels[at : at + parameter.size(q)]
            at += len(own)
            if not own or isinstance(parameter.default, FamilyPrior):
                continue
            if parameter.default is not None:
                each = parameter.default(rows, feature_names, level)
                defaults.append(dict(zip(own, each * (len(own) // len(each)), strict=True)))
            elif parameter.table_scale == COEFFICIENT:
                for first in range(0, len(own), q):
                    one = own[first : first + q]
                    near = self.predictor_level(rows, predictors)
                    seen, kinds = rows, coding
                    if self.designs:
                        seen, kinds = of_columns(rows, coding, self.designs[predictors])
                    defaults.append(coefficients(one, seen, names, near, kinds))
                    predictors += 1
        return defaults

    def _each(self, d: int) -> list[Parameter]:
        """Return the parameter of each of the d components of theta."""
        if self.designs:
            counts = [len(columns) for columns in self.designs]
            counts += [0] * (len(self._stated) - len(counts))
            sized = zip(self._stated, counts, strict=True)
            return [each for each, q in sized for _ in range(each.size(q))]
        fixed = sum(each.size(0) for each in self._stated)
        wide = sum(each.n_components for each in self._stated if each.per_feature)
        q = (d - fixed) // wide if wide else 0
        return [each for each in self._stated for _ in range(each.size(q))]

    def _by_label(self, labels: Sequence[str], value: Callable[[Parameter], Any]) -> dict[str, Any]:
        """Return ``value`` of the parameter of each label, without labels for which it is empty."""
        pairs = zip(labels, self._each(len(labels)), strict=False)
        return {label: stated for label, each in pairs if (stated := value(each))}

    def _transformed(self, d: int) -> Iterator[tuple[str, slice]]:
        """Yield the supports with a transform and where in theta; neighbours that fit together."""
        at = 0
        for (support, _), group in groupby(self._each(d), lambda each: each.transformed_with):
            size = sum(1 for _ in group)
            if support != REAL:
                yield support, slice(at, at + size)
            at += size


_INSTEAD: Final = "half_student_t(3, 2.5)"
"""Proper prior of the scale of a factor, named where a flat one is refused."""
_LOG_ROOT: Final = -0.5 * math.log(2.0 * math.pi)
"""Log of the standard normal density at 0."""


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

    def support_flags(self, labels: Sequence[str]) -> list[int]:
        """Return the flag of each parameter; the scale of a factor is positive."""
        flags = super().support_flags(labels)
        for block in self.factors:
            flags[block.scale] = densities.POSITIVE
        return flags

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior, a row per label.

        ConfigError if the prior of a scale is improper, or an effect has a prior of its own.
        """
        if not self.factors:
            return super().prior_table(labels)
        free = self.without_effects(labels)
        names, flags = [labels[j] for j in free], self.support_flags(labels)
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
        """Return the components of theta that are no effects; ConfigError if one has a prior."""
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
        of_factors = {j for block in self.factors for j in range(block.first, block.scale + 1)}
        own = [j for j in range(len(feature_names)) if j not in of_factors]
        names = [feature_names[j] for j in own]
        plain = self._of_features(names)
        defaults = plain.default_priors(plain.labels(names), names, *of_columns(rows, coding, own))
        prior = scale_prior(self.level(rows).unit)
        return [*defaults, {block.label: prior for block in self.factors}]

    def _of_features(self, names: Sequence[str]) -> Self:
        """Return the model of these columns alone, without factors."""
        model: Any = self
        own = {"features": tuple(names)} if hasattr(self, "features") else {}
        return replace(model, factors=(), **own)  # type: ignore[no-any-return]

    def table_scale(self, feature_names: Sequence[str]) -> tuple[ScaleBlock, ...]:
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
        return (*renamed, ScaleBlock(FACTOR, own))

    def described_factors(self) -> dict[str, Any]:
        """Return the factors as a part of the description; empty without any."""
        blocks = [vars(block).copy() for block in self.factors]
        return {"factors": blocks} if blocks else {}


BETA: Final = predictor()


MOST_LEVELS: Final = 20
"""Most categories of a response: K have K - 1 predictors, and an expansion of K (K + 1) / 2 numbers
a row."""
MOST_PREDICTORS: Final = 256
"""A row's expansion is then 33,153 numbers, and the buffers of a chain 140 MB."""


def refuse_many_predictors(p: int, what: str) -> None:
    """Raise ConfigError where an expansion in ``p`` predictors is too wide."""
    if p > MOST_PREDICTORS:
        raise ConfigError(
            f"expected at most {MOST_PREDICTORS} {what}, found {p}: every row has a Hessian of "
            f"{p} x {p}; make the model smaller"
        )


def places(model: Model, n_features: int) -> Index | None:
    """Return where components of theta (d,) stand among q coefficients of each linear predictor.

    Shared parameters follow. ``None``: there, since every predictor has all ``n_features`` columns.
    """
    if not model.designs:
        return None
    n = model.n_linear
    own = [a * n_features + j for a, columns in enumerate(model.designs) for j in columns]
    return np.array([*own, *range(n * n_features, n * n_features + model.n_scalar)], np.int64)


def wide(model: Model, values: NDArray[np.float64], n_features: int) -> NDArray[np.float64]:
    """Return ``values`` (..., d) of theta with a coefficient of every column in each predictor.

    Those of columns that a predictor has not are 0: the linear algebra of rows, of kernels above
    all, is the same for designs of any predictor.
    """
    at = places(model, n_features)
    if at is None:
        return values
    filled = np.zeros((*values.shape[:-1], model.n_linear * n_features + model.n_scalar))
    filled[..., at] = values
    return filled


def predictors_at(model: Model, rows: Rows, theta: Vector) -> Matrix:
    """Return the predictors (p, m) of rows at ``theta`` (d,): linear ones, shared parameters."""
    n, q = model.n_linear, rows.X.shape[1]
    theta = wide(model, theta, q)
    eta = np.empty((n + model.n_scalar, len(rows.y)))
    for a in range(n):
        eta[a] = rows.X @ theta[a * q : (a + 1) * q]
    if n:
        eta[0] += rows.offset
    eta[n:] = theta[n * q :, None]
    return eta


@dataclass(frozen=True)
class LinearModel(FactorModel):
    """Linear predictors ``eta_i = offset_i + x_i . beta``, shared parameters, a link.

    A family sets ``name`` and ``link_kernel``, states its parameters, and defines
    :meth:`response_fault`, :meth:`simulate` and, where zeros are a bad start, :meth:`start`.
    """

    prior: Prior = field(default_factory=partial(as_prior, None))
    censored: bool = field(default=False, kw_only=True)
    """Whether responses below 0 are minus times that are censored."""

    name: ClassVar[str]
    link_kernel: ClassVar[Any]
    exact_sums: ClassVar[Any] = None
    """Compiled log-likelihood of the Taylor sums, where it is exact."""
    joint: ClassVar[Any] = None
    """``None``: the likelihood is a product over rows."""

    def __post_init__(self) -> None:
        """Turn a mapping into a prior by name; refuse what is not a prior."""
        object.__setattr__(self, "prior", as_prior(self.prior))

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return type(self).link_kernel

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the coefficients of one linear predictor."""
        return (BETA,)

    @property
    def constants(self) -> Vector:
        """Return (c,) numbers that the link needs; none here."""
        return np.zeros(0)

    @abstractmethod
    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return the offending positions and what was expected, or ``None``."""

    def start(self, rows: Rows) -> Vector:
        """Return zeros (q,): finite for every bounded link."""
        return np.zeros(self.dim(rows.X.shape[1]))

    def describe(self) -> dict[str, Any]:
        """Return the name, the prior, censoring and factors with a sampled scale as JSON types."""
        described: dict[str, Any] = {"name": self.name, "prior": self.prior.describe()}
        if self.censored:
            described["censored"] = True
        return described | self.described_factors()


@dataclass(frozen=True)
class ColumnsModel(LinearModel):
    """A density of the columns of a row: there is no response and no linear predictor."""

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return ``None``: there is no response."""
        return None

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Return zeros (m,): the observations are the columns, not the response."""
        return np.zeros(eta.shape[1])
