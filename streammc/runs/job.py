"""A run: start or resume it, draw, audit, summarise."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import registry
from streammc.control_variates.bound import as_recorded, with_data
from streammc.control_variates.mode.quadrature import as_found
from streammc.diagnostics.stopping import MOST_DRAWS, StopRule
from streammc.errors import ConfigError, RefusedError
from streammc.likelihood.data_views import by_group
from streammc.runs.record import (
    HERE,
    asked_schedule,
    check_counts,
    check_place_of_chains,
    completed,
    heated,
    identity,
    record_versions,
    recorded_scale,
    refuse_earlier,
    texts_of_description,
)
from streammc.runs.setup import chosen, contents, follow_store, instead, load
from streammc.runs.worker_chains import WorkerChains
from streammc.samplers.common.chains import Chains, SharedProblem, StoppedError
from streammc.samplers.common.sampler import RunRequest, Sampler, Setup
from streammc.trace import places
from streammc.trace.addresses import named_errors
from streammc.trace.run_directory import MemoryRun, RunDirectory, check_identity, fits_in_memory
from streammc.trace.run_state import Layout
from streammc.unfinished import (
    is_temporary,
    is_temporary_folder,
    refuse_reserved_name,
    temporary_folder,
    write_now,
)


class DurableNotices:
    """Notices of the commits of a run, in their order.

    Commits at an address are copied in the background: a notice waits until its commit is there.

    Parameters
    ----------
    run
        The run.
    request
        Its request, with the listener.
    """

    def __init__(self, run: RunDirectory, request: RunRequest) -> None:
        self.request = request
        self._run = run
        self._later: list[tuple[int, tuple[Any, ...]]] = []

    def __call__(self, *notice: Any) -> None:
        """Tell of the last commit, if it is durable, or at a later call."""
        self._later.append((self._run.generation, notice))
        self.durable()

    def durable(self) -> None:
        """Tell of the commits that have become durable."""
        done = self._run.durable_generation
        while self._later and self._later[0][0] <= done:
            self.request.notify(*self._later.pop(0)[1])


class Watch:
    """Check of mean variance and mean sign of the estimates against the sampler's limits.

    Parameters
    ----------
    run
        The run; its committed draws are checked first, so that a refused run is refused again.
    sampler
        Sampler, whose class has ``variance_limit`` and ``least_sign``.

    Raises
    ------
    RefusedError
        If a limit is exceeded; all methods raise it, too.
    """

    def __init__(self, run: RunDirectory, sampler: Sampler) -> None:
        self._run, self._sampler, self._limit = run, sampler, sampler.variance_limit
        self._sum, self._count = 0.0, 0
        if run.phase == "warmup" or not (run.committed_draws or run.warmup):
            return
        drawn = run.committed_draws > 0
        if not drawn or run.committed_draws == run.draws:
            self._check_sign("draws" if drawn else "warmup")
        if not math.isfinite(self._limit):
            return
        phase = "draws" if drawn else "warmup"
        variance = run.statistics("log_lik_variance", phase=phase)["log_lik_variance"]
        if not drawn:
            last = (run.warmup - 1) // run.interval * run.interval
            variance = variance[:, last:]
        if not drawn:
            check_variance(float(variance.mean()), self._limit)
            return
        for first in range(0, variance.shape[1], run.interval):
            part = variance[:, first : first + run.interval]
            if run.next_length and first >= run.next_start:
                total = self._sum + float(part.sum())
                check_variance(total / (self._count + part.size), self._limit)
                break  # a short last interval, which is drawn again
            self._look_at_variance("draws", part, False)

    def look(self, phase: str, statistics: Mapping[str, NDArray[Any]], ended: bool) -> None:
        """Check statistics (chain, iteration) of an interval; ``ended``: the last of its phase."""
        if math.isfinite(self._limit):
            self._look_at_variance(phase, statistics["log_lik_variance"], ended)
        if ended:
            self._check_sign(phase)

    def _look_at_variance(self, phase: str, variance: NDArray[np.float64], ended: bool) -> None:
        if phase == "draws":
            self._sum, self._count = self._sum + float(variance.sum()), self._count + variance.size
            check_variance(self._sum / self._count, self._limit)
        elif ended:
            check_variance(float(variance.mean()), self._limit)

    def _check_sign(self, phase: str) -> None:
        """Raise RefusedError if signs cancel in the second half of ``phase``."""
        least = self._sampler.least_sign
        if least is None:
            return
        sign = self._run.statistics("sign", phase=phase)["sign"]
        mean = float(sign[:, sign.shape[1] // 2 :].mean())
        if not mean >= least:
            raise RefusedError(
                f"expected a mean sign of the estimated likelihood near 1, found {mean:.2g}, "
                f"under {least:g}: errors grow with its reciprocal",
                advice="a larger --subsample-size, or hmc",
            )


def check_variance(mean: float, limit: float) -> None:
    """Raise RefusedError if the mean variance is so high that draws would be biased."""
    if limit < math.inf and not mean <= limit:
        raise RefusedError(
            f"expected log_lik_variance near 0.1, found a mean of {mean:.3g}: the draws would be "
            "biased",
            advice="--sampler hmc, a larger --subsample-size, or more passes for theta_star",
        )


STOPPING: Final = "stopping"
"""Attribute of a run with its stopping rule and the draws of its first check; null without one."""


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
    in_memory: MemoryRun | None = None
    """The run, if its files are not written before its path is opened."""


@named_errors
def run_job(request: RunRequest) -> RunReport:
    """Start, resume or extend the run in ``request.path``, or return it if it is finished.

    At the end of the call an address has every commit.

    Returns
    -------
    RunReport
        ``finished`` is false if ``request.interrupted`` ended the run.

    Raises
    ------
    IdentityError
        If the path holds a run with other settings, model or data.
    RefusedError
        If subsampling cannot be accurate on these data; the message names the remedy.
    BusyError
        If another process is writing to the path, or has committed at the address.
    """
    check_place_of_chains(request)
    request, key, old, existing = _settled(request)
    folder = Path(request.path or "")
    if existing is not None:
        follow_store(existing, request.dataset)
        kept = existing.attributes.get("summary") or {}
        if _all_drawn(existing, request, kept):
            return RunReport(folder, kept, True, False, kept["warnings"])
        places.require_writable(folder)
        setup = load(existing, request.dataset, request.model)
    else:
        places.require_writable(folder, overwrite=request.overwrite)
        if old is None and not is_temporary(folder):
            refuse_reserved_name(folder)
        try:
            setup = chosen(request)
        except StoppedError:
            return RunReport(folder, {}, False, False)
    if request.interrupted():
        return RunReport(folder, {}, False, False)
    if old is not None and existing is None:
        with old.lock():
            old.discard()
    try:
        return _attempt(request, setup, key)
    except RefusedError as error:
        if request.sampler is not None or setup.plan is None:
            raise
        return _attempt(request, instead(setup, error, request.sampler_options), key)


def run_state(request: RunRequest) -> tuple[str, int]:
    """Return whether the run of a request is absent, partial or finished, and its draws.

    Nothing is written.

    Raises
    ------
    IdentityError
        If the path holds a run with other settings, model or data.
    """
    request, _, _, existing = _settled(request)
    if existing is None:
        return "absent", 0
    there = _all_drawn(existing, request, existing.attributes.get("summary") or {})
    return "finished" if there else "partial", existing.committed_draws


def _settled(
    request: RunRequest,
) -> tuple[RunRequest, dict[str, Any], RunDirectory | None, RunDirectory | None]:
    """Return a request with all defaults resolved, its identity, and the run at its path.

    The run comes twice: any, and ``None`` for one that is to be replaced.
    """
    check_counts(request)
    sampler = request.sampler
    refuse_stop(sampler, request.stopping, request.draws)
    schedule = asked_schedule(request.temperature, sampler)
    dataset, model = by_group(request.dataset, request.model)
    dataset = heated(dataset, schedule, sampler)
    path = request.path
    folder = places.run_folder(path) if path is not None else temporary_folder("streammc-run-")
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
        model=with_data(model, dataset),
        seed=seed,
        path=folder,
        temperature=schedule.describe(),
    )
    key = identity(request)
    if existing is not None:
        labels = tuple(request.model.labels(dataset.feature_names))
        texts = texts_of_description(request.model, labels)
        refuse_earlier(existing.identity, dataset)
        check_identity(completed(existing.identity), key, texts)
        key = dict(existing.identity)  # one of an earlier version lacks later options
    return request, key, old, existing


def _all_drawn(run: RunDirectory, request: RunRequest, kept: Mapping[str, Any]) -> bool:
    """Return whether a run has the draws that are asked for, and its summary is of them.

    A summary without an audit is not that of a request that asks for one.
    """
    audited = registry.sampler(run.attributes["sampler"]["name"])().audited
    if request.audit is True and audited and kept.get("audit") is None:
        return False
    # A run killed after its last draw still has the summary from before it was extended.
    drawn, stop = kept.get("sampling", {}).get("draws", 0), kept.get("stop")
    if (rule := request.stopping) is None:
        return run.finished(request.draws) and drawn >= request.draws
    if stop is None or stop["rule"] != rule.describe():
        return False
    # The draws asked for are the first check: a run that time has ended may have fewer.
    enough = drawn >= request.draws or stop["ended_by"] == "time"
    return enough and run.finished() and drawn == run.committed_draws


def _plan(run: RunDirectory, request: RunRequest) -> None:
    """Extend a run to the draws asked for, or to the next check of the stopping rule."""
    draws, rule = request.draws, request.stopping
    if rule is None:
        if draws != run.draws and draws > run.committed_draws:
            run.extend(draws)
        return
    done = run.committed_draws
    if done < run.draws or done % run.interval:
        target = rule.next_check(run.interval, draws, max(done, 1))
        if target != run.draws:
            run.extend(target)


def _goes_on(run: RunDirectory, team: Chains, request: RunRequest) -> bool:
    """Extend a run with all its draws to the next check, unless its stopping rule ends it.

    The statistics are looked at only where the rule is checked, not where time ended an earlier
    attempt: the run stops at the same draw with and without such an end.
    """
    rule, interval, draws = request.stopping, run.interval, request.draws
    if rule is None:
        return False
    done = run.committed_draws
    if done >= rule.most(interval, draws) or rule.out_of_time(team.clock):
        return False
    if done == rule.next_check(interval, draws, done):
        verdict = rule.verdict(statistics_of(run), done, interval=interval, first=draws)
        places.flush(run.path)
        request.notify("stop", done, None, verdict)
        if verdict["passed"]:
            return False
    run.extend(rule.next_check(interval, draws, done + 1))
    return True


def statistics_of(run: RunDirectory) -> dict[str, dict[str, float | None]]:
    """Return the statistics of the committed draws of a run, by label."""
    from streammc.diagnostics.summary import negative_signs, summarize_draws

    sign = negative_signs(run.statistics("sign").get("sign"))
    return summarize_draws(run.draws_matrix(), list(run.labels), sign)


def _attempt(request: RunRequest, setup: Setup, key: dict[str, Any]) -> RunReport:
    """Make the missing draws of a run, and return its report.

    A run whose sampler was chosen automatically is discarded if it is refused.
    """
    dataset, rule = request.dataset, request.stopping
    folder = Path(request.path or "")
    stopping = {STOPPING: {"rule": rule.describe(), "draws": request.draws} if rule else None}
    kept = {
        **recorded_scale(request.model, dataset),
        **request.attributes,
        **(stopping if rule else {}),
    }
    made = contents(request, setup, kept)
    with ExitStack() as stack:
        kind = MemoryRun if _stays_in_memory(request, made["layout"]) else RunDirectory
        run = stack.enter_context(kind.hold(folder, identity=key, **made))
        try:
            problem = setup.sampler.problem(request, setup)
        except StoppedError:
            return RunReport(folder, {}, False, True)
        _plan(run, request)
        if run.attributes.get(STOPPING) != stopping[STOPPING]:
            run.set_attributes(stopping)
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
        # Imported only after the last draw: the summary and the audit.
        from streammc.runs.audit import audit_due
        from streammc.runs.run_summary import finish_report

        due = audit_due(request, run, setup, team)
        summary = finish_report(run, request, setup, team, *due)
    held = run if isinstance(run, MemoryRun) else None
    if held is not None and due[1] is not None:  # another process is asked to audit it
        write_now(folder)
        held = None
    return RunReport(folder, summary, True, True, summary["warnings"], held)


def _stays_in_memory(request: RunRequest, layout: Layout) -> bool:
    """Return whether a new run without a path is small, and of a known number of draws."""
    folder = Path(request.path or "")
    return (
        request.stopping is None
        and request.chains_on == HERE
        and is_temporary_folder(folder)
        and fits_in_memory(layout, request.warmup + request.draws)
        and not any(folder.iterdir())
    )


def refuse_stop(sampler: Sampler | None, rule: StopRule | None, draws: int) -> None:
    """Raise ConfigError for a stopping rule that a run of so many first draws cannot keep."""
    if rule is None:
        return
    if sampler is not None and sampler.draws_together:
        raise ConfigError(
            f"expected no stopping rule for {sampler.name}, which makes all draws together, "
            f"found {rule.text()}: leave out stop, or use another sampler"
        )
    if MOST_DRAWS != rule.draws < draws:
        raise ConfigError(
            f"expected draws of stop, the most per chain, to be at least the {draws} "
            f"draws of the first check, found {rule.draws}: give stop more draws, or ask for fewer"
        )


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
            store: Any = request.dataset.table
            tasks = stack.enter_context(store.worker_tasks(request.scheduler, folder))
            team = WorkerChains(problem, request, folder, tasks)
        try:
            yield team
        finally:
            team.close()


def _drive(run: RunDirectory, team: Chains, setup: Setup, request: RunRequest) -> None:
    """Run the missing intervals; raise RefusedError if variance or signs are out of limits."""
    watch, notices = Watch(run, setup.sampler), DurableNotices(run, request)
    if run.next_length:
        plan = {"chains": run.chains, "warmup": run.warmup, "draws": run.draws}
        made = {"warmup_done": run.committed_warmup, "draws_done": run.committed_draws}
        rule = {"stop": request.stopping.text()} if request.stopping else {}
        facts = {**plan, **made, **rule}
        request.notify("start", run.next_start, run.next_start + run.next_length, facts)
    _draw(run, team, watch, notices)
    while _goes_on(run, team, request):
        _draw(run, team, watch, notices)
    places.flush(run.path)
    notices.durable()


def _draw(run: RunDirectory, team: Chains, watch: Watch, notices: DurableNotices) -> None:
    """Run the intervals that are planned, until the time of the stopping rule is up."""
    request = notices.request
    record_versions(run)
    while n := run.next_length:
        phase, length = run.phase, n
        if request.progress is None:  # a listener hears of every interval
            n *= team.intervals(n, run.next_whole)
        done, wanted = run.next_start + n, run.warmup if phase == "warmup" else run.draws
        statistics = team.advance(run, phase, n, request.interrupted)
        for first in range(0, n, length):
            part = {name: values[:, first : first + length] for name, values in statistics.items()}
            watch.look(phase, part, done == wanted and first + length == n)
        if request.progress is not None:
            facts: dict[str, Any] = {
                name: float(statistics[name].mean())
                for name in ("log_lik_variance", "acceptance_rate", "step_size")
                if name in statistics
            }
            facts["rows"] = int(statistics["n_rows"].sum())
            notices(phase, done, wanted, facts)
        over = request.stopping is not None and request.stopping.out_of_time(team.clock)
        if over and phase == "draws":
            run.extend(run.committed_draws)
