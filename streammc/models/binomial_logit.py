"""Binomial regression: ``n_i y_i ~ Binomial(n_i, 1 / (1 + exp(-eta_i)))``."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.linear import LinearModel, default_prior
from streammc.models.responses import proportion_fault
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log1p_unit
from streammc.priors import PriorOption, as_prior
from streammc.protocols import Index, Matrix, Vector

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
    exponential: ClassVar[str] = "odds ratio"
    link_kernel: ClassVar[Any] = link

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is not in [0, 1]."""
        return proportion_fault(y)

    def mean(self, eta: Matrix) -> Vector:
        """Return ``1 / (1 + exp(-eta))``, the chance of a success, per column of ``eta`` (1, m)."""
        from scipy.special import expit

        chance: Vector = expit(eta[0])
        return chance

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw the result of one trial, 0 or 1, per column of ``eta`` (1, m)."""
        y: Vector = (rng.logistic(size=eta.shape[1]) < eta[0]).astype(np.float64)
        return y


def binomial(prior: PriorOption | None = None) -> Binomial:
    """Return binomial regression of proportions with the trials as weights.

    A row with ``n`` trials and ``k`` successes has the response ``k / n`` and the weight
    ``n``: its log-likelihood is ``k eta - n log(1 + exp(eta))``.

    Parameters
    ----------
    prior
        Prior of the coefficients, or a mapping from their names to priors; ``None`` is
        Normal(0, 10).

    Raises
    ------
    ConfigError
        If ``prior`` is not a prior.

    Examples
    --------
    >>> from streammc.models import binomial
    >>> binomial().dim(3)
    3
    """
    return Binomial(default_prior() if prior is None else as_prior(prior))
