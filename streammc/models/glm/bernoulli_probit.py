"""Probit regression: ``P(y_i = 1) = Phi(eta_i)``."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import LinearModel
from streammc.models.responses import binary_fault
from streammc.models.third_derivative import BOUND_SIGNATURE
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import log_ndtr_parts
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import probit_level
from streammc.protocols import Matrix, Vector


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``log Phi((2 y - 1) eta)`` and its derivatives; see ``protocols.Model``.

    Stated for y in {0, 1}; relative error below 1e-14 for every eta.
    """
    predictor = eta[0]
    value = out[0]
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _, _ = log_ndtr_parts((2.0 * y[i] - 1.0) * predictor[i])
    elif order == 1:
        slope = out[1]
        for i in range(y.shape[0]):
            sign = 2.0 * y[i] - 1.0
            value[i], mills, _ = log_ndtr_parts(sign * predictor[i])
            slope[i] = sign * mills
    else:
        slope = out[1]
        curve = out[2]
        for i in range(y.shape[0]):
            sign = 2.0 * y[i] - 1.0
            value[i], mills, curve[i] = log_ndtr_parts(sign * predictor[i])
            slope[i] = sign * mills


_STEEPEST: Final = 1.002369313
"""Where the third derivative is largest."""
_LARGEST_THIRD: Final = 0.29571881920
_FAR: Final = -10.0


@inline
def _third(a):  # type: ignore[no-untyped-def]
    """Return the third derivative of ``log Phi``, ``M ((a + M) (a + 2 M) - 1)``, or a little more.

    ``M`` is ``phi(a) / Phi(a)``. Far below 0, where the difference would cancel, it is
    ``2 / |a|^3``, which is more.
    """
    _, mills, _ = log_ndtr_parts(a)
    far = min(a, _FAR)
    near = mills * ((a + mills) * (a + 2.0 * mills) - 1.0)
    return -2.0 / (far * far * far) if a < _FAR else near


@jit(BOUND_SIGNATURE, borrow=True)
def third_derivative(eta, reach, y, constants, out):  # type: ignore[no-untyped-def]
    """Write the largest third derivative within reach; see ``models.third_derivative``.

    That of ``log Phi`` is positive, as the inverse Mills ratio is convex (Sampford 1953), and has
    one maximum.
    """
    for i in range(eta.shape[0]):
        a = (2.0 * y[i] - 1.0) * eta[i]
        low, high = a - reach[i], a + reach[i]
        if low > _STEEPEST:
            out[i] = _third(low)
        else:
            out[i] = _third(high) if high < _STEEPEST else _LARGEST_THIRD


class Probit(LinearModel):
    """Probit regression; build it with :func:`probit`."""

    name: ClassVar[str] = "probit"
    log_concave: ClassVar[bool] = True
    level: ClassVar[Any] = staticmethod(probit_level)
    link_kernel: ClassVar[Any] = link
    response_fault = staticmethod(binary_fault)
    analytic: ClassVar[bool] = True
    third_derivative: ClassVar[Any] = staticmethod(third_derivative)

    def mean(self, eta: Matrix) -> Vector:
        """Return ``Phi(eta)``, P(y = 1), per column of ``eta`` (1, m)."""
        from scipy.special import ndtr

        chance: Vector = ndtr(eta[0])
        return chance

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw 0 or 1 per column of ``eta`` (1, m)."""
        y: Vector = (rng.standard_normal(eta.shape[1]) < eta[0]).astype(np.float64)
        return y


def probit(prior: PriorOption | None = None) -> Probit:
    """Return probit regression, ``P(y = 1) = Phi(eta)``.

    Examples
    --------
    >>> from streammc.models import probit
    >>> probit().dim(3)
    3
    """
    return Probit(as_prior(prior))
