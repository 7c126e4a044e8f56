"""What generalised linear models with one linear predictor share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from streammc.errors import ConfigError
from streammc.priors import normal
from streammc.protocols import Index, Matrix, Prior, Rows, Vector


def default_prior() -> Prior:
    """Return Normal(0, 10) on every coefficient."""
    return normal(scale=10.0)


@dataclass(frozen=True)
class LinearModel(ABC):
    """One linear predictor ``eta_i = offset_i + x_i . beta`` and a link.

    A family sets ``name`` and ``link_kernel``, and defines :meth:`response_fault`,
    :meth:`simulate` and, where zeros are a bad start, :meth:`start`.
    """

    prior: Prior = field(default_factory=default_prior)

    name: ClassVar[str]
    link_kernel: ClassVar[Any]
    n_linear: ClassVar[int] = 1
    n_scalar: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Refuse what is not a prior."""
        if not (hasattr(self.prior, "table") and hasattr(self.prior, "describe")):
            raise ConfigError(
                f"prior must be built by streammc.priors, found {type(self.prior).__name__}: "
                "write priors.normal(scale=10.0)"
            )

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return type(self).link_kernel

    def dim(self, n_features: int) -> int:
        """Return the number of coefficients: one per feature."""
        return n_features

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return ``beta[feature]`` for every feature."""
        return tuple(f"beta[{feature}]" for feature in feature_names)

    @abstractmethod
    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return the offending positions and what was expected, or ``None``."""

    @abstractmethod
    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (1, m)."""

    def start(self, rows: Rows) -> Vector:
        """Return zeros (q,): finite for every bounded link."""
        return np.zeros(rows.X.shape[1])

    def describe(self) -> dict[str, Any]:
        """Return the name and the prior as JSON types."""
        return {"name": self.name, "prior": self.prior.describe()}
