"""``streammc resume``: continue a run with its recorded settings."""

from __future__ import annotations

from dataclasses import replace

import click

from streammc.cli.options import (
    code_option,
    command,
    run_argument,
    setting,
)
from streammc.cli.output import Output
from streammc.cli.scheduler_options import chains_option, parse_scheduler, scheduler_option
from streammc.cli.values import Limits, WholeNumber


@command("resume", short_help="Continue an interrupted run.")
@run_argument("run")
@setting("--draws", type=WholeNumber(1), help="More draws per chain than were asked for.")
@scheduler_option
@chains_option
@code_option
@setting("--check", type=Limits(), help="rhat=1.01,ess=400: exit 1 if the run misses them.")
@click.pass_context
def resume(
    ctx: click.Context,
    run: str,
    draws: int | None,
    scheduler: str | None,
    chains_on: str,
    check: dict[str, float] | None,
    allow_code: bool,
) -> int:
    """Continue RUN from its last commit, with the settings of the command that started it."""
    from streammc.cli.execute import execute
    from streammc.cli.recorded import recorded_job
    from streammc.cli.report import run_document, show_run

    printer: Output = ctx.obj
    where = parse_scheduler(scheduler)
    job = recorded_job(run, draws=draws, scheduler=where, allow_code=allow_code)
    job = replace(job, chains_on=chains_on)
    summary = execute(printer, ctx.find_root().obj, job)
    return show_run(printer, run_document(run, summary), check, job.stopping is not None)
