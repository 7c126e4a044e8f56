r"""Quantile regression: ``eta_i`` is the quantile of order tau of ``y_i``.

With ``z = (y - eta) / sigma`` the log density is

    (1 - tau) z - lambda log(1 + exp(z / lambda)) - log(sigma lambda B),

B the beta function of ``lambda (1 - tau)`` and ``lambda tau``: minus the check loss of Koenker and
Bassett (1978) over sigma, smoothed over a width of ``lambda sigma`` (the extended log-F density of
Fasiolo et al. 2021, eq. 8). It tends to the asymmetric Laplace density of Yu and Moyeed (2001) as
``lambda`` goes to 0; that density has no second derivative, which samplers here need. It is
log-concave in ``eta``.

It is a working likelihood: the posterior is centred at the regression of the quantile, and its
spread is that of the estimate only where the errors have this density (Yang, Wang and He 2016).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.models.base import BETA, POSITIVE, Parameter, unit_default
from streammc.models.responses import real_fault
from streammc.models.text_models import DensityModel
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import response_level
from streammc.protocols import Matrix, Vector

_LARGEST: Final = 1e300


@dataclass(frozen=True)
class Quantile(DensityModel):
    """Quantile regression; build it with :func:`quantile`."""

    tau: float = 0.5
    """Order of the quantile."""
    smooth: float = 0.05
    """Width lambda over which the check loss is smoothed, in units of sigma."""

    name: ClassVar[str] = "quantile"
    location_scale: ClassVar[bool] = True
    caveat: ClassVar[str] = (
        "the likelihood is a working one: the posterior is centred at the regression of the "
        "quantile, but its intervals are not those of the estimate's error, unless errors have an "
        "asymmetric Laplace density; take other samples of the rows where intervals matter"
    )
    level: ClassVar[Any] = staticmethod(response_level)
    parameters = (BETA, Parameter("sigma", support=POSITIVE, default=unit_default))
    where: ClassVar[Mapping[str, str]] = {"z": "(y - eta) / sigma"}
    mean_response: ClassVar[str] = "eta"
    """The quantile: what this family predicts are quantiles."""
    response_fault = staticmethod(real_fault)

    def __post_init__(self) -> None:
        """Refuse an order or a width that is out of range."""
        super().__post_init__()
        for key, low, high in (("tau", 0.001, 0.999), ("smooth", 0.001, 1.0)):
            value = getattr(self, key)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and low <= float(value) <= high):
                raise ConfigError(
                    f"{key} must be a number from {low:g} to {high:g}, found {value!r:.60}: "
                    + (
                        "give the order of the quantile, 0.5 for the median"
                        if key == "tau"
                        else "leave it out for 0.05"
                    )
                )

    @property
    def log_density(self) -> str:  # type: ignore[override]
        """Return the text of the log density."""
        from scipy.special import betaln

        tau, width = float(self.tau), float(self.smooth)
        constant = math.log(width) + float(betaln(width * (1.0 - tau), width * tau))
        w = f"z / {width!r}"  # of two terms of one sign, neither cancels
        loss = f"{tau!r} * log1pexp({w}) + {1.0 - tau!r} * log1pexp(-{w})"
        return f"-{width!r} * ({loss}) - log(sigma) - ({constant!r})"

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a number per column of ``eta`` (2, m), at most 1e300 in size.

        It is ``eta + sigma lambda log(G / H)`` of gamma variables of the shapes ``lambda (1 -
        tau)`` and ``lambda tau``.
        """
        tau, width = float(self.tau), float(self.smooth)

        def log_gamma_variable(shape: float) -> Vector:
            """Return logs of gamma variables: one of ``shape + 1`` times a power of a uniform."""
            larger = np.log(rng.gamma(shape + 1.0, size=eta.shape[1]))
            drawn: Vector = larger - rng.standard_exponential(eta.shape[1]) / shape
            return drawn

        ratio = log_gamma_variable(width * (1.0 - tau)) - log_gamma_variable(width * tau)
        with np.errstate(over="ignore", invalid="ignore"):
            y = eta[0] + np.exp(eta[1]) * (width * ratio)
        bounded: Vector = np.nan_to_num(
            np.clip(y, -_LARGEST, _LARGEST), nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST
        )
        return bounded

    def describe(self) -> dict[str, Any]:
        """Return the name, the order, the width and the prior as JSON types."""
        own = {"tau": float(self.tau), "smooth": float(self.smooth)}
        return {**super().describe(), **own}


def quantile(prior: PriorOption | None = None, tau: float = 0.5, smooth: float = 0.05) -> Quantile:
    """Return quantile regression: ``eta`` is the quantile of order tau of the response.

    Predictions are quantiles, not means. The likelihood is a working one: the posterior is centred
    at the regression of the quantile, but its intervals are wider or narrower than the error of
    that estimate, unless the errors have an asymmetric Laplace density (Yang, Wang and He 2016).
    The default priors are those of ``gaussian``.

    Parameters
    ----------
    tau
        Order of the quantile, from 0.001 to 0.999; 0.5 is the median.
    smooth
        Width over which the check loss is smoothed, in units of sigma, from 0.001 to 1.

    Raises
    ------
    ConfigError
        If ``prior`` is not a prior, or ``tau`` or ``smooth`` is out of range.

    Examples
    --------
    >>> from streammc.models import quantile
    >>> quantile(tau=0.9).labels(["Intercept"])
    ('beta[Intercept]', 'sigma')
    """
    return Quantile(as_prior(prior), tau, smooth)
