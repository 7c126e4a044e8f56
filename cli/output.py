"""Printing of a command: one result on stdout, everything else on stderr."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from streammc.cli.heartbeat import Heartbeat
from streammc.cli.heartbeat_file import HeartbeatFile, utc_now
from streammc.diagnostics.text import number as number
from streammc.errors import one_line
from streammc.first_use import EVERY
from streammc.trace.address_names import named


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
