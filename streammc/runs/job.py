"""A run: start or resume it, draw, audit, summarise."""

from __future__ import annotations

import json
import secrets
import warnings
from dataclasses import dataclass, field, replace
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
from streammc.protocols import Dataset, Model
from streammc.runs.identity import asked_schedule, check_counts, heated, identity
from streammc.runs.prior_texts import texts_of_description
from streammc.runs.setup import contents, decide, follow_store, instead, load
from streammc.runs.table_scale import recorded
from streammc.runs.watch import check_sign, check_variance, variance_so_far
from streammc.samplers.common.chain import StoppedError
from streammc.samplers.common.chains import Chains
from streammc.samplers.common.request import Progress, RunRequest, Setup
from streammc.samplers.common.sampler import Sampler
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


def run_job(request: RunRequest) -> RunReport:
    """Start, resume, extend or recognise the run in ``request.path``.

    Returns
    -------
    RunReport
        With ``finished`` false if ``request.stop`` ended it.

    Raises
    ------
    IdentityError
        If the path holds a run of something else.
    RefusedError
        If subsampling cannot be right here; the message names the remedy.
    BusyError
        If another process is writing to the path.
    """
    check_counts(request.draws, request.warmup, request.chains, request.seed)
    sampler = request.sampler
    schedule = asked_schedule(request.temperature, sampler)
    dataset = heated(request.dataset, schedule, sampler)
    path = request.path
    folder = given_path(path) if path is not None else temporary_folder("streammc-run-")
    old = RunDirectory.open(folder) if RunDirectory.exists(folder) else None
    existing = None if request.overwrite else old
    model, seed = request.model, request.seed
    if existing is not None:
        model = as_recorded(model, existing.identity["model"])
    if seed is None:
        seed = int(existing.identity["seed"]) if existing else secrets.randbits(63)
    request = replace(
        request,
        dataset=dataset,
        model=resolved(model, dataset),
        seed=seed,
        path=folder,
        temperature=schedule,
    )
    key = identity(request)
    if existing is not None:
        labels = tuple(request.model.labels(dataset.feature_names))
        check_identity(existing.identity, key, texts_of_description(request.model, labels))
        follow_store(existing, dataset)
        kept = existing.attributes.get("summary") or {}
        # A run killed after its last draw still has the summary of what it extended.
        drawn = kept.get("sampling", {}).get("draws", 0)
        if existing.finished(request.draws) and drawn >= request.draws:
            return RunReport(folder, kept, True, False, kept["warnings"])
        setup = load(existing, dataset, request.model)
    else:
        try:
            setup = decide(request)
        except StoppedError:
            return RunReport(folder, {}, False, False)
    if request.stop():
        return RunReport(folder, {}, False, False)
    if old is not None and existing is None:
        with old.lock():
            old.discard()
    try:
        return _attempt(request, setup, key)
    except RefusedError as error:
        if sampler is not None or setup.plan is None:
            raise
        return _attempt(request, instead(setup, error), key)


def _attempt(request: RunRequest, setup: Setup, key: dict[str, Any]) -> RunReport:
    """Draw what is missing of a run, and report on it.

    A run whose sampler was chosen automatically is discarded where it is refused.
    """
    dataset, draws = request.dataset, request.draws
    folder = Path(request.path or "")
    kept = {**recorded(request.model, dataset), **request.attributes}
    with RunDirectory.hold(
        folder,
        identity=key,
        chains=request.chains,
        draws=draws,
        warmup=request.warmup,
        **contents(setup, dataset, draws, kept),
    ) as run:
        problem = setup.sampler.problem(request, setup)
        if draws != run.draws and draws > run.committed_draws:
            run.extend(draws)
        team = Chains(
            problem,
            seed=request.stream_seed,
            chains=request.chains,
            threads=request.threads,
            batch_iterations=request.batch_iterations,
        )
        try:
            saved = run.checkpoint()
            if saved is None:
                team.initialise()
            else:
                team.restore(saved)
            _drive(run, team, setup, request)
        except StoppedError:
            return RunReport(folder, {}, False, True)
        except RefusedError:
            if request.sampler is None and setup.plan is not None:
                run.discard()
            raise
        finally:
            team.close()
        # Not before the last draw: xarray, pandas and ArviZ take a second to import.
        from streammc.runs.audit_due import audit_due
        from streammc.runs.report import finish_report

        due = audit_due(request, run, setup, team)
        summary = finish_report(run, request, setup, team, *due)
    return RunReport(folder, summary, True, True, summary["warnings"])


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
            RunRequest(
                store,
                model,
                sampler,
                control_variates,
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


def _drive(run: RunDirectory, team: Chains, setup: Setup, request: RunRequest) -> None:
    """Run every interval that is missing; refuse to go on where the variance is too high."""
    total, count = variance_so_far(run, setup.sampler)
    if run.next_length:
        plan = {"chains": run.chains, "warmup": run.warmup, "draws": run.draws}
        made = {"warmup_done": run.committed_warmup, "draws_done": run.committed_draws}
        request.notify("start", run.next_start, run.next_start + run.next_length, {**plan, **made})
    while n := run.next_length:
        phase, done = run.phase, run.next_start + n
        wanted = run.warmup if phase == "warmup" else run.draws
        statistics = team.advance(run, phase, n, request.stop)
        variance = statistics["log_lik_variance"]
        if phase == "draws":
            total, count = total + float(variance.sum()), count + variance.size
            check_variance(total / count, setup.sampler)
        elif done == wanted:
            check_variance(float(variance.mean()), setup.sampler)
        if done == wanted:
            check_sign(run, setup.sampler, phase)
        if request.progress is not None:
            facts = {
                "log_lik_variance": float(variance.mean()),
                "acceptance_rate": float(statistics["acceptance_rate"].mean()),
                "step_size": float(statistics["step_size"].mean()),
                "rows": int(statistics["n_rows"].sum()),
            }
            request.notify(phase, done, wanted, facts)
