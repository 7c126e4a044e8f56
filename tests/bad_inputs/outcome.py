"""Running a case, and what it left: the class or exit code, and the message."""

from __future__ import annotations

import io
import shlex
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from bad_inputs.parts import missing_parts
from streammc.errors import StreammcError

COMMAND = "streammc "


class Outcome(NamedTuple):
    """What a case left behind."""

    case: str
    kind: str
    """Exit code of a command, class of the error of Python code; "" of a case without error."""
    message: str
    faults: tuple[str, ...]
    """What is wrong with the error."""


def run_case(case: str, names: Mapping[str, Any]) -> Outcome:
    """Run one case in the current folder, with ``names`` at hand of Python code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.startswith(COMMAND):
            return _command(case)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                exec(compile(case, "<case>", "exec"), dict(names))
        except BaseException as error:
            return _of_python(case, error)
    return Outcome(case, "", "", ("makes no error",))


def _command(case: str) -> Outcome:
    from streammc.cli import app, main

    seen: list[BaseException] = []
    original = app.report

    def report(error: BaseException, words: Any) -> int:
        seen.append(error)
        return original(error, words)

    out, err = io.StringIO(), io.StringIO()
    with patch.object(app, "report", report), redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(case)[1:])
    text = err.getvalue().rstrip("\n").rpartition("\n")[2]
    message = text.removeprefix("streammc: ").removeprefix("error: ")
    if not seen:
        fault = "makes no error" if code == 0 else "prints no error"
        return Outcome(case, "" if code == 0 else str(code), message, (fault,))
    faults = missing_parts(message)
    if "internal error" in message or "Traceback" in err.getvalue():
        faults.append("is an internal error")
    return Outcome(case, str(code), message, tuple(faults))


def _of_python(case: str, error: BaseException) -> Outcome:
    kind, message = type(error).__name__, str(error)
    if isinstance(error, StreammcError):
        faults = missing_parts(message)
    elif isinstance(error, TypeError) and "argument" in message:
        faults = []  # Python's own, of a keyword that does not exist or is missing
    else:
        faults = ["is no error of streammc"]
    return Outcome(case, kind, message, tuple(faults))
