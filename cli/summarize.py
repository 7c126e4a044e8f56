"""``streammc summarize``: compute control variates by full passes and keep them for runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammc.cli.command_settings import SummarizeSettings
from streammc.cli.options import command, parse_scheduler
from streammc.cli.output import Output, fields, number, table
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption
from streammc.cli.values import refuse_file_name
from streammc.errors import ConfigError, IdentityError

if TYPE_CHECKING:
    from streammc.samplers.common.sampler import RunRequest


def of_earlier_generation(path: str, dataset: Any, model: Any) -> Any:
    """Return the control variates at ``path`` if they are of an earlier generation, or ``None``.

    Parameters
    ----------
    path
        Their path; there may be nothing, or something else.
    dataset
        The data set as it is, at its temperature.
    model
        Its model, with default priors that are still to be scaled with the data.

    Raises
    ------
    IdentityError
        If they are of another model.
    """
    from streammc.control_variates.appended import generation_of
    from streammc.control_variates.expansion import ControlVariates
    from streammc.trace.kinds import CONTROL_VARIATES, found_at

    found = found_at(path)
    if found is None or found.kind != CONTROL_VARIATES:
        return None
    kept = ControlVariates.open(path)
    before = generation_of(kept, dataset)
    if before is None:
        return None
    kept.require(before, model, f"control variates {path!r}")
    return kept


def updated(kept: Any, dataset: Any, model: Any, scheduler: Any, progress: Progress) -> Any:
    """Return control variates of a data set from those of an earlier generation.

    The default priors of ``model`` are still to be scaled with the data.
    """
    from streammc.control_variates.appended import update

    return update(
        kept, dataset, model, scheduler=scheduler, progress=progress.of("pass"), phases=progress
    )


def note_update(output: Output, cv: Any) -> None:
    """Print how control variates of an earlier generation were used, if they were."""
    from streammc.control_variates.appended import update_text

    if cv.certificate.update is not None:
        output.note(f"control variates: {update_text(cv.certificate.update)}")


def control_variates_of(run: str) -> str:
    """Return the path of the control variates of a run.

    Raises
    ------
    MissingError, StoreError
        If there is no run.
    ConfigError
        If the run made no pass.
    """
    from streammc.control_variates.expansion import ControlVariates
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    path = str(RunDirectory.open(run, verify=False).path / CONTROL_VARIATES)
    if ControlVariates.open(path).certificate.decrement is None:
        raise ConfigError(
            f"expected a run with control variates at {run!r}, found one of a sampler that makes "
            "no pass: leave out --start-from"
        )
    return path


def current(
    output: Output, interruption: Interruption, kept: Any, request: RunRequest, model: Any
) -> Any:
    """Return control variates for the store of a run: those given, or these brought up to date.

    A run that exists keeps the ones that it has, so that the same command resumes it.

    Parameters
    ----------
    output, interruption
        Where to print, and the signals of the command.
    kept
        Control variates that were given, with the nodes of the model settled.
    request
        Request of the run.
    model
        Its model, with default priors that are still to be scaled with the data.
    """
    from streammc.cli.execute import heated_data
    from streammc.control_variates.appended import generation_of
    from streammc.control_variates.expansion import ControlVariates
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    dataset, path = heated_data(request), str(request.path)
    if kept.fingerprint == dataset.fingerprint or generation_of(kept, dataset) is None:
        return kept
    own = Path(path) / CONTROL_VARIATES
    if RunDirectory.exists(path) and not request.overwrite and os.path.lexists(own):
        there = ControlVariates.open(own)
        of_run = RunDirectory.open(path, verify=False).identity["control_variates"]
        source = (there.certificate.update or {}).get("earlier")
        if source == kept.digest() and of_run == there.digest():
            return there
    with Progress(output, interruption) as progress:
        found = updated(kept, dataset, model, request.scheduler, progress)
    note_update(output, found)
    return found


@command("summarize", SummarizeSettings, configurable=True)
def summarize(ctx: click.Context, settings: SummarizeSettings) -> None:
    """Find the posterior mode on STORE and the expansion around it, in one or a few passes.

    Control variates from before rows were appended are updated by a pass over the new rows alone,
    where their centre still is near enough to the mode.
    """
    from streammc.cli.build import NODES, announced_priors, make_model
    from streammc.cli.inspect import control_variates_document, describe_control_variates
    from streammc.cli.receipt import Receipt, make_output, require_apart
    from streammc.control_variates.certify import compute
    from streammc.control_variates.expansion import ControlVariates
    from streammc.likelihood.data_views import by_group, tempered
    from streammc.likelihood.temperature import Schedule
    from streammc.stores.store import open_store

    printer: Output = ctx.obj
    interruption: Interruption = ctx.find_root().obj
    where = parse_scheduler(settings.scheduler)
    target = _beside(settings.store) if settings.output is None else settings.output
    refuse_file_name(target, "the control variates to make")
    require_apart(target, [settings.store])
    options, order, passes = dict(settings.option), int(settings.order), settings.passes
    update, overwrite = settings.update, settings.overwrite
    built = make_model(
        settings.model, settings.prior_scale, options, settings.prior, settings.allow_code
    )
    dataset, built = by_group(open_store(settings.store), built, options.get(NODES))
    heat = Schedule.parse(settings.temperature).final
    unscaled, built = built, announced_priors(printer, built, dataset)
    asked = {
        "command": "summarize",
        "store": dataset.address,
        "store_fingerprint": dataset.fingerprint,
        "model": built.describe(),
        "passes": passes,
        "order": order,
        **({"temperature": heat} if heat != 1.0 else {}),
    }
    sampled = tempered(dataset, heat)
    if update is not None and passes is not None:
        raise click.UsageError("expected --update or --passes, found both: leave out one of them")
    before = in_place = None
    if update is not None or (passes is None and not overwrite):
        before, in_place = _before(update, target, sampled, unscaled, order)

    def describe() -> dict[str, Any]:
        ControlVariates.open(target, sampled, built)
        return describe_control_variates(target)

    def make(_: bool) -> dict[str, Any]:
        with Progress(printer, interruption) as progress:
            if before is not None:
                cv = updated(before, sampled, unscaled, where, progress)
                note_update(printer, cv)
            else:
                cv = compute(
                    sampled,
                    built,
                    order=order,
                    passes=passes,
                    scheduler=where,
                    progress=progress.of("pass"),
                    phases=progress,
                )
            cv.save(target)
        return {"path": os.path.abspath(target), **control_variates_document(cv)}

    receipt, replaced = Receipt(target, asked), bool(in_place)
    result = make_output(printer, receipt, describe, make, overwrite=overwrite, renew=replaced)
    if result is not None:
        _show(printer, result, sampled)


def _beside(store: str) -> str:
    """Return where the control variates of a store go if no path is given."""
    from streammc.stores.cloud.address import split_arrays
    from streammc.trace.addresses import is_address

    if is_address(store):
        raise click.UsageError(
            "expected --output with a store at an address, found none: results are kept on a local "
            "disk, give a path"
        )
    return f"{split_arrays(store)[0].rstrip(os.sep).removesuffix('.zarr')}.cv.zarr"


def _before(
    update: str | None, target: str, dataset: Any, model: Any, order: int
) -> tuple[Any, bool]:
    """Return the control variates to bring up to date, or ``None``, and whether in their place.

    Raises
    ------
    IdentityError
        If those of ``--update`` are not of an earlier generation, or of another order or model.
    """
    found = of_earlier_generation(update or target, dataset, model)
    there = update is None or os.path.realpath(update) == os.path.realpath(target)
    if found is not None and found.order == order:
        return found, there
    if not there:
        raise IdentityError(
            f"expected control variates of order {order} and an earlier generation of "
            f"{dataset.address!r} at {update!r}, found others: leave out --update"
        )
    return None, False


def _show(printer: Output, result: dict[str, Any], dataset: Any) -> None:
    """Print control variates of a data set and the warnings of their certificate."""
    heat = dataset.temperature
    certificate = result["certificate"]
    if not certificate["converged"]:
        printer.warn(
            f"theta_star is {certificate['decrement']:.3g} posterior sd from the mode, above "
            "0.1: leave out --passes to certify it"
        )
    for line in certificate.get("warnings", []):
        printer.warn(line)
    for line in certificate.get("notes", []):
        printer.note(line)
    rows = [
        [label, number(value), number(result["laplace_sd"][label])]
        for label, value in result["theta_star"].items()
    ]
    facts = {
        "control variates": result["path"],
        "order": result["order"],
        "temperature": heat if heat != 1.0 else None,
        "decrement": f"{number(certificate['decrement'])} posterior sd from the mode",
        "passes": certificate["passes"],
        f"{dataset.unit_name}s read": certificate["rows_read"],
        "seconds": certificate["seconds"],
    }
    if "pass_seconds" in certificate:  # control variates of an earlier version have none
        facts["seconds: passes"] = certificate["pass_seconds"]
        facts["GB/s of the passes"] = certificate["pass_gb_per_second"]
    human = table(["parameter", "theta_star", "laplace sd"], rows)
    printer.result(result, f"{human}\n\n{fields(facts)}")
