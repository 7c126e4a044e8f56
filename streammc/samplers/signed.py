"""``hmc-ecs-signed``: HMC with the block-Poisson estimator (Dang et al. 2019, section 5)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from streammc.errors import ConfigError
from streammc.samplers.options import (
    DEFAULT_ACCEPTANCE,
    SIGNED_STATISTICS,
    build,
    check_dynamics,
    check_probabilities,
    check_subsample,
)
from streammc.subsampling.units import UNIFORM


@dataclass(frozen=True)
class HmcEcsSigned:
    """Options of ``hmc-ecs-signed``; ``None`` means chosen automatically."""

    subsample_size: int | None = None
    """Rows expected in the subsample, ``lambda`` times those of a mini-batch."""
    minibatch: int = 1
    """Units in the mini-batch of one factor; more make negative estimates likelier."""
    n_blocks: int | None = None
    """Blocks of the ``lambda`` products, G; an iteration refreshes ``lambda / G`` of them."""
    unit_rows: int | None = None
    """Rows of a unit, b."""
    soft_bound: float | None = None
    """``a``, the same everywhere; automatically the typical sampled remainder less
    ``lambda``, and lower far from ``theta_star``."""
    trajectory: str = "jittered"
    """``jittered`` draws the length of each; ``nuts`` ends it where it turns back."""
    integrator: str = "split"
    """``split`` integrates the Gaussian approximation exactly; ``leapfrog`` does not."""
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    order: int = 2
    """Order of the control variates."""
    certainty: bool = True
    """Whether rows with heavy remainders are always evaluated."""
    probabilities: str = UNIFORM
    """Of units: ``uniform``, or ``scores``, in proportion to what they contribute."""
    recalibrate: int | None = None
    """Iterations of a short run whose mean is theta_star; ``None``: passes that certify it."""
    target_acceptance: float = DEFAULT_ACCEPTANCE

    name = "hmc-ecs-signed"
    target = "signed"
    statistics = SIGNED_STATISTICS
    subsampled = True
    audited = False
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
        check_subsample(self, "subsample_size", "n_blocks", "unit_rows", "minibatch", "recalibrate")
        if self.order not in (0, 1, 2):
            raise ConfigError(f"order must be 0, 1 or 2, found {self.order!r}")
        check_probabilities(self.probabilities)
        if self.soft_bound is not None and not math.isfinite(self.soft_bound):
            raise ConfigError(f"soft_bound must be a finite number, found {self.soft_bound!r}")

    @property
    def factor_units(self) -> int:
        """Return the units of a factor of the product."""
        return self.minibatch

    @property
    def forced(self) -> bool:
        """Return ``False``: what the plan refuses has no useful sign."""
        return False

    @property
    def variance_limit(self) -> float:
        """Return infinity: the target is exact at any variance, and the sign is watched."""
        return math.inf

    def describe(self) -> dict[str, Any]:
        """Return every option."""
        return {"name": self.name, **asdict(self)}


def hmc_ecs_signed(**options: Any) -> HmcEcsSigned:
    """Return the ``hmc-ecs-signed`` sampler with the given options.

    It leaves ``|L^(theta, u)| p(theta) p(u)`` invariant, with an unbiased estimate ``L^``
    of the likelihood (Dang et al. 2019, eqs. 15 and 16). Means weighted by the recorded
    sign are those of the posterior, whatever the variance of the estimate (eq. 17).

    Parameters
    ----------
    **options
        Fields of :class:`HmcEcsSigned`.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs_signed
    >>> hmc_ecs_signed(subsample_size=3000, minibatch=30).target
    'signed'
    """
    return build(HmcEcsSigned, "hmc-ecs-signed", options)
