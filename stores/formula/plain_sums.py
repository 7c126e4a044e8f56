"""Formulas that are sums of different columns and calls, expanded without formulaic.

The import of formulaic, and of pandas below it, takes a third of a second of processor time: more
than all else that a command does for a few rows. Any other formula is formulaic's, and the tests
compare both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

_MOST: Final = 200
"""Terms of the longest sum that is expanded here."""


def summed(pieces: Sequence[str], names: Collection[str]) -> tuple[str, list[str]] | None:
    """Return the placeholder left of ``~`` and those of a sum right of it, else ``None``.

    The sum has an intercept; ``1 +`` may say so.
    """
    right = list(pieces[2:])
    if right[:2] == ["1", "+"]:
        right = right[2:]
    parts = right[::2]
    plain = (
        len(pieces) > 2
        and pieces[1] == "~"
        and pieces[0] in names
        and len(right) % 2 == 1
        and len(parts) <= _MOST
        and all(piece == "+" for piece in right[1::2])
        and all(part in names for part in parts)
    )
    return (pieces[0], list(dict.fromkeys(parts))) if plain else None
