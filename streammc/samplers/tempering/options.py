"""Options that parallel tempering and tempered transitions share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.protocols import Model
from streammc.samplers.common.option_checks import (
    COVARIANCES,
    LAPLACE,
    RANDOM_WALK,
    check_number,
    check_subsample,
)
from streammc.samplers.common.sampler import Sampler
from streammc.samplers.common.statistics import OF_ESTIMATES, STATISTICS, recorded
from streammc.samplers.common.targets import EXACT

if TYPE_CHECKING:
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.evidence import Evidence
    from streammc.samplers.common.request import RunRequest, Setup

HMC: Final = "hmc"
EXPLORERS: Final = (RANDOM_WALK, HMC)
GEOMETRIC: Final = "geometric"
ADAPTED: Final = "adapted"
LADDERS: Final = (GEOMETRIC, ADAPTED)
LIKELIHOOD: Final = "likelihood"
POSTERIOR: Final = "posterior"
PATHS: Final = (LIKELIHOOD, POSTERIOR)
NESTED: Final = "nested"
INDEPENDENT: Final = "independent"
SUBSETS: Final = (NESTED, INDEPENDENT)
STEPS: Final = 10
"""Leapfrog steps of a transition, where they are not given."""

TEMPERED_STATISTICS: Final = (*STATISTICS, "swap_accepted", "replica")
"""Statistics of a draw: also the share of the proposed swaps that were accepted (of a tempered
transition: whether it was accepted), and the number of the replica at level 0."""
SWAP_ACCEPTED, REPLICA = range(len(STATISTICS), len(TEMPERED_STATISTICS))


@dataclass(frozen=True, kw_only=True)
class TemperedOptions(Sampler):
    """Options of every sampler with a ladder of levels.

    Level m has the density ``p(X|theta)^beta_m p(theta)``; with subsampling
    ``p(X_m|theta) p(theta)``, where ``X_m`` has ``round(beta_m N)`` rows. Level 0 is the
    posterior.

    Parameters
    ----------
    n_levels
        Levels, ``M + 1``; 1 is the inner kernel alone. ``None``: from the global barrier that a
        pilot run finds.
    max_levels
        Most levels that the pilot run may choose. ``None``: 40 of parallel tempering, 100 of
        tempered transitions. Without effect where ``n_levels`` is given.
    beta_min
        Inverse temperature of the last level, in [0, 1); 0 is the prior, of which it takes
        independent draws. ``None``: 0, or 0.125 where the prior is flat or has the power too.
    ladder
        ``geometric``: ``beta_m = beta_min^(m / M)``; ``adapted``: warm-up spaces the levels so
        that all neighbours exchange equally often, beginning there.
    explorer
        Inner kernel: ``hmc`` or ``random-walk``.
    step_size
        Step of the inner kernel at level 0, in units of ``covariance``: with ``laplace`` in
        posterior standard deviations. Level m has ``step_size beta_m^(-1/2)``. ``None``: warm-up
        tunes every level by itself to ``target_acceptance``.
    n_steps
        Leapfrog steps of an ``hmc`` transition. ``None``: 10, or 3 where a draw has several
        iterations of all levels.
    jitter
        Half-width of the uniform factor on the step size of an ``hmc`` transition, in [0, 1).
    inner_steps
        Transitions of the inner kernel for every one that the sampler asks for.
    target_acceptance
        Mean acceptance probability of the inner kernel, in (0, 1), to which warm-up tunes step
        sizes. ``None``: 0.8 for ``hmc``, 0.234 for ``random-walk``, 0.44 in one dimension.
    """

    n_levels: int | None = None
    max_levels: int | None = None
    beta_min: float | None = None
    ladder: Literal["geometric", "adapted"] = ADAPTED
    explorer: Literal["hmc", "random-walk"] = HMC
    step_size: float | None = None
    n_steps: int | None = None
    jitter: float = 0.2
    inner_steps: int = 1
    target_acceptance: float | None = None
    covariance: Literal["laplace", "identity"] | None = None
    start: float | None = None

    subsets_of_rows: ClassVar[bool] = False
    """Whether levels have fewer rows, instead of a power of the likelihood."""
    target: ClassVar[str] = EXACT
    crosses_modes: ClassVar[bool] = True
    restarts: ClassVar[bool] = True
    statistics: ClassVar[tuple[str, ...]] = recorded(TEMPERED_STATISTICS, *OF_ESTIMATES)

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        check_subsample(self, "n_levels", "max_levels", "n_steps", "inner_steps")
        if self.inner_steps is None:
            raise ConfigError(
                "inner_steps must be a whole number, found None: give one, or leave it out"
            )
        for option, choices in self._choices().items():
            value = getattr(self, option)
            if value not in choices:
                raise ConfigError(
                    f"{option} must be one of {', '.join(choices)}, found {value!r}"
                    ": choose one of them"
                )
        if self.covariance is not None and self.covariance not in COVARIANCES:
            raise ConfigError(
                f"covariance must be one of {', '.join(COVARIANCES)}, found {self.covariance!r}"
                ": choose one of them"
            )
        check_number("beta_min", self.beta_min, most=1.0)
        # The posterior to the power 0 is no density.
        above = self.powers_of_prior
        least = math.ulp(0.0) if above else 0.0
        if self.n_levels != 1 and self.beta_min is not None and not least <= self.beta_min < 1.0:
            bracket = "(" if above else "["
            raise ConfigError(
                f"beta_min must be a number in {bracket}0, 1), found {self.beta_min!r}"
                ": give a number in this range"
            )
        check_number("step_size", self.step_size, above=True)
        check_number("jitter", self.jitter, most=0.999)
        check_number("target_acceptance", self.target_acceptance, above=True, most=0.999)
        if self.start is not None and not (
            isinstance(self.start, (int, float)) and math.isfinite(self.start)
        ):
            raise ConfigError(
                f"start must be a finite number, found {self.start!r}: give one, or leave it out"
            )

    @property
    def powers_of_prior(self) -> bool:
        """Whether the prior is raised to ``beta_m`` as well: no level is the prior then."""
        return getattr(self, "path", LIKELIHOOD) == POSTERIOR

    def _choices(self) -> dict[str, tuple[str, ...]]:
        """Return the options that are one of some words."""
        return {"ladder": LADDERS, "explorer": EXPLORERS}

    def needs_pass(self, model: Model) -> bool:
        """Return whether the shape of the steps comes from passes over all rows."""
        if self.covariance is None:
            return model.joint is None
        return self.covariance == LAPLACE

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return the setup with every level settled, by a pilot run where none are given."""
        from streammc.samplers.tempering.levels import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.tempering.problem import tempering

        return tempering(request.dataset, request.model, setup.cv, self)

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return checks of swaps, excursions and restarts; see ``Sampler``."""
        from streammc.samplers.tempering.facts import ladder_evidence

        return ladder_evidence(summary)
