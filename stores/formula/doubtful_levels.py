"""Warnings about factors: levels that look like something else, and a single level."""

from __future__ import annotations

import re

from streammc.stores.formula.fitted import Design
from streammc.stores.formula.nodes import label
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


def single_levels(design: Design) -> list[str]:
    """Return a warning for each term that makes no column because a factor has one level."""
    made = {frozenset(node for node, _ in column.fields) for column in design.columns}
    lines = []
    for term in design.terms.terms:
        for node in term.factors if frozenset(term.factors) not in made else ():
            levels = design.states.get(label(node), {}).get("levels", ())
            if len(levels) == 1:
                name = ":".join(map(label, term.factors))
                lines.append(
                    f"{name} makes no column: {label(node)} has one level ({levels[0]!r}) in the "
                    "rows in use, with nothing to compare; leave it out of the formula, or check "
                    "the column"
                )
                break
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
