"""Warnings and checks of runs with a ladder: swaps, restarts, excursions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import number
from streammc.samplers.common.sampler import LEVELS, Check

FEWEST_RESTARTS: Final = 10
"""Restarts of a chain, below which the shares of modes are hardly known."""


def restart_warnings(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> list[str]:
    """Return warnings of a ladder whose chains restart seldom, never, or cannot.

    ``tallies`` of every chain hold ``beta`` (levels,), the power 1 / T of the likelihood at each
    level, ``prior_is_proper`` and, where the last level is the prior, ``restarts``.
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
    if min(found) < FEWEST_RESTARTS:
        return [
            f"only {sum(found):.0f} states came from the prior level down to level 0 in "
            f"{len(found)} chains, expected {FEWEST_RESTARTS} a chain or more: the masses of "
            "several modes are hardly known; ask for more draws, or leave n_levels to the pilot"
        ]
    return []


LEAST_SWAPS: Final = 0.1
"""A pair that exchanges less often holds up the whole ladder."""


def ladder_checks(summary: Mapping[str, Any]) -> list[Check]:
    """Return the checks of a ladder from ``summary["tempering"]``; none for a single level."""
    found, ladder = [], summary.get("tempering") or {}
    levels = ladder.get("levels", {})
    rates = [rate for rate in levels.get("swap_rate", ()) if rate is not None]
    if rates:
        found.append(
            Check(
                name="smallest swap rate between levels",
                value=number(min(rates), 3),
                limit=f"at least {LEAST_SWAPS:g}",
                passed=min(rates) >= LEAST_SWAPS,
                meaning="States move between the posterior and flatter densities by swaps of "
                "neighbouring levels; a pair that seldom swaps holds up the whole ladder.",
                figure=LEVELS,
            )
        )
    if "transition_acceptance" in ladder:
        found.append(
            Check(
                name="accepted tempered transitions, share",
                value=number(ladder["transition_acceptance"], 3),
                meaning="An accepted excursion up the ladder and down again can cross to "
                "another mode.",
                figure=LEVELS,
            )
        )
    if "restarts" in ladder:
        # The limit is for every chain; the summary has the sum of all.
        too_few = ladder["restarts"] < FEWEST_RESTARTS * summary["sampling"].get("chains", 1)
        found.append(
            Check(
                name="restarts from the prior",
                value=f"{ladder['restarts']:,}",
                limit=f"at least {FEWEST_RESTARTS} a chain",
                passed=False if too_few else None,  # a sum above the limit does not say it of each
                meaning="How many independent draws of the prior came down to the posterior; "
                "with few the masses of several modes are hardly known.",
            )
        )
    if "round_trips" in ladder:
        found.append(
            Check(
                name="round trips",
                value=f"{ladder['round_trips']:,}",
                limit="at least 1",
                passed=ladder["round_trips"] >= 1,
                meaning="How often a state went from the posterior to the last level and back.",
            )
        )
    return found
