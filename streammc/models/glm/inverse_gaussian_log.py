"""Inverse Gaussian regression: mean ``mu_i = exp(eta_i)``, variance ``mu^3 / shape``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from streammc.models.base import POSITIVE, Parameter, ResidualScale, predictor
from streammc.models.responses import positive_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, half_student_t
from streammc.priors.families import FamilyPrior
from streammc.priors.scaled import Level, log_level
from streammc.protocols import Matrix, Rows, Vector


def _shape_default(rows: Rows, feature_names: Sequence[str], level: Level) -> list[FamilyPrior]:
    """Return half-Student-t(3, 10) for the shape in units of the mean, as that of gamma."""
    return [half_student_t(3.0, 10.0 * math.exp(level.location))]


class InverseGaussian(DensityModel):
    """Inverse Gaussian regression; build it with :func:`inverse_gaussian`."""

    name: ClassVar[str] = "inverse-gaussian"
    residual_scale = ResidualScale("shape", -0.5, np.log)
    level: ClassVar[Any] = staticmethod(log_level)
    parameters = (
        predictor(exponential="mean ratio"),
        Parameter("shape", support=POSITIVE, default=_shape_default),
    )
    log_density: ClassVar[str] = (
        "0.5 * (log(shape) - log(2 * pi) - 3 * log(y)) - 0.5 * shape * (y * exp(-eta) - 1)**2 / y"
    )
    mean_response: ClassVar[str] = "exp(eta)"
    response_fault = staticmethod(positive_fault)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2, m), kept within 1e-300 and 1e300."""
        mu, shape = np.exp(np.clip(eta, -300.0, 300.0))
        bounded: Vector = np.clip(rng.wald(mu, shape), 1e-300, 1e300)
        return bounded


def inverse_gaussian(prior: PriorOption | None = None, varying: Names = ()) -> InverseGaussian:
    """Return inverse Gaussian regression, for times and amounts with a long right tail.

    The default prior of ``shape`` is half-Student-t(3, 10) in units of the mean response.

    Parameters
    ----------
    varying
        ``"shape"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.
    """
    return InverseGaussian(as_prior(prior), varying=named(varying))
