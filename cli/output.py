"""Printing of a command: one result on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Final

from streammc.diagnostics.text import number as number
from streammc.errors import one_line
from streammc.first_use import EVERY
from streammc.trace.addresses import named
from streammc.unfinished import replace_file

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
                # Nothing is flushed to the disk: only a living process counts.
                text = json.dumps({**document, **self._facts}) + "\n"
                replace_file(self._path, text.encode(), sync=False)
            except OSError as error:
                self._failed = True
                self._warn(
                    f"expected to write the heartbeat {str(self._path)!r}, found "
                    f"{error.strerror}: give a path in a writable folder; the work goes on"
                )


def prepare_streams() -> None:
    """Make stdout and stderr usable even if they are closed or not UTF-8."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def close_streams() -> None:
    """Flush stdout and stderr; redirect a broken one, so that the interpreter's flush succeeds."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            except (OSError, ValueError):
                continue


def plain(value: Any) -> Any:
    """Return ``value`` as JSON types: no NumPy, ``None`` for NaN and infinity, text for paths."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return named(str(value))
    if isinstance(value, str):
        return named(value)
    if value is None or isinstance(value, bool | int):
        return value
    raise TypeError(f"no JSON for {type(value).__name__}")


def write_log(level: str, message: str, *, as_json: bool, **facts: Any) -> None:
    """Write one log line on stderr, as text or JSON."""
    message = named(message)
    if as_json:
        import json

        line = json.dumps({"time": utc_now(), "level": level, "message": message, **plain(facts)})
    elif level == "info":
        line = message
    else:
        line = f"streammc: {'warning: ' if level == 'warning' else ''}{message}"
    print(line, file=sys.stderr, flush=True)


@dataclass
class Output:
    """The printer of one command, with its printing options."""

    json: bool = False
    quiet: bool = False
    log_format: str = "text"
    debug: bool = False
    live: Callable[[str], None] | None = None
    """Function that prints a line above the progress bar; ``None`` without a bar."""
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(wanted=False))
    heartbeat_file: HeartbeatFile | None = None
    context: dict[str, Any] = field(default_factory=dict)
    """Entries of every line of the log in JSON, such as the stage of a job."""

    keep: Callable[[Mapping[str, Any], str], None] | None = None
    """Function that takes the result in place of printing it; of the stages of a job."""

    def beat(self, **facts: Any) -> None:
        """Tell the file of ``--heartbeat``, if there is one, that there is progress."""
        if self.heartbeat_file is not None:
            self.heartbeat_file.beat(**{**self.context, **facts})

    def log(self, level: str, message: str, **facts: Any) -> None:
        """Write a line on stderr, above the progress bar if there is one."""
        self.heartbeat.clear()
        if self.live is not None and self.log_format == "text":
            self.live(("warning: " if level == "warning" else "") + one_line(named(message)))
        else:
            facts = {**self.context, **facts}
            write_log(level, one_line(message), as_json=self.log_format == "json", **facts)

    def note(self, message: str, **facts: Any) -> None:
        """Print a message about the work in progress; silent under ``--quiet``."""
        if not self.quiet:
            self.log("info", message, **facts)

    def warn(self, message: str, **facts: Any) -> None:
        """Print a warning, also under ``--quiet``."""
        self.log("warning", message, **facts)

    def compiling(self, seconds: int, over: bool) -> None:
        """Print for how many ``seconds`` functions are being compiled; ``over``: it has ended.

        Called every second, in place of :func:`streammc.first_use.tell`.
        """
        if self.quiet or over:
            return
        line = f"compiling, once (a minute or two the first time): {seconds} s"
        if not self.heartbeat.show(line) and (seconds - 1) % EVERY == 0:
            self.note(line, phase="compile")

    def part(self, human: str) -> bool:
        """Print the first part of a result as text; return whether it is printed.

        Under ``--json``, and in a job, the whole result comes at the end.
        """
        if self.json or self.keep is not None:
            return False
        self.heartbeat.clear()
        print(f"{named(human)}\n", flush=True)
        return True

    def result(self, document: Mapping[str, Any], human: str) -> None:
        """Print the result: ``document`` under ``--json``, else ``human``.

        ``--quiet`` does not silence the result.
        """
        if self.keep is not None:
            self.keep(document, human)
            return
        if self.json:
            import json

            human = json.dumps(plain(document), allow_nan=False)
        self.heartbeat.clear()
        print(named(human), flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> str:
    """Return a table as text: first column left-aligned, others right, or left with ``words``."""
    lines = [[named(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        for cell, width in zip(line[1:], widths[1:], strict=True):
            cells.append(cell.ljust(width) if words else cell.rjust(width))
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def fields(pairs: Mapping[str, Any]) -> str:
    """Return aligned lines ``name  value``; values that are ``None`` or empty are left out."""
    shown = {name: _text(value) for name, value in pairs.items() if value not in (None, [], ())}
    width = max((len(name) for name in shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:8])
        return shown + (f", ... ({len(value)} in all)" if len(value) > 8 else "")
    return one_line(str(value))
