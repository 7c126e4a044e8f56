"""``streammc ingest``: make a store from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from streammc.cli.design_words import codes_text, factors_text, groups_text, references_text
from streammc.cli.input_description import describe_inputs
from streammc.cli.options import (
    SEED,
    command,
    overwrite_option,
    setting,
    store_argument,
)
from streammc.cli.output import Output, fields
from streammc.cli.progress import Progress
from streammc.cli.receipt import Receipt, make_output, require_apart
from streammc.cli.values import Names, Spellings, StorePath, WholeNumber, refuse_file_name

_OF_APPEND: Final = {"sources", "store", "append", "again", "shuffle", "seed", "drop_missing"}
"""Arguments and options that go with --append; the store decides the others."""


@command("ingest", configurable=True, short_help="Make a store from CSV, Parquet or Arrow files.")
@click.argument("sources", nargs=-1, type=StorePath())
@store_argument("store")
@setting("--formula", metavar="TEXT", help="'y ~ x + C(g)': response and features in one.")
@setting("--like", type=StorePath(), help="A store whose columns, formula and scale to use.")
@setting("--response", metavar="COLUMN", help="Column y.")
@setting("--features", type=Names(), help="Columns of X; default: all others.")
@setting("--offset", metavar="COLUMN", help="Added to the linear predictor (log exposure).")
@setting("--weight", metavar="COLUMN", help="Weights: powers of each row's likelihood.")
@setting("--trials", metavar="COLUMN", help="Binomial trials; the response counts successes.")
@setting("--group", metavar="COLUMN", help="Groups with a random intercept, as (1 | COLUMN).")
@setting("--group-as", type=Names(), help="g=columns or g=integrated, of a term (1 | g).")
@setting("--row-id", metavar="COLUMN", help="Ids of the rows in predictions; default: position.")
@setting(
    "--shuffle/--no-shuffle",
    default=None,
    help="Random row order, exact.  [default: yes, but with --like no]",
)
@setting("--seed", type=SEED, default=0, show_default=True, help="Seed of the shuffle.")
@setting(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Dtype of the stored design.",
)
@setting("--standardize/--no-standardize", default=True, help="Mean 0 and sd 1.  [default: yes]")
@setting("--intercept/--no-intercept", default=True, help="Add a column of ones.  [default: yes]")
@setting("--drop-missing", is_flag=True, help="Leave out rows with missing values.")
@setting("--missing", type=Spellings(), help="Missing values in CSV; default: NA, NULL, nan, ...")
@setting(
    "--codes-above",
    type=WholeNumber(0, 10**6),
    help="Columns above which a factor is one integer a row.  [default: 64]",
)
@setting("--chunk-rows", type=WholeNumber(1, 10**12), help="Rows per chunk.")
@setting(
    "--layout",
    type=click.Choice(["local", "cloud"]),
    default="local",
    show_default=True,
    help="Chunks that are mapped into memory, or shards for object stores.",
)
@setting("--compression", type=click.Choice(["zstd"]), help="Of the shards; default: none.")
@click.option("--append", is_flag=True, help="Add the rows to STORE, in its columns and scale.")
@click.option("--again", is_flag=True, help="With --append: also rows of files that STORE has.")
@overwrite_option
@click.pass_context
def ingest(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    store: str,
    append: bool,
    again: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Make STORE from the files SOURCE..., read twice, in constant memory.

    A source is a file, a folder with folders name=value, a pattern in quotes ('t/*.parquet'), or
    an address of one of these (s3://bucket/t).

    With --append STORE exists and gets the rows as a new generation.
    """
    output: Output = ctx.obj
    from streammc.stores.ingest.ingestion import ingest as write
    from streammc.stores.ingest.value_checks import LARGE_BYTES, bytes_text
    from streammc.stores.store import info
    from streammc.trace.addresses import is_address

    if not sources:
        raise click.UsageError(
            f"expected the files to read and then the store to make, found {store!r} alone: write "
            f"streammc ingest {store} NAME.zarr"
        )
    if options["features"] and sources[-1].endswith(".zarr") and not store.endswith(".zarr"):
        raise click.UsageError(
            f"expected the store as the last path, found {store!r} after {sources[-1]!r}: separate "
            "the names of --features by commas, without spaces"
        )
    refuse_file_name(store, "the store to make, which comes last")
    if append:
        _append(ctx, output, sources, store)
        return
    if again:
        raise click.UsageError(
            "expected --append with --again, found --again alone: add --append, or leave it out"
        )
    like = options["like"]
    receipt = ingest_receipt(sources, store, options)
    said: list[str] = []

    def announce(rows: int, row_bytes: int, warnings: Sequence[str]) -> None:
        size = rows * row_bytes
        if size >= LARGE_BYTES:
            text = bytes_text(size) + (" before compression" if options["compression"] else "")
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
        result: dict[str, Any] | None = make(overwrite)
    else:
        result = make_output(output, receipt, lambda: info(store), make, overwrite=overwrite)
    if result is None:
        return
    for line in result.get("warnings", [])[len(said) :]:
        output.warn(line)
    if result["response"] is None and like is None:
        output.note(
            f"{store} has no response: it is for models without one; for others, name column y "
            "with --response or --formula"
        )
    facts = {
        "store": result["path"],
        "rows": result["n_rows"],
        "dropped": result.get("n_dropped") or None,
        "formula": result["formula"] and result["formula"]["text"],
        "response": result["response"],
        "features": result["features"],
        "reference levels": references_text(result.get("references")),
        "groups": groups_text(result.get("groups")),
        "factors": factors_text(result.get("factors")),
        "codes": codes_text(result.get("codes")),
        "row id": result.get("row_id"),
        "megabytes": result["bytes"] / 1e6,
        "shuffled": result.get("shuffle_seed") is not False,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))


def ingest_receipt(sources: Sequence[str], store: str, options: dict[str, Any]) -> Receipt:
    """Return the receipt of a store; the automatic choice of a shuffle is put into ``options``.

    Raises
    ------
    ConfigError
        If the store is one of the sources, or inside one.
    """
    from streammc.stores.store import open_store

    like = options["like"]
    if options["shuffle"] is None:
        options["shuffle"] = like is None
    require_apart(store, sources if like is None else [*sources, like])
    asked = {"command": "ingest", **options, "sources": describe_inputs(sources, states=True)}
    if like is None:
        del asked["like"]  # receipts of earlier versions do not have it
    else:
        asked["like"] = open_store(like).fingerprint
    for name in ("row_id", "group", "group_as", "codes_above", "compression", "missing"):
        if options[name] is None:
            del asked[name]  # likewise
    return Receipt(store, asked, sources)


def _append(ctx: click.Context, output: Output, sources: tuple[str, ...], store: str) -> None:
    """Append the rows of files to a store, and print what it has then."""
    from streammc.stores.ingest.append import append

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
            list(sources),
            store,
            shuffle=ctx.params["shuffle"],
            seed=ctx.params["seed"],
            drop_missing=ctx.params["drop_missing"],
            again=ctx.params["again"],
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
        "dropped": generation.get("n_dropped") or None,
        "megabytes": result["bytes"] / 1e6,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))
