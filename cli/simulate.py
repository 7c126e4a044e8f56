"""``streammc simulate``: make a store of simulated rows with known parameters."""

from __future__ import annotations

import click

from streammc.cli.design_words import groups_text
from streammc.cli.options import SEED, command, overwrite_option, path_argument, setting
from streammc.cli.output import Output, fields
from streammc.cli.progress import Progress
from streammc.cli.receipt import Receipt, make_output
from streammc.cli.values import Number, WholeNumber, refuse_file_name


@command("simulate", configurable=True, short_help="Write a store of simulated rows.")
@click.argument("kind")
@path_argument("store")
@setting("--rows", type=WholeNumber(1, 10**12), required=True, help="Number of rows.")
@setting(
    "--dim", type=WholeNumber(1, 10**6), required=True, help="Columns, the intercept included."
)
@setting("--seed", type=SEED, required=True, help="Seed of truth and rows.")
@setting(
    "--intercept",
    type=Number(),
    help="True intercept, such as -14.5 for rare events; each kind has a default.",
)
@setting(
    "--groups",
    type=WholeNumber(2, 10**9),
    help="Number of groups of rows, with random intercepts of standard deviation 1.",
)
@setting("--chunk-rows", type=WholeNumber(1, 10**12), help="Rows per chunk.")
@setting(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Dtype of the stored design.",
)
@overwrite_option
@click.pass_obj
def simulate(
    output: Output,
    kind: str,
    store: str,
    rows: int,
    dim: int,
    seed: int,
    intercept: float | None,
    groups: int | None,
    chunk_rows: int | None,
    dtype: str,
    overwrite: bool,
) -> None:
    """Write simulated rows of KIND, such as logistic, to STORE, which also keeps the true theta."""
    from streammc.stores.simulation import simulate as write
    from streammc.stores.store import info

    refuse_file_name(store, "the store to make")
    asked: dict[str, object] = {
        "command": "simulate",
        "kind": kind,
        "rows": rows,
        "dim": dim,
        "seed": seed,
        "chunk_rows": chunk_rows,
        "dtype": dtype,
    }
    if intercept is not None:  # as in receipts from before the option
        asked["intercept"] = intercept
    if groups is not None:
        asked["groups"] = groups

    def make(replace: bool) -> dict[str, object]:
        with Progress(output) as progress:
            show = progress.of("write")
            write(
                kind,
                store,
                rows,
                dim,
                seed,
                chunk_rows,
                dtype,
                show,
                intercept=intercept,
                groups=groups,
                overwrite=replace,
            )
        return info(store)

    receipt = Receipt(store, asked)
    result = make_output(output, receipt, lambda: info(store), make, overwrite=overwrite)
    if result is None:
        return
    facts = {
        "store": result["path"],
        "rows": result["n_rows"],
        "features": result["n_features"],
        "groups": groups_text(result.get("groups")),
        "megabytes": result["bytes"] / 1e6,
        "fingerprint": result["fingerprint"],
    }
    output.result(result, fields(facts))
