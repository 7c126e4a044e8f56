"""The stages of a job: which commands with which words make its outputs, in their order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from streammc.cli.configuration import option_text, quoted
from streammc.cli.jobs.generation_end import generation_end, with_local_run
from streammc.cli.jobs.growing import growth_of, of_generation
from streammc.cli.jobs.job_file import Ingest, JobFile, Sampler, Stop
from streammc.cli.jobs.job_inputs import files_of
from streammc.cli.jobs.job_schema import option_of


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
