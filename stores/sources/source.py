"""The interface of what can be ingested: one file, or one table in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Source(Protocol):
    """One file, or one table in memory."""

    label: str
    """For messages: the path in quotes."""
    path: str | None
    """As it was given; ``None`` for a table in memory."""
    names: tuple[str, ...]
    types: tuple[Any, ...]
    """The Arrow type of each column."""
    hidden: frozenset[str]
    """Columns that are no features unless asked for: an index."""
    integers: frozenset[str]
    """Columns of integers that are read as float64."""
    booleans: frozenset[str]
    """Columns of text that stands for truth values."""
    n_rows: int | None
    """Where it is known without reading."""
    spool: bool
    """Keep a copy of what was read: a second pass is slow or impossible."""

    def batches(
        self, columns: Sequence[str], rows: int, *, text: bool | frozenset[str] = False
    ) -> Iterator[Any]:
        """Yield record batches with ``columns`` in this order, of about ``rows`` rows.

        ``text``: all columns as they are written, or those of these names.
        """
