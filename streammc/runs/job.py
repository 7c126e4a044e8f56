"""A run: start or resume it, draw, audit, summarise."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammc.control_variates.default_priors import as_recorded, resolved
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.kinds import (
    PASS_OPTIONS,
    check_control_variates,
    check_kinds,
    check_progress,
)
from streammc.docstrings import documented
from streammc.errors import ConfigError, RefusedError, SamplingWarning
from streammc.protocols import Dataset, Model, Sampler
from streammc.runs import build
from streammc.runs.identity import asked_schedule, check_counts, heated, identity
from streammc.runs.prior_texts import texts_of_description
from streammc.runs.setup import Setup, contents, decide, follow_store, instead, load
from streammc.runs.table_scale import recorded
from streammc.runs.watch import check_sign, check_variance, variance_so_far
from streammc.samplers.common.chain import StoppedError
from streammc.samplers.common.chains import Chains, Progress
from streammc.trace.local_path import given_path
from streammc.trace.run_directory import RunDirectory, check_identity
from streammc.trace.temporary import temporary_folder

if TYPE_CHECKING:
    import xarray


@dataclass
class RunReport:
    """What a call of :func:`run_job` did."""

    path: Path
    summary: dict[str, Any]
    """Parameters, audit and cost; the JSON of the command line."""
    finished: bool
    changed: bool
    """Whether anything was drawn or written."""
    warnings: list[str] = field(default_factory=list)


def run_job(
    dataset: Dataset,
    model: Model,
    sampler: Sampler | None = None,
    *,
    control_variates: ControlVariates | None = None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    path: str | Path | None = None,
    audit: bool | str = "auto",
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    scheduler: Any = None,
    threads: int | None = None,
    batch_iterations: int = 4096,
    attributes: dict[str, Any] | None = None,
    sampler_reason: str = "",
    temperature: float | str = 1.0,
    overwrite: bool = False,
) -> RunReport:
    """Start, resume, extend or recognise a run in ``path``.

    Parameters that :func:`sample` has too mean what they mean there.

    Parameters
    ----------
    dataset
        What :func:`sample` calls ``store``.
    stop
        Polled several times a second; true ends the call after the last commit.
    threads, batch_iterations
        Resources; not one bit of the draws depends on them.
    attributes
        Extra JSON recorded with the run.
    sampler_reason
        Why this sampler, where it was not asked for by name.

    Returns
    -------
    RunReport
        With ``finished`` false if ``stop`` ended it.

    Raises
    ------
    IdentityError
        If ``path`` holds a run of something else.
    RefusedError
        If subsampling cannot be right here; the message names the remedy.
    BusyError
        If another process is writing to ``path``.
    """
    check_counts(draws, warmup, chains, seed)
    schedule = asked_schedule(temperature, sampler)
    dataset = heated(dataset, schedule, sampler)
    folder = given_path(path) if path is not None else temporary_folder("streammc-run-")
    polled = stop if stop is not None else _never
    old = RunDirectory.open(folder) if RunDirectory.exists(folder) else None
    existing = None if overwrite else old
    if existing is not None:
        model = as_recorded(model, existing.identity["model"])
    model = resolved(model, dataset)
    if seed is None:
        seed = int(existing.identity["seed"]) if existing else secrets.randbits(63)
    key = identity(
        dataset, model, sampler, control_variates, warmup=warmup, chains=chains, seed=seed,
        schedule=schedule,
    )  # fmt: skip
    if existing is not None:
        labels = tuple(model.labels(dataset.feature_names))
        check_identity(existing.identity, key, texts_of_description(model, labels))
        follow_store(existing, dataset)
        kept = existing.attributes.get("summary")
        # A run killed after its last draw still has the summary of what it extended.
        if existing.finished(draws) and kept and kept["sampling"]["draws"] >= draws:
            return RunReport(folder, kept, True, False, kept["warnings"])
        setup = load(existing, dataset, model)
    else:
        try:
            setup = decide(
                dataset,
                model,
                sampler,
                control_variates,
                seed=seed,
                chains=chains,
                threads=threads,
                stop=polled,
                scheduler=scheduler,
                progress=progress,
                reason=sampler_reason,
            )
        except StoppedError:
            return RunReport(folder, {}, False, False)
    if polled():
        return RunReport(folder, {}, False, False)
    if old is not None and existing is None:
        with old.lock():
            old.discard()
    shape = {"chains": chains, "draws": draws, "warmup": warmup}

    def attempt(setup: Setup) -> RunReport:
        kept = {**recorded(model, dataset), **(attributes or {})}
        with RunDirectory.hold(
            folder, identity=key, **shape, **contents(setup, dataset, draws, kept)
        ) as run:
            if draws != run.draws and draws > run.committed_draws:
                run.extend(draws)
            team = Chains(
                build.problem(
                    dataset,
                    model,
                    setup.cv,
                    setup.plan,
                    setup.sampler,
                    schedule=schedule,
                    warmup=warmup,
                ),
                seed=seed,
                chains=chains,
                threads=threads,
                batch_iterations=batch_iterations,
            )
            try:
                saved = run.checkpoint()
                if saved is None:
                    team.initialise()
                else:
                    team.restore(saved)
                _drive(run, team, setup, progress, polled)
            except StoppedError:
                return RunReport(folder, {}, False, True)
            except RefusedError:
                if sampler is None and setup.sampler.subsampled:
                    run.discard()
                raise
            finally:
                team.close()
            # Not before the last draw: xarray, pandas and ArviZ take a second to import.
            from streammc.runs.audit_due import audit_due
            from streammc.runs.report import finish_report

            due = audit_due(audit, run, dataset, model, setup, team, scheduler=scheduler)
            summary = finish_report(
                run, dataset, model, setup, team, *due, scheduler=scheduler, progress=progress
            )
        return RunReport(folder, summary, True, True, summary["warnings"])

    try:
        return attempt(setup)
    except RefusedError as error:
        if sampler is not None or not setup.sampler.subsampled:
            raise
        return attempt(instead(setup, error))


@documented(PASS_OPTIONS)
def sample(
    store: Dataset,
    model: Model,
    *,
    sampler: Sampler | None = None,
    control_variates: ControlVariates | None = None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    path: str | Path | None = None,
    audit: bool | str = "auto",
    progress: Progress | None = None,
    scheduler: Any = None,
    temperature: float | str = 1.0,
    overwrite: bool = False,
) -> xarray.DataTree:
    """Sample a posterior and return it as ``xarray`` and ArviZ read it.

    A run is kept in ``path``: the same call starts it, resumes it, or returns it where it is
    finished. Ctrl-C returns the draws committed so far, with a warning.

    Parameters
    ----------
    store
        The rows: a store, or arrays in memory.
    model
        Their likelihood, with its prior; see ``streammc.models``.
    sampler
        One of ``streammc.samplers``. ``None`` chooses ``hmc-ecs`` where it can be right and
        ``hmc`` elsewhere; where ``hmc-ecs`` is refused while it runs, the run starts again with
        ``hmc``. A likelihood that is no product over rows takes ``pt``.
    control_variates
        From ``streammc.control_variates``. ``None``: computed, and kept in the run.
    draws
        Draws of each chain that are kept. More than a finished run holds extend it.
    warmup
        Iterations of each chain before them, which tune the sampler.
    chains
        Chains; each is a thread.
    seed
        Seed of all random numbers, in ``[0, 2**63)``. ``None`` takes the one of the run in
        ``path``, or a new one.
    path
        Directory of the run. ``None``: a temporary one, removed when the process ends.
    audit : bool or 'auto'
        Whether to measure the error of subsampling, in one more pass; ``"auto"``: where it
        costs less than the sampling did. Other samplers than ``hmc-ecs`` have no audit.
    progress : Callable[[str, int, int, dict], None] | None
        Called as ``progress(phase, done, total, facts)``: ``start`` before the first iteration
        of this call, ``warmup`` and ``draws`` after every commit, in iterations of a chain;
        ``pass`` after every block of a full pass, in blocks. With the total ``None``:
        ``forecast`` before work of over a minute, ``newton`` and ``plan`` in steps of over a
        second.
    temperature
        T: the target is ``prior x likelihood^(1/T)``; 1 is the posterior. Samplers with an
        acceptance test also take ``"T:sqrt"``, max(1, T / sqrt(i + 1)) at iteration i, and
        ``"T:N"``, T for N iterations, then 1.
    overwrite
        Begin anew where there is a run in ``path``, once the passes are done; it is then
        neither resumed nor recognised.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` and ``sample_stats`` (chain, draw), their warm-up twins,
        and ``constant_data``; ``posterior_original`` where the store is standardised.
        The attribute ``summary`` holds audit, cost and warnings.

    Raises
    ------
    ConfigError
        If an argument is of another kind, or out of range.
    IdentityError
        If ``path`` holds a run of something else.
    RefusedError
        If subsampling cannot be right here; the message names the remedy.
    BusyError
        If another process is writing to ``path``.

    Warns
    -----
    SamplingWarning
        For each of those warnings.

    Examples
    --------
    >>> import numpy as np
    >>> import streammc
    >>> rng = np.random.default_rng(1)
    >>> store = streammc.from_arrays(np.ones((100, 1)), rng.normal(2.0, 1.0, 100))
    >>> model = streammc.models.gaussian()
    >>> tree = streammc.sample(store, model, draws=100, warmup=50, chains=2, seed=1)
    >>> dict(tree.posterior.sizes)["draw"]
    100
    """
    import signal
    import threading

    from streammc.trace.datatree import open_run

    check_kinds(store, model, sampler=sampler)
    check_control_variates(control_variates)
    check_progress(progress)
    if audit not in (True, False, "auto"):
        raise ConfigError(
            f"expected audit to be True, False or 'auto', found {audit!r}: choose one of them"
        )

    interrupted = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set()) if main else None
    try:
        report = run_job(
            store,
            model,
            sampler,
            control_variates=control_variates,
            draws=draws,
            warmup=warmup,
            chains=chains,
            seed=seed,
            path=path,
            audit=audit,
            progress=progress,
            stop=interrupted.is_set,
            scheduler=scheduler,
            temperature=temperature,
            overwrite=overwrite,
        )
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if not RunDirectory.exists(report.path):
        raise KeyboardInterrupt
    tree = open_run(report.path)
    said = report.warnings
    if not report.finished:
        from streammc.runs.interrupted import part_summary

        part = part_summary(RunDirectory.open(report.path), tree)
        tree.attrs["summary"] = json.dumps(part)
        said = part["warnings"]
    for line in said:
        warnings.warn(line, SamplingWarning, stacklevel=2)
    return tree


def _never() -> bool:
    return False


def _drive(
    run: RunDirectory,
    team: Chains,
    setup: Setup,
    progress: Progress | None,
    stop: Callable[[], bool],
) -> None:
    """Run every interval that is missing; refuse to go on where the variance is too high."""
    total, count = variance_so_far(run, setup.sampler)
    if progress is not None and run.next_length:
        plan = {"chains": run.chains, "warmup": run.warmup, "draws": run.draws}
        made = {"warmup_done": run.committed_warmup, "draws_done": run.committed_draws}
        progress("start", run.next_start, run.next_start + run.next_length, {**plan, **made})
    while n := run.next_length:
        phase, done = run.phase, run.next_start + n
        wanted = run.warmup if phase == "warmup" else run.draws
        statistics = team.advance(run, phase, n, stop)
        variance = statistics["log_lik_variance"]
        if phase == "draws":
            total, count = total + float(variance.sum()), count + variance.size
            check_variance(total / count, setup.sampler)
        elif done == wanted:
            check_variance(float(variance.mean()), setup.sampler)
        if done == wanted and "sign" in statistics:
            check_sign(run, phase)
        if progress is not None:
            facts = {
                "log_lik_variance": float(variance.mean()),
                "acceptance_rate": float(statistics["acceptance_rate"].mean()),
                "step_size": float(statistics["step_size"].mean()),
                "rows": int(statistics["n_rows"].sum()),
            }
            progress(phase, done, wanted, facts)
