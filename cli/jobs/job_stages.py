"""The stages of a job: which commands with which words make its outputs, in their order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import click

from streammc.cli.configuration import option_text, quoted
from streammc.cli.jobs.growing import generation_end, growth_of, of_generation, with_local_run
from streammc.cli.jobs.job_file import Ingest, JobFile, Sampler, Stop, files_of, option_of
from streammc.cli.jobs.problems import Problem
from streammc.cli.options import COMPARE, OLDER, PRINTING, STAGE, THERE
from streammc.cli.output import Output


@dataclass
class Stage:
    """One command of a job."""

    name: str
    """What the stage makes: ``ingest``, ``append``, ``summarize``, ``sample``, ``score``,
    ``rows``, ``predict`` or ``report``."""
    command: str
    words: list[str]
    output: str
    mark: str
    """File of the output that changes with every change of it."""
    keys: dict[str, str] = field(default_factory=dict)
    """Name of a parameter of the command -> path of the key in the file."""
    changed: str = "resumed"
    """What became of an output that was there, and changed."""
    earlier: bool = False
    """Whether it finishes a generation of a table that grows, before files are appended."""


def stages_of(
    job: JobFile,
    *,
    allow_code: bool = False,
    scheduler: str | None = None,
    chains_on: str = "here",
) -> list[Stage]:
    """Return the stages of a job in their order.

    Raises
    ------
    IdentityError
        If a file was changed after it was appended.
    """
    code = ["--allow-code"] if allow_code else []
    where = [] if scheduler is None else ["--scheduler", scheduler]
    chains = [] if chains_on == "here" else [f"--chains-on={chains_on}"]
    return list(_stages(job, code, where, chains))


def _stages(job: JobFile, code: list[str], where: list[str], chains: list[str]) -> Iterator[Stage]:
    outputs, store = job.outputs, job.source.store
    if store is None:
        store = str(outputs.store)
        words, keys = _options("ingest", job.ingest)
        keys |= {"sources": "source.files", "store": "outputs.store"}
        files = job.source.files or ()
        yield _made("ingest", "ingest", [*words, "--", *files, store], store, keys)
    if job.source.append is not None:
        first = [each.path for each in files_of(job.source.files or ())]
        growth = growth_of(job, files_of(job.source.append), first)
        present = with_local_run(of_generation(job, growth.generation - 1))
        if growth.new and os.path.lexists(store) and generation_end(present) is None:
            for each in _of_store(present, store, code, where, chains):
                yield replace(each, earlier=True)
        job = of_generation(job, growth.generation)
        if growth.new:
            yield _appended(job, store, growth.new)
    yield from _of_store(with_local_run(job), store, code, where, chains)


def _of_store(
    job: JobFile, store: str, code: list[str], where: list[str], chains: list[str]
) -> Iterator[Stage]:
    """Yield the stages whose outputs follow from the store as it is."""
    outputs = job.outputs
    model, of_model = _model_words(job, code)
    variates = outputs.control_variates
    if variates is not None:
        heat = job.sampler and job.sampler.temperature
        words = [*model, *([] if heat is None else [f"--temperature={option_text(heat)}"]), *where]
        words += [f"--output={variates}", "--", store]
        keys = {**of_model, "output": "outputs.control_variates"}
        made = _made("summarize", "summarize", words, variates, keys)
        yield replace(made, changed="updated")
    kept = [] if variates is None else [f"--control-variates={variates}"]
    yield sample_stage(job, store, code, [*kept, *where, *chains])
    if outputs.scores is not None:
        words, keys = _options("score", job.score)
        words += [*code, *where, f"--output={outputs.scores}", "--", outputs.run, store]
        yield _made("score", "score", words, outputs.scores, keys | {"output": "outputs.scores"})
    if outputs.predictions is not None:
        yield from _predictions(job, store, code, where)
    if outputs.report is not None:
        shown = [] if outputs.predictions is None else [f"--predictions={outputs.predictions}"]
        words = [f"--output={outputs.report}", *shown, "--", outputs.run]
        yield _made("report", "report", words, outputs.report, {"output": "outputs.report"})


def sample_stage(job: JobFile, store: str, code: list[str], more: Sequence[str] = ()) -> Stage:
    """Return the stage that samples, with ``more`` words."""
    run = job.outputs.run
    model, of_model = _model_words(job, code)
    sampler, of_sampler = _options("sampler", job.sampler or Sampler())
    stop = [] if job.stop is None else [f"--stop={stop_text(job.stop)}"]
    words = [*model, *sampler, *stop, *more, f"--output={run}", "--", store]
    keys = {**of_model, **of_sampler, "stop": "stop"}
    if job.model.options and not (job.sampler and job.sampler.options):
        keys["option"] = "model.options"
    return Stage("sample", "sample", words, run, os.path.join(run, "zarr.json"), keys)


def _model_words(job: JobFile, code: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words of model and priors, and the keys of their parameters."""
    words, keys = _options("model", job.model)
    words += [f"--prior={name}={text}" for name, text in (job.priors or {}).items()]
    keys |= {"prior": "priors", "store": "source.store", "output": "outputs.run"}
    return [*words, *code], keys


