"""The command ``streammc`` with its subcommands, which are imported when they are called."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

import streammc
from streammc.cli.output import close_streams, prepare_streams
from streammc.cli.own_code import silent_ends_refused
from streammc.cli.signals import interruptible
from streammc.errors import OutOfMemoryError

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("streammc.cli.demo:demo", "Sample a data set that ships with the package."),
    "simulate": ("streammc.cli.simulate:simulate", "Write a store of simulated rows."),
    "ingest": ("streammc.cli.ingest:ingest", "Make a store from CSV, Parquet or Arrow files."),
    "pull": ("streammc.cli.pull:pull", "Copy a store from an object store to a local disk."),
    "info": ("streammc.cli.inspect:info", "Describe a store, a run or control variates."),
    "verify": ("streammc.cli.inspect:verify", "Check every byte of a store or run."),
    "summarize": ("streammc.cli.summarize:summarize", "Compute control variates in a full pass."),
    "sample": ("streammc.cli.sample:sample", "Sample a posterior, or resume where it stopped."),
    "run": ("streammc.cli.run:run", "Run every stage of a job file, or go on with it."),
    "check": ("streammc.cli.check_job:check", "Check a job file, and forecast what it takes."),
    "resume": ("streammc.cli.resume:resume", "Continue an interrupted run."),
    "diagnose": ("streammc.cli.diagnose:diagnose", "Summarise the draws of a run."),
    "report": ("streammc.cli.html_report:report", "Write a page about a run."),
    "compare": ("streammc.cli.compare:compare", "Compare runs by cost, or models by score."),
    "predict": ("streammc.cli.predict:predict", "Predict the rows of a store from a run."),
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
            from streammc.cli.run_errors import report

            code = report(error, parts)
        except MemoryError:  # not even for the report
            os.write(2, b"streammc: out of memory: raise the limits of the process (ulimit -a)\n")
            code = OutOfMemoryError.exit_code
    close_streams()
    return code
