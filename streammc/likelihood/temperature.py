"""Temperature of the likelihood: its schedule over the iterations of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.protocols import Vector

SQRT: Final = "sqrt"
FORMS: Final = "T, 'T:sqrt' (T / sqrt(i + 1), at least 1) or 'T:N' (T for N iterations, then 1)"

IMPLIED: Final = "implied_temperature"
"""Attribute of a run: temperature implied by the sampler, a factor on the requested one."""

_LARGEST: Final = 1e9
"""Largest first temperature that counts for the length of a schedule ``T:sqrt``."""


@dataclass(frozen=True)
class Schedule:
    """The temperature of every iteration of a chain, warm-up included.

    ``T_i = T`` where it is constant; with ``fall='sqrt'`` ``T_i = max(1, T / sqrt(i + 1))``;
    with ``fall=N`` ``T_i = T`` for ``i < N``, then 1. Iterations count from 0.
    """

    first: float = 1.0
    """T, above 0; above 1 in a falling schedule."""
    fall: str | int | None = None

    @classmethod
    def parse(cls, value: Any) -> Schedule:
        """Return the schedule given as a number, or as text ``"T"``, ``"T:sqrt"`` or ``"T:N"``.

        Raises
        ------
        ConfigError
            If ``value`` has none of these forms, or a number is out of range.

        Examples
        --------
        >>> Schedule.parse("1000:sqrt").at(0, 4)
        array([1000.        ,  707.10678119,  577.35026919,  500.        ])
        >>> Schedule.parse("100:2").at(0, 4)
        array([100., 100.,   1.,   1.])
        """
        if isinstance(value, cls):
            return value
        head, colon, tail = value.partition(":") if isinstance(value, str) else (value, "", "")
        first = _number(head, value)
        if not colon:
            return cls(first)
        if first <= 1.0:
            raise ConfigError(
                f"a temperature that falls to 1 must begin above 1, found {value!r}; "
                f"give {head} for a constant temperature"
            )
        if tail == SQRT:
            return cls(first, SQRT)
        if not (tail.isascii() and tail.isdigit()) or int(tail) < 1 or len(tail) > 9:
            raise ConfigError(
                f"expected temperature {FORMS}, N from 1 to 999999999, found {value!r}"
                ": give one of these"
            )
        return cls(first, int(tail))

    @property
    def constant(self) -> bool:
        """Whether the temperature never changes."""
        return self.fall is None

    @property
    def final(self) -> float:
        """Final temperature: T if constant, else 1."""
        return self.first if self.constant else 1.0

    @property
    def settled(self) -> int:
        """First iteration from which the temperature is ``final``."""
        if self.fall is None:
            return 0
        return (
            math.ceil(min(self.first, _LARGEST) ** 2) - 1 if self.fall == SQRT else int(self.fall)
        )

    def at(self, iteration: int, n: int) -> Vector:
        """Return (n,) the temperatures of the iterations from ``iteration`` on."""
        i = np.arange(iteration, iteration + n, dtype=np.float64)
        if self.fall is None:
            return np.full(n, self.first)
        if self.fall == SQRT:
            return np.maximum(1.0, self.first / np.sqrt(i + 1.0))
        return np.where(i < int(self.fall), self.first, 1.0)

    def describe(self) -> float | str:
        """Return the schedule in a form that :meth:`parse` reads: a number if it is constant."""
        return self.first if self.constant else str(self)

    def __str__(self) -> str:
        """Return the schedule as given on a command line."""
        return f"{self.first:.17g}" + ("" if self.constant else f":{self.fall}")


def _number(text: Any, whole: Any) -> float:
    """Return ``text`` as a finite number above 0; raise ConfigError if it is none."""
    try:
        if isinstance(text, bool):
            raise TypeError
        found = float(text)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected temperature {FORMS}, found {whole!r}: give one of these"
        ) from None
    if not (math.isfinite(found) and found > 0.0):
        raise ConfigError(
            f"temperature must be a finite number above 0, found {whole!r}: give a larger number"
        )
    return found


def schedule_of(identity: Mapping[str, Any]) -> Schedule:
    """Return the temperature schedule of the run with this identity."""
    return Schedule.parse(identity.get("temperature", 1.0))


def temperature_of(identity: Mapping[str, Any], attributes: Mapping[str, Any]) -> float:
    """Return the final temperature of a run, with that implied by its sampler."""
    return schedule_of(identity).final * float(attributes.get(IMPLIED, 1.0))
