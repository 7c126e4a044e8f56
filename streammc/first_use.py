"""Messages on the terminal while functions are compiled at their first use."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_QUIET: Final = 1.0
"""Compiling for fewer seconds is not reported."""
_OVER: Final = 0.5
"""Seconds without compiling after which a period of compiling has ended."""
EVERY: Final = 30
"""Seconds between two lines if stderr is not a terminal."""


def tell(seconds: int, over: bool) -> None:
    """Print to stderr how many ``seconds`` compiling has taken; ``over``: it has ended.

    On a terminal one line counts the seconds. Otherwise a line is printed at the beginning and
    every half minute.
    """
    line = f"streammc: compiling, once (a minute or two the first time): {seconds} s"
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        print(f"\r{line}", end="\n" if over else "", file=sys.stderr, flush=True)
    elif not over and (seconds - 1) % EVERY == 0:
        print(line, file=sys.stderr, flush=True)


class Compiling:
    """Clock of the periods in which at least one function is being compiled.

    Parameters
    ----------
    teller
        Called like :func:`tell`, every second and once at the end, by a thread of its own.
        Periods of less than a second are not reported.
    """

    def __init__(self, teller: Callable[[int, bool], None]) -> None:
        self.teller = teller
        self._lock = threading.Lock()
        self._depth = 0
        self._ended = 0.0
        self._watched = False

    @contextmanager
    def told_to(self, teller: Callable[[int, bool], None]) -> Iterator[None]:
        """Return a context manager in which ``teller`` replaces the current one."""
        before, self.teller = self.teller, teller
        try:
            yield
        finally:
            self.teller = before

    def began(self) -> None:
        """Count a function whose compilation begins."""
        with self._lock:
            self._depth += 1
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, daemon=True).start()

    def ended(self) -> None:
        """Count a function whose compilation has ended."""
        with self._lock:
            self._depth -= 1
            self._ended = time.monotonic()

    def _watch(self) -> None:
        began = time.monotonic()
        reported = 0
        while True:
            time.sleep(_OVER / 5)
            now = time.monotonic()
            with self._lock:
                busy = self._depth > 0
                over = not busy and now - self._ended > _OVER
                if over:
                    self._watched = False
            seconds = int(now - began)
            if over and reported:
                self.teller(seconds, True)
            elif busy and now - began >= _QUIET and seconds > reported:
                reported = seconds
                self.teller(seconds, False)
            if over:
                return


compiling: Final = Compiling(lambda seconds, over: tell(seconds, over))


def listen() -> None:
    """Register :data:`compiling` with numba, for functions that are not in the cache."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            compiling.began()

        def on_end(self, event: Any) -> None:
            compiling.ended()

    event.register("numba:compile", Listener())
