"""Signals to stop: chains end at a checkpoint, other work by an exception."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)
GRACE: Final = 9.0
"""Seconds after a signal to stop after which the process ends whatever it is doing."""
_LISTENING: Final = 1.0
"""Seconds after the last poll from which on the work is assumed not to poll."""


class Interrupted(BaseException):
    """Exception for a signal to stop; neither click nor worker threads catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = exit_code(signum)


def exit_code(signum: int) -> int:
    """Return the exit code after a signal: 128 + its number; 143 for SIGUSR1, as for SIGTERM."""
    warning = getattr(signal, "SIGUSR1", None)  # what a batch system sends before SIGTERM
    return 128 + (signal.SIGTERM if signum == warning else signum)


class Interruption:
    """Signal handler for work that polls and for work that does not.

    Chains poll :meth:`requested` several times per second and end at a commit. If nothing
    polls, the signal raises :class:`Interrupted` in the main thread at once. A second signal
    ends the process like a kill, and so does the first after ``grace`` seconds, if given:
    committed draws are kept.
    """

    def __init__(self, grace: float | None = None) -> None:
        self.signum: int | None = None
        self._polled = -1e9
        self._grace = grace
        self._deadline: threading.Timer | None = None

    def requested(self) -> bool:
        """Return whether to stop; call it several times per second."""
        self._polled = time.monotonic()
        return self.signum is not None

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.signum is not None and threading.current_thread() is threading.main_thread():
            raise Interrupted(self.signum)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal: set the flag, raise, or at the second signal exit."""
        if self.signum is not None:
            os._exit(exit_code(signum))
        self.signum = signum
        if self._grace is not None:
            self._deadline = threading.Timer(self._grace, os._exit, [exit_code(signum)])
            self._deadline.daemon = True
            try:
                self._deadline.start()
            except (RuntimeError, MemoryError):  # no room for a thread: the system ends the process
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(math.ceil(self._grace))
        if time.monotonic() - self._polled > _LISTENING:
            raise Interrupted(signum)

    @contextmanager
    def as_cause(self) -> Iterator[None]:
        """Raise Interrupted instead of an error of the block that a signal has caused.

        A library that is cut in two may fail at anything while it closes, its connections above
        all. An error that says by itself what is wrong, by its exit code or the number of any
        other error of the system, stays.
        """
        try:
            yield
        except Exception as error:
            of_system = getattr(error, "errno", None) is not None
            says_why = of_system and not isinstance(error, ConnectionError)
            if self.signum is None or says_why or hasattr(error, "exit_code"):
                raise
            raise Interrupted(self.signum) from error

    def end(self) -> None:
        """Cancel the deadline: the work has ended."""
        if self._deadline is not None:
            self._deadline.cancel()


@contextmanager
def interruptible(*, at_end: bool = False) -> Iterator[Interruption]:
    """Install the signal handlers while the block runs; no effect outside the main thread.

    ``at_end``: the process ends with the block. A signal that comes after it is ignored, so that
    the exit code is that of the work.
    """
    interruption = Interruption(GRACE)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before, unraisable = {}, sys.unraisablehook
    # After a signal nothing is reported that C code or a finalizer cannot raise: an Interrupted,
    # whose deadline ends the process, or what fails of an object that it has left half made.
    sys.unraisablehook = lambda found: None if interruption.signum else unraisable(found)
    for signum in SIGNALS:
        old = signal.getsignal(signum)
        # A signal that the parent ignores (nohup) stays ignored.
        if old is not signal.SIG_IGN and old is not None:
            before[signum] = signal.signal(signum, interruption.handle)
    try:
        with interruption.as_cause():
            yield interruption
    finally:
        interruption.end()
        sys.unraisablehook = unraisable
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_IGN if at_end else handler)
