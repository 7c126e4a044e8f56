"""``streammc.sample``: a run from Python; Ctrl-C returns the draws committed so far."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.kinds import (
    PASS_OPTIONS,
    check_control_variates,
    check_kinds,
    check_progress,
)
from streammc.diagnostics.stopping import StopRule
from streammc.docstrings import documented
from streammc.errors import ConfigError, SamplingWarning
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import Progress, RunRequest, Sampler
from streammc.trace.addresses import named
from streammc.trace.run_directory import RunDirectory
from streammc.verdict import verdict

if TYPE_CHECKING:
    import xarray


_PHASES: Final = {
    "pass": "full pass",
    "newton": "search for the mode",
    "plan": "plan of the subsample",
    "start": "start",
    "warmup": "warm-up",
    "draws": "draws",
    "audit": "audit",
}
_FEWEST_SECONDS: Final = 0.2
"""Seconds between two updates; the first and the last of a phase are always shown."""


class NotebookBar:
    """One line in the output of a cell, updated in place; made by :func:`notebook_bar`."""

    def __init__(self, display: Any, html: Any) -> None:
        self._display, self._html = display, html
        self._handle: Any = None
        self._phase, self._shown = "", 0.0

    def __call__(
        self, phase: str, done: int, total: int | None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Show ``done`` of ``total`` of a phase; see ``progress`` of ``streammc.sample``."""
        now = time.monotonic()
        due = phase != self._phase or done == total or now - self._shown >= _FEWEST_SECONDS
        if not due:
            return
        self._phase, self._shown = phase, now
        shown = self._html(bar_html(phase, done, total))
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)


def bar_html(phase: str, done: int, total: int | None) -> str:
    """Return a phase and its bar as HTML; without a total the phase alone."""
    words = escape(_PHASES.get(phase, phase))
    if total is None:
        return f'<div class="streammc">{words}</div>'
    return (
        f'<div class="streammc"><progress max="{max(total, 1)}" value="{done}" '
        f'aria-label="{words}"></progress> {words}: {done:,} of {total:,}</div>'
    )


