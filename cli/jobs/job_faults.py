"""Faults of a job that are found before any stage.

:func:`job_faults` finds keys that contradict each other, and missing inputs. The other functions
need more than the file: packages that a stage would load (:func:`built`), the names of the
columns (:func:`column_faults`), or some rows (:func:`row_faults`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from streammc.cli.command_settings import SamplerOptions
from streammc.cli.jobs.growing import growth_faults
from streammc.cli.jobs.job_file import JobFile, Outputs, input_faults
from streammc.cli.jobs.job_stages import sample_stage, stage_faults, stop_text
from streammc.cli.jobs.problems import Problem
from streammc.cli.output import Output
from streammc.errors import ConfigError, MissingError, StreammcError
from streammc.settings import values_of
from streammc.stores.ingest.table_options import TableOptions
from streammc.trace.addresses import is_address
from streammc.unfinished import refuse_reserved_name


def job_faults(job: JobFile) -> list[Problem]:
    """Return what is wrong between the keys of a job, and which of its inputs are missing."""
    source, outputs, predict = job.source, job.outputs, job.predict
    if source is None or outputs is None:  # faults of their own
        return []
    faults = [*_one_of("source", source, "outputs.store", outputs.store)]
    if predict is not None:
        if predict.files is not None or predict.store is not None:
            faults += _one_of("predict", predict, "outputs.rows", outputs.rows)
        if outputs.predictions is None:
            text = "expected a path for the predictions of [predict], found nothing: add it"
            faults.append(Problem("outputs.predictions", text))
    if job.score is not None and outputs.scores is None:
        text = "expected a path for the scores of [score], found nothing: add it"
        faults.append(Problem("outputs.scores", text))
    if outputs.rows is not None and (predict is None or predict.files is None):
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
    faults += [*_cell_faults(job), *_append_faults(job)]
    return [*faults, *_address_faults(job), *_same_places(job)]


def _cell_faults(job: JobFile) -> Iterator[Problem]:
    """Yield what a job asks of the rows of its store, where these are cells."""
    cells = None if job.ingest is None else job.ingest.cells
    if cells in (None, "no"):
        return
    predict = job.predict
    own = predict is None or (predict.files is None and predict.store is None)
    if job.outputs.predictions is not None and own:
        text = (
            f"expected 'no' for predictions of the rows of the job, found {cells!r}: name the "
            "tables to predict, predict.files, and outputs.rows, or leave this key out"
        )
        yield Problem("ingest.cells", text)
    if job.source.append is not None:
        text = f"expected 'no' for a store with source.append, found {cells!r}: leave this key out"
        yield Problem("ingest.cells", text)


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
    for name, path in job.outputs.paths().items():
        if not is_address(path):
            continue
        if name != "run":
            text = (
                f"expected a path on this machine, found {path.partition('://')[0]}://...: only "
                "the run of a job can be at an address; give a local path"
            )
            yield Problem(f"outputs.{name}", text)
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
    """Yield the faults of the section ``table`` of a job, which names files or a store.

    ``place`` is the path of the store to make of the files, the value of the key ``output``.
    """
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
    for name, path in job.outputs.paths().items():
        if is_address(path):
            continue
        place = os.path.realpath(path)
        if place in seen:
            text = f"expected another path than that of outputs.{seen[place]}, found {path!r} again"
            faults.append(Problem(f"outputs.{name}", f"{text}: choose another"))
        seen[place] = name
        if not os.path.lexists(path):
            try:
                refuse_reserved_name(Path(path))
            except ConfigError as error:
                faults.append(Problem(f"outputs.{name}", str(error)))
    return faults


_COLUMNS: Final = tuple(
    each.name for each in fields(TableOptions) if each.metadata.get("metavar") == "COLUMN"
)
"""Keys of [ingest] that are the name of a column."""


class Built(NamedTuple):
    """Model and sampler of a job."""

    model: Any
    sampler: Any
    """``None`` for an automatic choice."""
    sampler_options: dict[str, Any]
    """Those of an automatic choice."""
    nodes: Any
    """Quadrature nodes of a mixed model that the job asks for; ``None``: not stated."""


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
    from streammc.runs.job import refuse_stop
    from streammc.runs.record import asked_schedule

    if job.model is None or job.model.name is None:
        return None, []
    # Outputs do not matter here, and may have faults of their own.
    pathless = replace(job, outputs=_without_paths(job.outputs))
    stage = sample_stage(pathless, "store", {"allow_code": allow_code})
    faults, settings = stage_faults(ctx, output, stage)
    if settings is None:
        return None, faults
    name, model = settings.model, None
    of_model: dict[str, Any] = {}
    if ":" in name:
        find_model(name, allow_code)
    try:
        of_model, of_sampler = split_options(name, settings.option, allow_code)
        for key in job.model.options or ():
            if (name_of := key.replace("-", "_")) in of_sampler:
                del of_sampler[name_of]
                text = f"the model {name!r} has no option {key!r}: see `streammc models`"
                faults.append(Problem(f"model.options.{key}", text))
        model = make_model(name, settings.prior_scale, of_model, settings.prior, allow_code)
    except StreammcError as error:
        faults.append(Problem.of_error("model", error))
        of_sampler = {}
    try:
        flags = values_of(settings, SamplerOptions)
        sampler, options = make_sampler(settings.sampler, flags, of_sampler)
    except StreammcError as error:
        return None, [*faults, Problem.of_error("sampler", error)]
    for key, check in (
        ("sampler.temperature", lambda: asked_schedule(settings.temperature, sampler)),
        ("stop", lambda: refuse_stop(sampler, settings.stop, settings.draws)),
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

    ingest, files = job.ingest, job.source and job.source.files
    faults: list[Problem] = []
    named: list[tuple[str, str]] = []
    if ingest is not None:
        try:
            named = list(_named_columns(ingest))
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
        for naming_key, column in wanted:
            if column not in names:
                near = get_close_matches(column, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose from {_shown(names)}"
                text = f"expected a column of the tables, found {column!r}: {hint}"
                faults.append(Problem(naming_key, text))
    return faults


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:20])


def _named_columns(ingest: Any) -> Iterator[tuple[str, str]]:
    """Yield path of the key and name of every column that [ingest] names."""
    from streammc.stores.formula.parser import columns_of, formula_of_all, read_terms

    if ingest.formula is not None:
        formula, others = ingest.formula, ingest.formula_for or ()
        terms = read_terms(formula_of_all(formula, others)[0] if others else formula)
        names = [
            *columns_of(terms.response),
            *terms.columns,
            *(name for g in terms.groups for name in g.table_columns),
        ]
        for column in dict.fromkeys(names):
            yield "ingest.formula", column
    for name in _COLUMNS:
        if (column := getattr(ingest, name)) is not None:
            yield f"ingest.{name}", column
    for position, column in enumerate(ingest.features or ()):
        yield f"ingest.features[{position}]", column


def _to_predict(job: JobFile) -> list[tuple[str, str]]:
    """Return ``predict.files`` and the name of every column that tables to predict need."""
    from streammc.stores.formula.parser import read_terms

    ingest = job.ingest
    if ingest is None:
        return []
    needed = [*(ingest.features or ()), *([ingest.offset] if ingest.offset else [])]
    try:
        for text in [ingest.formula or (), *(ingest.formula_for or ())]:
            needed += read_terms(text).columns if text else []
    except StreammcError:
        return []
    return [("predict.files", column) for column in dict.fromkeys(needed)]


def row_faults(dataset: Any, made: Built, job: JobFile) -> list[Problem]:
    """Return what is wrong between the settings of a job and the columns and rows of its store."""
    from streammc.cli.execute import check_sizes
    from streammc.control_variates.bound import with_data
    from streammc.likelihood.data_views import by_group

    faults: list[Problem] = []
    try:
        grouped, model = by_group(dataset, made.model, made.nodes)
        check_sizes(grouped, made.sampler, made.sampler_options)
    except StreammcError as error:
        faults.append(Problem.of_error("sampler", error))
    else:
        try:
            with_data(model, grouped).labels(grouped.feature_names)
        except StreammcError as error:
            faults.append(Problem.of_error("priors" if job.priors else "model", error))
    if job.predict is not None and job.predict.by is not None:
        try:
            dataset.covariate(job.predict.by)
        except StreammcError as error:
            faults.append(Problem("predict.by", str(error)))
    return faults


def known_faults(known: list[Problem], more: Sequence[Problem]) -> list[Problem]:
    """Return ``known`` and those of ``more`` that do not follow from a key with a known fault."""
    keys = [problem.key for problem in known]

    def follows(key: str) -> bool:
        above = any(key == each or key.startswith(f"{each}.") for each in keys)
        tables = key in ("source", "predict") and any(each.startswith(f"{key}.") for each in keys)
        return above or tables

    return [*known, *(problem for problem in more if not follows(problem.key))]


def can_be_staged(job: JobFile, faults: Sequence[Problem]) -> bool:
    """Return whether the stages of a job are known: source, outputs and model have no fault."""
    wrong = {each.key.partition(".")[0].partition("[")[0] for each in faults}
    tables = (job.source, job.outputs, job.model)
    return None not in tables and not wrong & {"source", "outputs", "model"}
