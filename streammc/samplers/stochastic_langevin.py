"""``sgld``: stochastic gradient Langevin dynamics (Welling and Teh 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from streammc.samplers.options import build
from streammc.samplers.stochastic_options import StochasticGradient


@dataclass(frozen=True)
class Sgld(StochasticGradient):
    """Options of ``sgld``."""

    name: ClassVar[str] = "sgld"
    paper: ClassVar[str] = (
        "Welling and Teh 2011, Bayesian learning via stochastic gradient Langevin dynamics"
    )


def sgld(**options: Any) -> Sgld:
    """Return the ``sgld`` sampler with the given options.

    ``theta' = theta + (eps / 2) P grad + N(0, eps P)`` with a gradient estimated from rows
    that are drawn anew for every step. No step is rejected: the posterior is NOT what it
    leaves invariant, and the error of its variances grows with ``eps``. By default
    ``P`` is the covariance of the Laplace approximation and ``eps`` such that this error is
    predicted to be at most 1 %.

    Parameters
    ----------
    **options
        Fields of :class:`~streammc.samplers.stochastic_options.StochasticGradient`.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import sgld
    >>> sgld(control_variate=1).target
    'biased'
    """
    return build(Sgld, "sgld", options)
