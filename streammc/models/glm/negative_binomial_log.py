"""Negative binomial regression: mean ``mu_i = exp(eta_i)``, variance ``mu + mu^2 / phi``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import POSITIVE, LinearModel, Parameter, predictor
from streammc.models.glm.poisson_log import poisson
from streammc.models.responses import count_fault, exponential_mean
from streammc.models.text_models import DensityModel, Names, named
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log1p_unit_parts, log_factorial, rising, select, within
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import log_level
from streammc.protocols import Matrix, Rows, Vector

_MOST: Final = 700.0
"""Arguments of exponentials are clipped to +-700: these are neither infinite nor 0."""
_LARGEST: Final = 1e300
"""Predictors are clipped to +-1e300, so that their difference is finite."""
_MAX_RATE: Final = 1e18
"""Largest rate that :meth:`NegativeBinomial.simulate` can draw from."""
_LEAST_EXCESS: Final = 1e-4
"""Least ``1 / phi`` to start from; its inverse is the largest."""


@inline
def _row(eta0, eta1, y, gamma_part):  # type: ignore[no-untyped-def]
    """Return the value, ``g``, ``h``, ``phi g``, ``phi (L - g)`` and whether mu > phi.

    ``g = mu / (mu + phi)``, ``h = 1 - g``, ``L = log(1 + mu / phi)``. ``gamma_part``:
    ``log Gamma(y + phi) - log Gamma(phi) - log y!``, less ``y eta1`` where mu <= phi.
    """
    eta0 = within(eta0, _LARGEST)
    eta1 = within(eta1, _LARGEST)
    mu = exp(within(eta0, _MOST))
    phi = exp(within(eta1, _MOST))
    over = eta0 > eta1
    s = select(over, eta0 - eta1, 0.0)
    ratio = select(over, phi, mu) / select(over, mu, phi)
    e = select(ratio > 1.0, 1.0, ratio)  # beyond the bounds, or rounded up
    log1p_e, excess, inverse = log1p_unit_parts(e)
    share = e * inverse
    g = select(over, inverse, share)
    h = select(over, share, inverse)
    power = select(over, phi * g, mu * h)
    rest = phi * select(over, (s + log1p_e) - g, excess)
    linear = select(over, 0.0, y * eta0)
    value = ((gamma_part + linear) - phi * s) - (phi * log1p_e + y * log1p_e)
    return value, g, h, power, rest, over


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log probability and its derivatives in ``log mu`` and ``log phi``.

    See ``protocols.Model``. For whole ``y >= 0``. With ``g``, ``h`` and ``L`` of :func:`_row` and
    ``S = log Gamma(y + phi) - log Gamma(phi)``, the value is ``S - log y! - phi L + y log g``. For
    large phi it becomes the Poisson one: what the terms have in common is taken out before they
    are formed.
    """
    value = out[0]
    for i in range(y.shape[0]):
        log_phi = within(eta[1, i], _LARGEST)
        # S, S - y eta1, dS / d eta1, y minus this, and the second derivative.
        ratio, excess, slope, shortfall, bend = rising(exp(within(log_phi, _MOST)), log_phi, y[i])
        over = within(eta[0, i], _LARGEST) > log_phi
        value[i] = (ratio if over else excess) - log_factorial(y[i])
        if order >= 1:
            out[2, i] = slope if over else -shortfall
        if order == 2:
            out[5, i] = bend
    if order == 0:
        for i in range(y.shape[0]):
            value[i], _, _, _, _, _ = _row(eta[0, i], eta[1, i], y[i], value[i])
        return
    slope0 = out[1]
    slope1 = out[2]
    if order == 1:
        for i in range(y.shape[0]):
            value[i], g, h, power, rest, over = _row(eta[0, i], eta[1, i], y[i], value[i])
            slope0[i] = y[i] * h - power
            slope1[i] = (slope1[i] - rest) + y[i] * select(over, -h, g)
        return
    curve00 = out[3]
    curve01 = out[4]
    curve11 = out[5]
    for i in range(y.shape[0]):
        value[i], g, h, power, rest, over = _row(eta[0, i], eta[1, i], y[i], value[i])
        slope = y[i] * h - power
        slope0[i] = slope
        slope1[i] = (slope1[i] - rest) + y[i] * select(over, -h, g)
        curve00[i] = -(power * h + y[i] * (g * h))
        curve01[i] = g * slope
        curve11[i] = (curve11[i] - rest) + (g * power - y[i] * (g * h))


