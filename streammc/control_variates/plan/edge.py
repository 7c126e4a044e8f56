"""Region in which the perturbed target is sampled; outside it the density is 0.

Far from ``theta_star`` the perturbed density exceeds the posterior without bound, with
false tails and modes. The region is a ball cut by walls, both in whitened coordinates
``z`` of ``theta = theta_star + S z``; about a millionth of the posterior is outside of it.
It is fixed before the first draw and shared by all chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Matrix

WALLS: Final = "edge_walls"


@dataclass(frozen=True)
class Edge:
    """Region in whitened coordinates: a ball cut by walls, which are half-spaces.

    Attributes
    ----------
    radius
        Largest ``|z|``; infinite where there is no ball.
    walls
        (w, d + 1) rows ``(a, h)``: inside is ``a'z <= h``.
    """

    radius: float
    walls: Matrix

    def describe(self) -> dict[str, Any]:
        """Return JSON with the radius and the number of walls."""
        return {
            "radius": self.radius if math.isfinite(self.radius) else None,
            "walls": len(self.walls),
        }

    def arrays(self) -> dict[str, Any]:
        """Return the walls as arrays by name, for the group ``constant_data``."""
        if not len(self.walls):
            return {}
        return {WALLS: (("wall", "wall_coefficient"), self.walls)}

    def inside(self, z: Matrix) -> NDArray[np.bool_]:
        """Return whether each of the positions ``z`` (S, d) is in the region."""
        within: NDArray[np.bool_] = (z**2).sum(axis=1) <= self.radius**2
        if not len(self.walls):
            return within
        kept: NDArray[np.bool_] = within & np.all(
            z @ self.walls[:, :-1].T <= self.walls[:, -1], axis=1
        )
        return kept

    @classmethod
    def from_description(
        cls, described: Mapping[str, Any], read: Callable[[str], NDArray[Any]]
    ) -> Edge:
        """Restore from :meth:`describe` and :meth:`arrays`, read by name."""
        radius = math.inf if described["radius"] is None else float(described["radius"])
        walls = np.asarray(read(WALLS), np.float64) if described["walls"] else np.zeros((0, 0))
        return cls(radius, np.ascontiguousarray(walls))
