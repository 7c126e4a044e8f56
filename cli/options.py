"""Shared options of the commands, also from the environment and the configuration file.

The value of a setting is taken from its flag, else from ``STREAMMC_<NAME>``, else from the
file of ``--config``, else from its default.
"""

from __future__ import annotations

import json
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from streammc.cli.configuration import option_text, read_configuration
from streammc.cli.output import Heartbeat, HeartbeatFile, Output
from streammc.cli.values import (
    KINDS,
    Limits,
    LocalPath,
    Names,
    PositiveNumber,
    Share,
    StoppingRule,
    StorePath,
    WholeNumber,
)
from streammc.first_use import compiling
from streammc.registry import MODELS
from streammc.settings import IntervalOption, setting, stated_fields

F = TypeVar("F", bound=Callable[..., Any])

PRINTING: Final = ("json", "quiet", "log_format", "heartbeat", "debug")
STAGE: Final = "streammc.cli.stage"
"""Key of the context's ``meta``: whether the command is a stage of a job."""
COMPARE: Final = "streammc.cli.compare"
"""Key of the context's ``meta`` if the stage is to compare its output, and to make nothing."""
THERE: Final = "there, verified"
OLDER: Final = "there, to be renewed"
"""Answers of such a stage; an output of others is refused."""


def argument(kind: str, default: Any = MISSING, *, several: bool = False) -> Any:
    """Return the field of a positional argument of a kind of :data:`values.KINDS`."""
    return field(default=default, metadata={"kind": kind, "argument": -1 if several else 1})


@dataclass(frozen=True, kw_only=True)
class CodeOption:
    """Option of commands that build the model of a run."""

    allow_code: bool = setting(
        False, "Import and run the code of a model of your own.", environment=False, recorded=False
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CodeOption):
    """The likelihood and its priors."""

    model: str = setting(
        help=f"Likelihood: {', '.join(MODELS)}, or your own: package.module:build.",
        kind="model",
        metavar="NAME",
        key="model.name",
    )
    prior: tuple[tuple[str, str], ...] = setting(
        (),
        "Such as 'beta[age]=normal(0, 1)', 'sigma=half_cauchy(2)', 'beta[C(x)*]=laplace(0, 1)'"
        " or 'normal(0, 2)' for all coefficients.",
        kind="prior",
        multiple=True,
    )
    prior_scale: float | None = setting(
        None,
        "Normal(0, S) on every coefficient that --prior leaves, on the store's scale.",
        exclusiveMinimum=0,
        show_default="priors that scale with the data",
        key="model",
    )


@dataclass(frozen=True, kw_only=True)
class ShowOptions(IntervalOption):
    """Options of commands that show a run."""

    check: dict[str, float] | None = setting(
        None, "rhat=1.01,ess=400: exit 1 if the run misses them.", kind="limits"
    )


@dataclass(frozen=True, kw_only=True)
class VerboseOption:
    """Option of commands that sample a run."""

    verbose: bool = setting(False, "Print all that diagnose prints of the run.", recorded=False)


def options_of(settings: type) -> list[click.Parameter]:
    """Return the arguments and options of a command, made of the fields of its settings.

    Beside what :func:`streammc.settings.setting` names, a field can have ``kind``, a type of
    :data:`values.KINDS`; ``short``, its letter; ``choices``, its texts; ``auto``, whether ``auto``
    stands for the default; ``multiple``, whether it can be given several times; ``environment``,
    false for one that a variable or a file cannot set; ``metavar`` and ``show_default``, as click
    has them.
    """
    hints = get_type_hints(settings)
    found: list[click.Parameter] = []
    for each in stated_fields(settings):
        if "argument" in each.metadata:
            found.append(_argument(each))
        elif "help" in each.metadata:
            found.append(_option(each, plain_type(hints[each.name])))
        if each.name == "scheduler":
            found.append(_insecure_option())
    return found


def _argument(each: Field[Any]) -> click.Argument:
    kind, nargs = KINDS[each.metadata["kind"]], each.metadata["argument"]
    required = each.default is MISSING
    return click.Argument([each.name], type=kind, nargs=nargs, required=required)


def _option(each: Field[Any], hint: Any) -> click.Option:
    facts = each.metadata
    long = f"--{each.name.replace('_', '-')}"
    default = None if each.default is MISSING else each.default
    known = {name: facts[name] for name in ("metavar", "multiple") if name in facts}
    if hint is not bool:
        known |= {"type": _type(hint, facts)}
        known |= {"show_default": facts.get("show_default", default not in (None, ()))}
    elif default is False:
        known |= {"is_flag": True}
    else:
        long = f"{long}/--no-{long[2:]}"
        known |= {"default": default}
    if default not in (None, ()):
        known |= {"default": default}
    if facts.get("environment", True):
        known |= {"envvar": f"STREAMMC_{each.name.upper()}"}
    names = [long, *facts.get("short", ())]
    return click.Option(names, help=facts["help"], required=each.default is MISSING, **known)


