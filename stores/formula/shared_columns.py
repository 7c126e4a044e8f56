"""Design columns that cannot change alone: of them a ratio per unit means nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from streammc.stores.formula.full_rank import DesignColumn
from streammc.stores.formula.nodes import Call, columns_of

_BASES: Final = ("bs", "cc", "cr", "poly")


def changing_together(columns: Sequence[DesignColumn]) -> list[str]:
    """Return the names of columns that cannot change while all others stay as they are.

    Such a column is of a basis or an interaction, or a column of the table that it is made of
    is also in another term: in an interaction, or beside it as in ``x + I(x ** 2)``. Columns of
    the same expressions, such as the levels of one factor, are one term.
    """
    terms = {column.name: frozenset(node for node, _ in column.fields) for column in columns}
    used = {term: {name for node in term for name in columns_of(node)} for term in terms.values()}
    times = Counter(name for names in used.values() for name in names)
    return [
        name
        for name, term in terms.items()
        if len(term) > 1
        or any(isinstance(node, Call) and node.function in _BASES for node in term)
        or any(times[source] > 1 for source in used[term])
    ]
