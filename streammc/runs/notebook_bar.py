"""A progress bar of ``sample`` for notebooks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from importlib.util import find_spec
from typing import Any, Final

from streammc.docstrings import documented
from streammc.errors import ConfigError

_PHASES: Final = {
    "pass": "full pass",
    "newton": "search for the mode",
    "plan": "plan of the subsample",
    "start": "start",
    "warmup": "warm-up",
    "draws": "draws",
    "audit": "audit",
}
_FEWEST_SECONDS: Final = 0.2
"""Seconds between two updates; the first and the last of a phase are always shown."""


class NotebookBar:
    """One line in the output of a cell, updated in place; made by :func:`notebook_bar`."""

    def __init__(self, display: Any, html: Any) -> None:
        self._display, self._html = display, html
        self._handle: Any = None
        self._phase, self._shown = "", 0.0

    def __call__(
        self, phase: str, done: int, total: int | None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Show ``done`` of ``total`` of a phase; see ``progress`` of ``streammc.sample``."""
        now = time.monotonic()
        due = phase != self._phase or done == total or now - self._shown >= _FEWEST_SECONDS
        if not due:
            return
        self._phase, self._shown = phase, now
        shown = self._html(bar_html(phase, done, total))
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)


def bar_html(phase: str, done: int, total: int | None) -> str:
    """Return a phase and its bar as HTML; without a total the phase alone."""
    words = escape(_PHASES.get(phase, phase))
    if total is None:
        return f'<div class="streammc">{words}</div>'
    return (
        f'<div class="streammc"><progress max="{max(total, 1)}" value="{done}" '
        f'aria-label="{words}"></progress> {words}: {done:,} of {total:,}</div>'
    )


@documented()
def notebook_bar() -> NotebookBar:
    """Return a progress bar for the output of a notebook's cell.

    A run with a listener commits every interval of its own, so that a run of under a second
    takes longer with a bar than without.

    Returns
    -------
    NotebookBar
        For ``streammc.sample(..., progress=streammc.notebook_bar())``.

    Raises
    ------
    ConfigError
        If IPython is not installed.
    """
    if find_spec("IPython") is None:
        raise ConfigError(
            "expected the package IPython for a bar in a notebook, found none: "
            "pip install 'streammc[notebook]', or leave out progress"
        )
    from IPython.display import HTML, display

    return NotebookBar(display, HTML)
