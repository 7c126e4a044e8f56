"""``streammc run``: every stage of a job file, from tables to predictions."""

from __future__ import annotations

from contextlib import suppress

import click

from streammc.cli.options import (
    chains_option,
    code_option,
    command,
    parse_scheduler,
    path_argument,
    scheduler_option,
    setting,
)
from streammc.cli.output import Output
from streammc.cli.values import LocalPath


@command("run", short_help="Run every stage of a job file, or go on with it.")
@click.argument("job", type=LocalPath(), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a job file.")
@setting("--notify", metavar="CMD", help="Command at the end, with STREAMMC_OUTCOME and others.")
@scheduler_option
@chains_option
@code_option
@click.pass_context
def run(
    ctx: click.Context,
    job: str | None,
    schema: bool,
    notify: str | None,
    scheduler: str | None,
    chains_on: str,
    allow_code: bool,
) -> int:
    """Run the stages of the TOML file JOB: ingest, sample, predict.

    The same command again leaves what is finished, resumes what is not, and refuses outputs of
    another job.
    """
    printer: Output = ctx.obj
    if schema:
        return _print_schema(printer)
    if job is None:
        raise click.UsageError("expected a job file, found none: write streammc run JOB.toml", ctx)
    from streammc.cli.app import classify
    from streammc.cli.jobs.job_record import JobRecord
    from streammc.cli.jobs.job_run import carry_out
    from streammc.cli.jobs.problems import without_overwrite

    parse_scheduler(scheduler)
    record = JobRecord(job)
    try:
        with without_overwrite():
            return carry_out(
                ctx,
                printer,
                job,
                record,
                allow_code=allow_code,
                scheduler=scheduler,
                chains_on=chains_on,
            )
    except BaseException as error:
        code, name, message = classify(error)
        with suppress(OSError):  # the error of the work is the one to report
            record.end(code, {"code": name, "message": message})
        raise
    finally:
        if notify is not None:
            record.notify(notify, printer)


def _print_schema(printer: Output) -> int:
    """Print the JSON Schema of a job file."""
    import json

    from streammc.cli.jobs.job_file import job_schema

    found = job_schema()
    printer.result(found, json.dumps(found, indent=2))
    return 0


@command("check", short_help="Check a job file, and forecast what it takes.")
@path_argument("job")
@scheduler_option
@code_option
@click.pass_context
def check(ctx: click.Context, job: str, scheduler: str | None, allow_code: bool) -> int:
    """Check the TOML file JOB and print its plan: stages, passes, memory, disk and time.

    Nothing is written. Every fault of the file is a line with the path of its key.
    """
    from streammc.cli.jobs.job_plan import planned
    from streammc.cli.jobs.job_run import settled
    from streammc.cli.jobs.problems import without_overwrite

    printer: Output = ctx.obj
    parse_scheduler(scheduler)
    with without_overwrite():
        found, stages, made = settled(ctx, printer, job, allow_code, scheduler, every=True)
        document, human = planned(ctx, printer, job, found, stages, made)
    printer.result(document, human)
    return 0
