"""``streammc effects``: the effects of the groups of a mixed model from the draws of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from streammc.cli.options import argument, command, parse_scheduler
from streammc.cli.output import Output, fields, number
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption
from streammc.diagnostics.text import interval_heading
from streammc.errors import ConfigError
from streammc.settings import IntervalOption, OverwriteOption, PassOptions, setting


@dataclass(frozen=True, kw_only=True)
class EffectsSettings(IntervalOption, PassOptions, OverwriteOption):
    """Settings of ``streammc effects``."""

    run: str = argument("run")
    output: str = setting(help="FILE.zarr, .csv or .parquet to make.", kind="rows", short=["-o"])
    store: str | None = setting(
        None,
        "The store of the run, if it has moved; of fit without a store, its table.",
        kind="store",
    )
    effect_draws: int | None = setting(
        None,
        "Number of draws, thinned from all chains; without it as many as it takes, at most 100.",
        minimum=2,
    )
    group: tuple[str, ...] = setting(
        (),
        "Draw the effects of this group instead; repeatable.",
        kind="text",
        multiple=True,
        metavar="LABEL",
    )
    factor: str | None = setting(
        None, "Of several factors that cross, the one whose effects are written.", kind="text"
    )
    draws: int | None = setting(None, "With --group: number of draws, 1000 by default.", minimum=2)
    seed: int | None = setting(None, "With --group: seed of the draws, 0 by default.", minimum=0)


@command("effects", EffectsSettings, configurable=True)
def effects(ctx: click.Context, settings: EffectsSettings) -> None:
    """Write mean, standard deviation and interval of the effects of every group of RUN.

    RUN is a run on a store with groups, such as of y ~ x + (1 | g). The effects are on the scale
    of the linear predictor, and a slope is per unit of its column in the table. With --group
    draws of the effects of single groups from their exact posterior are written. Where factors
    cross, such as in y ~ x + (1 | user) + (1 | item), --factor names the one.
    """
    from streammc.cli.execute import store_of_run
    from streammc.cli.receipt import (
        COMMITTED,
        DRAWS,
        described_rows,
        make_output,
        of_draws,
        require_apart,
    )
    from streammc.frames import data_set
    from streammc.prediction.effect_draws import EFFECT_SAMPLES, write_effect_draws
    from streammc.prediction.group_summaries import EFFECT_DRAWS, write_effects
    from streammc.prediction.prediction_request import PredictionRequest
    from streammc.runs.record import registered_model
    from streammc.trace.row_arrays import GROUPS
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    where = parse_scheduler(settings.scheduler)
    output, store, overwrite = settings.output, settings.store, settings.overwrite
    groups, effect_draws = settings.group, settings.effect_draws
    require_apart(output, [settings.run, *([] if store is None else [store])])
    opened = RunDirectory.open(settings.run)
    table: Any = (
        store_of_run(opened, "--store") if store is None else data_set(opened, store, fitted=True)
    )
    require_apart(output, [table.address])
    _check_options(ctx, bool(groups))
    options: dict[str, Any] = {"draws": effect_draws or EFFECT_DRAWS, "interval": settings.interval}
    if groups:
        options = {"draws": settings.draws or EFFECT_SAMPLES, "seed": settings.seed or 0}
    if settings.factor is not None:
        options["factor"] = settings.factor
    asked = {
        "command": "effects",
        "run": opened.identity,
        COMMITTED: opened.committed_draws,
        DRAWS: opened.digest(),
        "store": table.fingerprint,
        **options,
        "fewer": effect_draws is None,
        **({"groups": list(groups)} if groups else {}),
    }

    def describe() -> dict[str, Any]:
        return described_rows(output, GROUPS)

    def make(replace: bool) -> dict[str, Any]:
        with Progress(printer, interruption) as progress:
            request = PredictionRequest(
                **options, overwrite=replace, scheduler=where, progress=progress.of("effects")
            )
            model = registered_model(opened.identity["model"])
            if groups:
                return write_effect_draws(opened, model, table, output, groups, request)
            fewer = effect_draws is None
            return write_effects(opened, model, table, output, request, fewer=fewer)

    receipt = of_draws(output, asked, overwrite=overwrite)
    result = make_output(printer, receipt, describe, make, overwrite=overwrite)
    if result is not None:
        printer.result({"output": output, **result}, human(output, result))


def _check_options(ctx: click.Context, drawn: bool) -> None:
    """Refuse options of draws without --group, and those of summaries with it."""
    for name in ("effect_draws", "interval") if drawn else ("draws", "seed"):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            flag = f"--{name.replace('_', '-')}"
            rule = "no --group with" if drawn else "--group with"
            raise ConfigError(
                f"expected {rule} {flag}, which is an option of "
                f"{'summaries of all groups' if drawn else 'draws of single groups'}, found "
                f"{'both' if drawn else 'none'}: leave out {flag}"
            )


def human(output: str, result: dict[str, Any]) -> str:
    """Return the facts about effects as text."""
    error, interval = result.get("mean_error"), result.get("interval")
    return fields(
        {
            "effects": output,
            "groups": f"{result['groups']:,} of {result['group']}",
            "of each": ", ".join(result["effects"]),
            "chains": result.get("chains"),
            "draws": result["draws"],
            "intervals": interval and interval_heading(interval),
            "error of the means": None if error is None else f"at most {number(error, 2)} sd",
            "seconds": result["seconds"],
        }
    )
