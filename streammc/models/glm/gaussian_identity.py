"""Gaussian regression: ``y_i ~ Normal(eta_i, sigma)``.

The log-likelihood of all rows follows from its Taylor sums, which are sufficient statistics. With
``R = RSS / sigma*^2``, weighted, at the coefficients ``beta* + delta`` and the log scale ``s* +
h``,

    l = l* - W h - (R exp(-2 h) - R*) / 2,
    R = R* - 2 g.delta - delta' H delta,   R* = -H_ss / 2,   W = R* - g_s,

where ``g`` and ``H`` are the gradient and Hessian at ``theta_star`` and ``W`` the sum of
the weights. So the pass that expands the likelihood has found X'X, X'y and y'y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import BETA, POSITIVE, LinearModel, Parameter, unit_default
from streammc.models.glm.least_squares import location_scale
from streammc.models.responses import location, real_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.numerics.jit import LINK_SIGNATURE, f8, inline, jit, matrix, vector
from streammc.numerics.special import exp, within
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import response_level
from streammc.protocols import Matrix, Rows, Vector


@jit(f8(f8, vector, matrix, vector, vector, vector), reassociate=True, borrow=True)
def gaussian_sums(log_lik, gradient, hessian, theta_star, delta, out):  # type: ignore[no-untyped-def]
    """Return the log-likelihood at ``theta_star + delta``, write its gradient (d,)."""
    s = delta.shape[0] - 1
    h = delta[s]
    residual_star = -0.5 * hessian[s, s]
    total_weight = residual_star - gradient[s]
    shrink = math.exp(-2.0 * h)
    change = 0.0
    for i in range(s):
        curve = 0.0
        for j in range(s):
            curve += hessian[i, j] * delta[j]
        out[i] = shrink * (gradient[i] + curve)
        change -= delta[i] * (2.0 * gradient[i] + curve)
    out[s] = (residual_star + change) * shrink - total_weight
    # R exp(-2 h) - R*, without cancellation for small h.
    excess = change * shrink + residual_star * math.expm1(-2.0 * h)
    return log_lik - total_weight * h - 0.5 * excess


_HALF_LOG_2PI: Final = 0.9189385332046728
_MOST: Final = 700.0
"""Beyond it, either way, exp(log sigma) stays where it is."""


@inline
def _row(eta, log_sigma, y):  # type: ignore[no-untyped-def]
    """Return the log density, ``z = (y - eta) / sigma`` and ``1 / sigma``."""
    precision = exp(-within(log_sigma, _MOST))
    z = (y - eta) * precision
    return (-0.5 * z * z - log_sigma) - _HALF_LOG_2PI, z, precision


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the normal log density and its derivatives in ``eta`` and ``log sigma``.

    See ``protocols.Model``. Each is within 1e-15 of its largest term; infinite only
    where it overflows.
    """
    location = eta[0]
    scale = eta[1]
    value = out[0]
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _, _ = _row(location[i], scale[i], y[i])
    elif order == 1:
        slope0 = out[1]
        slope1 = out[2]
        for i in range(y.shape[0]):
            value[i], z, precision = _row(location[i], scale[i], y[i])
            slope0[i] = z * precision
            slope1[i] = z * z - 1.0
    else:
        slope0 = out[1]
        slope1 = out[2]
        curve00 = out[3]
        curve01 = out[4]
        curve11 = out[5]
        for i in range(y.shape[0]):
            value[i], z, precision = _row(location[i], scale[i], y[i])
            slope0[i] = z * precision
            slope1[i] = z * z - 1.0
            curve00[i] = -precision * precision
            curve01[i] = -2.0 * (z * precision)
            curve11[i] = -2.0 * (z * z)


class Gaussian(LinearModel):
    """Gaussian regression; build it with :func:`gaussian`."""

    name: ClassVar[str] = "gaussian"
    location_scale: ClassVar[bool] = True
    sufficient: ClassVar[str | None] = "moments"
    level: ClassVar[Any] = staticmethod(response_level)
    link_kernel: ClassVar[Any] = link
    exact_sums: ClassVar[Any] = staticmethod(gaussian_sums)
    response_fault = staticmethod(real_fault)
    mean = staticmethod(location)
    parameters = (BETA, Parameter("sigma", support=POSITIVE, default=unit_default))

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2, m)."""
        y: Vector = eta[0] + np.exp(eta[1]) * rng.standard_normal(eta.shape[1])
        return y

    def start(self, rows: Rows) -> Vector:
        """Return least squares and the log of its residual standard deviation, (q + 1,)."""
        beta, log_sigma = location_scale(rows)
        return np.append(beta, log_sigma)

    def varied(self, names: Sequence[str]) -> VaryingGaussian:
        """Return the model whose parameters ``names`` depend on the columns."""
        return VaryingGaussian(self.prior, varying=tuple(names), censored=self.censored)


class VaryingGaussian(DensityModel):
    """Gaussian regression whose ``sigma`` depends on the columns; see :func:`gaussian`."""

    name: ClassVar[str] = Gaussian.name
    level: ClassVar[Any] = staticmethod(Gaussian.level)
    parameters = Gaussian.parameters
    where: ClassVar[dict[str, str]] = {"z": "(y - eta) / sigma"}
    log_density: ClassVar[str] = "-0.5 * z**2 - log(sigma) - 0.5 * log(2 * pi)"
    mean_response: ClassVar[str] = "eta"
    response_fault = staticmethod(Gaussian.response_fault)
    simulate = Gaussian.simulate


def gaussian(prior: PriorOption | None = None, varying: Names = ()) -> Gaussian | VaryingGaussian:
    """Return Gaussian regression, ``y ~ Normal(eta, sigma)``.

    The default prior of ``sigma`` is half-Student-t(3, 2.5 sd(y)), beside one prior for all
    coefficients half-Student-t(3, 10).

    Parameters
    ----------
    varying
        ``"sigma"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.

    Examples
    --------
    >>> from streammc.models import gaussian
    >>> gaussian().labels(["Intercept"])
    ('beta[Intercept]', 'sigma')
    """
    names = named(varying)
    if names:
        return VaryingGaussian(as_prior(prior), varying=names)
    return Gaussian(as_prior(prior))
