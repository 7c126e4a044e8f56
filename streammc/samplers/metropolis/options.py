"""Options that all samplers with an acceptance test share."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.option_checks import (
    IDENTITY,
    LAPLACE,
    NONE,
    RANDOM_WALK,
    check_number,
    check_subsample,
)
from streammc.samplers.common.statistics import STATISTICS
from streammc.samplers.common.targets import APPROXIMATE
from streammc.subsampling.units import UNIFORM

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
"""What is recorded: also the rows that the decision rests on, the error that the test
estimates of it, whether it was forced, and the temperature."""


@dataclass(frozen=True, kw_only=True)
class MetropolisOptions:
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

    name: ClassVar[str]
    target: ClassVar[str] = APPROXIMATE
    test: ClassVar[str]
    """Module of ``streammc.samplers.metropolis.acceptance`` that holds the test."""
    barker: ClassVar[bool] = True
    """Whether the acceptance function is Barker's."""
    subsampled: ClassVar[bool] = True
    audited: ClassVar[bool] = False
    statistics: ClassVar[tuple[str, ...]] = METROPOLIS_STATISTICS
    order: ClassVar[int] = 2
    n_blocks: ClassVar[int | None] = None
    factor_units: ClassVar[int] = 0
    probabilities: ClassVar[str] = UNIFORM
    recalibrate: ClassVar[int | None] = None
    forced: ClassVar[bool] = True
    variance_limit: ClassVar[float] = math.inf

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

    def implied_temperature(self, n_rows: int) -> float:
        """Return the temperature that the sampler itself needs, times that asked for."""
        return 1.0

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return every option."""
        return {"name": self.name, **asdict(self)}
