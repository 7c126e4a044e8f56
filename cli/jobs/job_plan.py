"""The plan of a job: what is there, and the passes, memory, disk and time of the rest."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any, Final

import click

from streammc.cli.jobs.first_rows import FIRST_DRAW, ROWS, FirstRows, first_rows
from streammc.cli.jobs.generation_end import earlier_generation, earlier_text
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_record import MISSED, job_id
from streammc.cli.jobs.job_stages import Stage
from streammc.cli.jobs.problems import RefusedJob
from streammc.cli.jobs.setting_faults import Built, row_faults
from streammc.cli.jobs.stage_calls import call_stage, stage_context
from streammc.cli.jobs.stage_states import (
    COMPARED,
    TO_DO,
    ingest_options,
    output_state,
    with_more_draws,
)
from streammc.cli.output import Output, fields, table

_PARTIAL: Final = "partial"
_PREDICTED_BYTES: Final = 32
"""Bytes of a predicted row: mean, two quantiles and its id."""
_CURVES_BYTES: Final = 2**19


def planned(
    ctx: click.Context, output: Output, path: str, job: JobFile, stages: list[Stage], made: Built
) -> tuple[dict[str, Any], str]:
    """Return the plan of a job as JSON and as text.

    Raises
    ------
    RefusedJob
        If the settings do not fit the rows: those of the store, or the first ones of the tables.
    IdentityError
        If an output was made by another job.
    """
    rows: FirstRows | None = None
    lines: list[dict[str, Any]] = []
    notes: list[str] = []
    n_rows, more_draws = 0, False
    for stage in stages:
        state, facts = output_state(ctx, output, stage), {}
        state = with_more_draws(stage, state) if more_draws else state
        if stage.name == "ingest" and state == TO_DO:
            rows = first_rows(path, job, ingest_options(ctx, output, stage))
            facts = rows.ingest_facts()
        elif stage.name == "sample":
            notes = _against_rows(path, job, stage, rows, made)
            state, facts = _sample(ctx, output, stage, rows, made)
            n_rows = facts.get("rows", 0)
            more_draws = state.startswith(_PARTIAL)
        elif stage.name == "predict" and state == TO_DO and job.predict is None:
            facts = {"disk_bytes": n_rows * _PREDICTED_BYTES + _CURVES_BYTES} if n_rows else {}
        shown = {"stage": stage.name, "state": state, "output": stage.output, **facts}
        lines.append(shown)
    notes += [] if rows is None else rows.notes()
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


def _against_rows(
    path: str, job: JobFile, stage: Stage, rows: FirstRows | None, made: Built
) -> list[str]:
    """Raise RefusedJob for settings that do not fit the rows; return notes where some are seen."""
    from streammc.stores.store import open_store

    if rows is None:
        problems = row_faults(open_store(stage.words[-1]), made, job)
    elif rows.dataset is None:
        return []
    else:
        problems = row_faults(rows.dataset, made, job)
    if problems and (rows is None or rows.seen == rows.n_rows):
        raise RefusedJob(path, problems)
    return [f"of the first {ROWS:,} rows: {each.key}: {each.text}" for each in problems]


def _sample(
    ctx: click.Context, output: Output, stage: Stage, rows: FirstRows | None, made: Built
) -> tuple[str, dict[str, Any]]:
    """Return the state of the run, and what the rest of it takes."""
    model, nodes = made.model, made.nodes
    with stage_context(ctx, output, stage) as inner:
        given = dict(inner.params)
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
