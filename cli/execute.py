"""A run from the command line: checks before a row is read, forecast of a dry run, sampling."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.build import model_of_run, sampler_of_run
from streammc.cli.configuration import write_json
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interrupted, Interruption
from streammc.errors import (
    AccessError,
    ConfigError,
    DataError,
    IdentityError,
    MissingError,
    OutputError,
    StorageIOError,
)

if TYPE_CHECKING:
    from streammc.likelihood.pass_cost import PassCost
    from streammc.protocols import Dataset
    from streammc.samplers.common.sampler import RunRequest, Sampler, Setup


_STATISTICS: Final = 10
"""Statistics of a draw, for the estimate of the bytes on disk."""
CONFIGURATION: Final = "config.json"


def heated_data(request: RunRequest) -> Any:
    """Return the data set of a request at the final temperature of its run."""
    from streammc.runs.record import heated

    return heated(request.dataset, request.schedule, request.sampler)


def disk_bytes(request: RunRequest) -> int:
    """Return the estimated bytes on disk of draws, warm-up and control variates."""
    d = int(request.model.dim(request.dataset.n_features))
    rule = request.stopping
    draws = request.draws if rule is None else max(request.draws, rule.draws)
    return run_bytes(d, request.chains * (draws + request.warmup))


def run_bytes(dim: int, iterations: int) -> int:
    """Return the estimated bytes on disk of a run with ``iterations`` of all chains."""
    return 8 * (iterations * (dim + _STATISTICS) + 4 * dim * dim + 60_000) + 2**18


def check_request(request: RunRequest) -> None:
    """Check a request before any row is read: path, temperature, subsample sizes and disk space.

    Raises
    ------
    ConfigError
        If a subsample size exceeds the rows, or the sampler does not allow the temperature.
    OutputError
        If the output path has something other than a run.
    StorageIOError
        If the draws do not fit the disk.
    """
    from streammc.runs.record import asked_schedule

    path = str(request.path)
    check_place(path)
    asked_schedule(request.temperature, request.sampler)
    check_sizes(request.dataset, request.sampler, request.sampler_options)
    folder = Path(os.path.abspath(path))
    while not folder.exists():
        folder = folder.parent
    free, size = shutil.disk_usage(folder).free, disk_bytes(request)
    if size > free:
        raise StorageIOError(
            f"expected {size / 1e9:.3g} GB of free disk for {request.chains} chains of "
            f"{request.draws} draws, found {free / 1e9:.3g} GB at {str(folder)!r}: ask for fewer "
            "draws"
        )


def check_sizes(dataset: Any, sampler: Any, options: Mapping[str, Any]) -> None:
    """Refuse a subsample, units or blocks that the rows of a data set are too few for.

    Parameters
    ----------
    dataset
        The data set, of groups where the model is mixed.
    sampler
        The sampler; ``None`` for an automatic choice.
    options
        The options of an automatic choice.

    Raises
    ------
    ConfigError
        If one is larger than the rows allow.
    """
    n = dataset.n_rows
    m, b, blocks = (
        getattr(sampler, name, options.get(name))
        for name in ("subsample_size", "unit_rows", "n_blocks")
    )
    b = b or 1
    for name, value in (("--subsample-size", m), ("--unit-rows", b)):
        if value is not None and value > n:
            raise ConfigError(
                f"expected {name} of at most {n}, the {dataset.unit_name}s, found {value}: give a "
                "smaller number"
            )
    if m is not None and blocks is not None and blocks > -(-m // b):
        raise ConfigError(
            f"expected --n-blocks of at most {-(-m // b)} units, found {blocks}: give fewer blocks"
        )


def check_place(path: str) -> None:
    """Refuse a path at which a run cannot be created or continued."""
    from streammc.stores.format.partial import refuse_existing
    from streammc.trace.run_directory import RunDirectory

    if not os.path.lexists(path):
        place = Path(os.path.abspath(path))
        refuse_existing(place)
        folder = next(parent for parent in place.parents if parent.exists())
        if not folder.is_dir():
            raise OutputError(
                f"expected to create {path!r}, found a file at {str(folder)!r}"
                ": choose another output"
            )
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise OutputError(
                f"expected to create {path!r}, found a read-only file system at {str(folder)!r}"
                ": choose another output"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise AccessError(
                f"expected to create {path!r}, found no permission to write in {str(folder)!r}"
                ": change its permissions, or choose another output"
            )
        return
    if RunDirectory.exists(path):
        return
    if not os.path.isdir(path):
        raise OutputError(
            f"expected a directory for the run at {path!r}, found a file: choose another output"
        )
    if os.listdir(path) and not os.path.isdir(os.path.join(path, "checkpoint")):
        raise OutputError(
            f"expected a new or empty directory, or a run, found other files in {path!r}: "
            "choose another output"
        )


def execute(
    output: Output,
    interruption: Interruption,
    request: RunRequest,
    answer: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Start, resume or extend a run; return its summary.

    ``answer`` prints the statistics of the draws, once these are there.

    Raises
    ------
    Interrupted
        If a signal came; draws committed before it are kept.
    """
    from streammc.runs.job import run_job
    from streammc.trace.places import can_continue
    from streammc.trace.run_directory import RunDirectory

    check_request(request)
    path = str(request.path)

    def on_draws(statistics: Mapping[str, Any]) -> None:
        progress.hide()
        if answer is not None:
            answer(statistics)

    try:
        with Progress(output, interruption) as progress:
            progress.reads(request.dataset)
            stop = interruption.requested
            told = replace(request, progress=progress, interrupted=stop, on_draws=on_draws)
            report = run_job(told)
    finally:
        if RunDirectory.exists(path) and can_continue(Path(path)):
            record_settings(path)
    if not report.finished:
        assert interruption.signum is not None
        raise Interrupted(interruption.signum)
    if not report.changed:
        committed = RunDirectory.open(path, verify=False).committed_draws
        fewer = request.stopping is None and request.draws < committed
        asked = f", {request.draws} asked for" if fewer else ""
        output.note(f"{path} has {committed} draws per chain{asked}: nothing to do")
    return report.summary


