"""``hmc-ecs``: perturbed HMC with energy conserving subsampling (Dang et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from streammc.errors import ConfigError
from streammc.samplers.options import (
    DEFAULT_ACCEPTANCE,
    STATISTICS,
    build,
    check_dynamics,
    check_probabilities,
    check_subsample,
)
from streammc.subsampling.units import UNIFORM

VARIANCE_LIMIT: Final = 3.0
"""Above it the perturbation can be large without a sign of it."""


@dataclass(frozen=True)
class HmcEcs:
    """Options of ``hmc-ecs``; ``None`` means chosen automatically."""

    subsample_size: int | None = None
    """Rows in the subsample, m."""
    n_blocks: int | None = None
    """Blocks of the subsample, G."""
    unit_rows: int | None = None
    """Rows of a unit, b."""
    trajectory: str = "jittered"
    """``jittered`` draws the length of each; ``nuts`` ends it where it turns back."""
    integrator: str = "split"
    """``split`` integrates the Gaussian approximation exactly; ``leapfrog`` does not."""
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    order: int = 2
    """Order of the control variates; 0 takes the log-likelihoods at theta_star as they are."""
    certainty: bool = True
    """Whether rows with heavy remainders are always evaluated."""
    probabilities: str = UNIFORM
    """Of units: ``uniform``, or ``scores``, in proportion to what they contribute."""
    recalibrate: int | None = None
    """Iterations of a short run whose mean is theta_star; ``None``: passes that certify it."""
    target_acceptance: float = DEFAULT_ACCEPTANCE
    variance: str = "unbiased"
    """``unbiased`` divides by k (k - 1); ``paper`` by k^2, as eq. (10) is printed."""
    allow_high_variance: bool = False

    name = "hmc-ecs"
    target = "perturbed"
    statistics = STATISTICS
    subsampled = True
    audited = True
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

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
        check_subsample(self, "subsample_size", "n_blocks", "unit_rows", "recalibrate")
        if self.order not in (0, 1, 2):
            raise ConfigError(f"order must be 0, 1 or 2 for hmc-ecs, found {self.order!r}")
        check_probabilities(self.probabilities)
        if self.variance not in ("unbiased", "paper"):
            raise ConfigError(f"variance must be 'unbiased' or 'paper', found {self.variance!r}")

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

    def describe(self) -> dict[str, Any]:
        """Return every option."""
        return {"name": self.name, **asdict(self)}


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
