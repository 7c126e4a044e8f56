"""What all samplers with a trajectory share about their options."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Final, TypeVar

from streammc.errors import ConfigError
from streammc.subsampling.units import PROBABILITIES, UNIFORM

T = TypeVar("T")

STATISTICS: Final = (
    "lp",
    "acceptance_rate",
    "diverging",
    "energy",
    "step_size",
    "n_steps",
    "log_lik_variance",
    "subsample_accepted",
    "n_rows",
    "log_lik_remainder",
)
"""What is recorded at every iteration, in the order in which the transition writes it."""
PERTURBED_STATISTICS: Final = (*STATISTICS, "beyond_edge")
"""The same where the density is cut at an edge: 1 where a trajectory came beyond it."""
SIGNED_STATISTICS: Final = (*STATISTICS, "sign")
"""The same where an estimate of the likelihood can be negative."""

DEFAULT_LENGTH: Final = math.pi / 2
"""In a Gaussian posterior a quarter of a period forgets the start."""
DEFAULT_JITTER: Final = 0.2
"""Half-width of the uniform factor on the default length, against resonances."""
DEFAULT_ACCEPTANCE: Final = 0.85
"""One step where the posterior is nearly Gaussian, two or more where it is not."""
JITTERED: Final = "jittered"
NUTS: Final = "nuts"
TRAJECTORIES: Final = (JITTERED, NUTS)
"""A drawn length, or until the trajectory turns back."""
SPLIT: Final = "split"
LEAPFROG: Final = "leapfrog"
INTEGRATORS: Final = (SPLIT, LEAPFROG)
"""Rotate with the Gaussian approximation and kick by the rest, or drift and kick."""


def check_subsample(sampler: object, *names: str) -> None:
    """Raise ConfigError unless those options are absent or positive whole numbers."""
    for name in names:
        value = getattr(sampler, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"{name} must be a positive whole number, found {value!r}"
                ": give one, or leave it out"
            )


def is_number(value: object) -> bool:
    """Return whether an option is a finite number; truth values are none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def check_probabilities(value: str) -> None:
    """Raise ConfigError unless that is a way to draw units."""
    if value not in PROBABILITIES:
        raise ConfigError(
            f"probabilities must be 'uniform' or 'scores', found {value!r}: choose one of them"
        )


def trajectory(length: float | None, jitter: float | None) -> tuple[float, float]:
    """Return length and jitter: a length given without a jitter is kept fixed."""
    if length is None:
        return DEFAULT_LENGTH, DEFAULT_JITTER if jitter is None else jitter
    return length, 0.0 if jitter is None else jitter


def build(cls: type[T], name: str, options: dict[str, Any]) -> T:
    """Return ``cls(**options)``; an unknown option is an error that names the known ones."""
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
            raise ConfigError(f"unknown option {option!r} of {name}: {hint}")
    return cls(**options)


@dataclass(frozen=True)
class TrajectoryOptions:
    """Options of every sampler with a trajectory; ``None`` means chosen automatically."""

    trajectory: str = JITTERED
    """``jittered`` draws the length of each; ``nuts`` ends it where it turns back."""
    integrator: str = SPLIT
    """``split`` integrates the Gaussian approximation exactly; ``leapfrog`` does not."""
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    target_acceptance: float = DEFAULT_ACCEPTANCE

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
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

    def describe(self) -> dict[str, Any]:
        """Return every option."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class SubsampleOptions(TrajectoryOptions):
    """Options of trajectories over a subsample."""

    subsample_size: int | None = None
    """Rows in the subsample, m; their expectation where the number varies."""
    n_blocks: int | None = None
    """Blocks of the subsample, G; an iteration proposes one of them anew."""
    unit_rows: int | None = None
    """Rows of a unit, b."""
    order: int = 2
    """Order of the control variates."""
    certainty: bool = True
    """Whether rows with heavy remainders are always evaluated."""
    probabilities: str = UNIFORM
    """Of the units: ``uniform``, or by their ``scores``, which takes one more pass."""
    recalibrate: int | None = None
    """Iterations of a short run whose mean is theta_star; ``None``: passes that certify it."""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_subsample(self, "subsample_size", "n_blocks", "unit_rows", "recalibrate")
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ConfigError(f"order must be 0, 1 or 2, found {self.order!r}: choose one of them")
        if not isinstance(self.certainty, bool):
            raise ConfigError(
                f"certainty must be true or false, found {self.certainty!r}: use True or False"
            )
        check_probabilities(self.probabilities)
