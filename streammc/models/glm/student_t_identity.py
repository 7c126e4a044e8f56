"""Student-t regression: ``y_i ~ StudentT(nu, eta_i, sigma)``, nu fixed or sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.models.base import BETA, POSITIVE, LinearModel, Parameter, unit_default
from streammc.models.glm.least_squares import location_scale
from streammc.models.responses import location, real_fault
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log1p_parts, rising, select, within
from streammc.priors import PriorOption, as_prior, gamma
from streammc.priors.scaled import response_level
from streammc.protocols import Matrix, Rows, Vector

_HALF_LOG_2PI: Final = 0.9189385332046728
_MOST: Final = 700.0
"""Beyond it, either way, exponentials stay where they are."""
_FAR: Final = 1e200
"""Above this ``z^2 / nu`` the density is a power of the residual; the square may overflow."""
_START_DF: Final = 5.0
_LARGEST: Final = 1e300
_NU: Final = Parameter(
    "nu",
    support=POSITIVE,
    default=gamma(shape=2.0, rate=0.1),
    instead_of_flat="gamma(shape=2, rate=0.1)",
)


@inline
def _row(eta, log_sigma, log_nu, nu, y):  # type: ignore[no-untyped-def]
    """Return ``L, L - g, g, h`` and the residual and precision over ``nu sigma^2 + r^2``.

    With the residual ``r``, ``t = r^2 / (nu sigma^2)``: ``L = log(1 + t)``,
    ``h = 1 / (1 + t)``, ``g = t h``, then ``r / (nu sigma^2 + r^2)`` and
    ``1 / (nu sigma^2 + r^2)``.
    """
    precision = exp(-within(log_sigma, _MOST))
    r = y - eta
    z = r * precision
    inverse = 1.0 / nu
    t = (z * inverse) * z
    far = t > _FAR
    t = select(far, _FAR, t)
    # Far out the logarithm is 2 log|r / sigma| - log nu: the same polynomial, of |r|.
    value, excess, g, h = log1p_parts(t, select(far, abs(r), 1.0 + t))
    value = select(far, 2.0 * (value - log_sigma) - log_nu, value)
    excess = select(far, value - g, excess)
    shrunk = precision * h
    over = 1.0 / r
    pull = select(far, over, (z * inverse) * shrunk)
    curve = select(far, over * over, (precision * inverse) * shrunk)
    return value, excess, g, h, pull, curve


@jit(LINK_SIGNATURE, borrow=True)
def link_fixed(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the t log density and its derivatives in ``eta`` and ``log sigma``.

    ``constants``: nu, its logarithm, and the log density at 0 for sigma = 1. See
    ``protocols.Model``.
    """
    location = eta[0]
    scale = eta[1]
    value = out[0]
    nu = constants[0]
    log_nu = constants[1]
    top = constants[2]
    one_more = nu + 1.0
    if order == 0:
        for i in range(y.shape[0]):
            L, _, _, _, _, _ = _row(location[i], scale[i], log_nu, nu, y[i])
            value[i] = (top - scale[i]) - 0.5 * one_more * L
    elif order == 1:
        slope0 = out[1]
        slope1 = out[2]
        for i in range(y.shape[0]):
            L, _, g, _, pull, _ = _row(location[i], scale[i], log_nu, nu, y[i])
            value[i] = (top - scale[i]) - 0.5 * one_more * L
            slope0[i] = one_more * pull
            slope1[i] = one_more * g - 1.0
    else:
        slope0 = out[1]
        slope1 = out[2]
        curve00 = out[3]
        curve01 = out[4]
        curve11 = out[5]
        for i in range(y.shape[0]):
            L, _, g, h, pull, curve = _row(location[i], scale[i], log_nu, nu, y[i])
            value[i] = (top - scale[i]) - 0.5 * one_more * L
            slope0[i] = one_more * pull
            slope1[i] = one_more * g - 1.0
            curve00[i] = -one_more * (curve * (h - g))
            curve01[i] = -2.0 * one_more * (pull * h)
            curve11[i] = -2.0 * one_more * (g * h)


@inline
def _degrees(log_nu):  # type: ignore[no-untyped-def]
    """Return ``log nu`` and ``nu`` within bounds."""
    bounded = within(log_nu, _MOST)
    return bounded, exp(bounded)


