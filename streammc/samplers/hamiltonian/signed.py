"""``hmc-ecs-signed``: HMC with the block-Poisson estimator (Dang et al. 2019, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from streammc.control_variates.plan.signs import LEAST_SIGN
from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import check_subsample, is_number
from streammc.samplers.common.targets import SIGNED
from streammc.samplers.hamiltonian.options import SIGNED_STATISTICS, SubsampleOptions


@dataclass(frozen=True, kw_only=True)
class HmcEcsSigned(SubsampleOptions):
    """Sampler ``hmc-ecs-signed``: Hamiltonian Monte Carlo with the block-Poisson estimator.

    It leaves ``|L^(theta, u)| p(theta) p(u)`` invariant, with an unbiased estimate ``L^`` of the
    likelihood (Dang et al. 2019, eqs. 15 and 16). Means weighted by the recorded sign are posterior
    means for any variance of the estimate (eq. 17).

    Parameters
    ----------
    minibatch
        Units in the mini-batch of one factor of ``L^``; with more, more estimates are negative.
    soft_bound
        Bound ``a`` on the sampled remainder, in units of the log-likelihood, constant in theta.
        ``None``: the typical remainder minus the expected number of factors, and lower far from
        theta_star.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs_signed
    >>> hmc_ecs_signed(subsample_size=3000, minibatch=30).target
    'signed'
    """

    minibatch: int = 1
    soft_bound: float | None = None

    name = "hmc-ecs-signed"
    target = SIGNED
    statistics = SIGNED_STATISTICS
    least_sign = LEAST_SIGN
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_subsample(self, "minibatch")
        if self.soft_bound is not None and not is_number(self.soft_bound):
            raise ConfigError(
                f"soft_bound must be a finite number, found {self.soft_bound!r}"
                ": give one, or leave it out"
            )

    @property
    def factor_units(self) -> int:
        """Units of a factor of the block-Poisson product."""
        return self.minibatch


hmc_ecs_signed = builder(HmcEcsSigned)
