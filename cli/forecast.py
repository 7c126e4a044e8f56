"""``--dry-run``: forecast of sizes, time and disk of a run, from full passes and iterations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.execute import Job
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


def forecast(output: Output, interruption: Interruption, job: Job) -> dict[str, Any]:
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
    from streammc.control_variates.default_priors import resolved
    from streammc.control_variates.forecast import announce
    from streammc.numerics.process_limits import available_threads
    from streammc.runs.prior_texts import describe_priors
    from streammc.runs.setup import decide, makes_passes
    from streammc.samplers.common.sampler import RunRequest

    dataset = job.tempered
    if job.control_variates is None and makes_passes(job.model, job.sampler):
        cost = announce(dataset, job.model, scheduler=job.scheduler)
        if cost.seconds > LONGEST_SECONDS:
            return _without_passes(output, job, dataset, cost.text(), cost)
    if job.sampler is not None:
        own = job.sampler.own_pass_seconds(dataset.n_rows, job.chains * job.draws)
        if own > LONGEST_SECONDS:
            text = f"the pass of {job.sampler.name} takes about {own / 60:.0f} minutes"
            return _without_passes(output, job, dataset, text)
    with Progress(output, interruption) as progress:
        request = RunRequest(
            dataset,
            resolved(job.model, dataset),
            job.sampler,
            job.control_variates,
            draws=job.draws,
            warmup=job.warmup,
            chains=job.chains,
            seed=job.seed,
            scheduler=job.scheduler,
            progress=progress,
            sampler_options=job.sampler_options,
            temperature=job.temperature,
        )
        setup = decide(request)
    interruption.check()
    seconds = _seconds_per_iteration(request, setup)
    rounds = -(-job.chains // min(job.chains, available_threads()))
    draws = rounds * seconds * (job.draws + job.warmup)
    certificate, plan = setup.cv.certificate, setup.plan
    passes, pass_seconds = certificate.passes, certificate.seconds
    if job.control_variates is not None:  # their passes are already made
        passes -= job.control_variates.certificate.passes
        pass_seconds -= job.control_variates.certificate.seconds
    if plan is not None:
        passes, pass_seconds = passes + plan.passes, pass_seconds + plan.score_seconds
    implied = setup.sampler.implied_temperature(dataset.n_rows)
    priors = describe_priors(request.model, setup.cv.labels)
    return {
        **_settings(job, setup.sampler, implied, setup.reason, priors),
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
        "disk_bytes": job.disk_bytes,
    }


def _settings(
    job: Job, sampler: Sampler | None, implied: float, reason: str | None, priors: dict[str, Any]
) -> dict[str, Any]:
    """Return what is settled before the draws; ``implied``: temperature of the sampler itself."""
    from streammc.likelihood.temperature import IMPLIED

    return {
        "dry_run": True,
        "sampler": None if sampler is None else sampler.name,
        "target": None if sampler is None else sampler.target,
        "temperature": job.temperature,
        **({IMPLIED: implied} if implied != 1.0 else {}),
        "reason": reason,
        "priors": priors,
        "n_rows": job.dataset.n_rows,
    }


def _without_passes(
    output: Output, job: Job, dataset: Dataset, text: str, cost: PassCost | None = None
) -> dict[str, Any]:
    """Return the forecast without any pass; print a note about the missing items."""
    from streammc.control_variates.default_priors import resolved
    from streammc.runs.prior_texts import describe_priors

    model = resolved(job.model, dataset)
    output.note(
        f"no pass was made: {text}; what depends on one (the sampler, sizes, time of the "
        "draws) is left out: run streammc summarize, and give its result with --control-variates",
        phase="forecast",
    )
    priors = describe_priors(model, tuple(model.labels(dataset.feature_names)))
    expected = {} if cost is None else cost.facts()
    expected.pop("rows", None)
    return {
        **_settings(job, job.sampler, 1.0, None, priors),
        "passes": 0,
        "pass_seconds": 0.0,
        **expected,
        "disk_bytes": job.disk_bytes,
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
