"""``sghmc``: stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import NONE, check_number, check_subsample
from streammc.samplers.common.statistics import STATISTICS, recorded
from streammc.samplers.stochastic_gradient.options import (
    NOISE_STATISTICS,
    OF_ACCEPTANCE,
    StochasticGradient,
)

ESTIMATED: Final = "estimated"


@dataclass(frozen=True, kw_only=True)
class Sghmc(StochasticGradient):
    """Sampler ``sghmc``: stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014).

    Each iteration draws a momentum ``p ~ N(0, M)`` and makes L steps ``theta += eps M^-1 p``,
    ``p += eps grad - eps C M^-1 p + N(0, 2 eps (C - B^))`` (Dang et al. 2019, section 6.2),
    each with a gradient estimated from newly drawn rows. No step is rejected, so the sampler
    does NOT leave the posterior invariant. By default ``M`` is the inverse covariance of the
    Laplace approximation.

    Parameters
    ----------
    step_size
        ``eps`` of the first iteration, in posterior standard deviations (with
        ``preconditioner='none'`` in units of theta). ``None``: ``trajectory_length / n_steps``.
    n_steps
        Steps of an iteration, L. ``None``: ``trajectory_length / step_size``, rounded up; without
        a ``step_size`` the fewest steps with a predicted error of variances of at most 1 %.
    trajectory_length
        ``step_size * n_steps``, in the unit of ``step_size``; not allowed if both are given.
        ``None``: a quarter of the longest period, pi / 2 posterior standard deviations.
    friction
        C, times the mass matrix M, at least 0.
    noise_estimate
        Part B^ of the friction that compensates for the noise of gradients. ``none``, or ``None``:
        0; ``estimated``: estimated from the units of each gradient.

    Examples
    --------
    >>> from streammc.samplers import sghmc
    >>> sghmc(step_size=0.06, trajectory_length=1.2, friction=0.0).n_steps is None
    True
    """

    n_steps: int | None = None
    trajectory_length: float | None = None
    friction: float = 1.0
    noise_estimate: Literal["none", "estimated"] | None = NONE

    name: ClassVar[str] = "sghmc"
    paper: ClassVar[str] = (
        "Chen, Fox and Guestrin 2014, Stochastic gradient Hamiltonian Monte Carlo"
    )

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_subsample(self, "n_steps")
        check_number("friction", self.friction)
        if self.noise_estimate not in (NONE, ESTIMATED):
            raise ConfigError(
                f"noise_estimate must be 'none' or 'estimated', found {self.noise_estimate!r}"
                ": choose one of them"
            )
        if None not in (self.step_size, self.n_steps, self.trajectory_length):
            raise ConfigError(
                "expected at most two of step_size, n_steps and trajectory_length, found all "
                "three; leave one out"
            )

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics; with estimated noise, ``noise_clipped`` is one of them."""
        columns = NOISE_STATISTICS if self.noise_estimate == ESTIMATED else STATISTICS
        return recorded(columns, *OF_ACCEPTANCE)


sghmc = builder(Sghmc)
