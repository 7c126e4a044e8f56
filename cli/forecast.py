"""``--dry-run``: forecast of sizes, time and disk of a run, from full passes and iterations."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.execute import disk_bytes, heated_data
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption

if TYPE_CHECKING:
    from streammc.likelihood.pass_cost import PassCost
    from streammc.protocols import Dataset
    from streammc.samplers.common.sampler import RunRequest, Sampler, Setup

_SECONDS: Final = 0.5
_ITERATIONS: Final = 4096
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
        **_settings(request, setup.sampler, implied, setup.reason, priors),
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


def _settings(
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
        **_settings(request, request.sampler, 1.0, None, priors),
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
        if seconds > _SECONDS or count >= _ITERATIONS:
            return seconds / count
        count *= 4
