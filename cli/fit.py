"""``streammc fit``: from a table to its posterior, in one command."""

from __future__ import annotations

import warnings
from typing import Any

import click

from streammc.cli.command_settings import FitSettings, IngestSettings
from streammc.cli.options import command
from streammc.cli.output import Output
from streammc.cli.sample import sampled
from streammc.cli.values import refuse_file_name
from streammc.settings import values_of
from streammc.stores.ingest.table_options import TableOptions


@command("fit", FitSettings, configurable=True)
def fit(ctx: click.Context, settings: FitSettings) -> int:
    """Sample the posterior of a model on the files TABLE... into the run of --output.

    A table is a file, a folder with folders name=value, a pattern in quotes ('t/*.parquet'), or
    an address of one of these (s3://bucket/t). As ingest and sample after each other; without
    --store the rows stay in memory; where they do not fit, the table is read again whenever they
    are needed, and sampled with smh.

    The same command again resumes an interrupted run and does not change a finished one.
    """
    from streammc.cli.receipt import require_apart

    refuse_file_name(settings.output, "the run to make")
    require_apart(settings.output, [*settings.table, *([settings.store] if settings.store else [])])

    def opened(model: Any, sampler: Any) -> Any:
        if sampler is not None:
            sampler.check_model(model)
        return rows_of_tables(ctx.obj, settings, model, sampler)

    return sampled(ctx, settings, opened)


def rows_of_tables(output: Output, settings: FitSettings, model: Any, sampler: Any) -> Any:
    """Return the rows of the tables: in the store, made if need be, in memory, or in order."""
    from streammc.cli.ingest import made_store
    from streammc.models.base import sums_of_responses
    from streammc.runs.setup import refuse_in_order
    from streammc.stores.ingest.ingest_options import IngestOptions, as_in
    from streammc.stores.ingest.ingestion import rows_of
    from streammc.stores.store import open_store

    options = values_of(settings, TableOptions)
    del options["seed"]  # that of the draws, and not of the shuffle
    if settings.store is not None:
        made_store(output, IngestSettings(**options, sources=settings.table, store=settings.store))
        return open_store(settings.store)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = as_in(IngestOptions(**options, sufficient=sums_of_responses(model)), None)
        data = rows_of(
            list(settings.table),
            made,
            None,
            overwrite=False,
            in_order=sampler is not None and not sampler.needs_rows(model),
            no_cells=model.sees_trials,
            refuse_in_order=lambda: refuse_in_order(model, sampler),
        )
    for each in caught:
        output.warn(str(each.message))
    return data