def settings_of_run(run: Any) -> dict[str, Any]:
    """Return the recorded settings of a run, with its present draws, seed and stopping rule."""
    from streammc.diagnostics.stopping import StopRule
    from streammc.runs.job import STOPPING

    settings = {**run.attributes["settings"], "draws": run.draws, "seed": run.identity["seed"]}
    settings.pop("stop", None)
    if stopping := run.attributes.get(STOPPING):
        rule = StopRule.parse(stopping["rule"])
        settings |= {"draws": stopping["draws"], "stop": rule and rule.text()}
    return settings


def record_settings(path: str) -> None:
    """Write the settings recorded in a run, with its draws and seed, to its ``config.json``."""
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    if not run.attributes.get("settings"):
        return
    settings = settings_of_run(run)
    with run.copied():
        write_json(run.path / CONFIGURATION, settings)


def recorded_request(path: str, draws: int | None = None, allow_code: bool = False) -> RunRequest:
    """Return the request that began the run at ``path``.

    Parameters
    ----------
    path
        Directory of the run.
    draws
        New number of draws per chain; ``None`` for the planned number.
    allow_code
        Whether a model of the user's own may be imported again.

    Raises
    ------
    MissingError
        If the run or its store does not exist.
    IdentityError
        If another store is at the path of its store.
    """
    from streammc.control_variates.expansion import ControlVariates
    from streammc.likelihood.data_views import by_group, tempered
    from streammc.likelihood.temperature import schedule_of, temperature_of
    from streammc.runs.job import STOPPING
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.samplers.common.sampler import RunRequest
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path, verify=False)
    identity, attributes = run.identity, run.attributes
    dataset = store_of_run(run)
    settings = attributes.get("settings") or None
    dataset, model = by_group(dataset, model_of_run(identity, settings, allow_code))
    kept, schedule = None, schedule_of(identity)
    if identity["control_variates"] != "auto":
        sampled = tempered(dataset, temperature_of(identity, attributes))
        kept = ControlVariates.open(os.path.join(path, CONTROL_VARIATES), sampled, model)
    audit = (settings or {}).get("audit")
    sampler, options = sampler_of_run(identity)
    stopping = attributes.get(STOPPING)
    planned = stopping["draws"] if stopping else run.draws
    return RunRequest(
        dataset,
        model,
        sampler,
        kept,
        sampler_options=options,
        path=path,
        draws=planned if draws is None else draws,
        warmup=identity["warmup"],
        chains=identity["chains"],
        seed=identity["seed"],
        audit="auto" if audit is None else audit,
        attributes={"settings": settings or {}},
        temperature=schedule.describe(),
        stop=stopping and stopping["rule"],
    )


