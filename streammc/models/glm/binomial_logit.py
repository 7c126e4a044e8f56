"""Binomial regression: ``n_i y_i ~ Binomial(n_i, 1 / (1 + exp(-eta_i)))``."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import LinearModel, predictor
from streammc.models.glm.bernoulli_logit import mean_chance, third_derivative
from streammc.models.responses import proportion_fault, share_fault
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log1p_unit
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import logit_level
from streammc.protocols import Matrix, Vector

_LARGEST: Final = 1e300


@inline
def _row(eta, y):  # type: ignore[no-untyped-def]
    """Value, derivative and curvature of ``y eta - log(1 + exp(eta))``, y in [0, 1].

    ``-y |eta| - log(1 + exp(-|eta|))`` below 0, with ``1 - y`` for ``y`` above: two terms
    of one sign.
    """
    size = abs(eta)
    bounded = _LARGEST if size > _LARGEST else size  # 0 inf is NaN
    e = exp(-size)
    below = eta < 0.0
    u = 1.0 + e
    value = -((y if below else 1.0 - y) * bounded + log1p_unit(e))
    slope = y * ((1.0 if below else e) / u) - (1.0 - y) * ((e if below else 1.0) / u)
    return value, slope, -e / (u * u)


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log-likelihood of one trial and its derivatives; see ``protocols.Model``.

    Stated for y in [0, 1], the proportion of successes among as many trials as the row
    weighs; ``log C(n, n y)``, which depends on no parameter, is left out.
    """
    predictor = eta[0]
    value = out[0]
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _, _ = _row(predictor[i], y[i])
    elif order == 1:
        slope = out[1]
        for i in range(y.shape[0]):
            value[i], slope[i], _ = _row(predictor[i], y[i])
    else:
        slope = out[1]
        curve = out[2]
        for i in range(y.shape[0]):
            value[i], slope[i], curve[i] = _row(predictor[i], y[i])


class Binomial(LinearModel):
    """Binomial regression; build it with :func:`binomial`."""

    name: ClassVar[str] = "binomial"
    log_concave: ClassVar[bool] = True
    level: ClassVar[Any] = staticmethod(logit_level)
    link_kernel: ClassVar[Any] = link
    response_fault = staticmethod(proportion_fault)
    share_fault = staticmethod(share_fault)
    mean = staticmethod(mean_chance)
    parameters = (predictor(exponential="odds ratio"),)
    analytic: ClassVar[bool] = True
    third_derivative: ClassVar[Any] = staticmethod(third_derivative)
    takes_trials: ClassVar[bool] = True
    if_overdispersed: ClassVar[str] = (
        "take beta-binomial, whose chance varies between rows, or give groups of rows that have "
        "something in common, (1 | group)"
    )

    def log_constant(self, y: Vector, trials: Vector) -> float | None:
        """Return ``sum log C(n, n y)``, which the link leaves out.

        ``None`` where ``trials`` are not whole numbers of trials with ``n y`` successes.
        """
        from scipy.special import gammaln

        successes = y * trials
        for counts in (trials, successes):
            if (np.abs(counts - np.rint(counts)) > 1e-6 * np.maximum(counts, 1.0)).any():
                return None
        failures = trials - successes
        logs = gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(failures + 1.0)
        return float(logs.sum())

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw the result of one trial, 0 or 1, per column of ``eta`` (1, m)."""
        y: Vector = (rng.logistic(size=eta.shape[1]) < eta[0]).astype(np.float64)
        return y

    def simulate_trials(self, eta: Matrix, trials: Vector, rng: np.random.Generator) -> Vector:
        """Draw the share of successes of ``trials`` (m,), rounded, per column of ``eta`` (1, m)."""
        count = np.maximum(np.rint(trials), 1.0)
        y: Vector = rng.binomial(count.astype(np.int64), self.mean(eta)) / count
        return y


def binomial(prior: PriorOption | None = None) -> Binomial:
    """Return binomial regression of proportions with the trials as weights.

    A row with ``n`` trials and ``k`` successes has the response ``k / n`` and the weight
    ``n``: its log-likelihood is ``k eta - n log(1 + exp(eta))``.

    Examples
    --------
    >>> from streammc.models import binomial
    >>> binomial().dim(3)
    3
    """
    return Binomial(as_prior(prior))
