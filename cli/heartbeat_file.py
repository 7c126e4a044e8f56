"""The file of ``--heartbeat``: whether a command is alive, and how far its work is."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from streammc.owner_mark import unfinished

SECONDS: Final = 5.0
"""Seconds after which the file is written again without any progress."""
_LEAST: Final = 0.5
"""Seconds between two writes because of progress."""


def utc_now() -> str:
    """Return the time as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class HeartbeatFile:
    """A JSON file that is replaced every few seconds while a command works.

    Its keys: ``time``, ``pid``, ``command``, ``state`` (``working``, ``ended``), ``progressed``
    (the time of the last progress), and what the progress said: ``phase``, ``done``, ``total``,
    ``draws`` per chain.

    Parameters
    ----------
    path
        The file; ``None``: nothing is written.
    command
        Name of the command.
    warn
        Called once if the file cannot be written.
    """

    def __init__(self, path: str | None, command: str, warn: Callable[[str], None]) -> None:
        self._path = None if path is None else Path(path)
        self._warn = warn
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._facts: dict[str, Any] = {"command": command, "pid": os.getpid()}
        self._progressed = utc_now()
        self._written = -1e9
        self._failed = False

    def __enter__(self) -> HeartbeatFile:
        """Write the file, and start the thread that writes it again."""
        if self._path is not None:
            self._write("working")
            threading.Thread(target=self._repeat, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write that the command has ended."""
        self._over.set()
        if self._path is not None:
            self._write("ended")

    def beat(self, **facts: Any) -> None:
        """Record progress; the file is written if it was not just written."""
        if self._path is None:
            return
        with self._lock:
            self._facts |= facts
            self._progressed = utc_now()
            if time.monotonic() - self._written >= _LEAST:
                self._write("working")

    def _repeat(self) -> None:
        while not self._over.wait(SECONDS):
            self._write("working")

    def _write(self, state: str) -> None:
        assert self._path is not None
        with self._lock:
            if self._failed or (state == "working" and self._over.is_set()):
                return
            self._written = time.monotonic()
            document = {"time": utc_now(), "state": state, "progressed": self._progressed}
            try:
                _replace(self._path, {**document, **self._facts})
            except OSError as error:
                self._failed = True
                self._warn(
                    f"expected to write the heartbeat {str(self._path)!r}, found "
                    f"{error.strerror}: give a path in a writable folder; the work goes on"
                )


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file at once; nothing is flushed to the disk: only a living process counts."""
    temporary = unfinished(path)
    try:
        temporary.write_text(json.dumps(document) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
