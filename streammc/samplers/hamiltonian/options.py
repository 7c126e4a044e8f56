"""Options of the samplers with Hamiltonian trajectories."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from streammc.errors import ConfigError
from streammc.samplers.common.option_checks import (
    DEFAULT_LENGTH,
    check_probabilities,
    check_subsample,
    is_number,
)
from streammc.samplers.common.sampler import Sampler
from streammc.samplers.common.statistics import STATISTICS
from streammc.subsampling.probabilities import UNIFORM

if TYPE_CHECKING:
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.evidence import Evidence
    from streammc.samplers.common.request import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

T = TypeVar("T")

PERTURBED_STATISTICS: Final = (*STATISTICS, "beyond_edge")
"""Statistics of ``hmc-ecs``; ``beyond_edge`` is 1 if a trajectory went beyond the edge."""
SIGNED_STATISTICS: Final = (*STATISTICS, "sign")
"""Statistics of ``hmc-ecs-signed``; ``sign`` is that of the estimated likelihood."""
BEYOND_EDGE_COLUMN: Final = PERTURBED_STATISTICS.index("beyond_edge")
SIGN_COLUMN: Final = SIGNED_STATISTICS.index("sign")

DEFAULT_JITTER: Final = 0.2
"""Half-width of the uniform factor on the default length, against resonances."""
DEFAULT_ACCEPTANCE: Final = 0.85
"""Leads to one step if the posterior is nearly Gaussian, and to two or more otherwise."""
JITTERED: Final = "jittered"
NUTS: Final = "nuts"
TRAJECTORIES: Final = (JITTERED, NUTS)
"""Ends of a trajectory: at a random length, or where it turns back."""
SPLIT: Final = "split"
LEAPFROG: Final = "leapfrog"
INTEGRATORS: Final = (SPLIT, LEAPFROG)
"""Integrators: exact for the Gaussian approximation with kicks by the rest, or leapfrog."""


def trajectory(length: float | None, jitter: float | None) -> tuple[float, float]:
    """Return length and jitter of trajectories; a length given without a jitter is fixed."""
    if length is None:
        return DEFAULT_LENGTH, DEFAULT_JITTER if jitter is None else jitter
    return length, 0.0 if jitter is None else jitter


@dataclass(frozen=True, kw_only=True)
class TrajectoryOptions(Sampler):
    """Options of every sampler with a trajectory.

    Parameters
    ----------
    trajectory
        ``jittered``: trajectories of random length, ``trajectory_length`` within ``jitter``;
        ``nuts``: each ends where it turns back.
    integrator
        ``split``: integrates the Gaussian approximation of the posterior exactly, and the rest by
        kicks of the momentum; ``leapfrog``.
    step_size
        Longest step of the integrator, in posterior standard deviations (of the Laplace
        approximation). ``None``: warm-up tunes it to ``target_acceptance``.
    trajectory_length
        Mean length of a trajectory, ``step_size * n_steps``, in posterior standard deviations.
        ``None``: pi / 2, a quarter of a period. Not allowed with ``nuts``.
    jitter
        Half-width of the uniform factor on step size and length of a trajectory, in [0, 1).
        ``None``: 0.2, or 0 if ``trajectory_length`` is given. Not allowed with ``nuts``.
    target_acceptance
        Mean acceptance probability, in (0, 1), to which warm-up tunes the step size. A given
        ``step_size`` is not tuned.
    """

    trajectory: Literal["jittered", "nuts"] = JITTERED
    integrator: Literal["split", "leapfrog"] = SPLIT
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    target_acceptance: float = DEFAULT_ACCEPTANCE

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        if self.trajectory not in TRAJECTORIES:
            raise ConfigError(
                f"trajectory must be 'jittered' or 'nuts', found {self.trajectory!r}"
                ": choose one of them"
            )
        if self.integrator not in INTEGRATORS:
            raise ConfigError(
                f"integrator must be 'split' or 'leapfrog', found {self.integrator!r}"
                ": choose one of them"
            )
        for option in ("trajectory_length", "jitter"):
            value = getattr(self, option)
            if self.trajectory == NUTS and value is not None:
                raise ConfigError(
                    f"{option} must be left out with trajectory='nuts', which ends a trajectory "
                    f"where it turns back; found {value!r}: leave it out"
                )
        for option in ("step_size", "trajectory_length"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and value > 0):
                raise ConfigError(
                    f"{option} must be a finite number above 0, found {value!r}"
                    ": give one, or leave it out"
                )
        if self.jitter is not None and not (is_number(self.jitter) and 0.0 <= self.jitter < 1.0):
            raise ConfigError(
                f"jitter must be in [0, 1), found {self.jitter!r}: give a number in this range"
            )
        if not (is_number(self.target_acceptance) and 0.0 < self.target_acceptance < 1.0):
            raise ConfigError(
                f"target_acceptance must be in (0, 1), found {self.target_acceptance!r}"
                ": give a number in this range"
            )

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return checks of divergences and acceptance; see ``Sampler``."""
        from streammc.samplers.hamiltonian.facts import trajectory_evidence

        return trajectory_evidence(summary["sampling"])


