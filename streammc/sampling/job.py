"""A run: start or resume it, draw, audit, summarise."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammc.control_variates.certify import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan import Plan, plan
from streammc.errors import IdentityError, RefusedError
from streammc.protocols import Dataset, Model, Sampler
from streammc.samplers.energy_conserving import HmcEcs
from streammc.samplers.full_data import Hmc
from streammc.samplers.hamiltonian import StoppedError
from streammc.samplers.transition import STATISTICS
from streammc.sampling import build
from streammc.sampling.chains import Chains, Progress
from streammc.sampling.identity import check_counts, identity
from streammc.sampling.report import audit_due, finish_report
from streammc.trace.run_directory import RunDirectory, check_identity

if TYPE_CHECKING:
    import xarray

VARIANCE_REFUSAL = 3.0
CONTROL_VARIATES = "control-variates.zarr"
_DTYPES = {"diverging": "bool", "n_steps": "int64", "n_rows": "int64"}


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


@dataclass(frozen=True)
class Setup:
    """What is decided from the data before the first draw."""

    sampler: HmcEcs | Hmc
    cv: ControlVariates
    plan: Plan | None
    reason: str


def interval_length(n: int) -> int:
    """Return the iterations between commits: eight or more commits a phase, 50 to 1000 each."""
    return min(max(-(-n // 8), 50), 1000)


def decide(
    dataset: Dataset,
    model: Model,
    sampler: Sampler | None,
    cv: ControlVariates | None,
    *,
    scheduler: Any = None,
    progress: Progress | None = None,
) -> Setup:
    """Compute what is missing and choose the sampler; the reason is in words.

    Raises
    ------
    RefusedError
        If ``hmc-ecs`` was asked for by name and cannot be right on these data.
    """
    report = None
    if progress is not None:
        notify = progress

        def report(done: int, total: int) -> None:
            notify("pass", done, total, {})

    order = sampler.order if isinstance(sampler, HmcEcs) else 2
    if cv is None:
        cv = compute(dataset, model, order=order, scheduler=scheduler, progress=report)
    elif isinstance(sampler, HmcEcs) and cv.order != order:
        raise IdentityError(
            f"the sampler asks for control variates of order {order}, these have order "
            f"{cv.order}; compute them again or set the order of the sampler"
        )
    if isinstance(sampler, Hmc):
        return Setup(sampler, cv, None, "asked for by name")
    wanted = sampler if isinstance(sampler, HmcEcs) else HmcEcs()
    chosen = plan(
        cv,
        dataset,
        model,
        subsample_size=wanted.subsample_size,
        unit_rows=wanted.unit_rows,
        n_blocks=wanted.n_blocks,
        certainty=wanted.certainty,
    )
    if chosen.refused is None or wanted.allow_high_variance:
        return Setup(wanted, cv, chosen, "; ".join(chosen.reasons))
    if sampler is None:
        return Setup(Hmc(), cv, None, f"hmc, because {chosen.refused}")
    raise RefusedError(chosen.refused)


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
) -> RunReport:
    """Start, resume, extend or recognise a run in ``path``.

    Parameters
    ----------
    dataset, model
        What to sample.
    sampler
        ``None`` chooses ``hmc-ecs`` where it can be right and ``hmc`` elsewhere.
    control_variates
        From :func:`streammc.control_variates`; computed and kept in the run if ``None``.
    draws, warmup, chains
        Per chain; more draws than a finished run holds extend it.
    seed
        In ``[0, 2**63)``; ``None`` takes the one of the run in ``path``, or a new one.
    path
        Run directory; ``None`` is a temporary one.
    audit
        ``True``, ``False`` or ``"auto"``: where it costs less than the sampling did.
    progress
        ``progress(phase, done, total, facts)``.
    stop
        Polled several times a second; true ends the call after the last commit.
    scheduler
        Where the full passes run; see ``protocols.Dataset.reduce``.
    threads, batch_iterations
        Resources; not one bit of the draws depends on them.
    attributes
        Extra JSON recorded with the run.

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
    folder = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="streammc-run-"))
    polled = stop if stop is not None else _never
    existing = RunDirectory.open(folder) if RunDirectory.exists(folder) else None
    if seed is None:
        seed = int(existing.identity["seed"]) if existing else secrets.randbits(63)
    key = identity(
        dataset, model, sampler, control_variates, warmup=warmup, chains=chains, seed=seed
    )
    if existing is not None:
        check_identity(existing.identity, key)
        if existing.finished(draws) and "summary" in existing.attributes:
            kept = existing.attributes["summary"]
            return RunReport(folder, kept, True, False, kept["warnings"])
        setup = _load_setup(existing, dataset, model)
    else:
        setup = decide(
            dataset, model, sampler, control_variates, scheduler=scheduler, progress=progress
        )
    if polled():
        return RunReport(folder, {}, False, False)
    shape = {"chains": chains, "draws": draws, "warmup": warmup}
    with RunDirectory.hold(
        folder, identity=key, **shape, **_contents(setup, dataset, draws, attributes or {})
    ) as run:
        if draws > run.draws:
            run.extend(draws)
        team = Chains(
            build.problem(dataset, model, setup.cv, setup.plan, setup.sampler),
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
        finally:
            team.close()
        due = audit_due(audit, run, setup.sampler, team)
        summary = finish_report(
            run, dataset, model, setup, team, due, scheduler=scheduler, progress=progress
        )
    return RunReport(folder, summary, True, True, summary["warnings"])


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
) -> xarray.DataTree:
    """Sample a posterior and return it as ``xarray`` and ArviZ read it.

    The parameters are those of :func:`run_job`. Without ``path`` the run lives in a
    temporary folder. Ctrl-C returns the draws committed so far.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` and ``sample_stats`` (chain, draw), their warm-up twins,
        and ``constant_data``; the attribute ``summary`` holds audit and cost.
    """
    import signal
    import threading

    from streammc.trace.datatree import open_run

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
        )
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if not RunDirectory.exists(report.path):
        raise KeyboardInterrupt
    return open_run(report.path)


