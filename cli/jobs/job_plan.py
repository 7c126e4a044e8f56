"""The plan of a job: what is there, and the passes, memory, disk and time of the rest."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import click

from streammc.cli.command_settings import IngestSettings, SampleSettings
from streammc.cli.jobs.growing import earlier_generation, earlier_text
from streammc.cli.jobs.job_faults import Built, row_faults
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_record import MISSED, job_id
from streammc.cli.jobs.job_stages import (
    COMPARED,
    TO_DO,
    Stage,
    call_stage,
    output_state,
    stage_settings,
    with_more_draws,
)
from streammc.cli.jobs.problems import Problem, RefusedJob
from streammc.cli.output import Output, fields, table
from streammc.errors import StreammcError
from streammc.settings import values_of
from streammc.stores.ingest.table_options import TableOptions

ROWS: Final = 5000
FIRST_DRAW: Final = "the first draw"
"""End of the time that can be foretold without the passes."""
_BLOCK: Final = 1 << 20
_COMPRESSED: Final = (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
"""First bytes of files of gzip, bzip2, zstd and lz4."""
_INGEST_BYTES: Final = 5e7
"""Bytes of a store that ingest writes in a second of one core, as measured of 2e6 flights."""
_ID_BYTES: Final = 8
"""Bytes of the id of a row, its position in the tables."""


@dataclass(frozen=True)
class FirstRows:
    """A data set of the first rows, and the number of all rows."""

    dataset: Any
    """``None`` if these rows alone cannot be ingested."""
    n_rows: int
    seen: int
    """The number of first rows."""
    exact: bool
    """Whether the number of rows is known, not estimated from the sizes of files."""
    fault: str | None = None
    source_bytes: int | None = None
    """Bytes of the tables; ``None`` if they are not known."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on disk."""
        return 0 if self.dataset is None else int(self.dataset.rows().row_bytes) + _ID_BYTES

    def ingest_facts(self) -> dict[str, Any]:
        """Return rows, columns, disk and time of the ingest."""
        size = self.n_rows * self.row_bytes
        if self.dataset is None:
            return {"rows": self.n_rows}
        return {
            "rows": self.n_rows,
            "rows_estimated": not self.exact,
            "columns": self.dataset.n_features,
            "disk_bytes": size,
            "seconds": size / _INGEST_BYTES,
        }

    def notes(self) -> list[str]:
        """Return why these rows cannot be ingested, and whether the store is far larger."""
        from streammc.stores.ingest.value_checks import LARGE_BYTES, TIMES_SOURCE, bytes_text

        found = [] if self.fault is None else [self.fault]
        size, source = self.n_rows * self.row_bytes, self.source_bytes
        if source and size >= LARGE_BYTES and size > TIMES_SOURCE * source:
            found.append(
                f"the store takes about {bytes_text(size)}, {size / source:.0f} times its tables "
                f"of {bytes_text(source)}: see codes_above, layout and compression of [ingest]"
            )
        return found

    def run_facts(self, model: Any, nodes: Any, settings: SampleSettings) -> dict[str, Any]:
        """Return passes, memory, disk and time before the first draw of a run on all rows."""
        if self.dataset is None:
            return {}
        from streammc.cli.execute import run_bytes
        from streammc.likelihood.data_views import by_group
        from streammc.likelihood.pass_cost import pass_cost
        from streammc.numerics.process_limits import available_threads

        dataset, model = by_group(self.dataset, model, nodes)
        cost = pass_cost(
            self.n_rows,
            dataset.n_features,
            predictors=(model.n_linear, model.n_scalar),
            threads=available_threads(),
        )
        stop: Any = settings.stop
        draws = settings.draws if stop is None else max(settings.draws, stop.draws)
        iterations = settings.chains * (draws + settings.warmup)
        return {
            "rows": self.n_rows,
            "passes": cost.passes,
            "seconds": cost.seconds,
            "until": FIRST_DRAW,
            "memory_bytes": cost.memory_bytes,
            "disk_bytes": run_bytes(int(model.dim(dataset.n_features)), iterations),
        }