def plain_type(hint: Any) -> Any:
    """Return a type without its ``| None``."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not types.NoneType]
        return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007
    return hint


def _type(hint: Any, facts: Mapping[str, Any]) -> click.ParamType[Any] | None:
    """Return the type of the values of an option."""
    if "kind" in facts:
        return KINDS[facts["kind"]]
    choices = get_args(hint) if get_origin(hint) is Literal else facts.get("choices")
    if choices:
        return click.Choice(list(map(str, choices)))
    auto = facts.get("auto", False)
    if hint is int:
        return WholeNumber(facts["minimum"], facts.get("most", 10**9), auto=auto)
    if hint is float:
        return Share() if "exclusiveMaximum" in facts else PositiveNumber(auto=auto)
    return None


def settings_from(
    values: Mapping[str, Any], ctx: click.Context
) -> tuple[Any, list[tuple[str, str]]]:
    """Return the settings of a command from values of a job file, and what is wrong with these.

    Values with a fault are left out.

    Parameters
    ----------
    values
        Values by name of the setting: texts, numbers, tuples of texts, or pairs of a name and a
        value for a setting that takes several; ``None`` is left out.
    ctx
        Context of the command.

    Returns
    -------
    settings
        The settings; ``None`` if a required value is missing or wrong.
    faults
        Name of the setting, with that of a pair behind a point, and message.
    """
    command = ctx.command
    assert isinstance(command, Command)
    parameters = {each.name: each for each in command.params}
    made: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    for each in stated_fields(command.settings):
        name, value = each.name, values.get(each.name)
        if value is None:
            continue
        several = each.metadata.get("multiple") or each.metadata.get("argument") == -1
        converted = []
        for part in value if several else (value,):
            pair = isinstance(part, tuple) and several
            text = f"{part[0]}={pair_text(part[1])}" if pair else part
            try:
                converted.append(parameters[name].type.convert(text, parameters[name], ctx))
            except click.UsageError as error:
                message = str(error.message or error.format_message()).rstrip(".")
                message = message if ": " in message else f"{message}: change this key"
                faults.append((f"{name}.{part[0]}" if pair else name, message))
        if several:
            made[name] = tuple(converted)
        elif converted:
            made[name] = converted[0]
    missing = any(
        each.default is MISSING and each.name not in made
        for each in stated_fields(command.settings)
    )
    return None if missing else command.settings(**made), faults


def pair_text(value: Any) -> str:
    """Return a TOML value as the text behind ``KEY=``."""
    return json.dumps(value) if isinstance(value, list) else option_text(value)


class Command(click.Command):
    """A command with the shared printing options, which its body gets as an ``Output``.

    The body of a command with settings is called with its context and these.
    """

    def __init__(
        self, *args: Any, settings: Any = None, configurable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = settings
        """Class of its settings, whose fields are its arguments and options."""
        self.params += [] if settings is None else options_of(settings)
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
        beats = chosen.pop("heartbeat")
        ctx.params.pop("config", None)
        ctx.obj = output = Output(**chosen)
        output.heartbeat_file = HeartbeatFile(beats, self.name or "", output.warn)
        output.heartbeat = Heartbeat(not output.quiet and output.log_format == "text")
        compilation_notes = compiling.told_to(output.compiling)
        with output.heartbeat_file, output.heartbeat, compilation_notes, warnings.catch_warnings():
            if not output.debug:
                # Warnings of other libraries do not help the user of a command line.
                warnings.showwarning = lambda *_, **__: None
            try:
                if self.settings is None:
                    return super().invoke(ctx)
                assert self.callback is not None
                return ctx.invoke(self.callback, ctx, self.settings(**ctx.params))
            finally:
                _close_clusters()


def _close_clusters() -> None:
    """Close the connections to clusters, if the command had any."""
    connection = sys.modules.get("streammc.stores.dask_cluster")
    if connection is not None:
        connection.close_all()


def command(
    name: str, settings: Any = None, *, configurable: bool = False, **kwargs: Any
) -> Callable[[F], Command]:
    """Declare a command of ``streammc`` with the options of a settings class."""
    return click.command(name, cls=Command, settings=settings, configurable=configurable, **kwargs)


def path_argument(name: str, **kwargs: Any) -> Callable[[F], F]:
    """Declare a positional argument that is a path."""
    return click.argument(name, type=LocalPath(), **kwargs)


def store_argument(name: str) -> Callable[[F], F]:
    """Declare a positional argument that is the path or the address of a store."""
    return click.argument(name, type=StorePath())


def _printing() -> list[click.Parameter]:
    flags = {
        "json": "Print one JSON object on stdout.",
        "quiet": "No progress and no messages but warnings and errors.",
        "debug": "Show tracebacks.",
    }
    options: list[click.Parameter] = [
        click.Option([f"--{name}"], is_flag=True, envvar=f"STREAMMC_{name.upper()}", help=text)
        for name, text in flags.items()
    ]
    options.insert(
        2,
        click.Option(
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
        click.Option(
            ["--heartbeat"],
            type=LocalPath(),
            envvar="STREAMMC_HEARTBEAT",
            help="File that shows every few seconds how far the command is.",
        ),
    )
    return options


def _config() -> click.Parameter:
    return click.Option(
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


_INSECURE: Final = "streammc.insecure_cluster"
"""Key of the context's ``meta``: whether a plain connection to another machine is allowed."""


def _insecure_option() -> click.Option:
    return click.Option(
        ["--insecure-cluster"],
        is_flag=True,
        expose_value=False,
        callback=_insecure,
        is_eager=True,
        help="Use a plain tcp:// scheduler on another machine: anyone on the way can run code.",
    )


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