class NegativeBinomial(LinearModel):
    """Negative binomial regression; build it with :func:`negative_binomial`."""

    name: ClassVar[str] = "negative-binomial"
    level: ClassVar[Any] = staticmethod(log_level)
    link_kernel: ClassVar[Any] = link
    mean = staticmethod(exponential_mean)
    response_fault = staticmethod(count_fault)
    parameters = (
        predictor(exponential="rate ratio"),
        Parameter("phi", support=POSITIVE, instead_of_flat="half_cauchy(scale=10)"),
    )

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a count per column of ``eta`` (2, m); rates are capped at 1e18."""
        phi = np.exp(np.clip(eta[1], -_MOST, 30.0))  # gamma(e^30) is within 1e-6 of its mean
        with np.errstate(over="ignore", divide="ignore"):
            log_rate = eta[0] + np.log(rng.gamma(phi)) - np.log(phi)
        rate = np.exp(np.minimum(log_rate, math.log(_MAX_RATE)))
        counts: Vector = np.minimum(rng.poisson(rate).astype(np.float64), _MAX_RATE)
        return counts

    def start(self, rows: Rows) -> Vector:
        """Return the start of Poisson regression and ``log phi`` by moments, (q + 1,).

        ``1 / phi = sum w ((y - mu)^2 - mu) / sum w mu^2``, kept within 1e-4 and 1e4.
        """
        beta = poisson().start(rows)
        used = rows.weight > 0.0
        y = rows.y[used]
        weight = rows.weight[used]
        mu = np.exp(np.clip(rows.X[used] @ beta + rows.offset[used], -_MOST, 300.0))
        top = float(mu.max(initial=1e-300))
        surplus = float(weight @ (np.square((y - mu) / top) - mu / top / top))
        total = float(weight @ np.square(mu / top))
        excess = surplus / total if total > 0.0 else 1.0
        return np.append(beta, -math.log(min(max(excess, _LEAST_EXCESS), 1.0 / _LEAST_EXCESS)))

    def varied(self, names: Sequence[str]) -> VaryingNegativeBinomial:
        """Return the model whose parameters ``names`` depend on the columns."""
        return VaryingNegativeBinomial(self.prior, varying=tuple(names), censored=self.censored)


class VaryingNegativeBinomial(DensityModel):
    """The same whose ``phi`` depends on the columns; see :func:`negative_binomial`."""

    name: ClassVar[str] = NegativeBinomial.name
    level: ClassVar[Any] = staticmethod(NegativeBinomial.level)
    parameters = NegativeBinomial.parameters
    where: ClassVar[dict[str, str]] = {"apart": "eta - log(phi)"}
    log_density: ClassVar[str] = (
        "log_gamma_ratio(phi, y) - log_factorial(y) - phi * log1pexp(apart) - y * log1pexp(-apart)"
    )
    mean_response: ClassVar[str] = "exp(eta)"
    response_fault = staticmethod(NegativeBinomial.response_fault)
    simulate = NegativeBinomial.simulate


def negative_binomial(
    prior: PriorOption | None = None, varying: Names = ()
) -> NegativeBinomial | VaryingNegativeBinomial:
    """Return negative binomial regression with mean ``exp(eta)`` and variance ``mu + mu^2/phi``.

    Log exposure goes into the store's offset.

    The default prior of ``phi`` is half-Student-t(3, 10).

    Parameters
    ----------
    varying
        ``"phi"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.

    Examples
    --------
    >>> from streammc.models import negative_binomial
    >>> negative_binomial().labels(["Intercept"])
    ('beta[Intercept]', 'phi')
    """
    names = named(varying)
    if names:
        return VaryingNegativeBinomial(as_prior(prior), varying=names)
    return NegativeBinomial(as_prior(prior))
