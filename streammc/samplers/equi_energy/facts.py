"""Summary, warnings and checks of ``mintee``: jumps between levels, and steps inside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import number
from streammc.samplers.common.sampler import LEVELS, Check

LEAST_ACCEPTANCE: Final = 0.1
"""Acceptance rate of the steps of a level below which its warm-up was too short."""
SELDOM: Final = 0.01
"""A jump rate below which a level is as good as cut off from those above it."""


def jumps_described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
    """Return the summary of all chains' tallies of ``mintee``; see ``Chain.described``."""
    mean = {name: np.mean([t[name] for t in tallies], axis=0) for name in tallies[0]}
    jumps = np.array([t["jumps"] for t in tallies])
    rates = np.array([t["jump_rate"] for t in tallies])
    rate = (jumps * rates).sum(axis=0) / np.maximum(jumps.sum(axis=0), 1.0)
    columns = ("temperature", "rows", "energy_level", "step_size", "acceptance_rate")
    levels = {name: mean[name].tolist() for name in columns}
    levels["jump_rate"] = rate.tolist()
    cut = [str(k) for k in range(len(rate)) if rate[k] < SELDOM]
    warnings = []
    if cut:
        warnings.append(
            f"level {', '.join(cut)} took fewer than 1 in 100 of the jumps from the level "
            "above: what is found up there does not come down; use a smaller growth, more "
            "levels, or longer warm-up"
        )
    short = np.flatnonzero(mean["acceptance_rate"] < LEAST_ACCEPTANCE)
    if len(short):
        warnings.append(
            f"level {', '.join(map(str, short))} accepted fewer than 1 in 10 of its steps: "
            f"warm-up is too short for {len(rate) + 1} levels, which begin one after the "
            "other; use a longer one, or fewer levels"
        )
    return {"levels": levels, "warnings": warnings}


def jump_checks(summary: Mapping[str, Any]) -> list[Check]:
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
                Check(
                    name=check,
                    value=number(min(rates), 3),
                    limit=f"at least {least:g}",
                    passed=min(rates) >= least,
                    meaning=meaning,
                    figure=LEVELS if name == "jump_rate" else "",
                )
            )
    return found
