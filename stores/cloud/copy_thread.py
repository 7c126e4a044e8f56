"""A thread that copies commits in order, so that a sampler does not wait for an object store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from streammc.trace.run_files import Changes

MOST_BYTES: Final = 64 * 2**20
"""Bytes that wait to be copied from which on the next commit waits, too."""


class CopyThread:
    """Copies commits one after the other; those that wait are copied together, as one.

    Parameters
    ----------
    copy
        Copies the changes of a commit, or raises. After an error nothing more is copied.
    """

    def __init__(self, copy: Callable[[Changes], None]) -> None:
        self._copy = copy
        self._changed = threading.Condition()
        self._waiting: Changes | None = None
        self._busy = self._over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="streammc-commits", daemon=True)
        self._thread.start()

    def send(self, changed: Changes) -> None:
        """Have a commit copied; wait only while over ``MOST_BYTES`` of others are not.

        Raises
        ------
        StreammcError
            If an earlier commit could not be copied.
        """
        with self._changed:
            while self._waiting is not None and self._waiting.nbytes > MOST_BYTES:
                self._raise()
                self._changed.wait()
            self._raise()
            if (first := self._waiting) is not None:
                others = {**first.others, **changed.others}
                changed = Changes(changed.generation, changed.state, others)
            self._waiting = changed
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every commit is copied; raise the error of one that could not be."""
        with self._changed:
            while self._failure is None and (self._busy or self._waiting is not None):
                self._changed.wait()
            self._raise()

    def end(self) -> None:
        """Wait as :meth:`flush` does; nothing can be sent afterwards."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._waiting is None and not self._over:
                    self._changed.wait()
                if self._waiting is None:
                    return
                work, self._waiting, self._busy = self._waiting, None, True
            try:
                self._copy(work)
            except BaseException as error:
                with self._changed:
                    self._failure = error
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if self._failure is not None:
                    return
