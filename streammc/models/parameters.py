"""Parameters of a model, stated as records; their supports, and the scale of the table.

Weights that add up to one are sampled as log odds, by the stick-breaking transformation:
``w_0 = v_0``, ``w_j = v_j (1 - v_0) ... (1 - v_(j-1))`` with ``v_j = 1 / (1 + exp(-u_j))``; the
last weight is the rest. Under ``w ~ Dirichlet(a_0, ..., a_(K-1))`` the ``v_j`` are independent,
``v_j ~ Beta(a_j, a_(j+1) + ... + a_(K-1))``.

Labels, transforms, default priors, the way to the table's scale and ratios follow from the
records; nothing is read from names.

A store may hold ``z_j = (x_j - mean_j) / scale_j``. A model states, block by block, what its
parameters are; what it does not state stays as it is. Names decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS, CONSTANT, KIND, LOGIT_BETA, SCALE, SHAPE
from streammc.priors.families import FamilyPrior
from streammc.priors.scaled import Level, scale_prior
from streammc.protocols import Matrix, Model, Rows

Array: TypeAlias = NDArray[np.float64]
DataDefault: TypeAlias = Callable[[Rows, Sequence[str], Level], list[FamilyPrior]]
"""Default priors that scale with the data: ``(rows, feature names, level)`` to one per feature,
or to one for every component."""

UNCHANGED: Final = ""
COEFFICIENT: Final = "coefficient"
"""Of a linear predictor: ``beta_j / scale_j``; the intercept takes up the means."""
PLACE: Final = "place"
"""A place in the columns: ``mean_j + scale_j mu_j``."""
DISTANCE: Final = "distance"
"""A distance in the columns: ``scale_j`` times it."""
RULES: Final = (UNCHANGED, COEFFICIENT, PLACE, DISTANCE)

REAL: Final = "real"
POSITIVE: Final = "positive"
"""Sampled as its logarithm."""
SIMPLEX: Final = "simplex"
"""Weights that add up to 1, the last one left out; sampled as the log odds of breaking a stick."""
CORRELATION: Final = "correlation"
"""Between -1 and 1; sampled as its artanh."""
ORDERED: Final = "ordered"
"""Two numbers, the smaller first; sampled as their centre and the log of their distance."""


class Support(NamedTuple):
    """Transform between theta and the values of a parameter, both in place."""

    constrain: Callable[[Array], Any]
    unconstrain: Callable[[Array], Any]


def _exp(values: Array) -> None:
    np.exp(values, out=values)


def _log(values: Array) -> None:
    np.log(values, out=values)


def _tanh(values: Array) -> None:
    np.tanh(values, out=values)


def _artanh(values: Array) -> None:
    np.arctanh(values, out=values)


def _weights(values: Array) -> None:
    values[...] = weights_of(values)


def _log_odds(values: Array) -> None:
    values[...] = log_odds_of(values)


def _ends(values: Array) -> None:
    half = 0.5 * np.exp(values[..., 1])
    values[..., 1] = values[..., 0] + half
    values[..., 0] -= half


def _centre_and_distance(values: Array) -> None:
    apart = values[..., 1] - values[..., 0]
    values[..., 0] += 0.5 * apart
    values[..., 1] = np.log(apart)


SUPPORTS: Final = {
    REAL: Support(lambda values: None, lambda values: None),
    POSITIVE: Support(_exp, _log),
    CORRELATION: Support(_tanh, _artanh),
    SIMPLEX: Support(_weights, _log_odds),
    ORDERED: Support(_ends, _centre_and_distance),
}


def unit_default(rows: Rows, feature_names: Sequence[str], level: Level) -> list[FamilyPrior]:
    """Return the default prior of a standard deviation in the units of the response."""
    return [scale_prior(level.unit)]


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

    def __post_init__(self) -> None:
        """Refuse a support, a rule or an exponential that is none."""
        if self.support not in SUPPORTS or self.table_scale not in RULES:
            raise ConfigError(
                f"expected a support of {', '.join(SUPPORTS)} and a table_scale of "
                f"{', '.join(RULES[1:])} or '', found {self.support!r} and {self.table_scale!r} of "
                f"{self.name!r}: choose from these"
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
        """Return the support, and the name unless neighbours of it are transformed together."""
        return self.support, "" if self.support in (POSITIVE, CORRELATION) else self.name

    def size(self, n_features: int) -> int:
        """Return how many numbers it is."""
        return self.n_components * (n_features if self.per_feature else 1)

    def labels(self, feature_names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the labels of each component: one per feature, or a single one."""
        features = [(name,) for name in feature_names] if self.per_feature else [()]
        places = product(*(map(str, range(count)) for count in self.components))
        return tuple(tuple(self._label((*at, *own)) for own in features) for at in places)

    def describe(self) -> dict[str, Any]:
        """Return the statement as JSON types; of a default prior its description."""
        prior = self.default.describe() if isinstance(self.default, FamilyPrior) else None
        stated = {**vars(self), "components": list(self.components), "default": prior}
        if self.linear:  # as in the runs from before it could be stated
            del stated["linear"]
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


