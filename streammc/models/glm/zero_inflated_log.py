"""Counts with more zeros than their family has: zero-inflated and hurdle regressions.

Of a zero-inflated count the chance of a zero beyond those of the counts is ``zi``; of a hurdle
that of any zero is ``hu``, and the other counts are above 0 (Lambert 1992; Mullahy 1986). Both are
sampled and reported as log odds, which all rows share.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import POSITIVE, Parameter, predictor
from streammc.models.responses import count_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, normal
from streammc.priors.scaled import log_level
from streammc.protocols import Matrix, Vector

_MOST: Final = math.log(1e18)
"""Largest logarithm of a rate that can be drawn from."""


def _chances(log_odds: Vector) -> Vector:
    chances: Vector = np.exp(-np.logaddexp(0.0, -log_odds))
    return chances


def _log_odds(name: str) -> Parameter:
    """Return the log odds of a zero; their default prior is almost even over its chance.

    Without zeros beyond those of the counts, the likelihood tends to a constant as they fall.
    """
    return Parameter(name, default=normal(0.0, 1.5), instead_of_flat="normal(0, 1.5)")


class _Counts(DensityModel):
    """What counts with more zeros share."""

    level: ClassVar[Any] = staticmethod(log_level)
    response_fault = staticmethod(count_fault)
    parameters: Any = (predictor(exponential="rate ratio"), _log_odds("logit_zi"))
    log_density: ClassVar[str] = "0"
    mean_response: ClassVar[str] = "exp(eta - log1pexp(logit_zi))"


class ZeroInflatedPoisson(_Counts):
    """Zero-inflated Poisson regression; build it with :func:`zero_inflated_poisson`."""

    name: ClassVar[str] = "zero-inflated-poisson"
    where: ClassVar[dict[str, str]] = {
        "log_zi": "-log1pexp(-logit_zi)",
        "log_rest": "-log1pexp(logit_zi)",
        "mu": "exp(within(eta, 700))",
    }
    log_density: ClassVar[str] = (
        "log_add_exp(log_zi, log_rest - mu) if y == 0 "
        "else log_rest + y * eta - mu - log_factorial(y)"
    )

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a count per column of ``eta`` (2, m); rates are capped at 1e18."""
        counts = rng.poisson(np.exp(np.minimum(eta[0], _MOST))).astype(np.float64)
        return np.where(rng.random(eta.shape[1]) < _chances(eta[1]), 0.0, counts)


class ZeroInflatedNegativeBinomial(_Counts):
    """Zero-inflated regression; build it with :func:`zero_inflated_negative_binomial`."""

    name: ClassVar[str] = "zero-inflated-negative-binomial"
    parameters = (
        predictor(exponential="rate ratio"),
        Parameter("phi", support=POSITIVE, instead_of_flat="half_cauchy(scale=10)"),
        _log_odds("logit_zi"),
    )
    where: ClassVar[dict[str, str]] = {
        "log_zi": "-log1pexp(-logit_zi)",
        "log_rest": "-log1pexp(logit_zi)",
        "apart": "eta - log(phi)",
        "none": "-phi * log1pexp(apart)",
    }
    log_density: ClassVar[str] = (
        "log_add_exp(log_zi, log_rest + none) if y == 0 else log_rest + none"
        " + (log_gamma_ratio(phi, y) - log_factorial(y) - y * log1pexp(-apart))"
    )

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a count per column of ``eta`` (3, m); rates are capped at 1e18."""
        eta = self.as_stated(eta)
        phi = np.exp(np.clip(eta[1], -690.0, 30.0))  # gamma(e^30) is within 1e-6 of its mean
        with np.errstate(over="ignore", divide="ignore"):
            log_rate = eta[0] + np.log(rng.gamma(phi)) - np.log(phi)
        counts = rng.poisson(np.exp(np.minimum(log_rate, _MOST))).astype(np.float64)
        return np.where(rng.random(eta.shape[1]) < _chances(eta[2]), 0.0, counts)


class HurdlePoisson(_Counts):
    """Hurdle regression; build it with :func:`hurdle_poisson`."""

    name: ClassVar[str] = "hurdle-poisson"
    parameters = (predictor(exponential="rate ratio"), _log_odds("logit_hu"))
    where: ClassVar[dict[str, str]] = {
        "log_rest": "-log1pexp(logit_hu)",
        "mu": "exp(within(eta, 700))",
    }
    log_density: ClassVar[str] = (
        "-log1pexp(-logit_hu) if y == 0 "
        "else log_rest + (y * eta - mu - log1mexp(-mu) - log_factorial(y))"
    )
    mean_response: ClassVar[str] = "exp(log_rest + eta - log1mexp(-mu))"

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a count per column of ``eta`` (2, m); rates are capped at 1e18.

        A count above 0 is one more than those after the first event, whose time is exponential,
        cut at 1.
        """
        rate = np.exp(np.clip(eta[0], -700.0, _MOST))
        first = -np.log1p(rng.random(eta.shape[1]) * np.expm1(-rate)) / rate
        counts = 1.0 + rng.poisson(rate * np.clip(1.0 - first, 0.0, 1.0))
        return np.where(rng.random(eta.shape[1]) < _chances(eta[1]), 0.0, counts)


def zero_inflated_poisson(
    prior: PriorOption | None = None, varying: Names = ()
) -> ZeroInflatedPoisson:
    """Return Poisson regression of counts of which a share ``zi`` is always 0.

    The default prior of the log odds of ``zi`` is Normal(0, 1.5).

    Parameters
    ----------
    varying
        ``"logit_zi"``: it depends on the columns, through a linear predictor of its
        own.
    """
    return ZeroInflatedPoisson(as_prior(prior), varying=named(varying))


def zero_inflated_negative_binomial(
    prior: PriorOption | None = None, varying: Names = ()
) -> ZeroInflatedNegativeBinomial:
    """Return negative binomial regression of counts of which a share ``zi`` is always 0.

    The default prior of the log odds of ``zi`` is Normal(0, 1.5), that of ``phi``
    half-Student-t(3, 10).

    Parameters
    ----------
    varying
        ``"phi"`` or ``"logit_zi"``, or a list of both: they depend on the columns, each through a
        linear predictor of its own, of ``phi`` for its logarithm.
    """
    return ZeroInflatedNegativeBinomial(as_prior(prior), varying=named(varying))


def hurdle_poisson(prior: PriorOption | None = None, varying: Names = ()) -> HurdlePoisson:
    """Return regression of counts that are 0 with the chance ``hu``, and else Poisson above 0.

    The default prior of the log odds of ``hu`` is Normal(0, 1.5).

    Parameters
    ----------
    varying
        ``"logit_hu"``: it depends on the columns, through a linear predictor of its
        own.
    """
    return HurdlePoisson(as_prior(prior), varying=named(varying))
