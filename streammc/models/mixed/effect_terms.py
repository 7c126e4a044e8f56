"""The random effects of a model: grouping column and terms, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Groups(Protocol):
    """Groups of contiguous rows, as far as a model needs to know them."""

    @property
    def column(self) -> str:
        """Name of the grouping column."""

    @property
    def terms(self) -> Sequence[str]:
        """``("1",)``: a random intercept; ``("1", "distance")``: also a slope of that column."""

    @property
    def correlated(self) -> bool:
        """Whether intercept and slope are correlated."""


def formula_term(column: str, slope: str | None, correlated: bool) -> str:
    """Return the term of a formula.

    Examples
    --------
    >>> formula_term("g", None, False), formula_term("g", "x", False)
    ('(1 | g)', '(1 + x || g)')
    """
    if slope is None:
        return f"(1 | {column})"
    return f"(1 + {slope} {'|' if correlated else '||'} {column})"
