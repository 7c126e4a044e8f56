"""Base class of the models of the columns themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streammc.models.linear import LinearModel
from streammc.protocols import Index, Matrix, Vector


@dataclass(frozen=True)
class ColumnsModel(LinearModel):
    """A density of the columns of a row: there is no response and no linear predictor."""

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return ``None``: there is no response."""
        return None

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Return zeros (m,): the observations are the columns, not the response."""
        return np.zeros(eta.shape[1])
