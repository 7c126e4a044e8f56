"""``streammc.sample``: a run from Python; Ctrl-C returns the draws committed so far."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streammc.control_variates.bound import check_control_variates, check_kinds, check_progress
from streammc.docstrings import documented
from streammc.errors import ConfigError, SamplingWarning
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job, statistics_of
from streammc.samplers.common.sampler import RunArguments, RunRequest, Sampler
from streammc.settings import called_with, values_of
from streammc.trace.addresses import named
from streammc.trace.run_directory import RunDirectory
from streammc.verdict import verdict

if TYPE_CHECKING:
    import xarray

    from streammc.control_variates.expansion import ControlVariates


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


@dataclass(frozen=True)
class SampleCall(RunArguments):
    """Arguments of :func:`sample`.

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
    """

    store: Dataset
    model: Model
    _: KW_ONLY
    sampler: Sampler | None = None
    control_variates: ControlVariates | None = None


@called_with(SampleCall)
def sample(call: SampleCall) -> xarray.DataTree:
    """Sample a posterior and return the draws as an ``xarray.DataTree``, which ArviZ reads.

    A run is kept in ``path``: the same call starts it, resumes it, or returns it if it is
    finished. Ctrl-C returns the draws committed so far, with a warning.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, on the scale of the table, and ``sample_stats`` (chain, draw), the
        same of the warm-up, and ``constant_data``; ``sampled_posterior`` is on the scale of the
        store, if that is standardised. The attribute ``summary`` holds audit, cost and warnings.

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

    check_kinds(call.store, call.model, sampler=call.sampler)
    check_control_variates(call.control_variates)
    check_progress(call.progress)
    if call.audit not in (True, False, "auto"):
        raise ConfigError(
            f"expected audit to be True, False or 'auto', found {call.audit!r}: choose one of them"
        )
    interrupted = threading.Event()
    request = RunRequest(
        call.store,
        call.model,
        call.sampler,
        call.control_variates,
        **values_of(call, RunArguments) | {"seed": _whole_seed(call.seed)},
        interrupted=interrupted.is_set,
    )
    _ = request.stopping  # a rule with a fault is refused before anything is opened
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set()) if main else None
    try:
        report = run_job(request)
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
        part = _part_summary(RunDirectory.open(report.path))
        tree.attrs |= {"summary": json.dumps(part), "verdict": verdict(part).sentence}
        lines = part["warnings"]
    for line in lines:
        warnings.warn(line, SamplingWarning, stacklevel=3)
    return tree


def _whole_seed(seed: Any) -> Any:
    """Return a seed as a number, drawn from a NumPy generator; anything else as it is."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return int(seed) if isinstance(seed, np.integer) else seed


def _part_summary(run: RunDirectory) -> dict[str, Any]:
    """Return the summary of an interrupted run: parameters so far, counts, a warning.

    Audit and cost follow only after the last draw. ``sampling`` counts draws and warm-up
    iterations of each chain.

    Parameters
    ----------
    run
        The interrupted run.
    """
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
        "parameters": statistics_of(run) if done else {},
        "audit": None,
        "sampling": {"chains": run.chains, "draws": done, "warmup": warmed},
        "warnings": [line],
    }
