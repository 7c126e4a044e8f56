"""Running a case, and what it left: the class or exit code, the message, the sites."""

from __future__ import annotations

import io
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from bench.messages.parts import missing_parts
from bench.messages.sites import FOLDERS, ROOT
from streammc.errors import StreammcError

COMMAND = "streammc "


class Outcome(NamedTuple):
    """What a case left behind."""

    case: str
    kind: str
    """Exit code of a command, class of the error of Python code; "" of a case without error."""
    message: str
    lines: frozenset[tuple[str, int]]
    """Path and line of every place that made or raised the error."""
    faults: tuple[str, ...]
    """What is wrong with the error."""


def run_case(case: str, names: Mapping[str, Any]) -> Outcome:
    """Run one case in the current folder, with ``names`` at hand of Python code."""
    with warnings.catch_warnings(), _recorded() as made:
        warnings.simplefilter("ignore")
        if case.startswith(COMMAND):
            return _command(case, made)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                exec(compile(case, "<case>", "exec"), dict(names))
        except BaseException as error:
            return _of_python(case, error, made)
    return Outcome(case, "", "", frozenset(), ("makes no error",))


def _command(case: str, made: dict[int, tuple[str, int]]) -> Outcome:
    from streammc.cli import main, run_errors

    seen: list[BaseException] = []
    original = run_errors.report

    def report(error: BaseException, words: Any) -> int:
        seen.append(error)
        return original(error, words)

    out, err = io.StringIO(), io.StringIO()
    with patch.object(run_errors, "report", report), redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(case)[1:])
    text = err.getvalue().rstrip("\n").rpartition("\n")[2]
    message = text.removeprefix("streammc: ").removeprefix("error: ")
    if not seen:
        fault = "makes no error" if code == 0 else "prints no error"
        return Outcome(case, "" if code == 0 else str(code), message, frozenset(), (fault,))
    faults = missing_parts(message)
    if "internal error" in message or "Traceback" in err.getvalue():
        faults.append("is an internal error")
    return Outcome(case, str(code), message, _lines(seen[0], made), tuple(faults))


def _of_python(case: str, error: BaseException, made: dict[int, tuple[str, int]]) -> Outcome:
    kind, message = type(error).__name__, str(error)
    if isinstance(error, StreammcError):
        faults = missing_parts(message)
    elif isinstance(error, TypeError) and "argument" in message:
        faults = []  # Python's own, of a keyword that does not exist or is missing
    else:
        faults = ["is no error of streammc"]
    return Outcome(case, kind, message, _lines(error, made), tuple(faults))


@contextmanager
def _recorded() -> Iterator[dict[int, tuple[str, int]]]:
    """Note where each error of streammc or click is made."""
    import sys

    import click

    made: dict[int, tuple[str, int]] = {}
    kept: list[BaseException] = []  # so that no two have the same id

    def note(error: BaseException) -> None:
        frame = sys._getframe(2)
        place = _place(frame.f_code.co_filename)
        if place and id(error) not in made:
            made[id(error)] = (place, frame.f_lineno)
            kept.append(error)

    def streammc_init(self: StreammcError, *arguments: Any) -> None:
        note(self)
        Exception.__init__(self, *arguments)

    click_init = click.UsageError.__init__

    def usage_init(self: click.UsageError, *arguments: Any, **options: Any) -> None:
        note(self)
        click_init(self, *arguments, **options)

    with (
        patch.object(StreammcError, "__init__", streammc_init),
        patch.object(click.UsageError, "__init__", usage_init),
    ):
        yield made


def _lines(error: BaseException, made: dict[int, tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Return where an error, and each error of ours that it was made from, came from."""
    found = set()
    seen: BaseException | None = error
    passed: set[int] = set()
    while seen is not None and id(seen) not in passed:  # a context may lead back to its error
        passed.add(id(seen))
        if id(seen) in made:
            found.add(made[id(seen)])
        trace = seen.__traceback__
        while trace is not None:
            place = _place(trace.tb_frame.f_code.co_filename)
            if place:
                found.add((place, trace.tb_lineno))
            trace = trace.tb_next
        seen = seen.__cause__ or seen.__context__
    return frozenset(found)


def _place(file: str) -> str:
    """Return the path of a source inside the checkout, or "" of any other file."""
    from pathlib import Path

    path = Path(file).resolve()
    if not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return inside.as_posix() if inside.parts[0] in FOLDERS else ""
