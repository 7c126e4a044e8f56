"""Calls of the commands that are the stages of a job; a stage prints where the job prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import click

from streammc.cli.jobs.job_stages import Stage
from streammc.cli.jobs.problems import Problem
from streammc.cli.options import STAGE
from streammc.cli.output import Output


@dataclass
class StageResult:
    """What a stage returned in place of printing it."""

    exit_code: int = 0
    document: dict[str, Any] = field(default_factory=dict)
    human: str = ""

    def keep(self, document: Mapping[str, Any], human: str) -> None:
        """Take the result of the command."""
        self.document, self.human = dict(document), human


@contextmanager
def stage_context(ctx: click.Context, output: Output, stage: Stage) -> Iterator[click.Context]:
    """Yield the context of the command of a stage, its words parsed and checked."""
    root = ctx.find_root()
    group = root.command
    assert isinstance(group, click.Group)
    command = group.get_command(root, stage.command)
    assert command is not None
    ctx.meta[STAGE] = output
    try:
        yield command.make_context(stage.command, list(stage.words), parent=ctx)
    finally:
        del ctx.meta[STAGE]


def call_stage(ctx: click.Context, output: Output, stage: Stage, *more: str) -> StageResult:
    """Run the command of a stage, with ``more`` words, and return its result.

    Raises
    ------
    Exception
        Those of the command.
    """
    result = StageResult()
    printer = replace(output, keep=result.keep, context={**output.context, "stage": stage.name})
    with stage_context(ctx, printer, replace(stage, words=[*more, *stage.words])) as inner, inner:
        code = inner.command.invoke(inner)
    result.exit_code = code if isinstance(code, int) else 0
    output.live = printer.live
    return result


def stage_faults(
    ctx: click.Context, output: Output, stage: Stage
) -> tuple[list[Problem], dict[str, Any]]:
    """Return what the command of a stage finds wrong with its words, by key of the file.

    And the parameters of the command without these words; empty if it cannot be parsed.
    """
    faults: list[Problem] = []
    words = list(stage.words)
    while True:
        try:
            with stage_context(ctx, output, replace(stage, words=words)) as inner:
                return faults, dict(inner.params)
        except click.UsageError as error:
            parameter = getattr(error, "param", None)
            key = stage.keys.get(getattr(parameter, "name", None) or "", stage.name)
            if key in {each.key for each in faults}:  # required, and without its words now
                return faults, {}
            names = [*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ())]
            own = [word for word in words if word.partition("=")[0] in names]
            if getattr(parameter, "multiple", False):
                assert parameter is not None
                wrong = {word: _fault(parameter, word.partition("=")[2], ctx) for word in own}
                own = [word for word, each in wrong.items() if each]
                faults += [Problem(f"{key}.{_name(word)}", str(wrong[word])) for word in own]
            else:
                faults.append(Problem(key, _said(error)))
        if not own:
            return faults, {}
        words = [word for word in words if word not in own]


def _fault(parameter: click.Parameter, value: str, ctx: click.Context) -> str | None:
    """Return what is wrong with one of several values of an option; ``None`` if nothing is."""
    try:
        parameter.type.convert(value, parameter, ctx)
    except click.UsageError as error:
        return _said(error)
    return None


def _name(word: str) -> str:
    """Return the name in a word ``--prior=name=text``."""
    return word.partition("=")[2].partition("=")[0]


def _said(error: click.UsageError) -> str:
    """Return the message of a usage error, with what to do."""
    text = str(error.message or error.format_message()).rstrip(".")
    return text if ": " in text else f"{text}: change this key"
