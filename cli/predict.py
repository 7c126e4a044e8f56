"""``streammc predict``: predictions for the rows of a store from the draws of a run."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.options import (
    code_option,
    command,
    overwrite_option,
    parse_scheduler,
    run_argument,
    scheduler_option,
    setting,
    store_argument,
)
from streammc.cli.output import Output, fields, number
from streammc.cli.progress import Progress
from streammc.cli.receipt import (
    COMMITTED,
    DRAWS,
    described_rows,
    make_output,
    of_draws,
    require_apart,
)
from streammc.cli.signals import Interruption
from streammc.cli.values import RowsPath, Share, StorePath, WholeNumber


@command("predict", configurable=True, short_help="Predict the rows of a store from a run.")
@run_argument("run")
@store_argument("store")
@setting(
    "--output", "-o", type=RowsPath(), required=True, help="FILE.zarr, .csv or .parquet to make."
)
@setting(
    "--predict-draws",
    type=WholeNumber(2),
    help="Number of draws, thinned from all chains; 200 by default, 100 of a mixed model.",
)
@setting(
    "--interval", type=Share(), default=0.9, show_default=True, help="Probability of the bands."
)
@setting("--by", metavar="COLUMN", help="Compare with the response by groups of this column.")
@setting(
    "--bins", type=WholeNumber(1, 10**5), default=100, show_default=True, help="Number of groups."
)
@setting(
    "--new-groups",
    type=click.Choice(["integrate", "refuse"]),
    default="integrate",
    show_default=True,
    help="Rows of groups that a mixed model has not seen.",
)
@setting(
    "--trained-on", type=StorePath(), help="The store of the run of a mixed model, if it has moved."
)
@overwrite_option
@scheduler_option
@code_option
@click.pass_context
def predict(
    ctx: click.Context,
    run: str,
    store: str,
    output: str,
    predict_draws: int | None,
    interval: float,
    by: str | None,
    bins: int,
    new_groups: str,
    trained_on: str | None,
    overwrite: bool,
    scheduler: str | None,
    allow_code: bool,
) -> None:
    """Write the mean response of every row of STORE, with a band, from the draws of RUN.

    STORE must have the same columns as the store of the run: ingest it with --like. If it has
    a response, the predictions are compared with it. With a mixed model, rows of the groups of
    the run are predicted with the effects of these.
    """
    from streammc.cli.build import model_of_run
    from streammc.prediction.predict import write_predictions
    from streammc.prediction.prediction_request import PredictionRequest
    from streammc.prediction.row_effects import default_draws
    from streammc.stores.store import open_store
    from streammc.trace.row_arrays import ROWS
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    where = parse_scheduler(scheduler)
    require_apart(output, [run, store, *([] if trained_on is None else [trained_on])])
    opened = RunDirectory.open(run)
    model = model_of_run(opened.identity, opened.attributes.get("settings"), allow_code)
    table = open_store(store)
    data = _rows_of_run(opened, model, table, trained_on)
    draws = default_draws(model) if predict_draws is None else predict_draws
    options: dict[str, Any] = {
        "draws": draws,
        "interval": interval,
        "by": by,
        "bins": bins,
    }
    asked = {
        "command": "predict",
        "run": opened.identity,
        COMMITTED: opened.committed_draws,
        DRAWS: opened.digest(),
        "store": table.fingerprint,
        **options,
        **({} if new_groups == "integrate" else {"new groups": new_groups}),
    }

    def describe() -> dict[str, Any]:
        return described_rows(output, ROWS)

    receipt = of_draws(output, asked, overwrite=overwrite)

    def make(replace: bool) -> dict[str, Any]:
        with Progress(printer, interruption) as progress:
            request = PredictionRequest(
                **options,
                trained_on=data,
                new_groups=new_groups,
                overwrite=replace,
                scheduler=where,
                progress=progress.of("predict"),
            )
            return write_predictions(opened, model, table, output, request)

    result = make_output(printer, receipt, describe, make, overwrite=overwrite)
    if result is None:
        return
    for line in result.get("warnings", []):
        printer.warn(line)
    printer.result({"output": output, **result}, human(output, result))


def _rows_of_run(run: Any, model: Any, table: Any, trained_on: str | None) -> Any:
    """Return the store of a run, if its predictions need it."""
    from streammc.cli.execute import store_of_run
    from streammc.prediction.row_effects import needs_rows_of_run
    from streammc.stores.store import open_store

    # A run of an earlier version has no description of its design, and known groups have effects.
    effects = needs_rows_of_run(model, table, run.identity["store"])
    if trained_on is not None:
        return open_store(trained_on)
    if effects or "design" not in run.attributes:
        return store_of_run(run, "--trained-on")
    return None


def human(output: str, result: dict[str, Any]) -> str:
    """Return the facts about predictions as text."""
    area, by = result["auc"], result["by"]
    low, high = result["quantiles"]
    facts = {
        "predictions": output,
        "rows": result["rows"],
        "row id": result.get("row_id"),
        "rows of new groups": result.get("new_group_rows"),
        "draws": result["draws"],
        "mean sign": result["mean_sign"] if result["mean_sign"] != 1.0 else None,
        "log score per row": _per_row(result),
    }
    if area is not None:
        facts["auc"] = (
            f"{number(area['mean'])} ({low} {number(area[low])}, {high} {number(area[high])}; "
            f"of the mean prediction {number(area['of_mean'])}), to {number(area['resolution'], 2)}"
        )
    if by is not None:
        chosen = ", chosen by a sample of the rows" if by["quantiles_sampled"] else ""
        facts["by"] = f"{by['groups']} groups of {by['column']}{chosen}"
    facts["seconds"] = result["seconds"]
    return fields(facts)


def _per_row(result: dict[str, Any]) -> str | None:
    """Return the log score of a row; a row of weight w counts as w rows."""
    if result["log_score"] is None:
        return None
    weighted = result.get("weight") not in (None, result["rows"])
    return number(result["log_score"]) + " (sum / sum of weights)" * weighted
