"""Beta regression of shares: mean ``mu_i = 1 / (1 + exp(-eta_i))``, precision ``phi``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import logit

from streammc.models.base import POSITIVE, Parameter, ResidualScale, predictor
from streammc.models.responses import inner_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, half_student_t
from streammc.priors.scaled import logit_level
from streammc.protocols import Matrix, Vector


class Beta(DensityModel):
    """Beta regression; build it with :func:`beta`."""

    name: ClassVar[str] = "beta"
    residual_scale = ResidualScale("phi", -0.5, logit)
    level: ClassVar[Any] = staticmethod(logit_level)
    parameters = (
        predictor(exponential="odds ratio"),
        Parameter("phi", support=POSITIVE, default=half_student_t(3.0, 30.0)),
    )
    where: ClassVar[dict[str, str]] = {
        "a": "exp(within(log(phi) - log1pexp(-eta), 300))",
        "b": "exp(within(log(phi) - log1pexp(eta), 300))",
    }
    log_density: ClassVar[str] = (
        "log_gamma(phi) - log_gamma(a) - log_gamma(b) + (a - 1) * log(y) + (b - 1) * log1p(-y)"
    )
    mean_response: ClassVar[str] = "logistic(eta)"
    response_fault = staticmethod(inner_fault)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a share per column of ``eta`` (2, m), kept 1e-300 above 0 and 1e-16 below 1."""
        phi = np.exp(np.clip(eta[1], -300.0, 300.0))
        mu = 1.0 / (1.0 + np.exp(-np.clip(eta[0], -300.0, 300.0)))
        y = rng.beta(np.maximum(phi * mu, 1e-300), np.maximum(phi * (1.0 - mu), 1e-300))
        shares: Vector = np.clip(y, 1e-300, 1.0 - 1e-16)
        return shares


def beta(prior: PriorOption | None = None, varying: Names = ()) -> Beta:
    """Return beta regression of shares between 0 and 1, with variance ``mu (1 - mu) / (1 + phi)``.

    The default prior of ``phi`` is half-Student-t(3, 30).

    Parameters
    ----------
    varying
        ``"phi"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.
    """
    return Beta(as_prior(prior), varying=named(varying))
