"""Shared options of the commands, also from the environment and the configuration file.

The value of a setting is taken from its flag, else from ``STREAMMC_<NAME>``, else from the
file of ``--config``, else from its default.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from streammc.cli.configuration import read_configuration
from streammc.cli.output import Heartbeat, HeartbeatFile, Output
from streammc.cli.values import (
    Limits,
    LocalPath,
    ModelName,
    NamedPrior,
    Names,
    PositiveNumber,
    RunPath,
    StoppingRule,
    StorePath,
    Temperature,
    WholeNumber,
)
from streammc.first_use import compiling

F = TypeVar("F", bound=Callable[..., Any])

PRINTING: Final = ("json", "quiet", "log_format", "heartbeat", "debug")
SEED: Final = WholeNumber(0, 2**63 - 1)
STAGE: Final = "streammc.cli.stage"
"""Key of the context's ``meta`` with the ``Output`` of the job whose stage a command is."""
COMPARE: Final = "streammc.cli.compare"
"""Key of the context's ``meta`` if the stage is to compare its output, and to make nothing."""
THERE: Final = "there, verified"
OLDER: Final = "there, to be renewed"
"""Answers of such a stage; an output of others is refused."""


class Setting(click.Option):
    """An option that can also be set by the environment, but not in a stage of a job."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable; none in a stage, whose settings are the job's."""
        return None if STAGE in ctx.meta else super().resolve_envvar_value(ctx)