_LEAST = 1e-300


def weights_of(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first K - 1 weights (..., K - 1) of the log odds (..., K - 1)."""
    broken = -np.logaddexp(0.0, -u)
    left = np.cumsum(-np.logaddexp(0.0, u), axis=-1)
    broken[..., 1:] += left[..., :-1]
    weights: NDArray[np.float64] = np.exp(broken)
    return weights


def log_odds_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log odds (..., K - 1) of the first K - 1 weights; inverse of weights_of."""
    left = np.maximum(1.0 - np.cumsum(weights, axis=-1), _LEAST)
    u: NDArray[np.float64] = np.log(np.maximum(weights, _LEAST)) - np.log(left)
    return u


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


INTERCEPT: Final = "Intercept"
EFFECTS: Final = "effects"
"""Standard deviations of a group's intercept and slope, and their correlation if it is sampled:
``u_1 - u_2 mean_j / scale_j`` and ``u_2 / scale_j`` are the effects in the table's columns."""

FACTOR: Final = "factor"
"""Effects of the levels of factors and their scales, which stay as they are: their columns are
indicators. Exponentials of them are no ratios of one unit."""


class Block(NamedTuple):
    """Parameters that go to the table's scale together."""

    rule: str
    """One of ``models.parameters.RULES``, :data:`EFFECTS` or :data:`FACTOR`."""
    labels: tuple[str, ...]
    """One per feature, in their order; or a single one that all features share."""
    intercept: str = ""
    """Coefficients without an intercept: label of the one that a centred design implies.
    Effects: feature of the slope."""
    exponential: str = ""
    """What the exponential of a coefficient is, such as ``odds ratio``; empty: nothing."""


def parameter_blocks(parameters: Iterable[Parameter], features: Sequence[str]) -> tuple[Block, ...]:
    """Return a block per component of every parameter that a change of scale moves."""
    blocks = []
    for parameter in parameters:
        linear = parameter.table_scale == COEFFICIENT
        wider = parameter.labels((INTERCEPT, *features))
        for labels, (intercept, *_) in zip(parameter.labels(features), wider, strict=True):
            if parameter.table_scale and labels:
                implied = intercept if linear and INTERCEPT not in features else ""
                exponential = parameter.exponential or ""
                blocks.append(Block(parameter.table_scale, labels, implied, exponential))
    return tuple(blocks)


def stated(model: Model, features: Sequence[str]) -> tuple[Block, ...]:
    """Return the blocks of a model; without a statement its linear predictors alone."""
    statement = getattr(model, "table_scale", None)
    if statement is not None:
        return tuple(statement(features))
    q, labels = len(features), model.labels(features)
    wider = () if INTERCEPT in features else model.labels((INTERCEPT, *features))
    return tuple(
        Block(COEFFICIENT, labels[a * q : (a + 1) * q], wider[a * (q + 1)] if wider else "")
        for a in range(model.n_linear if q else 0)
    )


def describe(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return blocks as JSON."""
    return [{**block._asdict(), "labels": list(block.labels)} for block in blocks]


def from_description(described: Iterable[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Return the blocks that :func:`describe` described."""
    return tuple(Block(**{**entry, "labels": tuple(entry["labels"])}) for entry in described)
