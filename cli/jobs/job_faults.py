"""What is wrong between the keys of a job file, and which of its inputs are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from streammc.cli.jobs.growing import growth_faults
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_inputs import input_faults
from streammc.cli.jobs.job_stages import stop_text
from streammc.cli.jobs.problems import Problem
from streammc.errors import ConfigError, MissingError
from streammc.trace.local_path import is_address
from streammc.trace.reserved_names import refuse_reserved_name


def job_faults(job: JobFile) -> list[Problem]:
    """Return what is wrong between the keys of a job, and which of its inputs are missing."""
    source, outputs, asked = job.source, job.outputs, job.predict
    if source is None or outputs is None:  # faults of their own
        return []
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
            faults.append(Problem.of_error("stop", error))
    if outputs.report is not None:
        faults += _shown_predictions(outputs.predictions)
        from streammc.plots.axes import require_packages

        try:
            require_packages("a report", "jinja2", "matplotlib")
        except ConfigError as error:
            faults.append(Problem.of_error("outputs.report", error))
    return [*faults, *_append_faults(job), *_address_faults(job), *_same_places(job)]


def _shown_predictions(path: str | None) -> Iterator[Problem]:
    """Yield the fault of predictions that a report cannot show: those of a table."""
    from streammc.trace.row_tables import CSV, PARQUET, output_format

    try:
        table = path is not None and output_format(path) in (CSV, PARQUET)
    except ConfigError:
        return  # the command says so
    if table:
        text = (
            f"expected a path that ends in .zarr for the predictions that outputs.report shows, "
            f"found {path!r}: a table has no curves and no scores; leave out one of the two"
        )
        yield Problem("outputs.predictions", text)


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
    for fault in input_faults(files, f"{table}.files"):
        made = fault.exit_code == MissingError.exit_code and place and os.path.lexists(place)
        yield fault._replace(text=_gone(fault, table, str(place))) if made else fault


def _gone(fault: Problem, table: str, store: str) -> str:
    """Return what to do about tables that are no longer where a store was made of them."""
    return (
        f"expected the tables of {store!r} to stay where they are, since a job compares them at "
        f"every start, found that they are gone ({fault.text}): put them back, or give this store "
        f"as {table}.store in place of {table}.files"
    )


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
