"""``sghmc``: stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streammc.errors import ConfigError
from streammc.samplers.options import STATISTICS, build, check_subsample
from streammc.samplers.stochastic_options import NONE, StochasticGradient, check_number

ESTIMATED: Final = "estimated"


@dataclass(frozen=True)
class Sghmc(StochasticGradient):
    """Options of ``sghmc``; ``None`` means chosen automatically."""

    n_steps: int | None = None
    """L, steps of an iteration."""
    trajectory_length: float | None = None
    """``step_size * n_steps``."""
    friction: float = 1.0
    """C, times the mass matrix."""
    noise_estimate: str | None = NONE
    """``none``: B^ = 0; ``estimated``: from the units of each gradient."""

    name: ClassVar[str] = "sghmc"
    paper: ClassVar[str] = (
        "Chen, Fox and Guestrin 2014, Stochastic gradient Hamiltonian Monte Carlo"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
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
        """Return the columns of the statistics; where noise is estimated, how often it was cut."""
        clipped = ("noise_clipped",) if self.noise_estimate == ESTIMATED else ()
        return (*STATISTICS, *clipped)


def sghmc(**options: Any) -> Sghmc:
    """Return the ``sghmc`` sampler with the given options.

    Each iteration draws a momentum ``p ~ N(0, M)`` and makes L steps ``theta += eps M^-1 p``,
    ``p += eps grad - eps C M^-1 p + N(0, 2 eps (C - B^))`` (Dang et al. 2019, section 6.2),
    each with a gradient estimated from rows that are drawn anew. No step is rejected: the
    posterior is NOT what it leaves invariant. By default ``M`` is the inverse covariance of
    the Laplace approximation, ``eps L`` a quarter of its period, and L such that the error
    of a variance is predicted to be at most 1 %.

    Parameters
    ----------
    **options
        Fields of :class:`Sghmc` and of the options that it shares with ``sgld``.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import sghmc
    >>> sghmc(step_size=0.06, trajectory_length=1.2, friction=0.0).n_steps is None
    True
    """
    return build(Sghmc, "sghmc", options)