def _never() -> bool:
    return False


def _contents(
    setup: Setup, dataset: Dataset, draws: int, attributes: dict[str, Any]
) -> dict[str, Any]:
    """Return what a new run directory starts with."""
    constant: dict[str, Any] = {"theta_star": setup.cv.theta_star}
    if setup.plan is not None:
        constant["certainty_rows"] = setup.plan.certainty_rows
    return {
        "labels": list(setup.cv.labels),
        "feature_names": list(dataset.feature_names),
        "stat_dtypes": {name: _DTYPES.get(name, "float64") for name in STATISTICS},
        "interval": interval_length(draws),
        "attributes": {
            **attributes,
            "store": dataset.address,
            "sampler": setup.sampler.describe(),
            "sampler_reason": setup.reason,
            "plan": setup.plan.describe() if setup.plan is not None else None,
        },
        "constant_data": constant,
        "prepare": lambda folder: setup.cv.save(folder / CONTROL_VARIATES),
    }


def _load_setup(run: RunDirectory, dataset: Dataset, model: Model) -> Setup:
    """Read back what was decided when the run began."""
    cv = ControlVariates.open(run.path / CONTROL_VARIATES, dataset, model)
    options = dict(run.attributes["sampler"])
    name = options.pop("name")
    sampler: HmcEcs | Hmc = Hmc(**options) if name == "hmc" else HmcEcs(**options)
    described = run.attributes["plan"]
    kept = None
    if described is not None:
        kept = Plan.from_description(described, run.constant_data("certainty_rows"))
    return Setup(sampler, cv, kept, run.attributes["sampler_reason"])


def _drive(
    run: RunDirectory,
    team: Chains,
    setup: Setup,
    progress: Progress | None,
    stop: Callable[[], bool],
) -> None:
    """Run every interval that is missing; refuse to go on where the variance is too high."""
    total, count = 0.0, 0
    while n := run.next_length:
        phase, done = run.phase, run.next_start + n
        wanted = run.warmup if phase == "warmup" else run.draws
        statistics = team.advance(run, phase, n, stop)
        variance = statistics["log_lik_variance"]
        if phase == "draws":
            total, count = total + float(variance.sum()), count + variance.size
            _check_variance(total / count, setup.sampler)
        elif done == wanted:
            _check_variance(float(variance.mean()), setup.sampler)
        if progress is not None:
            facts = {
                "log_lik_variance": float(variance.mean()),
                "acceptance_rate": float(statistics["acceptance_rate"].mean()),
                "step_size": float(statistics["step_size"].mean()),
                "rows": int(statistics["n_rows"].sum()),
            }
            progress(phase, done, wanted, facts)


def _check_variance(mean: float, sampler: HmcEcs | Hmc) -> None:
    """Refuse to go on where the draws would be biased without a sign of it."""
    if isinstance(sampler, Hmc) or sampler.allow_high_variance:
        return
    if not mean <= VARIANCE_REFUSAL:
        raise RefusedError(
            f"log_lik_variance should stay near 0.1, its mean is {mean:.3g}: the draws would be "
            "biased; use --sampler hmc, a larger --subsample-size, or more passes for theta_star"
        )
