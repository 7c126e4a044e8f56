"""Limits on R-hat and on effective sample sizes, and whether the draws of a run keep them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def check_limits(
    parameters: Mapping[str, Mapping[str, float | None]], limits: Mapping[str, float]
) -> dict[str, Any]:
    """Return limit, worst value and verdict of each limit, and whether all are kept.

    A parameter without a finite statistic fails.

    Parameters
    ----------
    parameters
        Label -> statistics.
    limits
        ``rhat``: largest R-hat; ``ess``: smallest effective sample size: bulk,
        tail, and for the standard deviation.
    """
    result: dict[str, Any] = {"passed": True}
    for name, limit in limits.items():
        columns = ("r_hat",) if name == "rhat" else ("ess_bulk", "ess_tail", "ess_sd")
        # Statistics of an earlier version have no ess_sd.
        values = [p[column] for p in parameters.values() for column in columns if column in p]
        known = [v for v in values if v is not None and math.isfinite(v)]
        worst = (max if name == "rhat" else min)(known, default=None)
        complete = len(known) == len(values)
        margin = math.nan if worst is None else (worst - limit) * (-1 if name == "rhat" else 1)
        passed = complete and margin >= 0.0
        result[name] = {"limit": limit, "found": worst, "passed": passed}
        result["passed"] = result["passed"] and passed
    return result


def missed_limits(checked: Mapping[str, Any]) -> str:
    """Return the text about the limits that a result of :func:`check_limits` misses."""
    return "; ".join(
        _missed(name, entry["found"], entry["limit"])
        for name, entry in checked.items()
        if isinstance(entry, Mapping) and entry.get("passed") is False
    )


def _missed(name: str, found: float | None, limit: float) -> str:
    """Return the limit and the value found, with digits that tell them apart."""
    if found is None or (found <= limit if name == "rhat" else found >= limit):
        return f"{name} unknown for some parameters, asked for {limit:.10g}"
    digits = next((n for n in range(4, 17) if f"{found:.{n}g}" != f"{limit:.{n}g}"), 17)
    return f"{name} {found:.{digits}g}, asked for {limit:.10g}"
