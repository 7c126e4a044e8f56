"""What a store has beside plain columns, in words: factors, codes, groups, generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streammc.models.mixed.effect_terms import formula_term


def rows_text(n_rows: int, cells: Mapping[str, int] | None) -> int | str:
    """Return the rows of a store, as ``94,080 cells of 100,000,000 rows`` where they are cells."""
    return n_rows if cells is None else f"{n_rows:,} cells of {cells['rows']:,} rows"


def factors_text(factors: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Return factors, columns of a store or such that cross, as ``(1 | origin), 50 levels``."""
    if not factors:
        return None
    terms = (
        formula_term(each["column"], each.get("terms", ["1"]), each.get("correlated", False))
        for each in factors
    )
    pairs = zip(terms, factors, strict=True)
    return "; ".join(f"{term}, {each['levels']:,} levels" for term, each in pairs)


def references_text(references: Mapping[str, Sequence[str]] | None) -> str | None:
    """Return the reference levels of the factors of a store, as ``C(origin)[ATL], month[1]``."""
    levels = dict.fromkeys(each for several in (references or {}).values() for each in several)
    return ", ".join(levels) or None


def codes_text(codes: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Return the factors that a store has as codes, as ``C(origin), 300 columns``."""
    if not codes:
        return None
    return "; ".join(f"{each['column']}, {each['columns']:,} columns" for each in codes)


def generations_text(generations: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Return the rows of the last generations of a store, as ``3: 1,000 + 20 + 20 rows``."""
    if not generations:
        return None
    rows = " + ".join(f"{each['n_rows']:,}" for each in generations[-6:])
    return f"{len(generations)}: {'... + ' * (len(generations) > 6)}{rows} rows"


def groups_text(groups: Mapping[str, Any] | None) -> str | None:
    """Return the groups of a store in words, as ``(1 + x | g), 20 groups, ...``."""
    if groups is None:
        return None
    bar = "|" if groups["correlated"] else "||"
    return (
        f"({' + '.join(groups['terms'])} {bar} {groups['column']}), {groups['n_groups']:,} groups, "
        f"the largest of {groups['largest']:,} row{'s' * (groups['largest'] > 1)}"
    )
