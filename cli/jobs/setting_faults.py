"""What model, sampler, formula and tables say against the settings of a job, before any stage.

These faults need more than the file: the packages that a stage would load, the names of the
columns, or some rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import click

from streammc.cli.jobs.job_file import JobFile, Outputs
from streammc.cli.jobs.job_stages import sample_stage
from streammc.cli.jobs.problems import Problem
from streammc.cli.jobs.stage_calls import stage_faults
from streammc.cli.output import Output
from streammc.errors import MissingError, StreammcError

_COLUMNS: Final = ("response", "offset", "weight", "trials", "group", "row_id")
"""Keys of [ingest] that are the name of a column."""
_FLAGS: Final = ("subsample_size", "n_blocks", "unit_rows", "step_size", "trajectory_length")


class Built(NamedTuple):
    """Model and sampler of a job."""

    model: Any
    sampler: Any
    """``None`` for an automatic choice."""
    sampler_options: dict[str, Any]
    """Those of an automatic choice."""
    nodes: Any


def built(
    ctx: click.Context, output: Output, job: JobFile, allow_code: bool
) -> tuple[Built | None, list[Problem]]:
    """Return model and sampler of a job, if both can be built, and what is wrong with them.

    Raises
    ------
    ConfigError
        If the model is the user's own code, without ``allow_code``.
    """
    from streammc.cli.build import NODES, find_model, make_model, make_sampler, split_options
    from streammc.runs.identity import asked_schedule
    from streammc.runs.job import refuse_stop

    if job.model is None or job.model.name is None:
        return None, []
    # Outputs do not matter here, and may have faults of their own.
    anywhere = replace(job, outputs=_without_paths(job.outputs))
    stage = sample_stage(anywhere, "store", ["--allow-code"] if allow_code else [])
    faults, given = stage_faults(ctx, output, stage)
    if not given:
        return None, faults
    name, model = given["model"], None
    of_model: dict[str, Any] = {}
    if ":" in name:
        find_model(name, allow_code)
    try:
        of_model, of_sampler = split_options(name, given["option"], allow_code)
        for key in job.model.options or ():
            if (name_of := key.replace("-", "_")) in of_sampler:
                del of_sampler[name_of]
                text = f"the model {name!r} has no option {key!r}: see `streammc models`"
                faults.append(Problem(f"model.options.{key}", text))
        model = make_model(name, given["prior_scale"], of_model, given["prior"], allow_code)
    except StreammcError as error:
        faults.append(Problem.of_error("model", error))
        of_sampler = {}
    try:
        flags = {flag: given[flag] for flag in _FLAGS}
        sampler, options = make_sampler(given["sampler"], flags, of_sampler)
    except StreammcError as error:
        return None, [*faults, Problem.of_error("sampler", error)]
    for key, check in (
        ("sampler.temperature", lambda: asked_schedule(given["temperature"], sampler)),
        ("stop", lambda: refuse_stop(sampler, given["stop"], given["draws"])),
    ):
        try:
            check()
        except StreammcError as error:
            faults.append(Problem.of_error(key, error))
    if model is None:
        return None, faults
    return Built(model, sampler, options, of_model.get(NODES)), faults


def _without_paths(outputs: Outputs | None) -> Outputs:
    return Outputs(run="run") if outputs is None else replace(outputs, run="run")


def column_faults(job: JobFile) -> list[Problem]:
    """Return what is wrong with the formula, and with the columns that the job names.

    Only tables that are there are looked at.
    """
    from streammc.stores.sources.tables import open_table

    asked, files = job.ingest, job.source and job.source.files
    faults: list[Problem] = []
    named: list[tuple[str, str]] = []
    if asked is not None:
        try:
            named = list(_named_columns(asked))
        except StreammcError as error:
            faults.append(Problem.of_error("ingest.formula", error))
    for key, paths, wanted in (
        ("source.files", files, named),
        ("predict.files", job.predict and job.predict.files, _to_predict(job)),
    ):
        if not paths:
            continue
        try:
            names = open_table(list(paths)).names
        except MissingError:
            continue  # said elsewhere, with its place in the list
        except StreammcError as error:
            faults.append(Problem.of_error(key, error))
            continue
        for place, column in wanted:
            if column not in names:
                near = get_close_matches(column, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose from {_shown(names)}"
                text = f"expected a column of the tables, found {column!r}: {hint}"
                faults.append(Problem(place, text))
    return faults


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:20])


def _named_columns(asked: Any) -> Iterator[tuple[str, str]]:
    """Yield path of the key and name of every column that [ingest] names."""
    from streammc.stores.formula.parser import columns_of, read_terms

    if asked.formula is not None:
        terms = read_terms(asked.formula)
        names = [*columns_of(terms.response), *terms.columns, *(g.column for g in terms.groups)]
        for column in dict.fromkeys(names):
            yield "ingest.formula", column
    for name in _COLUMNS:
        if (column := getattr(asked, name)) is not None:
            yield f"ingest.{name}", column
    for position, column in enumerate(asked.features or ()):
        yield f"ingest.features[{position}]", column


def _to_predict(job: JobFile) -> list[tuple[str, str]]:
    """Return ``predict.files`` and the name of every column that tables to predict need."""
    from streammc.stores.formula.parser import read_terms

    asked = job.ingest
    if asked is None:
        return []
    needed = [*(asked.features or ()), *([asked.offset] if asked.offset else [])]
    try:
        needed += [] if asked.formula is None else read_terms(asked.formula).columns
    except StreammcError:
        return []
    return [("predict.files", column) for column in dict.fromkeys(needed)]


def row_faults(dataset: Any, made: Built, job: JobFile) -> list[Problem]:
    """Return what is wrong between the settings of a job and the columns and rows of its store."""
    from streammc.cli.execute import check_sizes
    from streammc.control_variates.default_priors import resolved
    from streammc.likelihood.grouped import by_group

    faults: list[Problem] = []
    try:
        grouped, model = by_group(dataset, made.model, made.nodes)
        check_sizes(grouped, made.sampler, made.sampler_options)
    except StreammcError as error:
        faults.append(Problem.of_error("sampler", error))
    else:
        try:
            resolved(model, grouped).labels(grouped.feature_names)
        except StreammcError as error:
            faults.append(Problem.of_error("priors" if job.priors else "model", error))
    if job.predict is not None and job.predict.by is not None and hasattr(dataset, "covariate"):
        try:
            dataset.covariate(job.predict.by)
        except StreammcError as error:
            faults.append(Problem("predict.by", str(error)))
    return faults


def known_faults(known: list[Problem], more: Sequence[Problem]) -> list[Problem]:
    """Return faults with ``more`` of them, without those that follow from a key with a fault."""
    keys = [problem.key for problem in known]

    def follows(key: str) -> bool:
        above = any(key == each or key.startswith(f"{each}.") for each in keys)
        tables = key in ("source", "predict") and any(each.startswith(f"{key}.") for each in keys)
        return above or tables

    return [*known, *(problem for problem in more if not follows(problem.key))]


def can_be_staged(job: JobFile, faults: Sequence[Problem]) -> bool:
    """Return whether the stages of a job can be told: sources, outputs and model have no fault."""
    wrong = {each.key.partition(".")[0].partition("[")[0] for each in faults}
    tables = (job.source, job.outputs, job.model)
    return None not in tables and not wrong & {"source", "outputs", "model"}