@jit(LINK_SIGNATURE, borrow=True)
def link_sampled(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the t log density and its derivatives in ``eta, log sigma, log nu``.

    See ``protocols.Model``.
    """
    location = eta[0]
    scale = eta[1]
    tail = eta[2]
    value = out[0]
    # What depends on nu alone, once for rows that share it; apart from the loops below,
    # so that they vectorise.
    last = math.nan
    top = math.nan
    slope = math.nan
    bend = math.nan
    for i in range(y.shape[0]):
        if tail[i] != last:
            last = tail[i]
            log_nu, nu = _degrees(last)
            # top = log Gamma((nu + 1) / 2) - log Gamma(nu / 2) - log(nu / 2) / 2
            _, top, _, slope, bend = rising(0.5 * nu, log_nu - 0.6931471805599453, 0.5)
        value[i] = top - _HALF_LOG_2PI
        if order >= 1:
            out[3, i] = -slope
        if order == 2:
            out[9, i] = bend
    if order == 0:
        for i in range(y.shape[0]):
            log_nu, nu = _degrees(tail[i])
            L, _, _, _, _, _ = _row(location[i], scale[i], log_nu, nu, y[i])
            value[i] = (value[i] - scale[i]) - 0.5 * (nu + 1.0) * L
        return
    slope0 = out[1]
    slope1 = out[2]
    slope2 = out[3]
    if order == 1:
        for i in range(y.shape[0]):
            log_nu, nu = _degrees(tail[i])
            L, excess, g, _, pull, _ = _row(location[i], scale[i], log_nu, nu, y[i])
            value[i] = (value[i] - scale[i]) - 0.5 * (nu + 1.0) * L
            slope0[i] = (nu + 1.0) * pull
            slope1[i] = (nu + 1.0) * g - 1.0
            slope2[i] += 0.5 * (g - nu * excess)
        return
    curve00 = out[4]
    curve01 = out[5]
    curve02 = out[6]
    curve11 = out[7]
    curve12 = out[8]
    curve22 = out[9]
    for i in range(y.shape[0]):
        log_nu, nu = _degrees(tail[i])
        L, excess, g, h, pull, curve = _row(location[i], scale[i], log_nu, nu, y[i])
        one_more = nu + 1.0
        lean = nu * g - h
        value[i] = (value[i] - scale[i]) - 0.5 * one_more * L
        slope0[i] = one_more * pull
        slope1[i] = one_more * g - 1.0
        slope2[i] += 0.5 * (g - nu * excess)
        curve00[i] = -one_more * (curve * (h - g))
        curve01[i] = -2.0 * one_more * (pull * h)
        curve02[i] = pull * lean
        curve11[i] = -2.0 * one_more * (g * h)
        curve12[i] = g * lean
        curve22[i] += 0.5 * (g * lean - nu * excess)


@dataclass(frozen=True)
class StudentT(LinearModel):
    """Student-t regression; build it with :func:`student_t`."""

    df: float | None = None
    """Degrees of freedom; ``None`` samples them."""

    name: ClassVar[str] = "student-t"
    location_scale: ClassVar[bool] = True
    heavy_tailed: ClassVar[bool] = True
    response_fault = staticmethod(real_fault)
    mean = staticmethod(location)
    """Always the median; the mean where ``nu > 1``, and there is none elsewhere."""
    level: ClassVar[Any] = staticmethod(response_level)

    def __post_init__(self) -> None:
        """Refuse degrees of freedom that are not a number above 0."""
        super().__post_init__()
        if self.df is None:
            return
        number = isinstance(self.df, Real) and not isinstance(self.df, bool)
        if not (number and 1e-300 < float(self.df) < math.inf):
            raise ConfigError(
                f"df must be a finite number above 0, found {self.df!r}: "
                "leave it out to sample the degrees of freedom"
            )

    @property
    def link(self) -> Any:
        """Return the compiled link for degrees of freedom that are fixed or sampled."""
        return link_sampled if self.df is None else link_fixed

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return coefficients, scale and, where they are sampled, the degrees of freedom."""
        sigma = Parameter("sigma", support=POSITIVE, default=unit_default)
        return (BETA, sigma, _NU) if self.df is None else (BETA, sigma)

    @property
    def constants(self) -> Vector:
        """Return the degrees of freedom, their log, and the log density at 0; (3,) or (0,)."""
        if self.df is None:
            return np.zeros(0)
        nu = min(float(self.df), math.exp(_MOST))
        _, top, _, _, _ = rising(0.5 * nu, math.log(0.5 * nu), 0.5)
        return np.array([nu, math.log(nu), top - _HALF_LOG_2PI])

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2 or 3, m), at most 1e300 in size."""
        nu = np.full(eta.shape[1], self.df) if self.df is not None else np.exp(eta[2])
        with np.errstate(over="ignore", invalid="ignore"):
            y = eta[0] + np.exp(eta[1]) * rng.standard_t(nu)
        bounded: Vector = np.nan_to_num(y, nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
        return bounded

    def start(self, rows: Rows) -> Vector:
        """Return a robust fit, the log of its scale and, where sampled, of 5 df."""
        beta, log_sigma = location_scale(rows, df=self.df or _START_DF, steps=10)
        scales = [log_sigma] if self.df is not None else [log_sigma, math.log(_START_DF)]
        return np.append(beta, scales)

    def describe(self) -> dict[str, Any]:
        """Return the name, the degrees of freedom and the prior as JSON types."""
        return {**super().describe(), "df": None if self.df is None else float(self.df)}


def student_t(prior: PriorOption | None = None, df: float | None = None) -> StudentT:
    """Return Student-t regression, ``(y - eta) / sigma ~ StudentT(nu)``.

    The default priors are those of ``gaussian``, and Gamma(2, 0.1) of ``nu``.

    Parameters
    ----------
    df
        Degrees of freedom nu; ``None`` samples them.

    Raises
    ------
    ConfigError
        If ``prior`` is not a prior or ``df`` is not a finite number above 0.

    Examples
    --------
    >>> from streammc.models import student_t
    >>> student_t().labels(["Intercept"])
    ('beta[Intercept]', 'sigma', 'nu')
    >>> student_t(df=5).labels(["Intercept"])
    ('beta[Intercept]', 'sigma')
    """
    return StudentT(as_prior(prior), df)
