"""The stages of a job: which commands with which words make its outputs, in their order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from streammc.cli.configuration import option_text, quoted
from streammc.cli.jobs.growing import growth_faults, growth_of, of_generation
from streammc.cli.jobs.job_file import Ingest, JobFile, Sampler, Stop
from streammc.cli.jobs.job_inputs import files_of, input_faults
from streammc.cli.jobs.job_schema import option_of
from streammc.cli.jobs.problems import Problem
from streammc.errors import ConfigError, MissingError
from streammc.trace.local_path import is_address
from streammc.trace.reserved_names import refuse_reserved_name


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
    """File that changes with every change of the output."""
    keys: dict[str, str] = field(default_factory=dict)
    """Name of a parameter of the command -> path of the key in the file."""
    changed: str = "resumed"
    """What became of an output that was there, and changed."""


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


def _local(run: str) -> str:
    """Return the path of a run, or of the local folder of one at an address."""
    from streammc.trace.places import run_folder

    return str(run_folder(run)) if is_address(run) else run


def _stages(job: JobFile, code: list[str], where: list[str], chains: list[str]) -> Iterator[Stage]:
    outputs, store = job.outputs, job.source.store
    if store is None:
        store = str(outputs.store)
        words, keys = _options("ingest", job.ingest)
        keys |= {"sources": "source.files", "store": "outputs.store"}
        files = job.source.files or ()
        made = _made("ingest", "ingest", [*words, "--", *files, store], store, keys)
        # The receipt of a store that is there is written again after its tables were touched.
        yield replace(made, changed="kept") if os.path.lexists(store) else made
    if job.source.append is not None:
        first = [each.path for each in files_of(job.source.files or ())]
        growth = growth_of(job, files_of(job.source.append), first)
        job = of_generation(job, growth.generation)
        if growth.new:
            yield _appended(job, store, growth.new)
    job = replace(job, outputs=replace(job.outputs, run=_local(job.outputs.run)))
    outputs = job.outputs
    model, of_model = _options("model", job.model)
    priors = [f"--prior={name}={text}" for name, text in (job.priors or {}).items()]
    model += [*priors, *code]
    of_model |= {"prior": "priors", "store": "source.store", "output": "outputs.run"}
    variates = outputs.control_variates
    sampler, of_sampler = _options("sampler", job.sampler or Sampler())
    if variates is not None:
        heat = job.sampler and job.sampler.temperature
        words = [*model, *([] if heat is None else [f"--temperature={option_text(heat)}"]), *where]
        words += [f"--output={variates}", "--", store]
        keys = {**of_model, "output": "outputs.control_variates"}
        made = _made("summarize", "summarize", words, variates, keys)
        yield replace(made, changed="updated")
    stop = [] if job.stop is None else [f"--stop={stop_text(job.stop)}"]
    kept = [] if variates is None else [f"--control-variates={variates}"]
    words = [*model, *sampler, *stop, *kept, *where, *chains]
    words += [f"--output={outputs.run}", "--", store]
    keys = {**of_model, **of_sampler, "stop": "stop"}
    if job.model.options and not (job.sampler and job.sampler.options):
        keys["option"] = "model.options"
    mark = os.path.join(outputs.run, "zarr.json")
    yield Stage("sample", "sample", words, outputs.run, mark, keys)
    if outputs.scores is not None:
        words, keys = _options("score", job.score)
        words += [*code, *where, f"--output={outputs.scores}", "--", outputs.run, store]
        yield _made("score", "score", words, outputs.scores, keys | {"output": "outputs.scores"})
    if outputs.predictions is not None:
        yield from _predictions(job, store, code, where)
    if outputs.report is not None:
        shown = [] if outputs.predictions is None else [f"--predictions={outputs.predictions}"]
        words = [f"--output={outputs.report}", *shown, "--", outputs.run]
        made = _made("report", "report", words, outputs.report, {"output": "outputs.report"})
        yield replace(made, changed="renewed")


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
    """Return a stage whose output has a receipt beside it."""
    return Stage(name, command, words, output, f"{output.rstrip(os.sep)}.config.json", keys)


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


def job_faults(job: JobFile) -> list[Problem]:
    """Return what is wrong between the keys of a job, and which of its inputs are missing."""
    source, outputs, asked = job.source, job.outputs, job.predict
    faults = [*_one_of("source", source, "outputs.store", outputs.store)]
    if asked is not None:
        if asked.files is not None or asked.store is not None:
            faults += _one_of("predict", asked, "outputs.rows", outputs.rows)
        if outputs.predictions is None:
            text = "expected a path for the predictions of [predict], found nothing: add it"
            faults.append(Problem("outputs.predictions", text))
    if job.score is not None and outputs.scores is None:
        text = "expected a path for the scores of [score], found nothing: add it"
        faults.append(Problem("outputs.scores", text))
    if outputs.rows is not None and (asked is None or asked.files is None):
        text = "expected predict.files for this store, found none: remove this key, or add files"
        faults.append(Problem("outputs.rows", text))
    if job.ingest is not None and source.store is not None:
        text = "expected no table [ingest] for a store that exists, found one: remove it"
        faults.append(Problem("ingest", text))
    if job.stop is not None:
        from streammc.diagnostics.stopping import StopRule

        try:
            StopRule.parse(stop_text(job.stop))
        except ConfigError as error:
            faults.append(Problem("stop", str(error)))
    if outputs.report is not None:
        from streammc.plots.axes import require_packages

        try:
            require_packages("a report", "jinja2", "matplotlib")
        except ConfigError as error:
            faults.append(Problem("outputs.report", str(error), error.exit_code, error.code))
    return [*faults, *_append_faults(job), *_address_faults(job), *_same_places(job)]


def _address_faults(job: JobFile) -> Iterator[Problem]:
    """Yield what is wrong with outputs at addresses: only a run can be at one."""
    for each in fields(job.outputs):
        path = getattr(job.outputs, each.name)
        if not is_address(path):
            continue
        if each.name != "run":
            text = (
                f"expected a path on this machine, found {path.partition('://')[0]}://...: only "
                "the run of a job can be at an address; give a local path"
            )
            yield Problem(f"outputs.{each.name}", text)
            continue
        from streammc.stores.cloud.address import store_root

        try:
            store_root(path)
        except ConfigError as error:
            yield Problem("outputs.run", str(error))


def _append_faults(job: JobFile) -> Iterator[Problem]:
    """Yield what is wrong with ``source.append``; a pattern may find nothing yet."""
    yield from input_faults(job.source.append or (), "source.append", may_lack=True)
    yield from growth_faults(job)


def _one_of(table: str, section: Any, output: str, place: str | None) -> Iterator[Problem]:
    """Yield the faults of a table that names files, or a store."""
    files, store = section.files, section.store
    if (files is None) == (store is None):
        found = "neither" if files is None else "both"
        text = f"expected {table}.files or {table}.store, found {found}: give one of them"
        yield Problem(table, text)
        return
    if store is not None:
        if place is not None and table == "source":
            text = "expected no store to make beside source.store, found one: remove this key"
            yield Problem(output, text)
        if not is_address(store) and not os.path.lexists(store):
            text = f"expected a store at {store!r}, found nothing: check the path"
            yield Problem(f"{table}.store", text, MissingError.exit_code, MissingError.code)
        return
    if place is None:
        yield Problem(output, f"expected the store to make of {table}.files, found nothing: add it")
    yield from input_faults(files, f"{table}.files")


def _same_places(job: JobFile) -> list[Problem]:
    """Return a fault for every output at the place of another one, or of something unfinished."""
    seen: dict[str, str] = {}
    faults = []
    for each in fields(job.outputs):
        path = getattr(job.outputs, each.name)
        if path is None or is_address(path):
            continue
        place = os.path.realpath(path)
        if place in seen:
            text = f"expected another path than that of outputs.{seen[place]}, found {path!r} again"
            faults.append(Problem(f"outputs.{each.name}", f"{text}: choose another"))
        seen[place] = each.name
        if not os.path.lexists(path):
            try:
                refuse_reserved_name(Path(path))
            except ConfigError as error:
                faults.append(Problem(f"outputs.{each.name}", str(error)))
    return faults
