"""Gamma regression: ``y_i ~ Gamma(shape, rate = shape / mu_i)``, mean ``mu_i = exp(eta_i)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import POSITIVE, LinearModel, Parameter, ResidualScale, predictor
from streammc.models.glm.least_squares import least_squares
from streammc.models.responses import exponential_mean
from streammc.models.text_models import DensityModel, Names, named
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.numerics.special import exp, gamma_normalizer, log, within
from streammc.priors import PriorOption, as_prior, half_student_t
from streammc.priors.scaled import log_level
from streammc.protocols import Index, Matrix, Rows, Vector

_MOST: Final = 700.0
"""Beyond it, either way, exponentials stay where they are."""
_LARGEST: Final = 1e300
_LEAST: Final = 1e-300


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log density and its derivatives in ``log mu`` and ``log shape``.

    See ``protocols.Model``. Stated for ``y > 0``. With ``a`` the shape, ``r = log(y / mu)``,
    ``D = exp(r) - 1 - r`` and ``S = a log a - a - log Gamma(a)`` the value is
    ``S - log y - a D``: no two large terms cancel.
    """
    last = math.nan
    a = normalizer = slope = bend = math.nan
    for i in range(y.shape[0]):
        if eta[1, i] != last:  # rows share the shape
            last = eta[1, i]
            log_a = within(last, _MOST)
            a = exp(log_a)
            normalizer, slope, bend = gamma_normalizer(a, log_a)
        log_y = log(y[i])
        r = within(log_y - eta[0, i], _LARGEST)
        excess = math.expm1(r)
        deviance = a * (excess - r)
        out[0, i] = (normalizer - deviance) - log_y
        if order >= 1:
            out[1, i] = a * excess
            out[2, i] = slope - deviance
        if order == 2:
            out[3, i] = -a * math.exp(r)
            out[4, i] = a * excess
            out[5, i] = bend - deviance


class Gamma(LinearModel):
    """Gamma regression; build it with :func:`gamma`."""

    name: ClassVar[str] = "gamma"
    residual_scale = ResidualScale("shape", -0.5, np.log)
    level: ClassVar[Any] = staticmethod(log_level)
    link_kernel: ClassVar[Any] = link
    mean = staticmethod(exponential_mean)
    parameters = (
        predictor(exponential="mean ratio"),
        Parameter("shape", support=POSITIVE, default=half_student_t(3.0, 10.0)),
    )

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is not finite or not above 0."""
        wrong = np.flatnonzero(~((y > 0.0) & np.isfinite(y)))
        return (wrong, "finite numbers above 0") if wrong.size else None

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2, m), kept within 1e-300 and 1e300."""
        shape = np.exp(np.clip(eta[1], -_MOST, _MOST))
        with np.errstate(over="ignore", under="ignore"):
            y = np.exp(np.minimum(eta[0], _MOST)) * (rng.gamma(shape) / shape)
        bounded: Vector = np.clip(y, _LEAST, _LARGEST)
        return bounded

    def start(self, rows: Rows) -> Vector:
        """Return the better of two fits and the log of the shape that fits it, (q + 1,).

        They are least squares of ``log y - offset``, and a constant mean, as far as the columns
        can express a constant.
        """
        used = rows.weight > 0.0
        log_y = np.log(np.where(used, rows.y, 1.0))
        total = max(float(rows.weight.sum()), _LEAST)
        top = float((log_y - rows.offset)[used].max(initial=-_MOST))
        share = rows.weight @ np.exp(np.where(used, log_y - rows.offset - top, -math.inf)) / total
        constant = np.full(len(log_y), top + math.log(max(float(share), _LEAST)))
        fits = []
        for target in (log_y - rows.offset, constant):
            beta = least_squares(rows.X, target, rows.weight)
            r = np.clip(np.where(used, log_y - rows.X @ beta - rows.offset, 0.0), -_MOST, 300.0)
            fits.append((float(rows.weight @ (np.expm1(r) - r)) / total, beta))
        deviance, beta = min(fits, key=lambda pair: pair[0])
        return np.append(beta, _log_shape(deviance))

    def varied(self, names: Sequence[str]) -> VaryingGamma:
        """Return the model whose parameters ``names`` depend on the columns."""
        return VaryingGamma(self.prior, varying=tuple(names), censored=self.censored)


class VaryingGamma(DensityModel):
    """Gamma regression whose ``shape`` depends on the columns; see :func:`gamma`."""

    name: ClassVar[str] = Gamma.name
    level: ClassVar[Any] = staticmethod(Gamma.level)
    parameters = Gamma.parameters
    log_density: ClassVar[str] = (
        "shape * log(shape) - shape - log_gamma(shape) - log(y) - shape * excess(log(y) - eta)"
    )
    mean_response: ClassVar[str] = "exp(eta)"
    response_fault = Gamma.response_fault
    simulate = Gamma.simulate


def _log_shape(deviance: float) -> float:
    """Return the log of the shape whose mean of ``exp(r) - 1 - r`` this is, to 2 % or so.

    ``log a - digamma(a)`` inverted as in Minka (2002), "Estimating a Gamma distribution".
    """
    s = min(max(deviance, 1e-8), 1e8)
    return math.log((3.0 - s + math.sqrt((s - 3.0) ** 2 + 24.0 * s)) / (12.0 * s))


def gamma(prior: PriorOption | None = None, varying: Names = ()) -> Gamma | VaryingGamma:
    """Return gamma regression with mean ``exp(eta)`` and variance ``mu^2 / shape``.

    The default prior of ``shape`` is half-Student-t(3, 10).

    Parameters
    ----------
    varying
        ``"shape"``: it depends on the columns, through a linear predictor of its
        own for its logarithm.

    Examples
    --------
    >>> from streammc.models import gamma
    >>> gamma().labels(["Intercept"])
    ('beta[Intercept]', 'shape')
    """
    names = named(varying)
    return VaryingGamma(as_prior(prior), varying=names) if names else Gamma(as_prior(prior))
