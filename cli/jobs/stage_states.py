"""What is there of the outputs of a job, compared with what its stages ask for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from streammc.cli.jobs.job_stages import Stage
from streammc.cli.jobs.stage_calls import call_stage, stage_context
from streammc.cli.options import COMPARE, OLDER, PRINTING, THERE
from streammc.cli.output import Output

TO_DO: Final = "to do"
COMPARED: Final = "there, compared when the job runs"
_NOT_OPTIONS: Final = {*PRINTING, "config", "sources", "store", "overwrite", "append", "again"}
_FROM_DRAWS: Final = ("score", "predict")


def output_state(ctx: click.Context, output: Output, stage: Stage) -> str:
    """Return whether the output of a stage is there.

    Raises
    ------
    IdentityError
        If it was made from other settings or inputs.
    """
    if stage.name == "append":
        n = len(stage.words) - stage.words.index("--") - 2
        return f"to do, {n} file{'s' * (n != 1)}"
    if not os.path.lexists(stage.output):
        return TO_DO
    if stage.command == "ingest":
        return _ingested(ctx, output, stage)
    if stage.name in _FROM_DRAWS and _has_inputs(ctx, output, stage):
        ctx.meta[COMPARE] = True
        try:
            return str(call_stage(ctx, replace(output, quiet=True), stage).document["state"])
        finally:
            del ctx.meta[COMPARE]
    return COMPARED


def with_more_draws(stage: Stage, state: str) -> str:
    """Return the state of an output where its run is about to get more draws."""
    renewed = stage.name in (*_FROM_DRAWS, "report") and state in (THERE, COMPARED)
    return OLDER if renewed else state


def ingest_options(ctx: click.Context, output: Output, stage: Stage) -> dict[str, Any]:
    """Return the options of ``ingest`` in a stage."""
    with stage_context(ctx, output, stage) as inner:
        return {k: v for k, v in inner.params.items() if k not in _NOT_OPTIONS}


def refuse_others(ctx: click.Context, output: Output, stages: Sequence[Stage]) -> None:
    """Refuse outputs that sampling, the first of some stages, would leave without their run.

    Those of the same run and settings are renewed after it; those of others are found here, before
    the run gets more draws. Nothing is compared where it gets none.

    Raises
    ------
    IdentityError
        If an output of this run's later stages was made from other settings or inputs.
    """
    if not _may_get_draws(ctx, output, stages[0]):
        return
    for stage in stages[1:]:
        if stage.name in ("append", "sample"):
            return
        if stage.name != "report":
            output_state(ctx, output, stage)


def _ingested(ctx: click.Context, output: Output, stage: Stage) -> str:
    from streammc.cli.ingest import ingest_receipt
    from streammc.stores.store import info

    options = ingest_options(ctx, output, stage)
    like = options["like"]
    if like is not None and not os.path.lexists(like):
        return COMPARED
    with stage_context(ctx, output, stage) as inner:
        sources = inner.params["sources"]
    ingest_receipt(sources, stage.output, options).kept(lambda: info(stage.output))
    return THERE


def _has_inputs(ctx: click.Context, output: Output, stage: Stage) -> bool:
    """Return whether run and store of a stage are there."""
    from streammc.trace.local_path import is_address
    from streammc.trace.run_directory import RunDirectory

    with stage_context(ctx, output, stage) as inner:
        run, store = inner.params["run"], inner.params["store"]
    return RunDirectory.exists(run) and (is_address(store) or os.path.lexists(store))


def _may_get_draws(ctx: click.Context, output: Output, stage: Stage) -> bool:
    """Return whether the run of a stage is there, and may get more draws."""
    from streammc.trace.run_directory import RunDirectory

    with stage_context(ctx, output, stage) as inner:
        run, draws, stop = (inner.params[name] for name in ("output", "draws", "stop"))
    if not RunDirectory.exists(run):
        return False
    return stop is not None or RunDirectory.open(run, verify=False).committed_draws < draws
