"""The command ``streammc`` with its subcommands, which are imported when they are called."""

from __future__ import annotations

import errno
import gc
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

import streammc
from streammc.cli.jobs.problems import RefusedJob
from streammc.cli.output import close_streams, prepare_streams, write_log
from streammc.cli.own_code import ENDED, MESSAGE, silent_ends_refused
from streammc.cli.signals import Interrupted, interruptible
from streammc.errors import OutOfMemoryError, OutputError, StreammcError, one_line
from streammc.trace.addresses import named

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


COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("streammc.cli.demo:demo", "Sample a data set that ships with the package."),
    "fit": ("streammc.cli.fit:fit", "Sample the posterior of a table, in one command."),
    "simulate": ("streammc.cli.simulate:simulate", "Write a store of simulated rows."),
    "ingest": ("streammc.cli.ingest:ingest", "Make a store from CSV, Parquet or Arrow files."),
    "pull": ("streammc.cli.pull:pull", "Copy a store from an object store to a local disk."),
    "info": ("streammc.cli.inspect:info", "Describe a store, a run or control variates."),
    "verify": ("streammc.cli.inspect:verify", "Check every byte of a store or run."),
    "summarize": ("streammc.cli.summarize:summarize", "Compute control variates in a full pass."),
    "sample": ("streammc.cli.sample:sample", "Sample a posterior, or resume where it stopped."),
    "run": ("streammc.cli.run:run", "Run every stage of a job file, or go on with it."),
    "check": ("streammc.cli.run:check", "Check a job file, and forecast what it takes."),
    "resume": ("streammc.cli.sample:resume", "Continue an interrupted run."),
    "diagnose": ("streammc.cli.diagnose:diagnose", "Summarise the draws of a run."),
    "report": ("streammc.cli.html_report:report", "Write a page about a run."),
    "compare": ("streammc.cli.compare:compare", "Compare runs by cost, or models by score."),
    "predict": ("streammc.cli.predict:predict", "Predict the rows of a store from a run."),
    "export": ("streammc.cli.export:export", "Write a run as a JSON file that predicts alone."),
    "comparisons": (
        "streammc.cli.answers:comparisons",
        "Compare averages over all rows between values of a variable.",
    ),
    "slopes": ("streammc.cli.answers:slopes", "Average the slope in a variable over all rows."),
    "predictions": (
        "streammc.cli.answers:predictions",
        "Average the mean response over all rows.",
    ),
    "score": ("streammc.cli.score:score", "Score a run on its own rows, each left out."),
    "effects": (
        "streammc.cli.effects:effects",
        "Write the effects of the groups of a mixed model.",
    ),
    "audit": ("streammc.cli.audit:audit", "Measure the effect of subsampling on a run."),
    "gc": ("streammc.cli.collect_debris:gc", "Remove what killed processes left behind."),
    "models": ("streammc.cli.listings:models", "List the models."),
    "samplers": ("streammc.cli.listings:samplers", "List the samplers and what they target."),
}
"""Name -> import path of the command and its line of help, so that help needs no import."""


class Application(click.Group):
    """A group whose commands are imported on first use, so that ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which a user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command ``cmd_name``, imported; ``None`` if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments; refuse an unknown one with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


application: Final = Application(
    name="streammc",
    help="Bayesian inference by MCMC on tables that do not fit in memory.",
    epilog="Start with `streammc demo`. Every command has --json, --quiet and --help.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="Print the version and exit.",
            callback=lambda ctx, _, value: _print_version(ctx) if value else None,
        )
    ],
)


def _print_version(ctx: click.Context) -> None:
    click.echo(f"streammc {streammc.__version__}")
    ctx.exit()


_OBJECTS: Final = 100_000
"""New objects between two searches for cycles. Imports make half a million objects that stay, and
Python's 700 cost a twentieth of the processor time before the first iteration of ``sample``."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every error becomes one line."""
    if arguments is None:  # otherwise the process is the caller's
        gc.set_threshold(_OBJECTS)
    parts = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        if not {"-h", "--help", "--version"} & set(parts):
            from streammc.numerics.process_limits import check_process_limits

            check_process_limits()
        with silent_ends_refused(), interruptible(at_end=arguments is None) as interruption:
            context = application.make_context("streammc", list(parts), obj=interruption)
            with context:
                result = application.invoke(context)
            sys.stdout.flush()
        code = result if isinstance(result, int) else 0
    except BaseException as error:
        try:
            code = report(error, parts)
        except MemoryError:  # not even for the report
            os.write(2, b"streammc: out of memory: raise the limits of the process (ulimit -a)\n")
            code = OutOfMemoryError.exit_code
    close_streams()
    return code
