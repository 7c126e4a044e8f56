"""Log-normal regression: ``log y_i ~ Normal(eta_i, sigma)``, median ``exp(eta_i)``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from streammc.models.base import POSITIVE, Parameter, ResidualScale, predictor, unit_default
from streammc.models.responses import time_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import Level, response_level
from streammc.protocols import Matrix, Rows, Vector


def _log_response_level(rows: Rows) -> Level:
    """Return the level of a predictor in the units of the log response."""
    return response_level(rows._replace(y=np.log(np.abs(rows.y))))


class Lognormal(DensityModel):
    """Log-normal regression; build it with :func:`lognormal`."""

    name: ClassVar[str] = "lognormal"
    residual_scale = ResidualScale("sigma", 1.0, np.log)
    level: ClassVar[Any] = staticmethod(_log_response_level)
    parameters = (
        predictor(exponential="median ratio"),
        Parameter("sigma", support=POSITIVE, default=unit_default),
    )
    where: ClassVar[dict[str, str]] = {"z": "(log(y) - eta) / sigma"}
    log_density: ClassVar[str] = "-0.5 * z**2 - log(sigma) - 0.5 * log(2 * pi) - log(y)"
    log_survival: ClassVar[str | None] = "log_ndtr(-z)"
    mean_response: ClassVar[str] = "exp(eta + 0.5 * sigma**2)"
    response_fault = time_fault

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2, m), kept within exp(-690) and exp(690)."""
        with np.errstate(over="ignore"):
            location = eta[0] + np.exp(eta[1]) * rng.standard_normal(eta.shape[1])
        y: Vector = np.exp(np.clip(location, -690.0, 690.0))
        return y


def lognormal(prior: PriorOption | None = None, varying: Names = ()) -> Lognormal:
    """Return log-normal regression, of amounts whose errors multiply.

    The default priors are those of ``gaussian`` for the logarithm of the response.

    Parameters
    ----------
    varying
        ``"sigma"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.
    """
    return Lognormal(as_prior(prior), varying=named(varying))
