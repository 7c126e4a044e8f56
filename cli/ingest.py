"""``streammc ingest``: make a store from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from streammc.cli.command_settings import IngestSettings
from streammc.cli.design_words import (
    codes_text,
    factors_text,
    groups_text,
    references_text,
    rows_text,
)
from streammc.cli.options import command
from streammc.cli.output import Output, fields
from streammc.cli.progress import Progress
from streammc.cli.values import refuse_file_name
from streammc.diagnostics.text import formula_text
from streammc.settings import values_of
from streammc.stores.ingest.table_options import LayoutOptions, LikeOption, TableOptions

if TYPE_CHECKING:
    from streammc.cli.receipt import Receipt

_OF_APPEND: Final = {"sources", "store", "append", "again", "shuffle", "seed", "drop_missing"}
"""Arguments and options that go with --append; the store decides the others."""


@command("ingest", IngestSettings, configurable=True)
def ingest(ctx: click.Context, settings: IngestSettings) -> None:
    """Make STORE from the files SOURCE..., read twice, in constant memory.

    A source is a file, a folder with folders name=value, a pattern in quotes ('t/*.parquet'), or
    an address of one of these (s3://bucket/t).

    With --append STORE exists and gets the rows as a new generation.
    """
    output: Output = ctx.obj
    sources, store = settings.sources, settings.store
    if not sources:
        raise click.UsageError(
            f"expected the files to read and then the store to make, found {store!r} alone: write "
            f"streammc ingest {store} NAME.zarr"
        )
    if settings.features and sources[-1].endswith(".zarr") and not store.endswith(".zarr"):
        raise click.UsageError(
            f"expected the store as the last path, found {store!r} after {sources[-1]!r}: separate "
            "the names of --features by commas, without spaces"
        )
    refuse_file_name(store, "the store to make, which comes last")
    if settings.append:
        _append(ctx, output, settings)
        return
    if settings.again:
        raise click.UsageError(
            "expected --append with --again, found --again alone: add --append, or leave it out"
        )
    result = made_store(output, settings)
    if result is None:
        return
    if result["response"] is None and settings.like is None:
        output.note(
            f"{store} has no response: it is for models without one; for others, name column y "
            "with --response or --formula"
        )
    facts = {
        "store": result["path"],
        "rows": rows_text(result["n_rows"], result.get("cells")),
        "dropped": result.get("n_dropped") or None,
        "formula": formula_text(result),
        "response": result["response"],
        "features": result["features"],
        "reference levels": references_text(result.get("references")),
        "groups": groups_text(result.get("groups")),
        "factors that cross": factors_text(result.get("crossed")),
        "factors": factors_text(result.get("factors")),
        "codes": codes_text(result.get("codes")),
        "row id": result.get("row_id"),
        "megabytes": result["bytes"] / 1e6,
        "shuffled": result.get("shuffle_seed") is not False,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))


def made_store(output: Output, settings: IngestSettings) -> dict[str, Any] | None:
    """Make a store, or find that it is there; return its report, ``None`` for a stage's answer."""
    from streammc.cli.receipt import make_output
    from streammc.stores.ingest.ingestion import ingest as write
    from streammc.stores.ingest.value_checks import LARGE_BYTES, bytes_text
    from streammc.stores.store import info
    from streammc.trace.addresses import is_address

    sources, store = settings.sources, settings.store
    options, receipt = ingest_options(settings), ingest_receipt(settings)
    said: list[str] = []

    def announce(rows: int, row_bytes: int, warnings: Sequence[str]) -> None:
        size = rows * row_bytes
        if size >= LARGE_BYTES:
            text = bytes_text(size) + (" before compression" if settings.compression else "")
            output.note(f"{store} takes {text}: {rows:,} rows of {row_bytes:,} bytes")
        said.extend(warnings)
        for line in warnings:
            output.warn(line)

    def make(replace: bool) -> dict[str, Any]:
        with Progress(output) as progress:
            return write(
                list(sources),
                store,
                **options,
                overwrite=replace,
                progress=lambda done, total, phase: progress(phase, done, total),
                announce=announce,
            )

    if is_address(store):  # nothing is kept beside it
        result: dict[str, Any] | None = make(settings.overwrite)
    else:
        overwrite = settings.overwrite
        result = make_output(output, receipt, lambda: info(store), make, overwrite=overwrite)
    for line in (result or {}).get("warnings", [])[len(said) :]:
        output.warn(line)
    return result


def ingest_options(settings: IngestSettings) -> dict[str, Any]:
    """Return the options that decide the rows and files of a store, the shuffle resolved."""
    options = {
        name: value
        for kind in (TableOptions, LikeOption, LayoutOptions)
        for name, value in values_of(settings, kind).items()
    }
    if options["shuffle"] is None:
        options["shuffle"] = options["like"] is None
    return options


def ingest_receipt(settings: IngestSettings) -> Receipt:
    """Return the receipt of a store.

    Raises
    ------
    ConfigError
        If the store is one of the sources, or inside one.
    """
    from streammc.cli.input_description import describe_inputs
    from streammc.cli.receipt import Receipt, require_apart
    from streammc.stores.store import open_store

    sources, like = settings.sources, settings.like
    require_apart(settings.store, sources if like is None else [*sources, like])
    options = ingest_options(settings)
    # Receipts of earlier versions do not have these, where they were not given.
    for name in (
        "like",
        "row_id",
        "formula_for",
        "group",
        "group_as",
        "codes_above",
        "compression",
        "missing",
        "missing_as",
        "cells",
    ):
        if options[name] in (None, ()):
            del options[name]
    if like is not None:
        options["like"] = open_store(like).fingerprint
    asked = {"command": "ingest", **options, "sources": describe_inputs(sources, states=True)}
    return Receipt(settings.store, asked, sources)


def _append(ctx: click.Context, output: Output, settings: IngestSettings) -> None:
    """Append the rows of files to a store, and print what it has then."""
    from streammc.stores.ingest.append import append

    store = settings.store
    given = {
        name
        for name in ctx.params
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    for name in sorted(given - _OF_APPEND):
        option = f"--{name.replace('_', '-')}"
        raise click.UsageError(
            f"expected --append or {option}, found both: the store decides; leave out {option}"
        )
    with Progress(output) as progress:
        result = append(
            list(settings.sources),
            store,
            shuffle=settings.shuffle,
            seed=settings.seed,
            drop_missing=settings.drop_missing,
            again=settings.again,
            progress=lambda done, total, phase: progress(phase, done, total),
        )
    if not result["new"]:
        first = result["generation"] == 1
        origin = (
            "was made of these files"
            if first
            else (
                f"has these rows, appended by the same command as generation {result['generation']}"
            )
        )
        output.note(f"{store} {origin}: nothing to do")
    for line in result["warnings"]:
        output.warn(line)
    generation = result.get("generations", [result])[result["generation"] - 1]
    facts = {
        "store": result["path"],
        "rows": result["n_rows"],
        "generation": result["generation"],
        "appended": result["appended_rows"],
        "new levels": _new_levels(result.get("crossed"), generation.get("levels")),
        "dropped": generation.get("n_dropped") or None,
        "megabytes": result["bytes"] / 1e6,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))


def _new_levels(
    crossed: Sequence[Mapping[str, Any]] | None, levels: Sequence[int] | None
) -> str | None:
    """Return the levels that came with a generation, as ``12 of user, 3 of item``."""
    pairs = zip(crossed or (), levels or (), strict=False)
    return ", ".join(f"{count:,} of {each['column']}" for each, count in pairs if count) or None
