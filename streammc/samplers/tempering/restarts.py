"""Restarts: how often a draw from the prior came down to level 0, and warnings of too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FEWEST: Final = 10
"""Restarts of a chain, below which the shares of modes are hardly known."""


def restart_warnings(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> list[str]:
    """Return warnings of a ladder whose chains restart seldom, never, or cannot.

    ``tallies`` of every chain hold ``beta``, ``prior_is_proper`` and, where the last level is
    the prior, ``restarts``.
    """
    last = float(np.mean([tally["beta"][-1] for tally in tallies]))
    if last > 0.0:
        why = f"the ladder ends at beta {last:.3g}, above the prior"
        remedy = "leave out beta_min, and the path of powers of the posterior"
        if not int(tallies[0]["prior_is_proper"]):
            why = f"the prior is flat and cannot be sampled: the ladder ends at beta {last:.3g}"
            remedy = "give every parameter a proper prior"
        return [
            f"{why}, and no chain ever restarts from an independent draw: a mode that is far from "
            f"where the chains started may have been missed; {remedy}"
        ]
    found = [float(tally["restarts"]) for tally in tallies]
    if sum(found) < 1.0:
        return [
            "no state came from the prior level down to level 0 in any chain: every chain may be "
            "in the mode where it started, and others may have been missed; ask for more draws, "
            "or leave n_levels to the pilot"
        ]
    if min(found) < FEWEST:
        return [
            f"only {sum(found):.0f} states came from the prior level down to level 0 in "
            f"{len(found)} chains, expected {FEWEST} a chain or more: the masses of several modes "
            "are hardly known; ask for more draws, or leave n_levels to the pilot"
        ]
    return []
