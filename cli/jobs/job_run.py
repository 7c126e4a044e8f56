"""A job carried out: its stages in order, each left, resumed or made, and its end recorded."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

import click

from streammc.cli.jobs.growing import earlier_generation, earlier_text, generation_words
from streammc.cli.jobs.job_faults import (
    Built,
    built,
    can_be_staged,
    column_faults,
    job_faults,
    known_faults,
    row_faults,
)
from streammc.cli.jobs.job_file import JobFile, Outputs, read_job
from streammc.cli.jobs.job_plan import first_rows
from streammc.cli.jobs.job_record import JobRecord, job_id, job_lock
from streammc.cli.jobs.job_stages import (
    Stage,
    StageResult,
    call_stage,
    output_state,
    refuse_others,
    stage_faults,
    stage_settings,
    stages_of,
)
from streammc.cli.jobs.named_outputs import (
    HASH,
    delete_older,
    name_faults,
    named_job,
    named_paths,
    parse_date,
    sets_with,
)
from streammc.cli.jobs.problems import Problem, RefusedJob
from streammc.cli.options import CodeOption
from streammc.cli.output import Output, number, table
from streammc.errors import ConfigError, IdentityError, StreammcError
from streammc.samplers.common.sampler import ExecutionOptions
from streammc.settings import values_of

_OF_RUN: Final = (
    *("parameters", "parameters_original", "references"),
    *("stop", "audit", "warnings", "draws", "seed"),
)
_OF_SCORES: Final = ("elpd_loo", "p_loo", "elpd_waic", "lpd", "n", "left_out", "pareto_k")
_OF_PREDICTIONS: Final = ("rows", "draws", "log_score")


class Settled(NamedTuple):
    """A job without faults."""

    job: JobFile
    stages: list[Stage]
    made: Built
    written: Outputs
    """Outputs with the words of their paths, as the file has them."""
    words: dict[str, str]
    """What stands for the words, but for the generation."""


def settled(
    ctx: click.Context,
    output: Output,
    path: str,
    settings: Any,
    *,
    every: bool = False,
) -> Settled:
    """Return the job in a file, its stages, and its model and sampler.

    Stages take the ``settings`` of the command that they have, too. Without ``every`` the faults of
    the file alone are raised before anything heavy is loaded.

    Raises
    ------
    RefusedJob
        If the job has faults.
    ConfigError
        If its model is code of the user's own that the command does not allow.
    """
    job, problems = read_job(path)
    if problems and not every:
        raise RefusedJob(path, problems)
    problems = known_faults(problems, list(name_faults(job)))
    written, day = job.outputs, parse_date(settings.date)
    words: dict[str, str] = {}
    if not problems:
        job, words = named_job(job, day)
    problems = known_faults(problems, job_faults(job))
    stages: list[Stage] = []
    if can_be_staged(job, problems):
        stages = list(stages_of(job, _of_stages(settings)))
        for stage in stages:
            problems = known_faults(problems, stage_faults(ctx, output, stage)[0])
    if problems and not every:
        raise RefusedJob(path, problems)
    made, more = built(ctx, output, job, settings.allow_code)
    problems = known_faults(problems, more)
    if every or job.outputs.store is None or not os.path.lexists(job.outputs.store):
        problems = known_faults(problems, column_faults(job))
    if problems and every:
        problems = known_faults(problems, _faults_of_rows(ctx, output, path, job, stages, made))
    if problems:
        raise RefusedJob(path, problems)
    assert made is not None
    return Settled(job, stages, made, written, words)


def _of_stages(settings: Any) -> dict[str, Any]:
    """Return the settings of the command that stages have, too."""
    return values_of(settings, ExecutionOptions) | values_of(settings, CodeOption)


def _faults_of_rows(
    ctx: click.Context,
    output: Output,
    path: str,
    job: JobFile,
    stages: list[Stage],
    made: Built | None,
) -> list[Problem]:
    """Return what the first rows of tables say, beside other faults, if they can be ingested."""
    for stage in stages:
        if stage.name != "ingest" or os.path.lexists(stage.output):
            continue
        try:
            rows = first_rows(path, job, stage_settings(ctx, output, stage))
        except RefusedJob as error:
            return error.problems
        except StreammcError:
            return []  # said elsewhere, with its place in the file
        if made is not None and rows.dataset is not None and rows.seen == rows.n_rows:
            return row_faults(rows.dataset, made, job)
    return []


def run_stages(
    ctx: click.Context,
    output: Output,
    record: JobRecord,
    job: JobFile,
    stages: list[Stage],
    made: Built,
    *,
    overwrite: bool = False,
) -> tuple[int, list[str]]:
    """Run the stages in order; return the exit code and the text of the last results.

    A job whose stopping rule is not met ends there, without predictions. An earlier generation of
    a table that grows ends there too, and the next one begins. With ``overwrite`` outputs that
    were made from other inputs or settings are replaced, and no others.
    """
    missed = False
    texts: list[str] = []
    if overwrite:
        _refuse_irreplaceable(ctx, output, stages)
    for position, stage in enumerate(stages, 1):
        if stage.earlier and missed:
            continue
        output.context["stage"] = stage.name
        output.beat()
        output.note(f"{position}/{len(stages)} {stage.name}: {stage.output}")
        before = _stamp(stage.mark)
        began, replaced = time.monotonic(), False
        entry: dict[str, Any] = {"stage": stage.name, "output": os.path.abspath(stage.output)}
        try:
            if stage.name == "sample":
                if not overwrite:
                    refuse_others(ctx, output, stages[position - 1 :])
                _refuse_settings(record.file, job, stage, made)
            try:
                result = call_stage(ctx, output, stage)
            except IdentityError as error:
                if not (overwrite and error.overwrite):
                    raise
                output.note(f"{stage.output} is of other inputs or settings: it is replaced")
                result, replaced = call_stage(ctx, output, stage, overwrite=True), True
        except IdentityError as error:
            record.add({**entry, "outcome": "not finished"})
            if not error.overwrite:
                raise
            advice = f"{error.overwrite}, or write {HASH} in the outputs: other inputs have others"
            raise type(error)(error.without_overwrite, advice) from error
        except ConfigError as error:  # of a setting: the words are those of the file
            record.add({**entry, "outcome": "not finished"})
            raise RefusedJob(record.file, [Problem.of_error(stage.name, error)]) from error
        except BaseException:
            record.add({**entry, "outcome": "not finished"})
            raise
        now = _stamp(stage.mark)
        changed = "replaced" if replaced else stage.changed
        outcome = "made" if before is None else "kept" if before == now else changed
        seconds = round(time.monotonic() - began, 1)
        record.add({**entry, "outcome": outcome, "seconds": seconds})
        if outcome != "kept" and not stage.earlier:
            record.made.append(os.path.realpath(stage.output))
        if stage.earlier:
            missed = bool(result.exit_code)
            continue
        _keep(record, stage, result)
        if stage.name in ("sample", "score", "predict"):
            texts.append(result.human)
        if result.exit_code:
            return result.exit_code, texts
    return 0, texts


def _refuse_irreplaceable(ctx: click.Context, output: Output, stages: list[Stage]) -> None:
    """Raise IdentityError, before anything is replaced, for an output that cannot be."""
    for stage in stages:
        try:
            if stage.name != "append":
                output_state(ctx, output, stage)
        except IdentityError as error:
            if not error.overwrite:
                raise


def _refuse_settings(path: str, job: JobFile, stage: Stage, made: Built) -> None:
    """Raise RefusedJob for settings that do not fit the store, before a new run begins on it."""
    from streammc.stores.store import open_store
    from streammc.trace.run_directory import RunDirectory

    if RunDirectory.exists(stage.output):
        return
    problems = row_faults(open_store(stage.values["store"]), made, job)
    if problems:
        raise RefusedJob(path, problems)


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes whenever a file is written; ``None`` without the file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _keep(record: JobRecord, stage: Stage, result: StageResult) -> None:
    """Take the results that the summary of the job has."""
    found = result.document
    if stage.name == "sample":
        record.document["run"] = {name: found.get(name) for name in _OF_RUN if name in found}
    elif stage.name == "score":
        record.document["scores"] = {name: found.get(name) for name in _OF_SCORES}
    elif stage.name == "predict":
        kept = {name: found.get(name) for name in _OF_PREDICTIONS if name in found}
        record.document["predictions"] = kept


def carry_out(
    ctx: click.Context, output: Output, path: str, record: JobRecord, settings: Any
) -> int:
    """Carry out the job in a file and print its summary; return the exit code."""
    settings = replace(settings, date=parse_date(settings.date))  # one day, also at midnight
    job, stages, made, written, words = settled(ctx, output, path, settings)
    with job_lock(path):
        if job.source.append is not None:  # another process may have appended in the meantime
            job, stages, made, written, words = settled(ctx, output, path, settings)
        identity = job_id(job)
        output.context["job"] = identity
        before = record.begin(job, identity)
        record.document["sets"] = sets_with(before, {})
        if not all(os.path.lexists(stage.output) for stage in stages):
            for each in (*(stage.output for stage in stages), job.outputs.summary):
                os.makedirs(os.path.dirname(os.path.abspath(each)), exist_ok=True)
            record.running()
        code = None
        try:
            code, texts = run_stages(
                ctx, output, record, job, stages, made, overwrite=settings.overwrite
            )
        finally:
            if written.paths() != job.outputs.paths() or job.source.append is not None:
                with suppress(StreammcError):  # without a store there is no generation
                    words = words | generation_words(job)
                named = named_paths(written, words)
                own = [path for path in record.made if path in named]
                sets = sets_with(before, words, done=code == 0, made=own)
                record.document["sets"] = sets
        earlier = earlier_generation(job, appended=True)
        if earlier is not None:
            record.document["earlier_generation"] = earlier
            output.warn(earlier_text(earlier))
        if code == 0 and written.keep is not None:
            present = map(os.path.realpath, job.outputs.paths().values())
            record.document["sets"], faults = delete_older(written.keep, sets, words, present)
            for fault in faults:
                output.warn(fault)
        stages_text = _stages_text(record.document["stages"])
        record.end(code)
    output.context.pop("stage", None)
    found = record.document
    end = f"job {found['job']}: {found['outcome']}; {record.path} has the summary"
    output.result(found, "\n\n".join([*texts, stages_text, end]))
    return code


def _stages_text(stages: list[dict[str, Any]]) -> str:
    """Return the stages of this attempt as text."""
    rows = [
        [each["stage"], each["outcome"], number(each.get("seconds")), each["output"]]
        for each in stages
    ]
    return table(["stage", "outcome", "seconds", "output"], rows, words=True)
