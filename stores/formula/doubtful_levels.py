"""Warnings about text factors whose levels look like something else: numbers or dates."""

from __future__ import annotations

import re

from streammc.stores.formula.fitted import Design
from streammc.stores.ingest.exact_values import DECIMAL_COMMA, ISO_DATE, NUMBER


def doubtful_levels(design: Design) -> list[str]:
    """Return a warning for each text factor whose levels look like dates or numbers.

    A factor that is written as ``C(column)`` is meant, but for numbers with a decimal comma.
    """
    lines = []
    for name, state in design.states.items():
        levels = [level for level in state.get("levels", ()) if isinstance(level, str)]
        commas = [level for level in levels if re.fullmatch(DECIMAL_COMMA, level)]
        dates = [level for level in levels if re.fullmatch(ISO_DATE, level)]
        if name in design.kinds and len(dates) * 2 > len(levels):
            lines.append(
                f"{name} is text, a factor of {len(levels)} levels that look like dates "
                f"({dates[0]!r}): write C({name}) if that is meant, or a column of numbers (days "
                "since the first) into the table for a trend"
            )
        if commas and len(commas) * 2 > len(levels):
            lines.append(
                f"{name} is text, a factor of {len(levels)} levels that look like numbers with a "
                f"decimal comma ({commas[0]!r}): write them with a point to have one column"
            )
        elif name in design.kinds:
            lines += _mostly_numbers(name, levels, commas)
    return lines


def _mostly_numbers(name: str, levels: list[str], commas: list[str]) -> list[str]:
    """Return the warning if most levels are numbers, with a decimal comma or without."""
    numbers = [level for level in levels if re.fullmatch(NUMBER, level)] + commas
    if len(numbers) * 2 <= len(levels):
        return []
    others = sorted({*levels} - {*numbers})
    found, advice = f"{len(numbers)} are numbers", "write the column as numbers"
    if others:
        shown = others[0] if len(others[0]) <= 40 else others[0][:37] + "..."
        found += f" and {len(others)} not ({shown!r})"
        advice = "correct or empty the others"
    if commas:
        found += f", some with a decimal comma ({commas[0]!r})"
        advice += ", with a point for the comma,"
    shown = name if name.isidentifier() else f"`{name}`"
    return [
        f"{name} is text, a factor of {len(levels)} levels of which {found}: {advice} to have one "
        f"column, or write C({shown}) if a factor is meant"
    ]
