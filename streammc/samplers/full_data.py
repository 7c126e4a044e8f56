"""``hmc``: Hamiltonian Monte Carlo on every row, the reference for everything."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from streammc.errors import ConfigError

DEFAULT_LENGTH = math.pi / 2
"""In a Gaussian posterior a quarter of a period forgets the start."""
DEFAULT_JITTER = 0.2
"""Half-width of the uniform factor on the default length, against resonances."""


def check_dynamics(
    step_size: float | None,
    trajectory_length: float | None,
    jitter: float | None,
    target_acceptance: float,
) -> None:
    """Raise ConfigError unless the options of the trajectory make sense."""
    for option, value in (("step_size", step_size), ("trajectory_length", trajectory_length)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{option} must be a finite number above 0, found {value!r}")
    if jitter is not None and not 0.0 <= jitter < 1.0:
        raise ConfigError(f"jitter must be in [0, 1), found {jitter!r}")
    if not 0.0 < target_acceptance < 1.0:
        raise ConfigError(f"target_acceptance must be in (0, 1), found {target_acceptance!r}")


@dataclass(frozen=True)
class Hmc:
    """Options of ``hmc``; ``None`` means chosen automatically."""

    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    target_acceptance: float = 0.8

    name = "hmc"
    target = "exact"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        check_dynamics(self.step_size, self.trajectory_length, self.jitter, self.target_acceptance)

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
    unknown = sorted(set(options) - set(Hmc.__dataclass_fields__))
    if unknown:
        known = ", ".join(Hmc.__dataclass_fields__)
        raise ConfigError(f"unknown option {unknown[0]!r} of hmc: choose from {known}")
    return Hmc(**options)
