"""``streammc sample``: sample the posterior of a model on a store into a run on disk."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from streammc.cli.options import (
    SEED,
    STAGE,
    chains_option,
    code_option,
    command,
    model_options,
    overwrite_option,
    parse_scheduler,
    run_argument,
    scheduler_option,
    setting,
    stop_option,
    store_argument,
    temperature_option,
)
from streammc.cli.output import Output, fields
from streammc.cli.receipt import require_apart
from streammc.cli.values import (
    KeyValue,
    Limits,
    LocalPath,
    PositiveNumber,
    RunPath,
    WholeNumber,
    refuse_file_name,
)

if TYPE_CHECKING:
    from streammc.cli.execute import Job
    from streammc.cli.signals import Interruption
    from streammc.diagnostics.stopping import StopRule


@command("sample", configurable=True, short_help="Sample a posterior, or resume where it stopped.")
@store_argument("store")
@setting("--output", "-o", type=RunPath(), required=True, help="Directory or address of the run.")
@model_options
@setting("--sampler", default="auto", show_default=True, help="auto or see `streammc samplers`.")
@setting("--control-variates", type=LocalPath(), help="From `streammc summarize`.")
@setting("--start-from", type=RunPath(), help="An earlier run: begin at its posterior.")
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
@chains_option
@click.option("--dry-run", is_flag=True, help="Print a forecast of the run; draw nothing.")
@setting("--check", type=Limits(), help="rhat=1.01,ess=400: exit 1 if the run misses them.")
@stop_option
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
    start_from: str | None,
    draws: int,
    warmup: int,
    chains: int,
    seed: int | None,
    temperature: float | str,
    option: tuple[tuple[str, Any], ...],
    audit: bool | None,
    overwrite: bool,
    scheduler: str | None,
    chains_on: str,
    dry_run: bool,
    check: dict[str, float] | None,
    stop: StopRule | None,
    **flags: Any,
) -> int:
    """Sample the posterior of a model on STORE into the run of --output.

    The same command again resumes an interrupted run and does not change a finished one; with
    more --draws it extends the run.
    """
    from streammc.cli.build import NODES, announced_priors, make_model, make_sampler, split_options
    from streammc.cli.execute import Job
    from streammc.likelihood.data_views import by_group
    from streammc.stores.store import open_store
    from streammc.trace.run_directory import RunDirectory

    printer, where = ctx.obj, parse_scheduler(scheduler)
    refuse_file_name(output, "the run to make")
    require_apart(output, [store])
    of_model, of_sampler = split_options(model, option, allow_code)
    built = make_model(model, prior_scale, of_model, prior, allow_code)
    chosen, options = make_sampler(sampler, flags, of_sampler)
    dataset, built = by_group(open_store(store), built, of_model.get(NODES))
    source = _of_run(printer, start_from, control_variates)
    kept, built = _saved_control_variates(source, built)
    new_run, unscaled = overwrite or not RunDirectory.exists(output), built
    built = announced_priors(printer, built, dataset) if dry_run or new_run else built
    seed = _new_seed(printer) if seed is None and new_run and not dry_run else seed
    shape: dict[str, Any] = {"draws": draws, "warmup": warmup, "chains": chains, "seed": seed}
    settings = {
        "store": dataset.address,
        "model": model,
        "prior": dict(prior),
        "prior_scale": prior_scale,
        "sampler": sampler,
        "control_variates": control_variates and os.path.abspath(control_variates),
        "start_from": start_from and os.path.abspath(start_from),
        **shape,
        "temperature": temperature,
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
        chains_on=chains_on,
        sampler_options=options,
        settings=settings if stop is None else {**settings, "stop": stop.text()},
        overwrite=overwrite,
        stopping=stop,
        temperature=temperature,
        **shape,
    )
    job = _settled(printer, ctx.find_root().obj, job, unscaled, source)
    return _dry_run(ctx, job) if dry_run else _carry_out(ctx, job, check)


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


def _of_run(printer: Output, run: str | None, control_variates: str | None) -> str | None:
    """Return the path of the control variates: those given, or those of ``--start-from``."""
    from streammc.cli.summarize import control_variates_of

    if run is None:
        return control_variates
    if control_variates is not None:
        raise click.UsageError(
            "expected --start-from or --control-variates, found both: leave out one of them"
        )
    found = control_variates_of(run)
    printer.note(f"starts from the posterior of {run}")
    return found


def _settled(
    printer: Output, interruption: Interruption, job: Job, unscaled: Any, path: str | None
) -> Job:
    """Return the job with its control variates, if any, brought up to date.

    Parameters
    ----------
    unscaled
        Its model, with default priors that are still to be scaled with the data.
    path
        Where the control variates come from.

    Raises
    ------
    IdentityError
        If they are not for its store and model.
    """
    from streammc.cli.summarize import current

    if job.control_variates is None:
        return job
    found = current(printer, interruption, job.control_variates, job, unscaled)
    found.require(job.tempered, job.model, f"control variates {path!r}")
    return replace(job, control_variates=found)


def _carry_out(ctx: click.Context, job: Job, check: dict[str, float] | None) -> int:
    """Carry out the job and print its run; return the exit code."""
    from streammc.cli.execute import execute
    from streammc.cli.report import run_document, show_run

    document = run_document(job.path, execute(ctx.obj, ctx.find_root().obj, job))
    return show_run(ctx.obj, document, check, job.stopping is not None)


def _dry_run(ctx: click.Context, job: Job) -> int:
    """Print what the job would take."""
    from streammc.cli.execute import check_job
    from streammc.cli.forecast import forecast
    from streammc.likelihood.unit_words import name_in_units
    from streammc.runs.job import run_state
    from streammc.runs.prior_texts import priors_lines

    check_job(job)
    printer: Output = ctx.obj
    there: dict[str, Any] = {}
    if STAGE in ctx.meta:  # the plan of a job: the run at its place is the one that is meant
        state, draws = run_state(job.request())
        there = {"state": state, "committed_draws": draws}
        if state == "finished":
            printer.result({"dry_run": True, **there}, f"{job.path}: nothing to do")
            return 0
    document = forecast(printer, ctx.find_root().obj, job) | there
    if job.stopping is not None:
        document["stop"] = job.stopping.text()
    priors = "; ".join(priors_lines(document["priors"])).removeprefix("priors: ")
    unit = job.dataset.unit_name
    shown = {name_in_units(name, unit): each for name, each in document.items()}
    shown["priors"] = priors
    printer.result(document, fields(shown))
    return 0


@command("resume", short_help="Continue an interrupted run.")
@run_argument("run")
@setting("--draws", type=WholeNumber(1), help="More draws per chain than were asked for.")
@scheduler_option
@chains_option
@code_option
@setting("--check", type=Limits(), help="rhat=1.01,ess=400: exit 1 if the run misses them.")
@click.pass_context
def resume(
    ctx: click.Context,
    run: str,
    draws: int | None,
    scheduler: str | None,
    chains_on: str,
    check: dict[str, float] | None,
    allow_code: bool,
) -> int:
    """Continue RUN from its last commit, with the settings of the command that started it."""
    from streammc.cli.execute import execute, recorded_job
    from streammc.cli.report import run_document, show_run

    printer: Output = ctx.obj
    where = parse_scheduler(scheduler)
    job = recorded_job(run, draws=draws, scheduler=where, allow_code=allow_code)
    job = replace(job, chains_on=chains_on)
    summary = execute(printer, ctx.find_root().obj, job)
    return show_run(printer, run_document(run, summary), check, job.stopping is not None)
