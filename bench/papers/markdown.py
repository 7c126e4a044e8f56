"""Numbers and tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def number(value: Any, digits: int = 3) -> str:
    """Return a number with that many significant digits, no exponent; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table of Markdown."""
    head = list(head)
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
