"""The settings of leave-one-out scores as one record, and how many rows are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from streammc.errors import ConfigError

DRAWS: Final = 1000
FEWEST_DRAWS: Final = 100
"""Fewest draws: the tail of importance weights has a fifth of them."""
FEWEST_ROWS: Final = 100
SAMPLED_ROWS: Final = 10_000
EVALUATIONS: Final = 2e8
"""Log-likelihoods of rows, draws and nodes up to which every row is evaluated: 10 s or so."""
MOST_EXACT: Final = 2**24
"""Most rows that are evaluated, at 40 bytes of memory each."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """The settings of ``streammc.score``, checked when they are made.

    Raises
    ------
    ConfigError
        If one is wrong whatever the run.
    """

    draws: int = DRAWS
    rows: int | None = None
    seed: int = 0
    scheduler: Any = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("draws", self.draws, FEWEST_DRAWS),
            ("rows", FEWEST_ROWS if self.rows is None else self.rows, FEWEST_ROWS),
            ("seed", self.seed, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"expected {name} of at least {least}, found {value!r}: give such a whole "
                    "number, or leave it out"
                )

    def evaluated(self, units: int, cost: float) -> int:
        """Return how many of ``units`` rows or groups are evaluated at every draw.

        Parameters
        ----------
        units
            Number of rows or groups of the table.
        cost
            Evaluations of a unit at one draw: its rows times its quadrature nodes.

        Raises
        ------
        ConfigError
            If the number that is asked for does not fit into memory.
        """
        each = cost * self.draws
        if self.rows is None:
            if units * each <= EVALUATIONS:
                return units
            return min(units, SAMPLED_ROWS, max(int(EVALUATIONS / each), FEWEST_ROWS))
        wanted = min(self.rows, units)
        if wanted > MOST_EXACT:
            raise ConfigError(
                f"expected at most {MOST_EXACT:,} rows to evaluate at every draw, found "
                f"{wanted:,}: give fewer; the others are estimated from them"
            )
        return wanted
