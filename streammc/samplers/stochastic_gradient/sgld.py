"""``sgld``: stochastic gradient Langevin dynamics (Welling and Teh 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streammc.samplers.common.builders import builder
from streammc.samplers.stochastic_gradient.options import StochasticGradient


@dataclass(frozen=True, kw_only=True)
class Sgld(StochasticGradient):
    """Sampler ``sgld``: stochastic gradient Langevin dynamics (Welling and Teh 2011).

    ``theta' = theta + (eps / 2) P grad + N(0, eps P)`` with a gradient estimated from newly
    drawn rows. No step is rejected, so the sampler does NOT leave the posterior invariant, and
    the error of its variances grows with ``eps``. By default ``P`` is the covariance of the Laplace
    approximation.

    Parameters
    ----------
    step_size
        ``eps`` of the first iteration, in posterior variances (with ``preconditioner='none'`` in
        squared units of theta). ``None``: the largest with a predicted error of variances of at
        most 1 %.

    Examples
    --------
    >>> from streammc.samplers import sgld
    >>> sgld(control_variate=1).target
    'biased'
    """

    name: ClassVar[str] = "sgld"
    paper: ClassVar[str] = (
        "Welling and Teh 2011, Bayesian learning via stochastic gradient Langevin dynamics"
    )


sgld = builder(Sgld)
