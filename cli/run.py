"""``streammc run``: every stage of a job file, from tables to predictions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import click

from streammc.cli.options import CodeOption, argument, command, parse_scheduler
from streammc.cli.output import Output
from streammc.samplers.common.sampler import ExecutionOptions
from streammc.settings import PassOptions, setting


@dataclass(frozen=True, kw_only=True)
class DayOption:
    """Option of jobs."""

    date: str | None = setting(
        None, "Day of {date} in the file; default: today.", environment=False, metavar="YYYY-MM-DD"
    )


@dataclass(frozen=True, kw_only=True)
class CheckSettings(DayOption, PassOptions, CodeOption):
    """Settings of ``streammc check``."""

    job: str = argument("path")


@dataclass(frozen=True, kw_only=True)
class RunSettings(DayOption, ExecutionOptions, CodeOption):
    """Settings of ``streammc run``; those of its bases go to the stages that have them."""

    job: str | None = argument("path", None)
    overwrite: bool = setting(
        False, "Replace outputs of other inputs or settings.", environment=False
    )
    schema: bool = setting(False, "Print the JSON Schema of a job file.", environment=False)
    notify: str | None = setting(
        None, "Command at the end, with STREAMMC_OUTCOME and others.", metavar="CMD"
    )


@command("run", RunSettings)
def run(ctx: click.Context, settings: RunSettings) -> int:
    """Run the stages of the TOML file JOB: ingest, sample, predict.

    The same command again leaves what is finished, resumes what is not, and refuses outputs of
    another job, or replaces them with --overwrite.
    """
    printer: Output = ctx.obj
    if settings.schema:
        return _print_schema(printer)
    job = settings.job
    if job is None:
        raise click.UsageError("expected a job file, found none: write streammc run JOB.toml", ctx)
    from streammc.cli.app import classify
    from streammc.cli.jobs.job_record import JobRecord
    from streammc.cli.jobs.job_run import carry_out

    parse_scheduler(settings.scheduler)
    record = JobRecord(job)
    try:
        with ctx.find_root().obj.as_cause():
            return carry_out(ctx, printer, job, record, settings)
    except BaseException as error:
        code, name, message = classify(error)
        with suppress(OSError):  # the error of the work is the one to report
            record.end(code, {"code": name, "message": message})
        raise
    finally:
        if settings.notify is not None:
            record.notify(settings.notify, printer)


def _print_schema(printer: Output) -> int:
    """Print the JSON Schema of a job file."""
    import json

    from streammc.cli.jobs.job_file import job_schema

    found = job_schema()
    printer.result(found, json.dumps(found, indent=2))
    return 0


@command("check", CheckSettings)
def check(ctx: click.Context, settings: CheckSettings) -> int:
    """Check the TOML file JOB and print its plan: stages, passes, memory, disk and time.

    Nothing is written. Every fault of the file is a line with the path of its key.
    """
    from streammc.cli.jobs.job_plan import planned
    from streammc.cli.jobs.job_run import settled
    from streammc.cli.jobs.problems import without_overwrite

    printer: Output = ctx.obj
    parse_scheduler(settings.scheduler)
    with without_overwrite():
        found = settled(ctx, printer, settings.job, settings, every=True)
        document, human = planned(ctx, printer, settings.job, found.job, found.stages, found.made)
    printer.result(document, human)
    return 0