@dataclass(frozen=True, kw_only=True)
class SubsampleOptions(TrajectoryOptions):
    """Options of trajectories over a subsample.

    Parameters
    ----------
    subsample_size
        Rows in the subsample, m; for ``hmc-ecs-signed`` their expected number. ``None``: chosen by
        the variance of the estimate that the full pass predicts.
    n_blocks
        Blocks of the subsample, G; an iteration proposes new units for one of them. ``None``: 100,
        or fewer for a subsample of fewer units.
    order
        Order of the control variates, Taylor expansions of every row around theta_star: 0, 1 or 2.
    recalibrate
        Iterations of a preliminary run, whose draws are not kept. The mean of its second half
        becomes theta_star, with one more full pass. ``None``: no such run.
    """

    subsample_size: int | None = None
    n_blocks: int | None = None
    unit_rows: int | None = None
    order: Literal[0, 1, 2] = 2
    certainty: bool = True
    probabilities: Literal["uniform", "scores"] = UNIFORM
    recalibrate: int | None = None

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_subsample(self, "subsample_size", "n_blocks", "unit_rows", "recalibrate")
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ConfigError(f"order must be 0, 1 or 2, found {self.order!r}: choose one of them")
        if not isinstance(self.certainty, bool):
            raise ConfigError(
                f"certainty must be true or false, found {self.certainty!r}: use True or False"
            )
        check_probabilities(self.probabilities)

    @property
    @abstractmethod
    def factor_units(self) -> int:
        """Units of a factor of the block-Poisson product; 0 without a product."""

    @property
    def paper_variance(self) -> bool:
        """Whether the variance of the estimate has the divisor k^2 instead of k (k - 1)."""
        return False

    @property
    def forced(self) -> bool:
        """Whether the sampler runs even if the plan refuses it."""
        return False

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan of the subsample; see ``Sampler``."""
        from streammc.samplers.hamiltonian.preparation import prepare_subsampled

        return prepare_subsampled(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import subsampled

        assert setup.plan is not None
        return subsampled(request.dataset, request.model, setup.cv, setup.plan, self)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return facts on signs, the edge and a recalibration; see ``Sampler``."""
        from streammc.samplers.hamiltonian.facts import subsample_facts

        return subsample_facts(run, setup)

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return warnings about noisy estimates, the tails and negative signs; see ``Sampler``."""
        from streammc.samplers.hamiltonian.facts import subsample_warnings

        return subsample_warnings(facts)

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return receipt lines on blocks, estimated variance and mean sign; see ``Sampler``."""
        from streammc.samplers.hamiltonian.facts import subsample_text

        return subsample_text(facts)

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return checks of trajectories, estimated variance, edge and signs; see ``Sampler``."""
        from streammc.samplers.hamiltonian.facts import subsample_evidence

        return [*subsample_evidence(summary["sampling"]), *super().evidence(summary)]
