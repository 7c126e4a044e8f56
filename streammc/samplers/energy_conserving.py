"""``hmc-ecs``: perturbed HMC with energy conserving subsampling (Dang et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from streammc.errors import ConfigError
from streammc.samplers.options import PERTURBED_STATISTICS, SubsampleOptions, build

PERTURBED: Final = "perturbed"
FEWEST_UNITS: Final = 2
"""Of a subsample: one has no variance."""
VARIANCE_LIMIT: Final = 3.0
"""Above it the perturbation can be large without a sign of it."""


@dataclass(frozen=True)
class HmcEcs(SubsampleOptions):
    """Options of ``hmc-ecs``; ``None`` means chosen automatically."""

    variance: str = "unbiased"
    """``unbiased`` divides by k (k - 1); ``paper`` by k^2, as eq. (10) is printed."""
    allow_high_variance: bool = False

    name = "hmc-ecs"
    target = PERTURBED
    statistics = PERTURBED_STATISTICS
    subsampled = True
    audited = True
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        if self.variance not in ("unbiased", "paper"):
            raise ConfigError(
                f"variance must be 'unbiased' or 'paper', found {self.variance!r}"
                ": choose one of them"
            )
        b = self.unit_rows or 1
        if self.subsample_size is not None and self.subsample_size <= b:
            raise ConfigError(
                f"subsample_size must be more than one unit of {b} row{'s' * (b > 1)}, or no "
                f"variance can be estimated, found {self.subsample_size}: use {FEWEST_UNITS * b} "
                "rows or more, or shorter units"
            )

    @property
    def factor_units(self) -> int:
        """Return 0: the estimate is not a product."""
        return 0

    @property
    def forced(self) -> bool:
        """Return whether it runs where the plan refuses it."""
        return self.allow_high_variance

    @property
    def variance_limit(self) -> float:
        """Return the mean ``log_lik_variance`` above which a run is refused."""
        return math.inf if self.allow_high_variance else VARIANCE_LIMIT


def hmc_ecs(**options: Any) -> HmcEcs:
    """Return the ``hmc-ecs`` sampler with the given options.

    It leaves ``exp(l^ - s^2 / 2) p(theta) p(u)`` invariant (Dang et al. 2019, eq. 12):
    a perturbed posterior, whose distance from the posterior the audit measures.

    Parameters
    ----------
    **options
        Fields of :class:`HmcEcs`.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs
    >>> hmc_ecs(step_size=0.2, trajectory_length=1.2).step_size
    0.2
    """
    return build(HmcEcs, "hmc-ecs", options)
