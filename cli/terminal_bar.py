"""The progress bar of a terminal; the facts beside the bar are shortened to fit the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

LEAST_BAR: Final = 12
MOST_BAR: Final = 40
_TIME: Final = len("0:00:00")
_GAPS: Final = 4
"""Spaces between the five columns."""


def fitting(texts: Sequence[str], room: int) -> str:
    """Return the first of several texts that fits into ``room`` cells, or ""."""
    return next((text for text in texts if len(text) <= room), "")


class _Facts(ProgressColumn):
    """Column of the facts, in the longest text that leaves the bar its least width."""

    def __init__(self, bar: TerminalBar) -> None:
        self._bar = bar
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        """Return the facts of one task."""
        return Text(fitting(task.fields["facts"], self._bar.room - LEAST_BAR))


class _Bar(BarColumn):
    """Column of the bar, in the room that the facts leave, from 12 to 40 cells."""

    def __init__(self, bar: TerminalBar) -> None:
        self._own = bar
        super().__init__(table_column=Column(no_wrap=True))

    def render(self, task: Task):  # type: ignore[no-untyped-def]
        """Return the bar of one task."""
        room = self._own.room
        facts = [fitting(each.fields["facts"], room - LEAST_BAR) for each in self._own.tasks]
        self.bar_width = max(LEAST_BAR, min(MOST_BAR, room - max(map(len, facts), default=0)))
        return super().render(task)


class TerminalBar(Progress):
    """Progress display with one line per phase: name, bar, done of total, time left, facts.

    Parameters
    ----------
    console
        Console on which it is drawn.

    Notes
    -----
    The field ``facts`` of a task is a list of texts for the same facts, the longest first.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            _Bar(self),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            _Facts(self),
            console=console,
        )

    @property
    def room(self) -> int:
        """Cells of the terminal line that remain for bar and facts."""
        names = max((len(str(task.description)) for task in self.tasks), default=0)
        counts = max((2 * len(_count(task)) + 1 for task in self.tasks), default=0)
        return self.console.width - names - counts - _TIME - _GAPS


def _count(task: Task) -> str:
    return str(int(max(task.completed, task.total or 0)))
