"""Evidence of runs of ``mintee``: jumps between levels, and steps inside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streammc.diagnostics.text import number
from streammc.samplers.common.evidence import LEVELS, Evidence
from streammc.samplers.equi_energy.jumps import LEAST_ACCEPTANCE, SELDOM


def jump_evidence(summary: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of the levels from ``summary["tempering"]``."""
    levels = (summary.get("tempering") or {}).get("levels", {})
    found = []
    for check, name, least, meaning in (
        (
            "smallest rate of jumps between levels",
            "jump_rate",
            SELDOM,
            "A level proposes states that the level above has visited; what is found up there "
            "comes down only by such jumps.",
        ),
        (
            "smallest acceptance rate of the steps of a level",
            "acceptance_rate",
            LEAST_ACCEPTANCE,
            "A level that accepts few of its own steps was warmed up for too short a time.",
        ),
    ):
        rates = [rate for rate in levels.get(name, ()) if rate is not None]
        if rates:
            found.append(
                Evidence(
                    check=check,
                    found=number(min(rates), 3),
                    limit=f"at least {least:g}",
                    passed=min(rates) >= least,
                    meaning=meaning,
                    figure=LEVELS if name == "jump_rate" else "",
                )
            )
    return found
