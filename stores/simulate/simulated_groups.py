"""Groups of simulated rows: sizes that vary, and a random intercept u ~ Normal(0, tau), tau = 1."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.protocols import Vector
from streammc.rng import Role, stream
from streammc.stores.simulate.simulation_kinds import Kind, Regression

TAU: Final = 1.0
"""Standard deviation of the random intercepts."""
_SHAPE: Final = 2.0
"""Shape of the gamma distribution of the group sizes."""


class SimulatedGroups:
    """Contiguous groups with the labels 0, 1, ...; in memory, 16 bytes a group.

    Parameters
    ----------
    n_rows, n_groups
        Numbers of rows and of groups.
    seed
        Seed of sizes and effects.
    """

    def __init__(self, n_rows: int, n_groups: int, seed: int) -> None:
        rng = stream(seed, 0, Role.SIMULATE, 1)
        bounds = np.cumsum(rng.standard_gamma(_SHAPE, n_groups))
        # Each group has a row of its own, and its share of the others.
        rest = np.rint(bounds / bounds[-1] * (n_rows - n_groups)).astype(np.int64)
        self.offset = np.append(0, rest + np.arange(1, n_groups + 1))
        self.effects: Vector = rng.normal(0.0, TAU, n_groups)

    def effects_of_rows(self, start: int, count: int) -> Vector:
        """Return the effects (count,) of the rows from ``start``; 0 past the last row."""
        found = np.zeros(count)
        stop = min(start + count, int(self.offset[-1]))
        if start < stop:
            first = int(np.searchsorted(self.offset, start, side="right")) - 1
            last = int(np.searchsorted(self.offset, stop, side="left"))
            sizes = np.diff(np.clip(self.offset[first : last + 1], start, stop))
            found[: stop - start] = np.repeat(self.effects[first:last], sizes)
        return found

    def facts(self) -> dict[str, Any]:
        """Return what the store's attribute ``simulation`` has beside kind, seed and theta."""
        return {"groups": self.effects.size, "tau": TAU}


def simulated_groups(
    kind: str, family: Kind, n_rows: int, n_groups: int | None, seed: int
) -> SimulatedGroups | None:
    """Return the groups of a simulation; ``None`` without any.

    Raises
    ------
    ConfigError
        If the kind has no linear predictor, or the number of groups is out of range.
    """
    if n_groups is None:
        return None
    if not isinstance(family, Regression):
        raise ConfigError(
            f"expected a kind with one linear predictor for groups, found {kind!r}: take logistic, "
            "poisson or gaussian, or leave the groups out"
        )
    if type(n_groups) is not int or not 2 <= n_groups <= n_rows:
        raise ConfigError(
            f"expected between 2 and {n_rows} groups, one row each, found {n_groups!r}"
            ": give a number in this range"
        )
    return SimulatedGroups(n_rows, n_groups, seed)
