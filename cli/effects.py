"""``streammc effects``: the effects of the groups of a mixed model from the draws of a run."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.options import (
    command,
    overwrite_option,
    parse_scheduler,
    path_argument,
    scheduler_option,
    setting,
)
from streammc.cli.output import Output, fields, number
from streammc.cli.progress import Progress
from streammc.cli.receipt import Receipt, make_once, require_apart
from streammc.cli.signals import Interruption
from streammc.cli.values import LocalPath, Share, WholeNumber


@command(
    "effects", configurable=True, short_help="Write the effects of the groups of a mixed model."
)
@path_argument("run")
@setting("--output", "-o", type=LocalPath(), required=True, help="zarr group to make.")
@setting("--store", type=LocalPath(), help="The store of the run, if it has moved.")
@setting(
    "--effect-draws",
    type=WholeNumber(2),
    default=100,
    show_default=True,
    help="Number of draws, thinned from all chains.",
)
@setting(
    "--interval", type=Share(), default=0.9, show_default=True, help="Probability of the intervals."
)
@overwrite_option
@scheduler_option
@click.pass_context
def effects(
    ctx: click.Context,
    run: str,
    output: str,
    store: str | None,
    effect_draws: int,
    interval: float,
    overwrite: bool,
    scheduler: str | None,
) -> None:
    """Write mean, standard deviation and interval of the effects of every group of RUN.

    RUN is a run on a store with groups, such as of y ~ x + (1 | g). The effects are on the scale
    of the linear predictor, and a slope is per unit of its column in the table.
    """
    from streammc.cli.recorded import store_of_run
    from streammc.prediction.group_summaries import write_effects
    from streammc.prediction.prediction_request import PredictionRequest
    from streammc.runs.identity import registered_model
    from streammc.stores.store import open_store
    from streammc.trace.row_reading import GROUPS, read_meta
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    where = parse_scheduler(scheduler)
    require_apart(output, [run, *([] if store is None else [store])])
    opened = RunDirectory.open(run)
    table = store_of_run(opened, "--store") if store is None else open_store(store)
    require_apart(output, [table.address])
    options: dict[str, Any] = {"draws": effect_draws, "interval": interval}
    asked = {
        "command": "effects",
        "run": opened.identity,
        "committed draws": opened.committed_draws,
        "store": table.fingerprint,
        **options,
    }

    def describe() -> dict[str, Any]:
        return read_meta(output, GROUPS)[0]

    with Progress(printer, interruption) as progress:

        def make() -> dict[str, Any]:
            request = PredictionRequest(
                **options, overwrite=overwrite, scheduler=where, progress=progress.of("effects")
            )
            model = registered_model(opened.identity["model"])
            return write_effects(opened, model, table, output, request)

        result, new = make_once(Receipt(output, asked), describe, make, overwrite=overwrite)
    if not new:
        printer.note(f"{output} is already there, made by the same command: nothing to do")
    printer.result({"output": output, **result}, human(output, result))


def human(output: str, result: dict[str, Any]) -> str:
    """Return the facts about effects as text."""
    return fields(
        {
            "effects": output,
            "groups": f"{result['groups']:,} of {result['group']}",
            "of each": ", ".join(result["effects"]),
            "draws": result["draws"],
            "error of the means": f"at most {number(result['mean_error'], 2)} sd",
            "seconds": result["seconds"],
        }
    )