class Command(click.Command):
    """A command with the shared printing options, which its body gets as an ``Output``."""

    def __init__(self, *args: Any, configurable: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if configurable:
            self.params.append(_config())
        self.params += _printing()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; refuse a list given twice: the second would replace the first."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        *_, given = self.make_parser(ctx).parse_args(words)
        for option in given:
            if isinstance(option.type, Names | Limits | StoppingRule) and given.count(option) > 1:
                raise click.UsageError(
                    f"expected {option.opts[0]} once, found it again: give one list, separated by "
                    "commas",
                    ctx,
                )
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the body with an ``Output`` made from the shared options."""
        chosen = {name: ctx.params.pop(name) for name in PRINTING}
        if STAGE in ctx.meta:
            ctx.params.pop("config", None)
            ctx.obj = ctx.meta[STAGE]
            return super().invoke(ctx)
        beats = chosen.pop("heartbeat")
        ctx.params.pop("config", None)
        ctx.obj = output = Output(**chosen)
        output.heartbeat_file = HeartbeatFile(beats, self.name or "", output.warn)
        output.heartbeat = Heartbeat(not output.quiet and output.log_format == "text")
        compilation_notes = compiling.told_to(output.compiling)
        with (
            output.heartbeat_file,
            output.heartbeat,
            compilation_notes,
            warnings.catch_warnings(),
        ):
            if not output.debug:
                # Warnings of other libraries do not help the user of a command line.
                warnings.showwarning = lambda *_, **__: None
            try:
                return super().invoke(ctx)
            finally:
                _close_clusters()


def _close_clusters() -> None:
    """Close the connections to clusters, if the command had any."""
    connection = sys.modules.get("streammc.stores.dask_cluster")
    if connection is not None:
        connection.close_all()


def command(name: str, *, configurable: bool = False, **kwargs: Any) -> Callable[[F], Command]:
    """Declare a command of ``streammc``."""
    return click.command(name, cls=Command, configurable=configurable, **kwargs)


def setting(*declarations: str, **kwargs: Any) -> Callable[[F], F]:
    """Declare an option that can also be set by ``STREAMMC_<NAME>`` or the configuration file."""
    return click.option(*declarations, cls=Setting, envvar=_variable(declarations), **kwargs)


def path_argument(name: str, **kwargs: Any) -> Callable[[F], F]:
    """Declare a positional argument that is a path."""
    return click.argument(name, type=LocalPath(), **kwargs)


def run_argument(name: str, **kwargs: Any) -> Callable[[F], F]:
    """Declare a positional argument that is the path or the address of a run."""
    return click.argument(name, type=RunPath(), **kwargs)


def store_argument(name: str) -> Callable[[F], F]:
    """Declare a positional argument that is the path or the address of a store."""
    return click.argument(name, type=StorePath())


def model_options(function: F) -> F:
    """Add ``--model``, ``--allow-code``, ``--prior`` and ``--prior-scale``."""
    from streammc.registry import MODELS

    model = setting(
        "--model",
        type=ModelName(),
        required=True,
        metavar="NAME",
        help=f"Likelihood: {', '.join(MODELS)}, or your own: package.module:build.",
    )
    scale = setting(
        "--prior-scale",
        type=PositiveNumber(),
        show_default="priors that scale with the data",
        help="Normal(0, S) on every coefficient that --prior leaves, on the store's scale.",
    )
    prior = setting(
        "--prior",
        type=NamedPrior(),
        multiple=True,
        help="Such as 'beta[age]=normal(0, 1)', 'sigma=half_cauchy(2)', 'beta[C(x)*]=laplace(0, 1)'"
        " or 'normal(0, 2)' for all coefficients.",
    )
    return model(code_option(prior(scale(function))))


def code_option(function: F) -> F:
    """Add ``--allow-code``, which cannot be set by the environment or a file."""
    return click.option(
        "--allow-code", is_flag=True, help="Import and run the code of a model of your own."
    )(function)


def temperature_option(function: F) -> F:
    """Add ``--temperature``."""
    return setting(
        "--temperature",
        type=Temperature(),
        default=1.0,
        show_default=True,
        help="likelihood^(1/T) x prior; mh samplers also T:sqrt and T:N, T for N iterations.",
    )(function)


def stop_option(function: F) -> F:
    """Add ``--stop``."""
    return setting(
        "--stop",
        type=StoppingRule(),
        help="ess=1000,rhat=1.01,time=2h,draws=50000: go on after --draws until each parameter"
        " keeps ess and rhat; exit 1 if time or draws end it first.",
    )(function)


def overwrite_option(function: F) -> F:
    """Add ``--overwrite``, which cannot be set by the environment or a file."""
    return click.option(
        "--overwrite", is_flag=True, help="Replace an existing output of the same kind."
    )(function)


def _printing() -> list[click.Parameter]:
    flags = {
        "json": "Print one JSON object on stdout.",
        "quiet": "No progress and no messages but warnings and errors.",
        "debug": "Show tracebacks.",
    }
    options: list[click.Parameter] = [
        Setting([f"--{name}"], is_flag=True, envvar=f"STREAMMC_{name.upper()}", help=text)
        for name, text in flags.items()
    ]
    options.insert(
        2,
        Setting(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            envvar="STREAMMC_LOG_FORMAT",
            help="Form of the lines on stderr.",
        ),
    )
    options.insert(
        3,
        Setting(
            ["--heartbeat"],
            type=LocalPath(),
            envvar="STREAMMC_HEARTBEAT",
            help="File that shows every few seconds how far the command is.",
        ),
    )
    return options


def _config() -> click.Parameter:
    return Setting(
        ["--config"],
        type=LocalPath(),
        is_eager=True,
        envvar="STREAMMC_CONFIG",
        help="TOML file with settings by their long names.",
        callback=_load,
    )


def _load(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        ctx.default_map = read_configuration(value, ctx.command, except_for=(*PRINTING, "config"))
    return value


def _variable(declarations: tuple[str, ...]) -> str:
    long = next(name for name in declarations if name.startswith("--"))
    return "STREAMMC_" + long.split("/")[0].lstrip("-").replace("-", "_").upper()


_INSECURE: Final = "streammc.insecure_cluster"
"""Key of the context's ``meta``: whether a plain connection to another machine is allowed."""


def scheduler_option(function: F) -> F:
    """Add ``--scheduler`` and ``--insecure-cluster``."""
    insecure = click.option(
        "--insecure-cluster",
        is_flag=True,
        expose_value=False,
        callback=_insecure,
        is_eager=True,
        help="Use a plain tcp:// scheduler on another machine: anyone on the way can run code.",
    )
    return setting(
        "--scheduler",
        metavar="S",
        help="Where full passes run: sync, a number of local threads, tcp://HOST:PORT, "
        "tls://HOST:PORT, a scheduler's FILE.json, or local:N processes.",
    )(insecure(function))


def chains_option(function: F) -> F:
    """Add ``--chains-on``."""
    return setting(
        "--chains-on",
        type=click.Choice(["here", "workers"]),
        default="here",
        show_default=True,
        help="Chains as threads of this process, or as tasks on the cluster of --scheduler.",
    )(function)


def _insecure(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:  # a stage of a job has it from the job
        ctx.meta[_INSECURE] = True


def parse_scheduler(text: str | None) -> Any:
    """Return the value of ``--scheduler`` in the form that ``Dataset.reduce`` takes.

    A cluster stays connected until the command ends.
    """
    if text is None or text in {"sync", "threads"}:
        return None if text == "threads" else text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    from streammc.stores.dask_cluster import ClusterAddress, names_cluster, scheduler_url

    if not names_cluster(text):
        raise click.BadParameter(
            "expected sync, threads, a number of threads, tcp://host:port, tls://host:port, "
            f"FILE.json or local:N, found {text!r}: choose one of them",
            param_hint="'--scheduler'",
        )
    address = ClusterAddress(text, bool(click.get_current_context().meta.get(_INSECURE)))
    if not address.local_workers:
        scheduler_url(address)
    from streammc.stores.dask_cluster import keep_open

    keep_open()
    return address
