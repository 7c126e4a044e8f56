"""``hmc-ecs``: perturbed HMC with energy conserving subsampling (Dang et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.targets import PERTURBED
from streammc.samplers.hamiltonian.options import PERTURBED_STATISTICS, SubsampleOptions

FEWEST_UNITS: Final = 2
"""Smallest number of units of a subsample: from one unit no variance can be estimated."""
VARIANCE_LIMIT: Final = 3.0
"""Largest mean ``log_lik_variance``: above it a large perturbation may go unnoticed."""


@dataclass(frozen=True, kw_only=True)
class HmcEcs(SubsampleOptions):
    """Sampler ``hmc-ecs``: Hamiltonian Monte Carlo with energy conserving subsampling.

    It leaves ``exp(l^ - s^2 / 2) p(theta) p(u)`` invariant (Dang et al. 2019, eq. 12), where ``l^``
    estimates the log-likelihood from the subsample ``u`` and ``s^2`` its variance: a perturbed
    posterior. The audit measures its distance from the posterior.

    Parameters
    ----------
    variance
        Divisor of ``s^2`` from k units: ``unbiased``, k (k - 1); ``paper``, k^2, as eq. (10) is
        printed.
    allow_high_variance
        Whether to run even if the plan refuses it, or if the mean of ``log_lik_variance``
        exceeds 3: the perturbation may then be large.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs
    >>> hmc_ecs(step_size=0.2, trajectory_length=1.2).step_size
    0.2
    """

    variance: Literal["unbiased", "paper"] = "unbiased"
    allow_high_variance: bool = False

    name = "hmc-ecs"
    target = PERTURBED
    statistics = PERTURBED_STATISTICS
    audited = True
    samples_scales = True
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
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
        """Units of a factor: 0, since the estimate is not a block-Poisson product."""
        return 0

    @property
    def paper_variance(self) -> bool:
        """Whether the divisor is that of eq. (10) as printed."""
        return self.variance == "paper"

    @property
    def forced(self) -> bool:
        """Whether the sampler runs even if the plan refuses it."""
        return self.allow_high_variance

    @property
    def variance_limit(self) -> float:
        """Mean ``log_lik_variance`` above which a run is refused."""
        return math.inf if self.allow_high_variance else VARIANCE_LIMIT


hmc_ecs = builder(HmcEcs)
