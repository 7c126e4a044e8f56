"""The first use compiles: that it does, and for how long, is said on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_QUIET: Final = 1.0
"""Seconds of compiling that nobody needs to hear of."""
_OVER: Final = 0.5
"""Seconds without any after which it is over."""
EVERY: Final = 30
"""Seconds between two lines where nobody watches."""


def tell(seconds: int, over: bool) -> None:
    """Say on stderr that functions have been compiled for ``seconds``: by now, or in all.

    On a terminal one line counts the seconds; elsewhere there is a line at the beginning and
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
    """Counts the seconds in which at least one function is being compiled.

    Parameters
    ----------
    teller
        Called as :func:`tell` is, every second and once at the end, by a thread of its own.
        Compiling that takes less than a second is not told of.
    """

    def __init__(self, teller: Callable[[int, bool], None]) -> None:
        self.teller = teller
        self._lock = threading.Lock()
        self._depth = 0
        self._ended = 0.0
        self._watched = False

    @contextmanager
    def told_to(self, teller: Callable[[int, bool], None]) -> Iterator[None]:
        """Have another ``teller`` called while the block runs."""
        before, self.teller = self.teller, teller
        try:
            yield
        finally:
            self.teller = before

    def began(self) -> None:
        """Note that a function begins to be compiled."""
        with self._lock:
            self._depth += 1
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, daemon=True).start()

    def ended(self) -> None:
        """Note that a function has been compiled."""
        with self._lock:
            self._depth -= 1
            self._ended = time.monotonic()

    def _watch(self) -> None:
        began = time.monotonic()
        said = 0
        while True:
            time.sleep(_OVER / 5)
            now = time.monotonic()
            with self._lock:
                over = self._depth == 0 and now - self._ended > _OVER
                if over:
                    self._watched = False
            seconds = int(now - began)
            if over and said:
                self.teller(seconds, True)
            elif not over and now - began >= _QUIET and seconds > said:
                said = seconds
                self.teller(seconds, False)
            if over:
                return


compiling: Final = Compiling(lambda seconds, over: tell(seconds, over))


def listen() -> None:
    """Have numba tell :data:`compiling` of every function that it does not find in its cache."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            compiling.began()

        def on_end(self, event: Any) -> None:
            compiling.ended()

    event.register("numba:compile", Listener())
