"""Option names shared by several families of samplers, and checks of options."""

from __future__ import annotations

import math
from typing import Any, Final

from streammc.errors import ConfigError
from streammc.subsampling.probabilities import PROBABILITIES

NONE: Final = "none"
LAPLACE: Final = "laplace"
IDENTITY: Final = "identity"
RANDOM_WALK: Final = "random-walk"
COVARIANCES: Final = (LAPLACE, IDENTITY)
"""Shapes of the steps: that of the Laplace approximation, or the identity."""
DEFAULT_LENGTH: Final = math.pi / 2
"""Length of a trajectory: in a Gaussian posterior the end of a quarter period is independent
of its start."""


def check_subsample(sampler: object, *names: str) -> None:
    """Raise ConfigError unless these options are ``None`` or positive whole numbers."""
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
    """Return whether an option is a finite number; a bool is not a number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def check_probabilities(value: str) -> None:
    """Raise ConfigError unless ``value`` is ``uniform`` or ``scores``."""
    if value not in PROBABILITIES:
        raise ConfigError(
            f"probabilities must be 'uniform' or 'scores', found {value!r}: choose one of them"
        )


def check_number(option: str, value: Any, *, above: bool = False, most: float = math.inf) -> None:
    """Raise ConfigError unless ``value`` is None or in [0, most]; ``above`` excludes 0."""
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    inside = number and math.isfinite(value) and 0.0 <= value <= most and not (above and value == 0)
    if value is not None and not inside:
        wanted = "above 0" if above else "of 0 or more"
        if most < math.inf:
            wanted = f"in {'(' if above else '['}0, {most:g}]"
        raise ConfigError(
            f"{option} must be a finite number {wanted}, found {value!r}: give one, or leave it out"
        )
