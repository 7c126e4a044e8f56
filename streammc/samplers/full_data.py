"""``hmc``: Hamiltonian Monte Carlo on every row, the reference for everything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streammc.samplers.options import DEFAULT_ACCEPTANCE, STATISTICS, build, check_dynamics


@dataclass(frozen=True)
class Hmc:
    """Options of ``hmc``; ``None`` means chosen automatically."""

    trajectory: str = "jittered"
    """``jittered`` draws the length of each; ``nuts`` ends it where it turns back."""
    integrator: str = "split"
    """``split`` integrates the Gaussian approximation exactly; ``leapfrog`` does not."""
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    target_acceptance: float = DEFAULT_ACCEPTANCE

    name = "hmc"
    target = "exact"
    statistics = STATISTICS
    subsampled = False
    audited = False
    paper = "Duane, Kennedy, Pendleton and Roweth 1987, Hybrid Monte Carlo"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        check_dynamics(
            self.trajectory,
            self.integrator,
            self.step_size,
            self.trajectory_length,
            self.jitter,
            self.target_acceptance,
        )

    def describe(self) -> dict[str, Any]:
        """Return every option."""
        return {"name": self.name, **asdict(self)}


def hmc(**options: Any) -> Hmc:
    """Return the ``hmc`` sampler with the given options.

    It leaves the posterior invariant (Duane et al. 1987) and reads every row at every
    gradient.

    Parameters
    ----------
    **options
        Fields of :class:`Hmc`.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import hmc
    >>> hmc().target
    'exact'
    """
    return build(Hmc, "hmc", options)
