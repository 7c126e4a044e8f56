"""``streammc sample``: sample the posterior of a model on a store into a run on disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from streammc.cli.command_settings import FitSettings, SamplerOptions, SampleSettings
from streammc.cli.options import (
    STAGE,
    CodeOption,
    ShowOptions,
    VerboseOption,
    argument,
    command,
    parse_scheduler,
)
from streammc.cli.output import Output, fields
from streammc.cli.values import refuse_file_name
from streammc.samplers.common.sampler import ExecutionOptions, RunOptions, RunRequest
from streammc.settings import recorded, setting, values_of

if TYPE_CHECKING:
    from streammc.cli.signals import Interruption


@command("sample", SampleSettings, configurable=True)
def sample(ctx: click.Context, settings: SampleSettings) -> int:
    """Sample the posterior of a model on STORE into the run of --output.

    The same command again resumes an interrupted run and does not change a finished one; with
    more --draws it extends the run.
    """
    from streammc.cli.receipt import require_apart
    from streammc.stores.store import open_store

    refuse_file_name(settings.output, "the run to make")
    require_apart(settings.output, [settings.store])
    return sampled(ctx, settings, lambda *_: open_store(settings.store), dry_run=settings.dry_run)


def sampled(
    ctx: click.Context,
    settings: SampleSettings | FitSettings,
    open_data: Callable[[Any, Any], Any],
    *,
    dry_run: bool = False,
) -> int:
    """Sample the posterior of a data set, opened once the options are known to be right.

    ``open_data`` gets the model, and the sampler or ``None``. Returns the exit code.
    """
    from streammc.cli.build import NODES, announced_priors, make_model, make_sampler, split_options
    from streammc.diagnostics.stopping import StopRule
    from streammc.likelihood.data_views import by_group
    from streammc.trace.run_directory import RunDirectory

    printer, output = ctx.obj, settings.output
    where = parse_scheduler(settings.scheduler)
    code = settings.allow_code
    of_model, of_sampler = split_options(settings.model, settings.option, code)
    built = make_model(settings.model, settings.prior_scale, of_model, settings.prior, code)
    flags = values_of(settings, SamplerOptions)
    chosen, options = make_sampler(settings.sampler, flags, of_sampler)
    rule = StopRule.parse(settings.stop)
    dataset, built = by_group(open_data(built, chosen), built, of_model.get(NODES))
    start = settings.start_from
    if built.crossed and start is not None:
        chosen, options = _starting_from(printer, start, chosen, options)
        start = None
    source = _of_run(printer, start, settings.control_variates)
    kept, built = _saved_control_variates(source, built)
    new_run, unscaled = settings.overwrite or not RunDirectory.exists(output), built
    if dry_run or new_run:
        built = announced_priors(printer, built, dataset)
    if settings.seed is None and new_run and not dry_run:
        settings = replace(settings, seed=_new_seed(printer))
    record = recorded(
        settings,
        store=dataset.address,
        prior=dict(settings.prior),
        control_variates=_absolute(settings.control_variates),
        start_from=_absolute(settings.start_from),
        option=dict(settings.option),
        stop=rule and rule.text(),
    )
    if rule is None:
        del record["stop"]
    shared = {**values_of(settings, RunOptions), "scheduler": where}
    request = RunRequest(
        dataset,
        built,
        chosen,
        kept,
        **shared,
        path=output,
        audit="auto" if settings.audit is None else settings.audit,
        sampler_options=options,
        attributes={"settings": record},
    )
    request = _settled(printer, ctx.find_root().obj, request, unscaled, source)
    if dry_run:
        return _dry_run(ctx, request)
    return _carry_out(ctx, request, settings)


def _absolute(path: str | None) -> str | None:
    return path and os.path.abspath(path)


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


def _starting_from(printer: Output, run: str, sampler: Any, options: dict[str, Any]) -> Any:
    """Return sampler and options that start from the last draws of a run with factors that cross.

    Another sampler is left as it is, and refuses such factors.
    """
    start = {"start_from": _absolute(run)}
    printer.note(f"starts from the last draws of {run}")
    if sampler is None:
        return None, options | start
    return (replace(sampler, **start) if hasattr(sampler, "start_from") else sampler), options


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
    printer: Output,
    interruption: Interruption,
    request: RunRequest,
    unscaled: Any,
    path: str | None,
) -> RunRequest:
    """Return the request with its control variates, if any, brought up to date.

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
    from streammc.cli.execute import heated_data
    from streammc.cli.summarize import current

    if request.control_variates is None:
        return request
    found = current(printer, interruption, request.control_variates, request, unscaled)
    found.require(heated_data(request), request.model, f"control variates {path!r}")
    return replace(request, control_variates=found)


