"""The plan of a job: what is there, and the passes, memory, disk and time of the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import Any, Final

import click

from streammc.cli.jobs.first_rows import FIRST_DRAW, FirstRows, first_rows
from streammc.cli.jobs.generation_end import earlier_generation, earlier_text
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_record import MISSED, job_id
from streammc.cli.jobs.job_stages import Stage
from streammc.cli.jobs.problems import Problem, RefusedJob
from streammc.cli.jobs.stage_calls import call_stage, stage_context
from streammc.cli.jobs.stage_states import (
    COMPARED,
    TO_DO,
    ingest_options,
    output_state,
    with_more_draws,
)
from streammc.cli.output import Output, fields, table
from streammc.errors import ConfigError, StreammcError

_COLUMNS: Final = ("response", "offset", "weight", "trials", "group", "row_id")
"""Keys of [ingest] that are the name of a column."""
_PARTIAL: Final = "partial"
_PREDICTED_BYTES: Final = 32
"""Bytes of a predicted row: mean, two quantiles and its id."""
_CURVES_BYTES: Final = 2**19


def planned(
    ctx: click.Context,
    output: Output,
    path: str,
    job: JobFile,
    stages: list[Stage],
    allow_code: bool,
) -> tuple[dict[str, Any], str]:
    """Return the plan of a job as JSON and as text.

    Raises
    ------
    RefusedJob
        If model, sampler or columns do not fit together.
    IdentityError
        If an output was made by another job.
    """
    built = _built(ctx, output, path, stages, allow_code)
    rows: FirstRows | None = None
    lines: list[dict[str, Any]] = []
    n_rows, more_draws = 0, False
    for stage in stages:
        state, facts = output_state(ctx, output, stage), {}
        state = with_more_draws(stage, state) if more_draws else state
        if stage.name == "ingest" and state == TO_DO:
            _require_columns(path, job)
            rows = first_rows(path, job, ingest_options(ctx, output, stage))
            facts = rows.ingest_facts()
        elif stage.name == "sample":
            state, facts = _sample(ctx, output, stage, rows, built)
            n_rows = facts.get("rows", 0)
            more_draws = state.startswith(_PARTIAL)
        elif stage.name == "predict" and state == TO_DO and job.predict is None:
            facts = {"disk_bytes": n_rows * _PREDICTED_BYTES + _CURVES_BYTES} if n_rows else {}
        shown = {"stage": stage.name, "state": state, "output": stage.output, **facts}
        lines.append(shown)
    notes = [] if rows is None else rows.notes()
    appends = any(stage.name == "append" for stage in stages)
    earlier = earlier_generation(job, appended=not appends)
    if earlier is not None and (earlier["outcome"] == MISSED or not appends):
        notes.append(earlier_text(earlier))
    document = {
        "job": job_id(job),
        "file": os.path.abspath(path),
        "settings": _without_none(asdict(job)),
        "stages": lines,
        "notes": notes,
        **_sums(lines),
    }
    return document, _human(document)


def _without_none(value: Any) -> Any:
    """Return the settings of a job that are given."""
    if isinstance(value, dict):
        return {k: _without_none(each) for k, each in value.items() if each is not None}
    return value


def _sums(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return memory, disk and time of all stages; time is that which can be foretold."""
    disk = [line["disk_bytes"] for line in lines if line.get("disk_bytes")]
    seconds = [line["seconds"] for line in lines if line.get("seconds")]
    memory = [line["memory_bytes"] for line in lines if line.get("memory_bytes")]
    return {
        "passes": sum(line.get("passes", 0) for line in lines),
        "memory_bytes": max(memory, default=None),
        "disk_bytes": sum(disk) if disk else 0,
        "seconds": sum(seconds) if seconds else None,
        "until": next((line["until"] for line in lines if line.get("until")), "the end"),
    }


def _built(
    ctx: click.Context, output: Output, path: str, stages: list[Stage], allow_code: bool
) -> Any:
    """Return model and sampler of the sample stage; raise RefusedJob if one cannot be built."""
    from streammc.cli.build import NODES, make_model, make_sampler, split_options

    stage = next(each for each in stages if each.name == "sample")
    with stage_context(ctx, output, stage) as inner:
        given = dict(inner.params)
    table_of = "model"
    try:
        name, code = given["model"], allow_code
        of_model, of_sampler = split_options(name, given["option"], code)
        model = make_model(name, given["prior_scale"], of_model, given["prior"], code)
        table_of = "sampler"
        flags = ("subsample_size", "n_blocks", "unit_rows", "step_size", "trajectory_length")
        sampler = make_sampler(given["sampler"], {each: given[each] for each in flags}, of_sampler)
    except StreammcError as error:
        fault = Problem(table_of, str(error), error.exit_code, error.code)
        raise RefusedJob(path, [fault]) from None
    return model, sampler, of_model.get(NODES), given