def store_of_run(run: Any, option: str | None = None) -> Any:
    """Open the store that a run was sampled from.

    ``option`` is the option of the command that takes its new place, for messages.

    Raises
    ------
    MissingError, IdentityError, DataError
        If the store does not exist any more, is another one, or was never on disk.
    """
    from streammc.stores.store import open_store

    address = run.attributes.get("store")
    if not isinstance(address, str) or address == "memory":
        raise DataError(
            f"expected {str(run.path)!r} to be a run on a store, found one on rows in memory: "
            + (
                "give the streammc fit command that began it again, or the arrays in Python"
                if option is None
                else f"give the table that was fitted as {option}"
            )
        )
    try:
        dataset = open_store(address)
    except MissingError:
        raise MissingError(
            f"expected the store of {str(run.path)!r} at {address!r}, found nothing: put it back, "
            f"or {_elsewhere(run, option)}"
        ) from None
    if dataset.fingerprint == run.identity["store"]:
        return dataset
    before = dataset.earlier(run.identity["store"])
    if before is None:
        raise IdentityError(
            f"expected the store of {str(run.path)!r} at {address!r} (fingerprint "
            f"{run.identity['store'][:12]}), found {dataset.fingerprint[:12]}: move that one away, "
            f"then put the right one back, or {_elsewhere(run, option)}"
        )
    return before  # rows were appended since


def _elsewhere(run: Any, option: str | None) -> str:
    """Return the advice for a run whose store was moved."""
    if option is not None:
        return f"give its new path as {option}"
    settings = run.attributes.get("settings")
    if not settings:
        return "call streammc.sample again with the store at its new place, and with path"
    return f"if it has moved, tell the run where: {sample_command(run)}"


def sample_command(run: Any, store: str = "NEW_STORE") -> str:
    """Return the ``streammc sample`` command that continues a run, with non-default settings.

    Parameters
    ----------
    run
        The opened run, with recorded settings.
    store
        Present path of its store.
    """
    from streammc.cli.sample import sample

    settings = settings_of_run(run)
    words = ["streammc", "sample", store, "-o", str(run.path)]
    for parameter in sample.params:
        value = settings.get(parameter.name or "")
        if parameter.name == "store" or value in (None, {}, [], parameter.default):
            continue
        flag = parameter.opts[0]
        if isinstance(value, bool):
            words.append(flag if value else parameter.secondary_opts[0])
        elif parameter.name == "check":
            words += [flag, ",".join(f"{key}={each:g}" for key, each in value.items())]
        elif isinstance(value, Mapping):
            for key, each in value.items():
                text = each if isinstance(each, str) else json.dumps(each).replace("null", "none")
                words += [flag, text if key == "*" else f"{key}={text}"]
        else:
            words += [flag, str(value)]
        if parameter.name == "model" and ":" in str(value):
            words.append("--allow-code")
    return shlex.join(words)


_TIMED_SECONDS: Final = 0.5
_MOST_TIMED: Final = 4096
LONGEST_SECONDS: Final = 120.0
"""Longest expected duration of the passes of a dry run; longer ones are not made."""