def _carry_out(ctx: click.Context, request: RunRequest, settings: Any) -> int:
    """Carry out the run and print it, coefficients before the audit; return the exit code."""
    from streammc.cli.diagnose import with_interval
    from streammc.cli.execute import execute
    from streammc.cli.report import answer_text, run_document, show_run

    printer: Output = ctx.obj
    path, shown = str(request.path), {"full": settings.verbose, "interval": settings.interval}
    answered = False

    def answer(statistics: Mapping[str, Any]) -> None:
        nonlocal answered
        answered = printer.part(
            answer_text(with_interval(statistics, path, settings.interval), **shown)
        )

    document = run_document(path, execute(printer, ctx.find_root().obj, request, answer))
    document = with_interval(document, path, settings.interval)
    stops = request.stopping is not None
    return show_run(printer, document, settings.check, stops, answered=answered, **shown)


_WORDS: Final = {
    "certainty_rows": "rows always evaluated",
    "subsample_size": "rows of a subsample",
    "n_blocks": "blocks of a subsample",
    "unit_rows": "neighbouring rows drawn together",
    "predicted_variance": "variance of the log-likelihood estimate",
}
"""Words for sizes of a plan, in place of their names in JSON."""


def _dry_run(ctx: click.Context, request: RunRequest) -> int:
    """Print what the run would take."""
    from streammc.cli.execute import check_request, forecast
    from streammc.cli.report import priors_lines
    from streammc.runs.job import run_state
    from streammc.samplers.common.sampler import TARGETS

    check_request(request)
    printer: Output = ctx.obj
    there: dict[str, Any] = {}
    if STAGE in ctx.meta:  # the plan of a job: the run at its place is the one that is meant
        state, draws = run_state(request)
        there = {"state": state, "committed_draws": draws}
        if state == "finished":
            printer.result({"dry_run": True, **there}, f"{request.path}: nothing to do")
            return 0
    document = forecast(printer, ctx.find_root().obj, request) | there
    if request.stopping is not None:
        document["stop"] = request.stopping.text()
    target = document["target"]
    priors = "; ".join(priors_lines(document["priors"])).removeprefix("priors: ")
    unit = request.dataset.unit_name
    shown = {_WORDS.get(name, name): each for name, each in document.items()}
    shown = {name.replace("rows", f"{unit}s"): each for name, each in shown.items()}
    shown["priors"] = priors
    shown["target"] = target and f"{target}: {TARGETS[target]}"
    printer.result(document, fields(shown))
    return 0


@dataclass(frozen=True, kw_only=True)
class ResumeSettings(ShowOptions, VerboseOption, CodeOption, ExecutionOptions):
    """Settings of ``streammc resume``."""

    run: str = argument("run")
    draws: int | None = setting(None, "More draws per chain than were asked for.", minimum=1)


@command("resume", ResumeSettings)
def resume(ctx: click.Context, settings: ResumeSettings) -> int:
    """Continue RUN from its last commit, with the settings of the command that started it."""
    from streammc.cli.execute import recorded_request

    execution = values_of(settings, ExecutionOptions)
    execution["scheduler"] = parse_scheduler(settings.scheduler)
    request = recorded_request(settings.run, settings.draws, settings.allow_code)
    return _carry_out(ctx, replace(request, **execution), settings)
