"""What regressions with one linear predictor share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, ModelError
from streammc.models.table_scale import Block, coefficient_blocks
from streammc.priors import FamilyPrior, as_prior, normal
from streammc.priors.either import refuse_flat
from streammc.priors.family import NO_DEFAULTS
from streammc.priors.scaled import Level, coefficients, scale_prior
from streammc.protocols import Index, Matrix, Model, Prior, Rows, Vector


def default_prior() -> Prior:
    """Return Normal(0, 10) on every coefficient: the default where none scales with the data."""
    return normal(scale=10.0)


def scaled_prior() -> Prior:
    """Return the default priors, which scale with the data."""
    return as_prior(None)


MOST_PREDICTORS: Final = 256
"""A row's expansion is then 33,153 numbers, and the buffers of a chain 140 MB."""


def refuse_many_predictors(p: int, what: str) -> None:
    """Raise ConfigError where an expansion in ``p`` predictors is too wide."""
    if p > MOST_PREDICTORS:
        raise ConfigError(
            f"expected at most {MOST_PREDICTORS} {what}, found {p}: every row has a Hessian of "
            f"{p} x {p}; make the model smaller"
        )


def _unknown_level(rows: Rows) -> Level:
    """Return the level where the link is not known."""
    return Level()


@dataclass(frozen=True)
class LinearModel(ABC):
    """One linear predictor ``eta_i = offset_i + x_i . beta``, shared parameters, a link.

    A family sets ``name`` and ``link_kernel``, names the parameters that all rows share,
    and defines :meth:`response_fault`, :meth:`simulate` and, where zeros are a bad start,
    :meth:`start`. Shared parameters are ``locations``, sampled as they are, and
    ``scales``, positive and sampled as their logarithms; theta holds the coefficients,
    then the locations, then the scales.
    """

    prior: Prior = field(default_factory=scaled_prior)

    name: ClassVar[str]
    level: ClassVar[Any] = staticmethod(_unknown_level)
    """Location and scale of a linear predictor, from rows: see ``priors.scaled.Level``."""
    fixed_defaults: ClassVar[Mapping[str, FamilyPrior]] = NO_DEFAULTS
    """Priors of positive parameters that neither the user names nor the data scale."""
    proper_only: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Parameters at whose infinity the likelihood is above 0, and a prior to write."""
    response_scales: ClassVar[tuple[str, ...]] = ()
    """The scale parameters that are in the units of the response."""
    link_kernel: ClassVar[Any]
    n_linear: ClassVar[int] = 1
    sums_kernel: ClassVar[Any] = None
    analytic: ClassVar[bool] = False
    """Whether the log-likelihood of a row is an analytic function of its only predictor."""
    separable: ClassVar[bool] = True
    """Whether coefficients run away where the columns tell the response."""
    log_concave: ClassVar[bool] = False
    """Whether the log-likelihood is concave in theta, so that most priors leave one mode."""
    location_scale: ClassVar[bool] = False
    """Whether a response fitted without error leaves ``scales[0]`` to its prior alone."""
    multimodal: ClassVar[bool] = False
    """Whether components or units may be exchanged, so that chains that agree prove little."""
    exponential: ClassVar[str] = ""
    """What the exponential of a coefficient is, such as ``odds ratio``."""
    derivative_bounds: ClassVar[tuple[float, ...]] = ()
    """What no derivative of the log-likelihood of a row in its linear predictor exceeds, of
    order 1, 2, ...; those that are known."""

    def __post_init__(self) -> None:
        """Turn a mapping into a prior by name; refuse what is not a prior."""
        object.__setattr__(self, "prior", as_prior(self.prior))

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return type(self).link_kernel

    @property
    def exact_sums(self) -> Any:
        """Return the compiled log-likelihood of the Taylor sums, where it is exact."""
        return type(self).sums_kernel

    @property
    def joint(self) -> Any:
        """Return ``None``: the likelihood is a product over rows."""
        return None

    @property
    def locations(self) -> tuple[str, ...]:
        """Return the names of the shared parameters that may have any sign."""
        return ()

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the names of the shared parameters that are positive."""
        return ()

    @property
    def constants(self) -> Vector:
        """Return (c,) numbers that the link needs; none here."""
        return np.zeros(0)

    @property
    def n_scalar(self) -> int:
        """Return the number of shared parameters."""
        return len(self.locations) + len(self.scales)

    def dim(self, n_features: int) -> int:
        """Return the number of coefficients and shared parameters."""
        return self.n_linear * n_features + self.n_scalar

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return ``beta[feature]`` for every feature, then the shared parameters."""
        return (*(f"beta[{name}]" for name in feature_names), *self.locations, *self.scales)

    def table_scale(self, feature_names: Sequence[str]) -> tuple[Block, ...]:
        """Return how the coefficients go to the table's scale; shared parameters stay."""
        return coefficient_blocks(cast(Model, self), feature_names, self.exponential)

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) with the scale parameters exponentiated."""
        values = np.array(theta, dtype=np.float64)
        at = values.shape[-1] - len(self.scales)
        np.exp(values[..., at:], out=values[..., at:])
        return values

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d): the logarithms of the scale parameters."""
        theta = np.array(values, dtype=np.float64)
        at = theta.shape[-1] - len(self.scales)
        np.log(theta[..., at:], out=theta[..., at:])
        return theta

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior, a row per label."""
        table = self.prior.table(labels, self.positive_flags(labels), self.fixed_defaults)
        refuse_flat(labels, table, self.proper_only)
        return table

    def positive_flags(self, labels: Sequence[str]) -> list[bool]:
        """Return whether each parameter with a prior by name is positive."""
        n = len(self.scales)
        return [False] * (len(labels) - n) + [True] * n

    def default_priors(
        self, labels: Sequence[str], feature_names: Sequence[str], rows: Rows
    ) -> dict[str, FamilyPrior]:
        """Return the default priors that scale with the data, by label.

        The others are fixed: ``priors.by_name``. ``rows`` stand for all rows, those with an
        invalid response left out.
        """
        if not self.n_linear:
            return {}
        level = type(self).level(rows)
        each = coefficients(rows, feature_names, level)
        found = dict(zip(labels, each * self.n_linear, strict=False))
        return found | {name: scale_prior(level.unit) for name in self.response_scales}

    @abstractmethod
    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return the offending positions and what was expected, or ``None``."""

    @abstractmethod
    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m)."""

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m).

        Raises
        ------
        ModelError
            If the family does not define one.
        """
        raise ModelError(
            f"expected the model {self.name!r} to have a mean response, found none: it cannot "
            "predict; use a model that has one"
        )

    def start(self, rows: Rows) -> Vector:
        """Return zeros (q,): finite for every bounded link."""
        return np.zeros(self.dim(rows.X.shape[1]))

    def describe(self) -> dict[str, Any]:
        """Return the name and the prior as JSON types."""
        return {"name": self.name, "prior": self.prior.describe()}
