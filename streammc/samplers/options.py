"""What all samplers with a trajectory share about their options."""

from __future__ import annotations

import math
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from streammc.errors import ConfigError
from streammc.subsampling.units import PROBABILITIES

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


def check_dynamics(
    kind: str,
    integrator: str,
    step_size: float | None,
    trajectory_length: float | None,
    jitter: float | None,
    target_acceptance: float,
) -> None:
    """Raise ConfigError unless the options of the trajectory make sense."""
    if kind not in TRAJECTORIES:
        raise ConfigError(f"trajectory must be 'jittered' or 'nuts', found {kind!r}")
    if integrator not in INTEGRATORS:
        raise ConfigError(f"integrator must be 'split' or 'leapfrog', found {integrator!r}")
    for option, value in (("trajectory_length", trajectory_length), ("jitter", jitter)):
        if kind == NUTS and value is not None:
            raise ConfigError(
                f"{option} must be left out with trajectory='nuts', which ends a trajectory where "
                f"it turns back; found {value!r}"
            )
    for option, value in (("step_size", step_size), ("trajectory_length", trajectory_length)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{option} must be a finite number above 0, found {value!r}")
    if jitter is not None and not 0.0 <= jitter < 1.0:
        raise ConfigError(f"jitter must be in [0, 1), found {jitter!r}")
    if not 0.0 < target_acceptance < 1.0:
        raise ConfigError(f"target_acceptance must be in (0, 1), found {target_acceptance!r}")


def check_subsample(sampler: object, *names: str) -> None:
    """Raise ConfigError unless those options are absent or positive whole numbers."""
    for name in names:
        value = getattr(sampler, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a positive whole number, found {value!r}")


def check_probabilities(value: str) -> None:
    """Raise ConfigError unless that is a way to draw units."""
    if value not in PROBABILITIES:
        raise ConfigError(f"probabilities must be 'uniform' or 'scores', found {value!r}")


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