def _appended(job: JobFile, store: str, new: Sequence[str]) -> Stage:
    """Return the stage that appends files to the store."""
    from streammc.trace.kinds import STORE_MANIFEST

    asked = job.ingest and Ingest(
        shuffle=job.ingest.shuffle, seed=job.ingest.seed, drop_missing=job.ingest.drop_missing
    )
    words, keys = _options("ingest", asked)
    keys |= {"sources": "source.append", "store": "outputs.store"}
    mark = os.path.join(store, STORE_MANIFEST)
    words = ["--append", *words, "--", *new, store]
    return Stage("append", "ingest", words, store, mark, keys, "appended")


def _predictions(job: JobFile, store: str, code: list[str], where: list[str]) -> Iterator[Stage]:
    """Yield the stages after sampling: new rows, if there are any, and their predictions."""
    outputs, asked = job.outputs, job.predict
    rows = store
    if asked is not None and asked.files is not None:
        rows = str(outputs.rows)
        keys = {"sources": "predict.files", "store": "outputs.rows"}
        yield _made("rows", "ingest", [f"--like={store}", "--", *asked.files, rows], rows, keys)
    elif asked is not None and asked.store is not None:
        rows = asked.store
    words, keys = _options("predict", asked)
    predictions = str(outputs.predictions)
    words += [*code, *where, f"--output={predictions}", "--", outputs.run, rows]
    keys |= {"output": "outputs.predictions", "store": "predict.store", "run": "outputs.run"}
    yield _made("predict", "predict", words, predictions, keys)


def _made(name: str, command: str, words: list[str], output: str, keys: dict[str, str]) -> Stage:
    """Return a stage that makes its output as a whole."""
    from streammc.trace.kinds import STORE_MANIFEST

    documents = {"ingest": STORE_MANIFEST, "summarize": "zarr.json", "predict": "zarr.json"}
    folder = command in documents and not output.lower().endswith((".csv", ".parquet"))
    mark = os.path.join(output, documents[command]) if folder else output
    return Stage(name, command, words, output, mark, keys, "renewed")


def _options(table: str, section: Any) -> tuple[list[str], dict[str, str]]:
    """Return the words of the keys of a table that are options, and their paths by parameter."""
    words: list[str] = []
    keys: dict[str, str] = {}
    if section is None:
        return words, keys
    for each in fields(section):
        option, value = option_of(each), getattr(section, each.name)
        if option is None or value is None:
            continue
        keys[option.replace("-", "_")] = f"{table}.{each.name}"
        words += _texts(option, value)
    return words, keys


def _texts(option: str, value: Any) -> list[str]:
    """Return the words of an option with a value of TOML."""
    if option == "drop-missing":  # a flag without its opposite
        return ["--drop-missing"] if value else []
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    if isinstance(value, tuple):
        return [f"--{option}={','.join(map(quoted, value))}"]
    if isinstance(value, Mapping):
        return [f"--{option}={key}={_option_value(each)}" for key, each in value.items()]
    return [f"--{option}={option_text(value)}"]


def _option_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else option_text(value)


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
    from streammc.trace.addresses import is_address
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
