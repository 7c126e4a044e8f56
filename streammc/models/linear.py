"""Base class of the models whose likelihood is a product over rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ConfigError, ModelError
from streammc.models.factor_model import FactorModel
from streammc.models.parameters import Parameter, predictor
from streammc.priors import as_prior, normal
from streammc.protocols import Index, Matrix, Prior, Rows, Vector

BETA: Final = predictor()


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


@dataclass(frozen=True)
class LinearModel(FactorModel):
    """Linear predictors ``eta_i = offset_i + x_i . beta``, shared parameters, a link.

    A family sets ``name`` and ``link_kernel``, states its parameters, and defines
    :meth:`response_fault`, :meth:`simulate` and, where zeros are a bad start, :meth:`start`.
    """

    prior: Prior = field(default_factory=scaled_prior)

    name: ClassVar[str]
    link_kernel: ClassVar[Any]
    sums_kernel: ClassVar[Any] = None
    analytic: ClassVar[bool] = False
    """Whether the log-likelihood of a row is an analytic function of its only predictor."""
    separable: ClassVar[bool] = True
    """Whether coefficients run away where the columns tell the response."""
    log_concave: ClassVar[bool] = False
    """Whether the log-likelihood is concave in theta, so that most priors leave one mode."""
    location_scale: ClassVar[bool] = False
    """Whether a response fitted without error leaves the first scale to its prior alone."""
    relative_scale: ClassVar[bool] = False
    """Whether the logarithm of a response fitted without error does so to a shape."""
    heavy_tailed: ClassVar[bool] = False
    """Whether rows far from their predictor count little: most rows may leave a scale at 0."""
    multimodal: ClassVar[bool] = False
    """Whether components or units may be exchanged, so that chains that agree prove little."""
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
    def sees_columns(self) -> bool:
        """Return whether the link uses the columns of rows, and not their predictors alone."""
        return self.n_linear == 0

    @property
    def exact_sums(self) -> Any:
        """Return the compiled log-likelihood of the Taylor sums, where it is exact."""
        return type(self).sums_kernel

    @property
    def joint(self) -> Any:
        """Return ``None``: the likelihood is a product over rows."""
        return None

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
        """Return the name, the prior and factors with a sampled scale as JSON types."""
        described = {"name": self.name, "prior": self.prior.describe()}
        return described | self.described_factors()