def _require_columns(path: str, job: JobFile) -> None:
    """Raise RefusedJob if a column that the file names is not in the tables."""
    from streammc.stores.sources.tables import open_table

    asked = job.ingest
    if asked is None:
        return
    names = list(open_table(list(job.source.files or ())).names)
    faults = []
    try:
        named = list(_named_columns(asked))
    except ConfigError as error:
        fault = Problem("ingest.formula", str(error), error.exit_code, error.code)
        raise RefusedJob(path, [fault]) from None
    for key, column in named:
        if column in names:
            continue
        near = get_close_matches(column, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names[:20])}"
        faults.append(Problem(key, f"expected a column of the tables, found {column!r}: {hint}"))
    if faults:
        raise RefusedJob(path, faults)


def _named_columns(asked: Any) -> Iterator[tuple[str, str]]:
    """Yield path of the key and name of every column that [ingest] names."""
    from streammc.stores.formula.nodes import columns_of
    from streammc.stores.formula.terms import read_terms

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


def _sample(
    ctx: click.Context, output: Output, stage: Stage, rows: FirstRows | None, built: Any
) -> tuple[str, dict[str, Any]]:
    """Return the state of the run, and what the rest of it takes."""
    model, _, nodes, given = built
    if rows is not None:
        sizes = {name: given[name] for name in ("chains", "warmup", "draws", "stop")}
        state = COMPARED if os.path.lexists(stage.output) else TO_DO
        return state, rows.run_facts(model, nodes, sizes)
    from streammc.control_variates.forecast import forecast
    from streammc.likelihood.grouped import by_group
    from streammc.stores.store import open_store

    dataset, model = by_group(open_store(given["store"]), model, nodes)
    cost = forecast(dataset, model)
    facts = {"rows": dataset.n_rows, "passes": cost.passes, "memory_bytes": cost.memory_bytes}
    variates = given["control_variates"]
    if variates is not None and not os.path.lexists(variates):
        state = COMPARED if os.path.lexists(stage.output) else TO_DO
        return state, {**facts, "seconds": cost.seconds, "until": FIRST_DRAW}
    found = call_stage(ctx, replace(output, quiet=True), stage, "--dry-run").document
    if found["state"] == "finished":
        return f"finished, {found['committed_draws']} draws per chain", {}
    minutes = found.get("minutes")
    last = "the last draw" if given["stop"] is None else "the first check of the stopping rule"
    state = TO_DO
    if found["state"] == "partial":
        state = f"{_PARTIAL}, {found['committed_draws']} draws per chain, to be resumed"
    return state, {
        **facts,
        "sampler": found["sampler"],
        "reason": found["reason"],
        "rows": found["n_rows"],
        "passes": facts["passes"] if minutes is None else found["passes"],
        "seconds": cost.seconds if minutes is None else 60.0 * minutes,
        "until": FIRST_DRAW if minutes is None else last,
        "disk_bytes": found["disk_bytes"],
    }


def _human(document: dict[str, Any]) -> str:
    """Return the plan as text."""
    rows = [[line["stage"], line["state"], line["output"]] for line in document["stages"]]
    stages = table(["stage", "state", "output"], rows, words=True)
    memory, seconds = document["memory_bytes"], document["seconds"]
    asked = document["settings"].get("stop") or {}
    job_stop = ",".join(f"{name}={each}" for name, each in asked.items())
    until = f"until {document['until']}"
    facts: dict[str, Any] = {"job": document["job"], "file": document["file"]}
    for line in document["stages"]:
        for name in ("rows", "columns", "sampler", "reason"):
            facts[name] = line.get(name) or facts.get(name)
        if line.get("rows_estimated"):
            facts["rows"] = f"about {line['rows']:,}"
    facts |= {
        "passes": document["passes"] or None,
        "memory": None if memory is None else f"{memory / 1e6:,.0f} MB",
        "disk, about": f"{document['disk_bytes'] / 1e6:,.1f} MB"
        if document["disk_bytes"]
        else None,
        "time": None if seconds is None else f"about {max(seconds, 1.0):,.0f} s {until}",
        "stop": job_stop or None,
        "note": "; ".join(document["notes"]) or None,
    }
    return f"{stages}\n\n{fields(facts)}"