def first_rows(path: str, job: JobFile, settings: IngestSettings) -> FirstRows:
    """Return the first rows of the tables of the job in a file, as a data set in memory.

    Raises
    ------
    RefusedJob
        If the tables have no more rows, and cannot be ingested.
    """
    from streammc.stores.ingest.ingestion import from_table
    from streammc.stores.sources.tables import open_table

    files = list(job.source.files or ())
    source = open_table(files, settings.missing)
    words = {name for name in source.names if any(map(_is_text, source.types_of(name)))}
    batches = source.batches(list(source.names), ROWS, text=frozenset(words))
    batch = next(batches, None)
    # A file without the number of its rows is known as a whole if there is one batch.
    whole = source.n_rows is None and (batch is None or batch.num_rows <= ROWS)
    whole = whole and next(batches, None) is None
    head = None if batch is None else _table(source.names, batch.slice(0, ROWS))
    seen = 0 if head is None else head.num_rows
    exact = whole or source.n_rows is not None
    n_rows = seen if whole else source.n_rows
    if n_rows is None:
        n_rows = _estimated(source.paths, seen, 0 if head is None else head.nbytes)
    used = {**values_of(settings, TableOptions), "missing": None}
    fault = None
    dataset = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = from_table(head if seen else files, **used)
    except StreammcError as error:
        if seen == n_rows:
            raise RefusedJob(path, [Problem.of_error("ingest", error)]) from None
        fault = f"the first {seen:,} rows alone cannot be ingested as asked: {error}"
    size = None if settings.compression else source.n_bytes
    return FirstRows(dataset, n_rows, seen, exact, fault, size)


def _table(names: Sequence[str], batch: Any) -> Any:
    """Return a batch as an Arrow table; text that was read as bytes becomes text."""
    import pyarrow as pa

    columns = zip(names, batch.columns, strict=True)
    return pa.table(
        {
            name: each.cast(pa.string()) if pa.types.is_binary(each.type) else each
            for name, each in columns
        }
    )


def _is_text(kind: Any) -> bool:
    """Return whether an Arrow type is that of text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _estimated(files: list[str], seen: int, size: int) -> int:
    """Return the number of rows of text files by their sizes.

    Of a compressed file by the ``size`` of the ``seen`` rows in memory, without compression.
    """
    from streammc.stores.sources.input_files import input_stamp, open_input

    total = 0.0
    for path in files:
        with open_input(path) as file:
            block = file.read(_BLOCK)
        lines = block.count(b"\n")
        text = lines and not block.startswith(_COMPRESSED)
        per_row = len(block) / lines if text else size / max(seen, 1)
        total += input_stamp(path).size / max(per_row, 1.0)
    return max(seen, int(total))


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
            rows = first_rows(path, job, stage_settings(ctx, output, stage))
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
        problems = row_faults(open_store(stage.values["store"]), made, job)
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
    settings = stage_settings(ctx, output, stage)
    if rows is not None:
        state = COMPARED if os.path.lexists(stage.output) else TO_DO
        return state, rows.run_facts(model, nodes, settings)
    from streammc.likelihood.data_views import by_group
    from streammc.likelihood.pass_cost import forecast
    from streammc.stores.store import open_store

    dataset, model = by_group(open_store(settings.store), model, nodes)
    cost = forecast(dataset, model)
    facts = {"rows": dataset.n_rows, "passes": cost.passes, "memory_bytes": cost.memory_bytes}
    variates = settings.control_variates
    if variates is not None and not os.path.lexists(variates):
        state = COMPARED if os.path.lexists(stage.output) else TO_DO
        return state, {**facts, "seconds": cost.seconds, "until": FIRST_DRAW}
    found = call_stage(ctx, replace(output, quiet=True), stage, dry_run=True).document
    if found["state"] == "finished":
        return f"finished, {found['committed_draws']} draws per chain", {}
    minutes = found.get("minutes")
    last = "the last draw" if settings.stop is None else "the first check of the stopping rule"
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
