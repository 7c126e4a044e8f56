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


def stage_faults(ctx: click.Context, output: Output, stages: list[Stage]) -> list[Problem]:
    """Return what the commands of the stages find wrong with their words, by key of the file."""
    faults = []
    for stage in stages:
        try:
            with stage_context(ctx, output, stage):
                pass
        except click.UsageError as error:
            parameter = getattr(error, "param", None)
            name = getattr(parameter, "name", None) or ""
            faults.append(Problem(stage.keys.get(name, stage.name), _said(error)))
    return faults


def _said(error: click.UsageError) -> str:
    """Return the message of a usage error, with what to do."""
    text = str(error.message or error.format_message()).rstrip(".")
    return text if ": " in text else f"{text}: change this key"
