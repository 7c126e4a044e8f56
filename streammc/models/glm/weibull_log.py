"""Weibull regression of times: ``P(y_i > t) = exp(-(t / exp(eta_i))^shape)``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from streammc.models.base import POSITIVE, Parameter, ResidualScale, predictor
from streammc.models.responses import time_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, half_student_t
from streammc.priors.scaled import time_level
from streammc.protocols import Matrix, Vector


class Weibull(DensityModel):
    """Weibull regression; build it with :func:`weibull`."""

    name: ClassVar[str] = "weibull"
    residual_scale = ResidualScale("shape", -1.0, np.log)
    level: ClassVar[Any] = staticmethod(time_level)
    parameters = (
        predictor(exponential="time ratio"),
        Parameter("shape", support=POSITIVE, default=half_student_t(3.0, 10.0)),
    )
    where: ClassVar[dict[str, str]] = {"z": "shape * (log(y) - eta)"}
    log_density: ClassVar[str] = "log(shape) - log(y) + within(z, 1e300) - exp(z)"
    log_survival: ClassVar[str | None] = "-exp(z)"
    mean_response: ClassVar[str] = "exp(eta + log_gamma(1 + 1 / shape))"
    response_fault = time_fault

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a time per column of ``eta`` (2, m), kept within exp(-690) and exp(690)."""
        standard = np.log(rng.standard_exponential(eta.shape[1]))
        with np.errstate(over="ignore"):
            log_y = eta[0] + standard * np.exp(-eta[1])
        y: Vector = np.exp(np.clip(log_y, -690.0, 690.0))
        return y


def weibull(prior: PriorOption | None = None, varying: Names = ()) -> Weibull:
    """Return Weibull regression: accelerated failure times, with proportional hazards.

    ``exp(beta)`` is a ratio of times; the hazard ratio is ``exp(-shape beta)``. The default prior
    of ``shape`` is half-Student-t(3, 10).

    Parameters
    ----------
    varying
        ``"shape"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.
    """
    return Weibull(as_prior(prior), varying=named(varying))
