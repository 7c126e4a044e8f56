"""Evidence about a run: what a family of samplers shows a reader who asks whether it held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from streammc.diagnostics.text import number

LEVELS: Final = "levels"
"""Figure of the temperature levels of a run, from ``summary["tempering"]``."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One check of a run, as a line of a report and possibly a figure.

    Attributes
    ----------
    check
        Name of the check, a noun phrase.
    found
        Finding as text.
    meaning
        One sentence for a reader who does not know the method.
    limit
        Limit as text; empty where there is none.
    passed
        Whether the finding is within the limit; ``None`` without a limit.
    figure
        Statistic of every draw to draw over the iterations, or ``LEVELS``; empty: no figure.
    line
        Limit to draw into the figure of a statistic.
    """

    check: str
    found: str
    meaning: str
    limit: str = ""
    passed: bool | None = None
    figure: str = ""
    line: float | None = None


def at_most(check: str, found: Any, limit: float, meaning: str, **more: Any) -> Evidence:
    """Return evidence that passes if ``found`` is at most ``limit``; ``None`` is not known."""
    if found is None:
        text = "unknown"
    else:
        text = "without bound" if found == math.inf else number(found, 3)
    return Evidence(
        check=check,
        found=text,
        meaning=meaning,
        limit=f"at most {limit:g}",
        passed=None if found is None else found <= limit,
        **more,
    )