def forecast(output: Output, interruption: Interruption, request: RunRequest) -> dict[str, Any]:
    """Return the result of ``sample --dry-run --json``, without writing anything.

    The full passes are made, because the sizes follow from them, unless they are expected to
    take longer than two minutes. The forecast then has only the items that need no pass.

    Raises
    ------
    OutOfMemoryError
        If the matrices of a pass do not fit in the memory that is available.
    RefusedError
        If the sampler named by the user cannot be correct for this model or data.
    """
    from streammc.control_variates.bound import with_data
    from streammc.likelihood.pass_cost import announce
    from streammc.numerics.process_limits import available_threads
    from streammc.runs.record import describe_priors
    from streammc.runs.setup import chosen, makes_passes

    dataset = heated_data(request)
    if request.control_variates is None and makes_passes(request.model, request.sampler):
        cost = announce(dataset, request.model, scheduler=request.scheduler)
        if cost.seconds > LONGEST_SECONDS:
            return _without_passes(output, request, dataset, cost.text(), cost)
    if request.sampler is not None:
        own = request.sampler.own_pass_seconds(dataset.n_rows, request.chains * request.draws)
        if own > LONGEST_SECONDS:
            text = f"the pass of {request.sampler.name} takes about {own / 60:.0f} minutes"
            return _without_passes(output, request, dataset, text)
    with Progress(output, interruption) as progress:
        model = with_data(request.model, dataset)
        bound = replace(request, dataset=dataset, model=model, progress=progress, path=None)
        setup = chosen(bound)
    interruption.check()
    seconds = _seconds_per_iteration(bound, setup)
    rounds = -(-request.chains // min(request.chains, available_threads()))
    draws = rounds * seconds * (request.draws + request.warmup)
    certificate, plan = setup.cv.certificate, setup.plan
    passes, pass_seconds = certificate.passes, certificate.seconds
    if request.control_variates is not None:  # their passes are already made
        passes -= request.control_variates.certificate.passes
        pass_seconds -= request.control_variates.certificate.seconds
    if plan is not None:
        passes, pass_seconds = passes + plan.passes, pass_seconds + plan.score_seconds
    implied = setup.sampler.implied_temperature(dataset.n_rows)
    priors = describe_priors(bound.model, setup.cv.labels)
    return {
        **_settled_facts(request, setup.sampler, implied, setup.reason, priors),
        "certainty_rows": None if plan is None else len(plan.certainty_rows),
        "subsample_size": None if plan is None else plan.subsample_size,
        "n_blocks": None if plan is None else plan.n_blocks,
        "unit_rows": None if plan is None else plan.unit_rows,
        "predicted_variance": None if plan is None else plan.predicted["variance"],
        "predicted_variance_bias": None if plan is None else plan.predicted.get("variance_bias"),
        "passes": passes,
        "pass_seconds": pass_seconds,
        "seconds_per_iteration": seconds,
        "minutes": (draws + pass_seconds) / 60.0,
        "disk_bytes": disk_bytes(request),
    }


def _settled_facts(
    request: RunRequest,
    sampler: Sampler | None,
    implied: float,
    reason: str | None,
    priors: dict[str, Any],
) -> dict[str, Any]:
    """Return what is settled before the draws; ``implied``: temperature of the sampler itself."""
    from streammc.likelihood.temperature import IMPLIED

    return {
        "dry_run": True,
        "sampler": None if sampler is None else sampler.name,
        "target": None if sampler is None else sampler.target,
        "temperature": request.temperature,
        **({IMPLIED: implied} if implied != 1.0 else {}),
        "reason": reason,
        "priors": priors,
        "n_rows": request.dataset.n_rows,
    }


def _without_passes(
    output: Output, request: RunRequest, dataset: Dataset, text: str, cost: PassCost | None = None
) -> dict[str, Any]:
    """Return the forecast without any pass; print a note about the missing items."""
    from streammc.control_variates.bound import with_data
    from streammc.runs.record import describe_priors

    model = with_data(request.model, dataset)
    output.note(
        f"no pass was made: {text}; what depends on one (the sampler, sizes, time of the "
        "draws) is left out: run streammc summarize, and give its result with --control-variates",
        phase="forecast",
    )
    priors = describe_priors(model, tuple(model.labels(dataset.feature_names)))
    expected = {} if cost is None else cost.facts()
    expected.pop("rows", None)
    return {
        **_settled_facts(request, request.sampler, 1.0, None, priors),
        "passes": 0,
        "pass_seconds": 0.0,
        **expected,
        "disk_bytes": disk_bytes(request),
    }


def _seconds_per_iteration(request: RunRequest, setup: Setup) -> float:
    """Return the measured seconds per warm-up iteration of one chain; never 0.0."""
    kernel = setup.sampler.problem(request, setup).kernel(request.stream_seed, 0)
    kernel.initialise()
    count, seconds = 1, 0.0
    while True:
        began = time.perf_counter()
        kernel.advance(count, True)
        seconds = time.perf_counter() - began
        # Only the last stretch counts: earlier ones read cold pages and search a step size.
        if seconds > _TIMED_SECONDS or count >= _MOST_TIMED:
            return seconds / count
        count *= 4