@documented()
def notebook_bar() -> NotebookBar:
    """Return a progress bar for the output of a notebook's cell.

    A run with a listener commits every interval of its own, so that a run of under a second
    takes longer with a bar than without.

    Returns
    -------
    NotebookBar
        For ``streammc.sample(..., progress=streammc.notebook_bar())``.

    Raises
    ------
    ConfigError
        If IPython is not installed.
    """
    if find_spec("IPython") is None:
        raise ConfigError(
            "expected the package IPython for a bar in a notebook, found none: "
            "pip install 'streammc[notebook]', or leave out progress"
        )
    from IPython.display import HTML, display

    return NotebookBar(display, HTML)


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
    chains_on: str = "here",
    temperature: float | str = 1.0,
    overwrite: bool = False,
    stop: str | Mapping[str, Any] | None = None,
) -> xarray.DataTree:
    """Sample a posterior and return the draws as an ``xarray.DataTree``, which ArviZ reads.

    A run is kept in ``path``: the same call starts it, resumes it, or returns it if it is
    finished. Ctrl-C returns the draws committed so far, with a warning.

    Parameters
    ----------
    store
        Data set: a store, or arrays in memory.
    model
        Model of the rows: likelihood and priors; see ``streammc.models``.
    sampler
        One of ``streammc.samplers``. ``None`` chooses ``hmc`` if the sums of one pass are
        sufficient statistics, ``pt`` if the likelihood is not a product over rows, else ``hmc`` or
        ``hmc-ecs``, whichever is predicted to be faster: ``hmc`` up to a few thousand rows. If
        ``hmc-ecs`` is refused, before or during the run, it is replaced by ``hmc``.
    control_variates
        From ``streammc.control_variates``. ``None``: computed, and kept in the run.
    draws
        Kept draws of each chain. A number above that of a finished run extends the run.
    warmup
        Iterations of each chain before the kept draws, which tune the sampler.
    chains
        Number of chains; each is a thread.
    seed
        Seed of all random numbers, in ``[0, 2**63)``. ``None``: the seed of the run in
        ``path``, or a new one.
    path
        Directory of the run, or its address (``s3://bucket/run``). ``None``: a temporary
        directory, removed when the process ends; a run of less than 16 MB stays in memory, and is
        written there once it is opened again.
    audit : bool or 'auto'
        Whether to measure the error of subsampling, in one more pass; ``"auto"``: if that
        takes less time than the sampling did. Only ``hmc-ecs`` has an audit.
    progress : Callable[[str, int, int, dict], None] | None
        Called as ``progress(phase, done, total, facts)``: ``start`` before the first iteration
        of this call, ``warmup`` and ``draws`` after every commit, in iterations of a chain;
        ``pass`` after every block of a full pass, in blocks. With total ``None``: ``forecast``
        before work of over a minute, ``newton`` and ``plan`` after the steps of phases of over
        a second, and ``stop`` after a check of the stopping rule.
    chains_on : {'here', 'workers'}
        ``"workers"``: chains are tasks on the cluster of ``scheduler``, whose workers see ``path``
        and the store; draws are the same, bit for bit.
    temperature
        T: the target is ``prior x likelihood^(1/T)``; 1 is the posterior. Samplers with an
        acceptance test also take ``"T:sqrt"``, max(1, T / sqrt(i + 1)) at iteration i, and
        ``"T:N"``, T for N iterations, then 1.
    overwrite
        Whether to replace a run in ``path`` by a new one, once the passes are done, instead of
        resuming or returning it.
    stop
        Rule that goes on after ``draws`` until every parameter keeps the limits:
        ``"ess=1000,rhat=1.01"``, or a mapping with these keys. ``time`` (``"2h"``, or seconds of
        warm-up and draws over all calls) and ``draws`` (100,000 per chain by default) end a run
        that does not; ``summary["stop"]`` and a warning then say so.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` and ``sample_stats`` (chain, draw), the same of the warm-up,
        and ``constant_data``; ``posterior_original`` if the store is standardised.
        The attribute ``summary`` holds audit, cost and warnings.

    Raises
    ------
    ConfigError
        If an argument is of another kind, or out of range.
    IdentityError
        If ``path`` holds a run with other settings, model or data.
    RefusedError
        If subsampling cannot be accurate on these data; the message names the remedy.
    BusyError
        If another process is writing to ``path``.

    Warns
    -----
    SamplingWarning
        For each warning of the summary.

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

    from streammc.trace.datatree import open_run, tree_in_memory

    check_kinds(store, model, sampler=sampler)
    check_control_variates(control_variates)
    check_progress(progress)
    if audit not in (True, False, "auto"):
        raise ConfigError(
            f"expected audit to be True, False or 'auto', found {audit!r}: choose one of them"
        )

    rule = StopRule.parse(stop)
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
                chains_on=chains_on,
                temperature=temperature,
                overwrite=overwrite,
                stopping=rule,
            )
        )
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if report.finished and report.in_memory is not None:
        tree = tree_in_memory(report.in_memory)
    elif RunDirectory.exists(report.path):
        tree = open_run(report.path, verify=not report.changed)  # written by this process just now
    else:
        raise KeyboardInterrupt
    lines = report.warnings
    if not report.finished:
        part = _part_summary(RunDirectory.open(report.path), tree)
        tree.attrs |= {"summary": json.dumps(part), "verdict": verdict(part).sentence}
        lines = part["warnings"]
    for line in lines:
        warnings.warn(line, SamplingWarning, stacklevel=2)
    return tree


def _part_summary(run: RunDirectory, tree: xarray.DataTree) -> dict[str, Any]:
    """Return the summary of an interrupted run: parameters so far, counts, a warning.

    Audit and cost follow only after the last draw. ``sampling`` counts draws and warm-up
    iterations of each chain.

    Parameters
    ----------
    run
        The interrupted run.
    tree
        Committed draws of the run, from ``open_run``.
    """
    from streammc.diagnostics.summary import summarize

    done, warmed = run.committed_draws, run.committed_warmup
    found = f"{done} of {run.draws} draws"
    if not done:
        found = f"{warmed} of {run.warmup} warm-up iterations and no draw"
    line = (
        f"interrupted: each chain has {found}, not audited; sample again with the same arguments "
        f"and path={named(str(run.path))!r} to go on from there"
    )
    return {
        "finished": False,
        "parameters": summarize(tree) if done else {},
        "audit": None,
        "sampling": {"chains": run.chains, "draws": done, "warmup": warmed},
        "warnings": [line],
    }
