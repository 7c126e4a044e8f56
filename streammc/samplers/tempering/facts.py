"""Evidence of runs of ``pt``, ``spt``, ``tt`` and ``stt``: swaps, restarts, excursions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streammc.diagnostics.text import number
from streammc.samplers.common.evidence import LEVELS, Evidence
from streammc.samplers.tempering.recorders import LEAST_SWAPS
from streammc.samplers.tempering.restarts import FEWEST


def ladder_evidence(summary: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of a ladder from ``summary["tempering"]``; none for a single level."""
    found, ladder = [], summary.get("tempering") or {}
    levels = ladder.get("levels", {})
    rates = [rate for rate in levels.get("swap_rate", ()) if rate is not None]
    if rates:
        found.append(
            Evidence(
                check="smallest swap rate between levels",
                found=number(min(rates), 3),
                limit=f"at least {LEAST_SWAPS:g}",
                passed=min(rates) >= LEAST_SWAPS,
                meaning="States move between the posterior and flatter densities by swaps of "
                "neighbouring levels; a pair that seldom swaps holds up the whole ladder.",
                figure=LEVELS,
            )
        )
    if "transition_acceptance" in ladder:
        found.append(
            Evidence(
                check="accepted tempered transitions, share",
                found=number(ladder["transition_acceptance"], 3),
                meaning="An accepted excursion up the ladder and down again can cross to "
                "another mode.",
                figure=LEVELS,
            )
        )
    if "restarts" in ladder:
        # The rule is for every chain; the summary has the sum of all.
        too_few = ladder["restarts"] < FEWEST * summary["sampling"].get("chains", 1)
        found.append(
            Evidence(
                check="restarts from the prior",
                found=f"{ladder['restarts']:,}",
                limit=f"at least {FEWEST} a chain",
                passed=False if too_few else None,
                meaning="How many independent draws of the prior came down to the posterior; "
                "with few the masses of several modes are hardly known.",
            )
        )
    if "round_trips" in ladder:
        found.append(
            Evidence(
                check="round trips",
                found=f"{ladder['round_trips']:,}",
                limit="at least 1",
                passed=ladder["round_trips"] >= 1,
                meaning="How often a state went from the posterior to the last level and back.",
            )
        )
    return found
