"""Ctrl-C, SIGTERM and SIGHUP: a checkpoint where chains run, an orderly end elsewhere."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LISTENING: Final = 1.0
"""Seconds since the last poll after which nobody is believed to look at the flag."""


class Interrupted(BaseException):
    """A signal asked to stop; click and worker threads let it pass."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


class Interruption:
    """Whether a signal has come, for code that polls and for code that does not.

    Chains poll :meth:`requested` several times a second and end at a commit. Where
    nothing polls, the signal raises :class:`Interrupted` in the main thread at once.
    A second signal ends the process, as a kill would: what is committed stays.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._polled = -1e9

    def requested(self) -> bool:
        """Return whether to stop; to be called often."""
        self._polled = time.monotonic()
        return self.signum is not None

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.signum is not None and threading.current_thread() is threading.main_thread():
            raise Interrupted(self.signum)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """React to a signal."""
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        if time.monotonic() - self._polled > _LISTENING:
            raise Interrupted(signum)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handle the signals while the block runs; only the main thread of a process can."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {}
    for signum in SIGNALS:
        old = signal.getsignal(signum)
        # A signal that the parent ignores (nohup) stays ignored.
        if old is not signal.SIG_IGN and old is not None:
            before[signum] = signal.signal(signum, interruption.handle)
    try:
        yield interruption
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
