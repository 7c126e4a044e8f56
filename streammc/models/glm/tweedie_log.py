"""Tweedie regression: mean ``mu_i = exp(eta_i)``, variance ``phi mu^p``, ``1 < p < 2``.

A sum of a Poisson number of gamma variables, such as the claims of a policy in a year: it is 0 with
the chance ``exp(-mu^(2 - p) / (phi (2 - p)))`` and else continuous (Jorgensen 1987). The power is
sampled and reported as the log odds of ``p - 1``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from streammc.models.base import POSITIVE, Parameter, predictor
from streammc.models.responses import amount_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, half_student_t, normal
from streammc.priors.families import FamilyPrior
from streammc.priors.scaled import Level, log_level, rounded
from streammc.protocols import Matrix, Rows, Vector


def _phi_default(rows: Rows, feature_names: Sequence[str], level: Level) -> list[FamilyPrior]:
    """Return half-Student-t(3, 10 mu^(1/2)): phi has the unit of ``mu^(2 - p)``."""
    return [half_student_t(3.0, rounded(10.0 * math.exp(0.5 * level.location)))]


class Tweedie(DensityModel):
    """Tweedie regression; build it with :func:`tweedie`."""

    name: ClassVar[str] = "tweedie"
    level: ClassVar[Any] = staticmethod(log_level)
    parameters = (
        predictor(exponential="mean ratio"),
        Parameter("phi", support=POSITIVE, default=_phi_default),
        Parameter("logit_power", default=normal(0.0, 1.5), instead_of_flat="normal(0, 1.5)"),
    )
    where: ClassVar[dict[str, str]] = {
        "odds": "within(logit_power, 15)",
        "s": "logistic(odds)",  # p - 1
        "r": "logistic(-odds)",  # 2 - p
        "log_xi": "within(log(phi) - r * log(y), 300)",
        "away": "within(eta, 1e6) - log(y)",
        "low": "within(-s * away, 300)",
        "high": "within(r * away, 300)",
    }
    log_density: ClassVar[str] = (
        "-exp(within(r * eta - log(phi), 600)) / r if y == 0 else "
        "log_tweedie(log_xi, odds) - log(y) - exp(-log_xi) * (excess(low) / s + excess(high) / r)"
    )
    mean_response: ClassVar[str] = "exp(eta)"
    response_fault = staticmethod(amount_fault)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (3, m), at most 1e300.

        Of more than 1e15 gamma variables their number is its mean.
        """
        eta = self.as_stated(eta)
        log_mu, log_phi = np.clip(eta[0], -600.0, 600.0), np.clip(eta[1], -600.0, 600.0)
        odds = np.clip(eta[2], -15.0, 15.0)
        s, r = 1.0 / (1.0 + np.exp(-odds)), 1.0 / (1.0 + np.exp(odds))
        log_number = r * log_mu - log_phi - np.log(r)
        number = np.exp(np.minimum(log_number, 700.0))
        few = number < 1e15
        number = np.where(few, rng.poisson(np.where(few, number, 0.0)), number)
        shape = np.minimum(number * np.exp(-odds), 1e300)
        with np.errstate(over="ignore", divide="ignore"):
            # A gamma variable of a small shape is one of a larger shape times a power of a uniform.
            log_size = np.log(rng.gamma(shape + 1.0)) + np.log(rng.random(len(shape))) / shape
            y = np.exp(np.minimum(log_size + log_phi + np.log(s) + s * log_mu, 690.0))
        bounded: Vector = np.where(number > 0.0, np.maximum(y, 1e-300), 0.0)
        return bounded


def tweedie(prior: PriorOption | None = None, varying: Names = ()) -> Tweedie:
    """Return Tweedie regression, of amounts many of which are 0, such as claims and rain.

    The power p of ``phi mu^p`` is sampled as ``logit_power``, the log odds of ``p - 1``, whose
    default prior is Normal(0, 1.5): almost even over p between 1 and 2. That of ``phi``
    is half-Student-t(3, 10) in units of the square root of the mean response.

    Parameters
    ----------
    varying
        ``"phi"``, ``"logit_power"``, or a list of both: they depend on the columns, each through
        a linear predictor of its own, of ``phi`` for its logarithm.
    """
    return Tweedie(as_prior(prior), varying=named(varying))
