"""The report of an error: its exit code, its error code as text, and a message of one line."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from streammc.cli.jobs.problems import RefusedJob
from streammc.cli.output import write_log
from streammc.cli.own_code import ENDED, MESSAGE
from streammc.cli.signals import Interrupted
from streammc.errors import OutputError, StreammcError, one_line
from streammc.trace.address_names import named

BROKEN_PIPE: Final = 141
"""Exit code that a shell reports for a program killed by SIGPIPE."""
_CANNOT_CREATE: Final = (errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)


def classify(error: BaseException) -> tuple[int, str, str]:
    """Return exit code, error code as text and message; an empty message prints nothing."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code, "", ""
        case SystemExit():
            return ENDED, "internal", f"{MESSAGE} exit({error.code or ''}): mend the model"
        case Interrupted():
            return error.exit_code, "interrupted", f"{error}: run the same command again to go on"
        case KeyboardInterrupt() | click.Abort():
            return 130, "interrupted", "interrupted: run the same command again to go on"
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "streammc"
            message = error.format_message().rstrip(".")
            return 2, "usage", f"{message} (see '{path} --help')"
        case click.ClickException():
            return 2, "usage", error.format_message()
        case StreammcError():
            return error.exit_code, error.code, str(error)
        case RefusedJob():
            return error.exit_code, error.code, str(error)
        case BrokenPipeError():
            return BROKEN_PIPE, "broken_pipe", ""
        case FileNotFoundError() if error.filename is None and _folder_is_gone():
            what = "expected the current folder to exist, found it deleted"
            return 66, "missing", f"{what}: change to another one, then give the command again"
        case FileNotFoundError():
            return 66, "missing", f"expected {_name(error)}, found nothing: check the path"
        case PermissionError():
            return 77, "permission", f"{error.strerror}: {_name(error)}; check the permissions"
        case MemoryError():
            what = f"out of memory: {error or 'allocation failed'}"
            return 71, "out_of_memory", f"{what}; free memory, or raise the limit of the process"
        case RuntimeError() if "start new thread" in str(error):
            what = "expected room for another thread, found none"
            return 71, "out_of_memory", f"{what}: raise the limits of the process (ulimit -a)"
        case OSError() if error.errno in _CANNOT_CREATE:
            where = f"cannot create {_name(error)}: {error.strerror}"
            return OutputError.exit_code, OutputError.code, f"{where}; choose another output"
        case OSError():
            return 74, "io", f"{error.strerror or error}: {_name(error)}; check the disk"
        case _:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return 70, "internal", f"internal error: {what}; rerun with --debug and report it"


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _name(error: OSError) -> str:
    return repr(os.fsdecode(error.filename)) if error.filename is not None else "a file"


def report(error: BaseException, words: Sequence[str]) -> int:
    """Print ``error`` in the format that the command line ``words`` requests; return its code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    code, name, message = classify(error)
    if asked(words, "--debug"):
        traceback.print_exception(error)
    if message:
        message = one_line(named(message))
        body: dict[str, Any] = {"exit_code": code, "code": name, "message": message}
        lines = [message]
        if isinstance(error, RefusedJob):
            lines = [named(line) for line in error.lines]
            pairs = zip(error.keys, lines, strict=True)
            body["problems"] = [{"key": key, "message": line} for key, line in pairs]
        try:
            for line in lines:
                write_log("error", line, as_json=_log_format(words) == "json")
            if asked(words, "--json"):
                print(json.dumps({"error": body}), flush=True)
        except (OSError, ValueError, AttributeError):
            pass  # no stream to print to; the exit code remains
    return code


def asked(words: Sequence[str], flag: str) -> bool:
    """Return whether a flag is given on the command line or in the environment.

    The words are searched without click: the error may be that click cannot parse them.
    """
    before_end = words[: list(words).index("--")] if "--" in words else words
    value = os.environ.get(f"STREAMMC_{flag.lstrip('-').upper()}", "")
    return flag in before_end or value.strip().lower() in {"1", "true", "t", "yes", "y", "on"}


def _log_format(words: Sequence[str]) -> str:
    for position, word in enumerate(words):
        if word == "--log-format" and position + 1 < len(words):
            return words[position + 1]
        if word.startswith("--log-format="):
            return word.partition("=")[2]
    return os.environ.get("STREAMMC_LOG_FORMAT", "text")
