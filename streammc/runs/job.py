"""A run: start or resume it, draw, audit, summarise."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammc.control_variates.default_priors import as_recorded, resolved
from streammc.control_variates.mode.quadrature import as_found
from streammc.errors import RefusedError
from streammc.likelihood.grouped import by_group
from streammc.runs.identity import (
    asked_schedule,
    check_counts,
    completed,
    heated,
    identity,
    refuse_earlier,
)
from streammc.runs.prior_texts import texts_of_description
from streammc.runs.setup import contents, decide, follow_store, instead, load
from streammc.runs.table_scale import recorded
from streammc.runs.watch import Watch
from streammc.runs.worker_chains import HERE, WorkerChains, check_request, store_of
from streammc.samplers.common.chain import SharedProblem, StoppedError
from streammc.samplers.common.chains import Chains
from streammc.samplers.common.request import RunRequest, Setup
from streammc.trace.local_path import given_path
from streammc.trace.run_directory import RunDirectory, check_identity
from streammc.trace.temporary import temporary_folder

if TYPE_CHECKING:
    pass


@dataclass
class RunReport:
    """Result of a call of :func:`run_job`."""

    path: Path
    summary: dict[str, Any]
    """JSON summary of the run, as the command line prints it."""
    finished: bool
    changed: bool
    """Whether anything was drawn or written."""
    warnings: list[str] = field(default_factory=list)


def run_job(request: RunRequest) -> RunReport:
    """Start, resume or extend the run in ``request.path``, or return it if it is finished.

    Returns
    -------
    RunReport
        ``finished`` is false if ``request.stop`` ended the run.

    Raises
    ------
    IdentityError
        If the path holds a run with other settings, model or data.
    RefusedError
        If subsampling cannot be accurate on these data; the message names the remedy.
    BusyError
        If another process is writing to the path.
    """
    check_request(request)
    check_counts(request.draws, request.warmup, request.chains, request.seed)
    sampler = request.sampler
    schedule = asked_schedule(request.temperature, sampler)
    dataset, model = by_group(request.dataset, request.model)
    dataset = heated(dataset, schedule, sampler)
    path = request.path
    folder = given_path(path) if path is not None else temporary_folder("streammc-run-")
    old = RunDirectory.open(folder) if RunDirectory.exists(folder) else None
    existing = None if request.overwrite else old
    seed = request.seed
    if existing is not None:
        model = as_recorded(model, existing.identity["model"])
    if (given := request.control_variates) is not None:
        model = as_found(model, given.certificate.nodes)
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
        texts = texts_of_description(request.model, labels)
        refuse_earlier(existing.identity, dataset)
        check_identity(completed(existing.identity), key, texts)
        follow_store(existing, dataset)
        kept = existing.attributes.get("summary") or {}
        # A run killed after its last draw still has the summary from before it was extended.
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
    """Make the missing draws of a run, and return its report.

    A run whose sampler was chosen automatically is discarded if it is refused.
    """
    dataset, draws = request.dataset, request.draws
    folder = Path(request.path or "")
    kept = {**recorded(request.model, dataset), **request.attributes}
    made = contents(request, setup, kept)
    with ExitStack() as stack:
        run = stack.enter_context(RunDirectory.hold(folder, identity=key, **made))
        problem = setup.sampler.problem(request, setup)
        if draws != run.draws and draws > run.committed_draws:
            run.extend(draws)
        team = stack.enter_context(_team(problem, request, folder))
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
        # Imported only after the last draw: SciPy, the summary and, for an audit, ArviZ.
        from streammc.runs.audit_due import audit_due
        from streammc.runs.report import finish_report

        due = audit_due(request, run, setup, team)
        summary = finish_report(run, request, setup, team, *due)
    return RunReport(folder, summary, True, True, summary["warnings"])


@contextmanager
def _team(problem: SharedProblem, request: RunRequest, folder: Path) -> Iterator[Chains]:
    """Yield the chains of a run: threads of this process, or tasks on the workers of a cluster."""
    with ExitStack() as stack:
        team: Chains
        if request.chains_on == HERE:
            team = Chains(
                problem,
                seed=request.stream_seed,
                chains=request.chains,
                threads=request.threads,
                batch_iterations=request.batch_iterations,
            )
        else:
            store = store_of(request.dataset)
            tasks = stack.enter_context(store.worker_tasks(request.scheduler, folder))
            team = WorkerChains(problem, request, folder, tasks)
        try:
            yield team
        finally:
            team.close()


def _drive(run: RunDirectory, team: Chains, setup: Setup, request: RunRequest) -> None:
    """Run the missing intervals; raise RefusedError if variance or signs are out of limits."""
    watch = Watch(run, setup.sampler)
    if run.next_length:
        plan = {"chains": run.chains, "warmup": run.warmup, "draws": run.draws}
        made = {"warmup_done": run.committed_warmup, "draws_done": run.committed_draws}
        request.notify("start", run.next_start, run.next_start + run.next_length, {**plan, **made})
    while n := run.next_length:
        phase, length = run.phase, n
        if request.progress is None:  # a listener hears of every interval
            n *= team.intervals(n, run.next_whole)
        done, wanted = run.next_start + n, run.warmup if phase == "warmup" else run.draws
        statistics = team.advance(run, phase, n, request.stop)
        for first in range(0, n, length):
            part = {name: values[:, first : first + length] for name, values in statistics.items()}
            watch.look(phase, part, done == wanted and first + length == n)
        if request.progress is not None:
            facts: dict[str, Any] = {
                name: float(statistics[name].mean())
                for name in ("log_lik_variance", "acceptance_rate", "step_size")
                if name in setup.sampler.statistics
            }
            facts["rows"] = int(statistics["n_rows"].sum())
            request.notify(phase, done, wanted, facts)
