"""``--dry-run``: forecast of sizes, time and disk of a run, from full passes and iterations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.execute import Job
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption

if TYPE_CHECKING:
    from streammc.control_variates.plan.subsample_plan import Plan
    from streammc.likelihood.pass_cost import PassCost
    from streammc.protocols import Dataset
    from streammc.samplers.common.sampler import RunRequest, Sampler, Setup

_SECONDS: Final = 0.5
_ITERATIONS: Final = 4096
LONGEST_SECONDS: Final = 120.0
"""Longest expected duration of the passes of a dry run; longer ones are not made."""


@dataclass(frozen=True, kw_only=True)
class DrawForecast:
    """Forecast of sizes and time of the draws, which needs a full pass."""

    plan: Plan | None
    seconds_per_iteration: float
    minutes: float
    """Minutes of the passes, the warm-up and the draws."""


@dataclass(frozen=True, kw_only=True)
class RunForecast:
    """Forecast of a run: sampler, passes, time and disk; no ``draws`` without a full pass."""

    sampler: Sampler | None
    temperature: float | str
    implied: float
    """Temperature that the sampler itself implies; 1 for most."""
    reason: str | None
    priors: dict[str, Any]
    n_rows: int
    passes: int
    pass_seconds: float
    draws: DrawForecast | None = None
    cost: PassCost | None = None
    """Forecast of the passes, if they were not made."""
    disk_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the result of ``sample --dry-run --json``."""
        from streammc.likelihood.temperature import IMPLIED

        sizes: dict[str, Any] = {}
        times: dict[str, Any] = {}
        if self.draws is not None:
            plan = self.draws.plan
            sizes = {
                "certainty_rows": None if plan is None else len(plan.certainty_rows),
                "subsample_size": None if plan is None else plan.subsample_size,
                "n_blocks": None if plan is None else plan.n_blocks,
                "unit_rows": None if plan is None else plan.unit_rows,
                "predicted_variance": None if plan is None else plan.predicted["variance"],
                "predicted_variance_bias": None
                if plan is None
                else plan.predicted.get("variance_bias"),
            }
            times = {
                "seconds_per_iteration": self.draws.seconds_per_iteration,
                "minutes": self.draws.minutes,
            }
        if self.cost is not None:
            times = {name: value for name, value in self.cost.facts().items() if name != "rows"}
        return {
            "dry_run": True,
            "sampler": None if self.sampler is None else self.sampler.name,
            "target": None if self.sampler is None else self.sampler.target,
            "temperature": self.temperature,
            **({IMPLIED: self.implied} if self.implied != 1.0 else {}),
            "reason": self.reason,
            "priors": self.priors,
            "n_rows": self.n_rows,
            **sizes,
            "passes": self.passes,
            "pass_seconds": self.pass_seconds,
            **times,
            "disk_bytes": self.disk_bytes,
        }


def forecast(output: Output, interruption: Interruption, job: Job) -> RunForecast:
    """Return the forecast of a job, without writing anything.

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
    return RunForecast(
        sampler=setup.sampler,
        temperature=job.temperature,
        implied=setup.sampler.implied_temperature(dataset.n_rows),
        reason=setup.reason,
        priors=describe_priors(request.model, setup.cv.labels),
        n_rows=job.dataset.n_rows,
        passes=passes,
        pass_seconds=pass_seconds,
        draws=DrawForecast(
            plan=plan,
            seconds_per_iteration=seconds,
            minutes=(draws + pass_seconds) / 60.0,
        ),
        disk_bytes=job.disk_bytes,
    )


def _without_passes(
    output: Output, job: Job, dataset: Dataset, text: str, cost: PassCost | None = None
) -> RunForecast:
    """Return the forecast without any pass; print a note about the missing items."""
    from streammc.control_variates.default_priors import resolved
    from streammc.runs.prior_texts import describe_priors

    model = resolved(job.model, dataset)
    output.note(
        f"no pass was made: {text}; what depends on one (the sampler, sizes, time of the "
        "draws) is left out: run streammc summarize, and give its result with --control-variates",
        phase="forecast",
    )
    return RunForecast(
        sampler=job.sampler,
        temperature=job.temperature,
        implied=1.0,
        reason=None,
        priors=describe_priors(model, tuple(model.labels(dataset.feature_names))),
        n_rows=job.dataset.n_rows,
        passes=0,
        pass_seconds=0.0,
        cost=cost,
        disk_bytes=job.disk_bytes,
    )


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
