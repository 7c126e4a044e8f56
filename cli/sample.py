"""``streammc sample``: sample the posterior of a model on a store into a run on disk."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

import click

from streammc.cli.options import (
    SEED,
    command,
    model_options,
    overwrite_option,
    parse_scheduler,
    scheduler_option,
    setting,
    store_argument,
    temperature_option,
)
from streammc.cli.output import Output, fields
from streammc.cli.values import KeyValue, Limits, LocalPath, PositiveNumber, WholeNumber

if TYPE_CHECKING:
    from streammc.cli.execute import Job
    from streammc.cli.signals import Interruption


@command("sample", configurable=True, short_help="Sample a posterior, or resume where it stopped.")
@store_argument("store")
@setting("--output", "-o", type=LocalPath(), required=True, help="Directory of the run.")
@model_options
@setting("--sampler", default="auto", show_default=True, help="auto or see `streammc samplers`.")
@setting("--control-variates", type=LocalPath(), help="From `streammc summarize`.")
@setting("--draws", type=WholeNumber(1), default=1000, show_default=True, help="Per chain.")
@setting("--warmup", type=WholeNumber(1), default=1000, show_default=True, help="Per chain.")
@setting("--chains", type=WholeNumber(1, 1024), default=4, show_default=True, help="Chains.")
@setting("--seed", type=SEED, help="Default: a new one, printed and kept with the run.")
@temperature_option
@setting("--subsample-size", type=WholeNumber(1, auto=True), help="Rows m; default: automatic.")
@setting("--n-blocks", type=WholeNumber(1, auto=True), help="Blocks G; default: automatic.")
@setting("--unit-rows", type=WholeNumber(1, auto=True), help="Rows b of a unit; automatic.")
@setting("--step-size", type=PositiveNumber(auto=True), help="Default: automatic.")
@setting("--trajectory-length", type=PositiveNumber(auto=True), help="Fixed; in posterior sd.")
@setting("--option", type=KeyValue(), multiple=True, help="Any other option of sampler or model.")
@setting("--audit/--no-audit", default=None, help="Default: if it costs less than the draws.")
@overwrite_option
@scheduler_option
@click.option("--dry-run", is_flag=True, help="Print a forecast of the run; draw nothing.")
@setting("--check", type=Limits(), help="rhat=1.01,ess=400: exit 1 if the run misses them.")
@click.pass_context
def sample(
    ctx: click.Context,
    /,
    store: str,
    output: str,
    model: str,
    allow_code: bool,
    prior: tuple[tuple[str, str], ...],
    prior_scale: float | None,
    sampler: str,
    control_variates: str | None,
    draws: int,
    warmup: int,
    chains: int,
    seed: int | None,
    temperature: float | str,
    option: tuple[tuple[str, Any], ...],
    audit: bool | None,
    overwrite: bool,
    scheduler: str | None,
    dry_run: bool,
    check: dict[str, float] | None,
    **flags: Any,
) -> int:
    """Sample the posterior of a model on STORE into the run of --output.

    The same command again resumes an interrupted run and does not change a finished one; with
    more --draws it extends the run.
    """
    from streammc.cli.build import NODES, make_model, make_sampler, split_options
    from streammc.cli.execute import Job, execute
    from streammc.cli.priors import announced_priors
    from streammc.cli.receipt import require_apart
    from streammc.cli.report import run_document, show_run
    from streammc.likelihood.grouped import by_group
    from streammc.stores.store import open_store
    from streammc.trace.run_directory import RunDirectory

    printer: Output = ctx.obj
    where = parse_scheduler(scheduler)
    require_apart(output, [store])
    of_model, of_sampler = split_options(model, option, allow_code)
    built = make_model(model, prior_scale, of_model, prior, allow_code)
    chosen = make_sampler(sampler, flags, of_sampler)
    reason = _reason(printer, chosen, flags, of_sampler) if sampler == "auto" else ""
    dataset, built = by_group(open_store(store), built, of_model.get(NODES))
    kept, built = _saved_control_variates(control_variates, built)
    new_run = overwrite or not RunDirectory.exists(output)
    if dry_run or new_run:  # an existing run keeps its priors
        built = announced_priors(printer, built, dataset)
    seed = _new_seed(printer) if seed is None and new_run and not dry_run else seed
    shape: dict[str, Any] = {"draws": draws, "warmup": warmup, "chains": chains}
    shape |= {"seed": seed, "temperature": temperature}
    settings = {
        "store": dataset.address,
        "model": model,
        "prior": dict(prior),
        "prior_scale": prior_scale,
        "sampler": sampler,
        "control_variates": control_variates and os.path.abspath(control_variates),
        **shape,
        **flags,
        "option": dict(option),
        "audit": audit,
        "scheduler": scheduler,
        "check": check,
    }
    job = Job(
        dataset=dataset,
        model=built,
        sampler=chosen,
        control_variates=kept,
        path=output,
        audit="auto" if audit is None else audit,
        scheduler=where,
        sampler_reason=reason,
        settings=settings,
        overwrite=overwrite,
        **shape,
    )
    _require_match(job, control_variates)
    interruption = ctx.find_root().obj
    if dry_run:
        return _dry_run(printer, interruption, job)
    return show_run(printer, run_document(output, execute(printer, interruption, job)), check)


def _reason(printer: Output, chosen: Any, flags: dict[str, Any], others: dict[str, Any]) -> str:
    """Return why the automatic choice is ``chosen``, and print it; empty where it is open."""
    if chosen is None:
        return ""
    asked = [name for name, value in flags.items() if value is not None] + list(others)
    reason = f"{chosen.name}, because options of its own were given ({', '.join(asked)})"
    printer.note(f"sampler {reason}")
    return reason


def _new_seed(printer: Output) -> int:
    """Return a new seed, and print it."""
    seed = secrets.randbits(32)
    printer.note(f"seed {seed}: new, kept with the run", seed=seed)
    return seed


def _saved_control_variates(path: str | None, model: Any) -> tuple[Any, Any]:
    """Return the control variates at ``path``, if there is one, and the model with their nodes."""
    from streammc.control_variates.expansion import ControlVariates
    from streammc.control_variates.mode.quadrature import as_found

    if path is None:
        return None, model
    kept = ControlVariates.open(path)
    return kept, as_found(model, kept.certificate.nodes)


def _require_match(job: Job, path: str | None) -> None:
    """Raise IdentityError unless the control variates of a job, if any, are for its model."""
    if job.control_variates is not None:
        job.control_variates.require(job.tempered, job.model, f"control variates {path!r}")


def _dry_run(printer: Output, interruption: Interruption, job: Job) -> int:
    """Print what the job would take."""
    from streammc.cli.execute import check_job
    from streammc.cli.forecast import forecast
    from streammc.likelihood.unit_words import name_in_units, unit_name
    from streammc.runs.prior_texts import priors_lines

    check_job(job)
    document = forecast(printer, interruption, job).to_json()
    priors = "; ".join(priors_lines(document["priors"])).removeprefix("priors: ")
    unit = unit_name(job.dataset)
    shown = {name_in_units(name, unit): each for name, each in document.items()}
    shown["priors"] = priors
    printer.result(document, fields(shown))
    return 0
