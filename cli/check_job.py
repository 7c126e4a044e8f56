"""``streammc check``: what a job file asks for, what is there, and what the rest takes."""

from __future__ import annotations

import click

from streammc.cli.options import code_option, command, path_argument
from streammc.cli.output import Output
from streammc.cli.scheduler_options import parse_scheduler, scheduler_option


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
