"""The stages of a job: which commands with which settings make its outputs, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import click

from streammc.cli.jobs.growing import generation_end, growth_of, of_generation, with_local_run
from streammc.cli.jobs.job_file import Ingest, JobFile, Sampler, Stop, files_of
from streammc.cli.jobs.problems import Problem
from streammc.cli.options import COMPARE, OLDER, STAGE, THERE, Command, settings_from
from streammc.cli.output import Output


@dataclass
class Stage:
    """One command of a job."""

    name: str
    """What the stage makes: ``ingest``, ``append``, ``summarize``, ``sample``, ``score``,
    ``rows``, ``predict`` or ``report``."""
    command: str
    values: dict[str, Any]
    """Values of its settings, as :func:`streammc.cli.options.settings_from` takes them."""
    output: str
    mark: str
    """File of the output that changes with every change of it."""
    keys: dict[str, str] = field(default_factory=dict)
    """Name of a setting -> path of the key in the file."""
    changed: str = "resumed"
    """What became of an output that was there, and changed."""
    earlier: bool = False
    """Whether it finishes a generation of a table that grows, before files are appended."""


Values = dict[str, Any]
Keys = dict[str, str]


def stages_of(job: JobFile, options: Values) -> Iterator[Stage]:
    """Yield the stages of a job in their order.

    ``options`` are values of settings that every stage with such a setting gets.

    Raises
    ------
    IdentityError
        If a file was changed after it was appended.
    """
    outputs, store = job.outputs, job.source.store
    if store is None:
        store = str(outputs.store)
        values, keys = _settings("ingest", job.ingest)
        values |= {"sources": job.source.files or (), "store": store}
        keys |= {"sources": "source.files", "store": "outputs.store"}
        yield _made("ingest", "ingest", values, store, keys)
    if job.source.append is not None:
        first = [each.path for each in files_of(job.source.files or ())]
        growth = growth_of(job, files_of(job.source.append), first)
        present = with_local_run(of_generation(job, growth.generation - 1))
        if growth.new and os.path.lexists(store) and generation_end(present) is None:
            for each in _of_store(present, store, options):
                yield replace(each, earlier=True)
        job = of_generation(job, growth.generation)
        if growth.new:
            yield _appended(job, store, growth.new)
    yield from _of_store(with_local_run(job), store, options)


def _of_store(job: JobFile, store: str, options: Values) -> Iterator[Stage]:
    """Yield the stages whose outputs follow from the store as it is."""
    outputs = job.outputs
    variates = outputs.control_variates
    if variates is not None:
        values, keys = _model_settings(job)
        values |= {**options, "store": store, "output": variates}
        values["temperature"] = job.sampler and job.sampler.temperature
        keys["output"] = "outputs.control_variates"
        made = _made("summarize", "summarize", values, variates, keys)
        yield replace(made, changed="updated")
    yield sample_stage(job, store, {**options, "control_variates": variates})
    if outputs.scores is not None:
        values, keys = _settings("score", job.score)
        values |= {**options, "run": outputs.run, "store": store, "output": outputs.scores}
        yield _made("score", "score", values, outputs.scores, keys | {"output": "outputs.scores"})
    if outputs.predictions is not None:
        yield from _predictions(job, store, options)
    if outputs.report is not None:
        shown = () if outputs.predictions is None else (outputs.predictions,)
        values, keys = _settings("report", job.report)
        values |= {"run": outputs.run, "output": outputs.report, "predictions": shown}
        keys["output"] = "outputs.report"
        yield _made("report", "report", values, outputs.report, keys)


def sample_stage(job: JobFile, store: str, options: Values) -> Stage:
    """Return the stage that samples, with values of further settings."""
    run = job.outputs.run
    model, of_model = _model_settings(job)
    sampler, of_sampler = _settings("sampler", job.sampler or Sampler())
    shown, of_text = _settings("report", job.report)
    values = {**model, **sampler, **shown, **options, "store": store, "output": run}
    values["option"] = (*model.get("option", ()), *sampler.get("option", ()))
    values["stop"] = None if job.stop is None else stop_text(job.stop)
    keys = {**of_model, **of_sampler, **of_text, "stop": "stop"}
    return Stage("sample", "sample", values, run, os.path.join(run, "zarr.json"), keys)


def _model_settings(job: JobFile) -> tuple[Values, Keys]:
    """Return the values of model and priors, and their keys."""
    values, keys = _settings("model", job.model)
    values["prior"] = tuple((job.priors or {}).items())
    return values, keys | {
        "prior": "priors",
        "store": "source.store",
        "output": "outputs.run",
    }


def _appended(job: JobFile, store: str, new: Sequence[str]) -> Stage:
    """Return the stage that appends files to the store."""
    from streammc.trace.kinds import STORE_MANIFEST

    asked = job.ingest and Ingest(
        shuffle=job.ingest.shuffle, seed=job.ingest.seed, drop_missing=job.ingest.drop_missing
    )
    values, keys = _settings("ingest", asked)
    values |= {"append": True, "sources": new, "store": store}
    keys |= {"sources": "source.append", "store": "outputs.store"}
    mark = os.path.join(store, STORE_MANIFEST)
    return Stage("append", "ingest", values, store, mark, keys, "appended")


def _predictions(job: JobFile, store: str, options: Values) -> Iterator[Stage]:
    """Yield the stages after sampling: new rows, if there are any, and their predictions."""
    outputs, asked = job.outputs, job.predict
    rows = store
    if asked is not None and asked.files is not None:
        rows = str(outputs.rows)
        keys = {"sources": "predict.files", "store": "outputs.rows"}
        like = {"like": store, "sources": asked.files, "store": rows}
        yield _made("rows", "ingest", like, rows, keys)
    elif asked is not None and asked.store is not None:
        rows = asked.store
    values, keys = _settings("predict", asked)
    predictions = str(outputs.predictions)
    values |= {**options, "run": outputs.run, "store": rows, "output": predictions}
    keys |= {"output": "outputs.predictions", "store": "predict.store", "run": "outputs.run"}
    yield _made("predict", "predict", values, predictions, keys)


def _made(name: str, command: str, values: Values, output: str, keys: Keys) -> Stage:
    """Return a stage that makes its output as a whole."""
    from streammc.trace.kinds import STORE_MANIFEST

    documents = {"ingest": STORE_MANIFEST, "summarize": "zarr.json", "predict": "zarr.json"}
    folder = command in documents and not output.lower().endswith((".csv", ".parquet"))
    mark = os.path.join(output, documents[command]) if folder else output
    return Stage(name, command, values, output, mark, keys, "renewed")


def _settings(table: str, section: Any) -> tuple[Values, Keys]:
    """Return the values of the keys of a table that are settings, and their paths."""
    values: Values = {}
    keys: Keys = {}
    for each in fields(section) if section is not None else ():
        name, value = each.metadata["parameter"], getattr(section, each.name)
        if name is not None and value is not None:
            keys[name] = f"{table}.{each.name}"
            values[name] = tuple(value.items()) if isinstance(value, Mapping) else value
    return values, keys


def stop_text(stop: Stop) -> str:
    """Return the stopping rule of a job as the text of ``--stop``."""
    pairs = {each.name: getattr(stop, each.name) for each in fields(stop)}
    return ",".join(f"{name}={value}" for name, value in pairs.items() if value is not None)


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
    """Yield the context of the command of a stage."""
    root = ctx.find_root()
    group = root.command
    assert isinstance(group, click.Group)
    command = group.get_command(root, stage.command)
    assert isinstance(command, Command)
    inner = click.Context(command, parent=ctx, info_name=stage.command)
    inner.obj, inner.meta[STAGE] = output, True
    try:
        yield inner
    finally:
        del inner.meta[STAGE]


def stage_settings(ctx: click.Context, output: Output, stage: Stage) -> Any:
    """Return the settings of a stage.

    Raises
    ------
    click.UsageError
        If one has a fault.
    """
    with stage_context(ctx, output, stage) as inner:
        settings, faults = settings_from(stage.values, inner)
    for _, text in faults:
        raise click.UsageError(text)
    return settings


def call_stage(ctx: click.Context, output: Output, stage: Stage, **more: Any) -> StageResult:
    """Run the command of a stage, with ``more`` settings, and return its result.

    Raises
    ------
    Exception
        Those of the command.
    """
    result = StageResult()
    printer = replace(output, keep=result.keep, context={**output.context, "stage": stage.name})
    settings = replace(stage_settings(ctx, output, stage), **more)
    with stage_context(ctx, printer, stage) as inner, inner:
        assert inner.command.callback is not None
        code = inner.command.callback(inner, settings)
    result.exit_code = code if isinstance(code, int) else 0
    output.live = printer.live
    return result


def stage_faults(ctx: click.Context, output: Output, stage: Stage) -> tuple[list[Problem], Any]:
    """Return what is wrong with the values of a stage, by key of the file.

    And its settings without these values; ``None`` if one that is required is wrong.
    """
    with stage_context(ctx, output, stage) as inner:
        settings, faults = settings_from(stage.values, inner)
    found = []
    for place, text in faults:
        name, dot, key = place.partition(".")
        found.append(Problem(f"{stage.keys.get(name, stage.name)}{dot}{key}", text))
    return found, settings


TO_DO: Final = "to do"
COMPARED: Final = "there, compared when the job runs"
_FROM_DRAWS: Final = ("score", "predict")


def output_state(ctx: click.Context, output: Output, stage: Stage) -> str:
    """Return whether the output of a stage is there.

    Raises
    ------
    IdentityError
        If it was made from other settings or inputs.
    """
    if stage.name == "append":
        n = len(stage.values["sources"])
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

    settings = stage_settings(ctx, output, stage)
    if settings.like is not None and not os.path.lexists(settings.like):
        return COMPARED
    ingest_receipt(settings).kept(lambda: info(stage.output))
    return THERE


def _has_inputs(ctx: click.Context, output: Output, stage: Stage) -> bool:
    """Return whether run and store of a stage are there."""
    from streammc.trace.addresses import is_address
    from streammc.trace.run_directory import RunDirectory

    settings = stage_settings(ctx, output, stage)
    run, store = settings.run, settings.store
    return RunDirectory.exists(run) and (is_address(store) or os.path.lexists(store))


def _may_get_draws(ctx: click.Context, output: Output, stage: Stage) -> bool:
    """Return whether the run of a stage is there, and may get more draws."""
    from streammc.trace.run_directory import RunDirectory

    settings = stage_settings(ctx, output, stage)
    if not RunDirectory.exists(settings.output):
        return False
    run = RunDirectory.open(settings.output, verify=False)
    return settings.stop is not None or run.committed_draws < settings.draws
