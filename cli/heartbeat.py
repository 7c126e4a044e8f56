"""The heartbeat on a terminal: a line with the elapsed seconds while nothing else is printed."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Final

_SILENT: Final = 2.0
"""Seconds of silence before the line appears."""
_CLEAR: Final = "\r\x1b[2K"


class Heartbeat:
    """The line ``working: 3 s``, which is erased before anything else is printed.

    Parameters
    ----------
    wanted
        Whether the command may print it. Without a terminal nothing is shown in any case.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._shown = self._counting = False
        self._paused = False
        self._start = self._last_output = time.monotonic()

    def __enter__(self) -> Heartbeat:
        """Start the thread that shows the line."""
        if self._wanted:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Erase the line and stop the thread."""
        self._over.set()
        self.clear()

    def clear(self) -> None:
        """Erase the line before something else is printed."""
        with self._lock:
            self._last_output = time.monotonic()
            self._erase()
            self._counting = False

    def pause(self, paused: bool) -> None:
        """Stop showing the line while ``paused``, when a progress bar is shown instead."""
        with self._lock:
            self.clear()
            self._paused = paused

    def show(self, text: str) -> bool:
        """Show ``text`` in place of the line; return whether it could be shown."""
        with self._lock:
            if not self._wanted or self._paused or self._over.is_set():
                return False
            self._erase()
            self._last_output, self._shown = time.monotonic(), True
            self._counting = False
            print(text, end="", file=sys.stderr, flush=True)
            return True

    def _erase(self) -> None:
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
            self._shown = False

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            with self._lock:
                now = time.monotonic()
                if self._counting or now - self._last_output >= _SILENT:
                    self._counting = self.show(f"working: {now - self._start:.0f} s")
