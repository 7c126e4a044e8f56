"""``streammc predict``: predictions for the rows of a store from the draws of a run."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.command_settings import PredictSettings
from streammc.cli.options import command, parse_scheduler
from streammc.cli.output import Output, fields, number
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption
from streammc.diagnostics.text import interval_heading


@command("predict", PredictSettings, configurable=True)
def predict(ctx: click.Context, settings: PredictSettings) -> None:
    """Write the mean response of every row of STORE, with a band, from the draws of RUN.

    STORE is a table with the columns of that of the run, or a store, ingested with --like. If it
    has a response, the predictions are compared with it. With a mixed model, rows of the groups of
    the run are predicted with the effects of these. Of a multinomial run the probabilities of the
    categories are written, which an ordinal one has with --probabilities.
    """
    from streammc.cli.build import model_of_run
    from streammc.cli.receipt import (
        COMMITTED,
        DRAWS,
        described_rows,
        make_output,
        of_draws,
        require_apart,
    )
    from streammc.frames import data_set
    from streammc.prediction.predict import write_predictions
    from streammc.prediction.prediction_request import PredictionRequest
    from streammc.prediction.row_effects import default_draws
    from streammc.trace.row_arrays import ROWS
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    where = parse_scheduler(settings.scheduler)
    output, overwrite, trained_on = settings.output, settings.overwrite, settings.trained_on
    apart = [settings.run, settings.store, *([] if trained_on is None else [trained_on])]
    require_apart(output, apart)
    opened = RunDirectory.open(settings.run)
    recorded = opened.attributes.get("settings")
    model = model_of_run(opened.identity, recorded, settings.allow_code)
    table = data_set(opened, settings.store)
    data = _rows_of_run(opened, model, table, trained_on)
    draws = settings.predict_draws
    options: dict[str, Any] = {
        "draws": default_draws(model) if draws is None else draws,
        "interval": settings.interval,
        "by": settings.by,
        "bins": settings.bins,
    }
    new_groups = settings.new_groups
    asked = {
        "command": "predict",
        "run": opened.identity,
        COMMITTED: opened.committed_draws,
        DRAWS: opened.digest(),
        "store": table.fingerprint,
        **options,
        **({} if new_groups == "integrate" else {"new groups": new_groups}),
        **({"probabilities": True} if settings.probabilities else {}),
    }

    def describe() -> dict[str, Any]:
        return described_rows(output, ROWS)

    receipt = of_draws(output, asked, overwrite=overwrite)

    def make(replace: bool) -> dict[str, Any]:
        with Progress(printer, interruption) as progress:
            request = PredictionRequest(
                **options,
                trained_on=data,
                probabilities=settings.probabilities,
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
    from streammc.frames import data_set
    from streammc.prediction.row_effects import needs_rows_of_run

    # A run of an earlier version has no description of its design, and known groups have effects.
    effects = needs_rows_of_run(model, table, run.identity["store"])
    if trained_on is not None:
        return data_set(run, trained_on, fitted=True)
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
        "probabilities": result.get("categories") and f"of {result['categories']} categories",
        "rows of new groups": result.get("new_group_rows"),
        "draws": result["draws"],
        "bands": interval_heading(result["interval"]),
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
