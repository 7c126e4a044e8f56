"""Poisson regression: ``y_i ~ Poisson(exp(eta_i))``."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import LinearModel, predictor
from streammc.models.glm.least_squares import least_squares
from streammc.models.responses import count_fault, exponential_mean
from streammc.models.third_derivative import BOUND_SIGNATURE
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log_factorial
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import log_level
from streammc.protocols import Matrix, Rows, Vector

_MAX_ETA: Final = 710.0
"""Its exponential overflows, so that the log-likelihood is -inf at and above it."""
_MAX_RATE: Final = 1e18
"""Largest rate that :meth:`Poisson.simulate` can draw from."""


@inline
def _row(eta, y):  # type: ignore[no-untyped-def]
    """Return ``y eta - exp(eta)`` and ``exp(eta)``; never ``inf - inf`` or ``0 inf``."""
    bounded = _MAX_ETA if eta > _MAX_ETA else eta
    rate = exp(bounded)
    return (0.0 if y == 0.0 else y * bounded) - rate, rate


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``y eta - exp(eta) - log y!`` and its derivatives; see ``protocols.Model``.

    Stated for whole ``y >= 0``. Absolute error below 1e-15 of the largest of the three
    terms. Where ``exp(eta)`` overflows all three results are ``-inf``.
    """
    predictor = eta[0]
    value = out[0]
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _ = _row(predictor[i], y[i])
    elif order == 1:
        slope = out[1]
        for i in range(y.shape[0]):
            value[i], rate = _row(predictor[i], y[i])
            slope[i] = y[i] - rate
    else:
        slope = out[1]
        curve = out[2]
        for i in range(y.shape[0]):
            value[i], rate = _row(predictor[i], y[i])
            slope[i] = y[i] - rate
            curve[i] = -rate
    # Apart from the loops above: the table keeps a loop from being vectorised.
    for i in range(y.shape[0]):
        value[i] -= log_factorial(y[i])


@jit(BOUND_SIGNATURE, borrow=True)
def third_derivative(eta, reach, y, constants, out):  # type: ignore[no-untyped-def]
    """Write the largest ``exp(eta)`` within reach; see ``models.third_derivative``."""
    for i in range(eta.shape[0]):
        out[i] = exp(min(eta[i] + reach[i], _MAX_ETA))


class Poisson(LinearModel):
    """Poisson regression; build it with :func:`poisson`."""

    name: ClassVar[str] = "poisson"
    sufficient: ClassVar[str | None] = "counts"
    log_concave: ClassVar[bool] = True
    level: ClassVar[Any] = staticmethod(log_level)
    link_kernel: ClassVar[Any] = link
    mean = staticmethod(exponential_mean)
    response_fault = staticmethod(count_fault)
    parameters = (predictor(exponential="rate ratio"),)
    if_overdispersed: ClassVar[str] = (
        "take negative-binomial, whose phi says how much more they vary"
    )
    analytic: ClassVar[bool] = True
    third_derivative: ClassVar[Any] = staticmethod(third_derivative)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a count per column of ``eta`` (1, m); rates are capped at 1e18."""
        rate = np.exp(np.minimum(eta[0], math.log(_MAX_RATE)))
        counts: Vector = rng.poisson(rate).astype(np.float64)
        return counts

    def start(self, rows: Rows) -> Vector:
        """Return the best of three starts, (q,).

        They are: weighted least squares of ``log(y + 1/2) - offset`` with the weights
        ``y + 1/2`` (one step of iterated least squares); the constant rate, as far as
        the columns can express a constant; zeros. A covariate with heavy tails can
        make the first overflow, hence the others.
        """
        shifted = rows.y + 0.5
        starts = [
            np.zeros(rows.X.shape[1]),
            least_squares(rows.X, _constant_predictor(rows), rows.weight),
            least_squares(rows.X, np.log(shifted) - rows.offset, rows.weight * shifted),
        ]
        return max(starts, key=lambda beta: self._log_lik(rows, beta))

    def _log_lik(self, rows: Rows, beta: Vector) -> float:
        """Return the log-likelihood, -inf where it is not finite."""
        if not np.isfinite(beta).all():
            return -math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            eta = np.ascontiguousarray((rows.X @ beta + rows.offset)[None, :])
        out = np.empty((3, rows.y.shape[0]))
        self.link(eta, rows.X.T, np.ascontiguousarray(rows.y), self.constants, 0, out)
        used = rows.weight > 0.0
        total = float(rows.weight[used] @ out[0, used])
        return total if math.isfinite(total) else -math.inf


def _constant_predictor(rows: Rows) -> Vector:
    """Return (m,) ``log(sum y / sum exp(offset))``, half a count added."""
    shift = float(rows.offset.max(initial=0.0))
    exposure = float(rows.weight @ np.exp(rows.offset - shift))
    level = math.log((float(rows.weight @ rows.y) + 0.5) / max(exposure, 1e-300)) - shift
    return np.full(rows.y.shape[0], level)


def poisson(prior: PriorOption | None = None) -> Poisson:
    """Return Poisson regression, ``log p(y | eta) = y eta - exp(eta) - log y!``.

    Log exposure goes into the store's offset.

    Examples
    --------
    >>> from streammc.models import poisson
    >>> poisson().dim(3)
    3
    """
    return Poisson(as_prior(prior))
