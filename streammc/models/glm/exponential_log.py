"""Exponential regression of waiting times: mean ``mu_i = exp(eta_i)``, rate ``1 / mu_i``.

Of a time ``t`` that is censored, which a store keeps as ``y = -t``, it has ``log P(y_i > t)``.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import LinearModel, predictor
from streammc.models.glm.least_squares import least_squares
from streammc.models.responses import exponential_mean
from streammc.models.third_derivative import BOUND_SIGNATURE
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, select, within
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import time_level
from streammc.protocols import Index, Matrix, Rows, Vector

_LARGEST: Final = 1e300
_HALF: Final = 512.0
"""Beyond it, either way, the exponential of a predictor is a product of two."""
_EXP_HALF: Final = math.exp(_HALF)


@inline
def _row(eta, y):  # type: ignore[no-untyped-def]
    """Return the value, ``t exp(-eta)`` and the events of a row; never ``inf - inf`` or ``0 inf``.

    The time ``t`` is ``|y|``, and ``y < 0`` is no event.
    """
    bounded = within(eta, 1024.0)
    shift = select(bounded > _HALF, _HALF, select(bounded < -_HALF, -_HALF, 0.0))
    factor = select(bounded > _HALF, 1.0 / _EXP_HALF, select(bounded < -_HALF, _EXP_HALF, 1.0))
    ratio = abs(y) * exp(shift - bounded) * factor
    value = select(y < 0.0, 0.0, -within(eta, _LARGEST)) - ratio
    return value, ratio, select(y < 0.0, 0.0, 1.0)


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``-eta - y exp(-eta)`` and its derivatives; see ``protocols.Model``.

    Of ``y < 0``, a censored time, ``y exp(-eta)``. Relative error below 1e-15 of the larger term.
    """
    predictor = eta[0]
    value = out[0]
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _, _ = _row(predictor[i], y[i])
    elif order == 1:
        slope = out[1]
        for i in range(y.shape[0]):
            value[i], ratio, events = _row(predictor[i], y[i])
            slope[i] = ratio - events
    else:
        slope = out[1]
        curve = out[2]
        for i in range(y.shape[0]):
            value[i], ratio, events = _row(predictor[i], y[i])
            slope[i] = ratio - events
            curve[i] = -ratio


@jit(BOUND_SIGNATURE, borrow=True)
def third_derivative(eta, reach, y, constants, out):  # type: ignore[no-untyped-def]
    """Write the largest ``|y| exp(-eta)`` within reach; see ``models.third_derivative``."""
    for i in range(eta.shape[0]):
        _, out[i], _ = _row(eta[i] - reach[i], y[i])


class Exponential(LinearModel):
    """Exponential regression; build it with :func:`exponential`."""

    name: ClassVar[str] = "exponential"
    takes_censored: ClassVar[bool] = True
    sufficient: ClassVar[str | None] = "mean"
    log_concave: ClassVar[bool] = True
    level: ClassVar[Any] = staticmethod(time_level)
    link_kernel: ClassVar[Any] = link
    parameters = (predictor(exponential="mean ratio"),)
    mean = staticmethod(exponential_mean)
    if_overdispersed: ClassVar[str] = "take gamma or weibull, whose shape is free"
    analytic: ClassVar[bool] = True
    third_derivative: ClassVar[Any] = staticmethod(third_derivative)

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is not finite, or below 0 and no censored time."""
        wrong = np.flatnonzero(~(((y >= 0.0) | self.censored) & np.isfinite(y)))
        return (wrong, "finite numbers from 0") if wrong.size else None

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a waiting time per column of ``eta`` (1, m); means are capped at exp(690)."""
        times: Vector = np.exp(np.minimum(eta[0], 690.0)) * rng.standard_exponential(eta.shape[1])
        return times

    def start(self, rows: Rows) -> Vector:
        """Return the best of three starts, (q,).

        They are: zeros; the constant mean, as far as the columns can express a constant; and
        one step of iterated least squares from there, whose weights are equal.
        """
        level = np.full(len(rows.y), time_level(rows).location)
        ratio = np.where(rows.weight > 0.0, np.abs(rows.y), 0.0) * np.exp(-level - rows.offset)
        starts = [
            np.zeros(rows.X.shape[1]),
            least_squares(rows.X, level, rows.weight),
            least_squares(rows.X, level + np.minimum(ratio, _HALF) - (rows.y >= 0.0), rows.weight),
        ]
        return max(starts, key=lambda beta: self._log_lik(rows, beta))

    def _log_lik(self, rows: Rows, beta: Vector) -> float:
        """Return the log-likelihood, -inf where it is not finite."""
        used = rows.weight > 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            eta = rows.X[used] @ beta + rows.offset[used]
            events = rows.y[used] >= 0.0
            lost = np.where(events, eta, 0.0) + np.abs(rows.y[used]) * np.exp(-eta)
            total = -float(rows.weight[used] @ lost)
        return total if math.isfinite(total) else -math.inf


def exponential(prior: PriorOption | None = None) -> Exponential:
    """Return exponential regression, ``log p(y | eta) = -eta - y exp(-eta)``.

    A known factor of the mean goes into the store's offset, as its logarithm.

    Examples
    --------
    >>> from streammc.models import exponential
    >>> exponential().dim(3)
    3
    """
    return Exponential(as_prior(prior))
