"""What a store has beside plain columns, in words: factors, codes and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def factors_text(factors: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Return the factors that are columns of a store, as ``(1 | origin), 50 levels``."""
    if not factors:
        return None
    return "; ".join(f"(1 | {each['column']}), {each['levels']} levels" for each in factors)


def codes_text(codes: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Return the factors that a store has as codes, as ``C(origin), 300 columns``."""
    if not codes:
        return None
    return "; ".join(f"{each['column']}, {each['columns']:,} columns" for each in codes)


def groups_text(groups: Mapping[str, Any] | None) -> str | None:
    """Return the groups of a store in words, as ``(1 + x | g), 20 groups, ...``."""
    if groups is None:
        return None
    bar = "|" if groups["correlated"] else "||"
    return (
        f"({' + '.join(groups['terms'])} {bar} {groups['column']}), {groups['n_groups']:,} groups, "
        f"the largest of {groups['largest']:,} row{'s' * (groups['largest'] > 1)}"
    )
