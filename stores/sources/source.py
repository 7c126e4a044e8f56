"""The interface of a source of rows: one file, or one table in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class NoArrowType(NamedTuple):
    """Stands for the type of a column that Arrow cannot hold, such as one of mixed values."""

    found: str
    """What the column has, for a message."""
    remedy: str


class Source(Protocol):
    """Source of rows: one file, or one table in memory."""

    label: str
    """Name in messages: the path in quotes."""
    path: str | None
    """Path as the user gave it; ``None`` for a table in memory."""
    names: tuple[str, ...]
    types: tuple[Any, ...]
    """Arrow type of each column, or ``NoArrowType``."""
    hidden: frozenset[str]
    """Index columns, which are features only if named."""
    integers: frozenset[str]
    """Columns of integers that are read as float64."""
    booleans: frozenset[str]
    """Columns of text that is read as booleans."""
    written: frozenset[str]
    """Columns of text whose types are guessed from values; those of ``levels`` are as written."""
    n_rows: int | None
    """Number of rows; ``None`` if it is not known before the read."""
    spool: bool
    """Whether to keep a copy on disk, because a second read is slow or impossible."""

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: bool | frozenset[str] = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield record batches with ``columns`` in this order, of about ``rows`` rows.

        With ``text`` all columns, or those of these names, are returned as text; those of
        ``levels`` too, or as dictionaries of text where that is faster.
        """

    def warnings(self) -> list[str]:
        """Return the warnings about values of the last pass that may not be what they seem."""
