"""Options that all samplers with an acceptance test share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.option_checks import (
    IDENTITY,
    LAPLACE,
    NONE,
    RANDOM_WALK,
    check_number,
    check_subsample,
)
from streammc.samplers.common.sampler import Sampler
from streammc.samplers.common.statistics import STATISTICS, recorded
from streammc.samplers.common.targets import APPROXIMATE
from streammc.subsampling.probabilities import UNIFORM

if TYPE_CHECKING:
    from streammc.protocols import Model
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.evidence import Evidence
    from streammc.samplers.common.request import RunRequest, Setup
    from streammc.samplers.metropolis.acceptance.interface import Prepared
    from streammc.trace.run_directory import RunDirectory

LANGEVIN: Final = "langevin"
SGHMC: Final = "sghmc"
PROPOSALS: Final = (RANDOM_WALK, LANGEVIN, SGHMC)
DIAGONAL: Final = "diagonal"
FULL: Final = "full"
COVARIANCES: Final = (LAPLACE, IDENTITY, DIAGONAL, FULL)
"""Shape of the steps: of the Laplace approximation, none, or learnt in warm-up."""

METROPOLIS_STATISTICS: Final = (
    *STATISTICS,
    "test_rows",
    "decision_error",
    "forced",
    "temperature",
)
"""Statistics of a draw: also the rows that the decision rests on, the error that the test
estimates of it, whether it was forced, and the temperature."""
TEST_ROWS, DECISION_ERROR, WAS_FORCED, TEMPERATURE = range(
    len(STATISTICS), len(METROPOLIS_STATISTICS)
)


@dataclass(frozen=True, kw_only=True)
class MetropolisOptions(Sampler):
    """Options of every sampler with an acceptance test.

    Parameters
    ----------
    proposal
        ``random-walk``, ``langevin`` with its Hastings correction, or ``sghmc``, a trajectory with
        friction.
    covariance
        Shape of the steps: ``laplace``, that of the Laplace approximation; ``identity``, units of
        theta; or learnt in warm-up: ``diagonal``, ``full``. ``None``: ``laplace`` with control
        variates, ``identity`` without.
    step_size
        Standard deviation of a step, in units of ``covariance``: with ``laplace`` in posterior
        standard deviations. ``None``: warm-up tunes it to ``target_acceptance``.
    target_acceptance
        Mean acceptance probability, in (0, 1], to which warm-up tunes the step size. ``None``: the
        best in many dimensions, such as 0.234 for a random walk and 0.574 for ``langevin``, lower
        with Barker's acceptance function. A given ``step_size`` is not tuned.
    subsample_size
        Rows that a decision asks for first, m. ``None``: from the full pass; 100 without one.
    control_variate
        Order of the Taylor expansion that is subtracted from every row: 2, 1 or 0. ``none``, or
        ``None``: nothing is subtracted, and no full pass is made.
    gradient_size
        Rows of each gradient of a ``langevin`` or ``sghmc`` proposal. ``None``: none with control
        variates of order 1 or 2, whose expansion has a gradient; else as many as
        ``subsample_size``, or 100.
    n_steps
        Steps of an ``sghmc`` proposal.
    friction
        Friction alpha of a step of an ``sghmc`` proposal, in (0, 1].
    """

    proposal: Literal["random-walk", "langevin", "sghmc"] = RANDOM_WALK
    covariance: Literal["laplace", "identity", "diagonal", "full"] | None = None
    step_size: float | None = None
    target_acceptance: float | None = None
    subsample_size: int | None = None
    unit_rows: int | None = None
    control_variate: Literal[0, 1, 2, "none"] | None = 2
    certainty: bool = True
    gradient_size: int | None = None
    n_steps: int = 1
    friction: float = 0.1
    start: float | None = None

    target: ClassVar[str] = APPROXIMATE
    decide: ClassVar[Any]
    """The compiled acceptance test: see ``acceptance.interface``."""
    chooses_size: ClassVar[bool] = False
    """Whether :meth:`acceptance_test` chooses ``subsample_size`` where it is not given."""
    subsampled: ClassVar[bool] = True
    """Whether decisions rest on some of the rows."""
    follows_schedule: ClassVar[bool] = True
    statistics: ClassVar[tuple[str, ...]] = recorded(
        METROPOLIS_STATISTICS, "diverging", "subsample_accepted"
    )
    n_blocks: ClassVar[int | None] = None
    factor_units: ClassVar[int] = 0
    probabilities: ClassVar[str] = UNIFORM

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        if self.control_variate is None:  # `none` on a command line
            object.__setattr__(self, "control_variate", NONE)
        if isinstance(self.control_variate, bool) or self.control_variate not in (0, 1, 2, NONE):
            raise ConfigError(
                f"control_variate must be 0, 1, 2 or 'none', found {self.control_variate!r}"
                ": choose one of them"
            )
        if self.proposal not in PROPOSALS:
            raise ConfigError(
                f"proposal must be one of {', '.join(PROPOSALS)}, found {self.proposal!r}"
                ": choose one of them"
            )
        if self.covariance is not None and self.covariance not in COVARIANCES:
            raise ConfigError(
                f"covariance must be one of {', '.join(COVARIANCES)}, found {self.covariance!r}"
                ": choose one of them"
            )
        if self.covariance == LAPLACE and self.control_variate == NONE:
            raise ConfigError(
                "covariance='laplace' needs the pass of the control variates, found "
                "control_variate='none'; use 'identity', 'diagonal' or 'full'"
            )
        if not isinstance(self.certainty, bool):
            raise ConfigError(
                f"certainty must be true or false, found {self.certainty!r}: use True or False"
            )
        check_subsample(self, "subsample_size", "unit_rows", "gradient_size", "n_steps")
        check_number("step_size", self.step_size, above=True)
        check_number("friction", self.friction, above=True, most=1.0)
        check_number("target_acceptance", self.target_acceptance, above=True, most=1.0)
        if self.start is not None and not (
            isinstance(self.start, (int, float)) and math.isfinite(self.start)
        ):
            raise ConfigError(
                f"start must be a finite number, found {self.start!r}: give one, or leave it out"
            )

    def rows_of(self, n_rows: int) -> int | None:
        """Return m for a data set of ``n_rows`` rows; ``None`` means chosen automatically."""
        return self.subsample_size

    @property
    def takes_bound(self) -> bool:
        """Whether the test takes the model's bound on a term, and all rows where there is none."""
        return False

    @abstractmethod
    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return settings and table of the acceptance test.

        Parameters
        ----------
        population
            Terms of the data set: units, U.
        m
            Terms of a request, ``subsample_size`` in units; ``None``: the default of the test.
        """

    def needs_pass(self, model: Model) -> bool:
        """Return whether control variates are asked for."""
        return self.control_variate != NONE

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan of the first rows, where they are asked for."""
        from streammc.samplers.metropolis.preparation import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.metropolis.problem import metropolis

        return metropolis(
            request.dataset, request.model, setup.cv, setup.plan, self, request.schedule
        )

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return rows, errors and temperatures of the decisions."""
        from streammc.samplers.metropolis.facts import decision_facts

        return decision_facts(run)

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return warnings of temperatures that end late, and of the decisions."""
        from streammc.samplers.metropolis.facts import decision_warnings

        return decision_warnings(facts)

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows and error of a decision, and how many were forced."""
        return {
            "rows per decision": facts["test_rows_mean"],
            "error per decision": facts["decision_error_mean"],
            "forced decisions": facts["forced"],
        }

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return checks of the decisions; see ``Sampler``."""
        from streammc.samplers.metropolis.facts import decision_evidence

        return decision_evidence(summary["sampling"])
