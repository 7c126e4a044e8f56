from __future__ import annotations

import errno
import json

import click
import pytest

from streammc import errors
from streammc.cli.app import asked, classify, report
from streammc.cli.signals import Interrupted


def every_class(root: type[errors.StreammcError]) -> list[type[errors.StreammcError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


@pytest.mark.trust(44)
@pytest.mark.parametrize("kind", every_class(errors.StreammcError), ids=lambda kind: kind.__name__)
def test_our_errors_keep_their_exit_code(kind: type[errors.StreammcError]) -> None:
    assert (kind.exit_code, kind.code, "what was wrong") == classify(kind("what was wrong"))


@pytest.mark.trust(44)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("no such option"), 2),
        (click.BadParameter("bad"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.csv"), 66),
        (PermissionError(errno.EACCES, "Permission denied", "a.csv"), 77),
        (MemoryError(), 71),
        (RuntimeError("can't start new thread"), 71),
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), 74),
        (OSError(errno.EIO, "Input/output error"), 74),
        (OSError(errno.EROFS, "Read-only file system", "a.csv"), 73),
        (BrokenPipeError(), 141),
        (ValueError("surprise"), 70),
        (KeyboardInterrupt(), 130),
        (Interrupted(15), 143),
        (Interrupted(2), 130),
        (SystemExit(3), 70),
        (SystemExit(None), 70),
        (click.exceptions.Exit(4), 4),
    ],
)
def test_foreign_errors_get_their_exit_codes(error: BaseException, code: int) -> None:
    assert code == classify(error)[0]


def test_an_unknown_error_is_one_line_that_names_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert 70 == report(ValueError("two\nlines"), ["info"])
    captured = capsys.readouterr()
    assert "" == captured.out
    assert 1 == len(captured.err.splitlines())
    assert "ValueError: two\\nlines; rerun with --debug" in captured.err


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("surprise")
    except ValueError as error:
        report(error, ["info", "--debug"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.trust(48)
def test_json_errors_are_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert 66 == report(errors.MissingError("expected x"), ["info", "--json"])
    body = json.loads(capsys.readouterr().out)
    assert {"error": {"exit_code": 66, "code": "missing", "message": "expected x"}} == body


def test_a_broken_pipe_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    report(BrokenPipeError(), ["info"])
    assert ("", "") == capsys.readouterr()


def test_debug_and_json_flags_are_read_from_line_and_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(["info", "--json"], "--json")
    assert not asked(["info", "--", "--json"], "--json")
    monkeypatch.setenv("STREAMMC_JSON", "true")
    assert asked(["info"], "--json")
    monkeypatch.setenv("STREAMMC_JSON", "0")
    assert not asked(["info"], "--json")
