"""What the passes will take, told or refused before the first; progress between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from streammc.control_variates.mode.newton import Objective
from streammc.errors import OutOfMemoryError
from streammc.likelihood import pass_cost
from streammc.likelihood.pass_cost import LONG_SECONDS, PassCost
from streammc.numerics.threads import available_threads
from streammc.protocols import Dataset, Matrix, Model, Vector

Phases = Callable[[str, int, int | None, Mapping[str, Any]], None]
"""``progress(phase, done, total, facts)``; ``total`` is ``None`` where it is not known."""
FORECAST: Final = "forecast"
NEWTON: Final = "newton"
PLAN: Final = "plan"
_QUIET_SECONDS: Final = 1.0
"""Steps that are over sooner report nothing."""


def forecast(
    dataset: Dataset, model: Model, *, passes: int | None = None, scheduler: Any = None
) -> PassCost:
    """Return what control variates will take, from sizes alone: no row is read.

    Parameters
    ----------
    dataset, model
        The rows and their likelihood.
    passes
        At most this many; ``None``: until certified.
    scheduler
        Where passes run, as in ``Dataset.reduce``. Other machines count as these.
    """
    threads = available_threads()
    if scheduler == "sync" or type(scheduler) is int:
        threads = 1 if scheduler == "sync" else scheduler
    elsewhere = scheduler is not None and scheduler != "sync" and type(scheduler) is not int
    return pass_cost.pass_cost(
        dataset.n_rows,
        dataset.n_features,
        n_linear=model.n_linear,
        n_scalar=model.n_scalar,
        threads=threads,
        matrices=not elsewhere,
        n_blocks=-(-dataset.n_rows // dataset.block_rows()),
        passes=passes,
    )


def announce(
    dataset: Dataset,
    model: Model,
    *,
    passes: int | None = None,
    scheduler: Any = None,
    phases: Phases | None = None,
) -> PassCost:
    """Return :func:`forecast`, having told ``phases`` where it is long.

    Raises
    ------
    OutOfMemoryError
        If the matrices of the pass need more memory than is available.
    """
    cost = forecast(dataset, model, passes=passes, scheduler=scheduler)
    free = pass_cost.available_memory()
    if cost.memory_bytes > free:
        raise OutOfMemoryError(
            f"expected {cost.memory_bytes / 1e9:.2g} GB of memory for a full pass with "
            f"{cost.dim:,} parameters on {cost.threads} threads (matrices of {cost.dim:,} x "
            f"{cost.dim:,}), found {free / 1e9:.2g} GB available: ingest with fewer columns, such "
            "as with rare levels of a factor merged, or use one thread (--scheduler sync)"
        )
    if phases is not None and cost.seconds >= LONG_SECONDS:
        phases(FORECAST, 0, None, {**cost.facts(), "text": cost.text()})
    return cost


class Counter:
    """Counts steps of a phase, and reports them from its second second on."""

    def __init__(self, phase: str, phases: Phases | None) -> None:
        self._phase, self._phases = phase, phases
        self._done = 0
        self._began = time.monotonic()

    def __call__(self, steps: int = 1) -> None:
        """Add ``steps`` that are done."""
        self._done += steps
        if self._phases is not None and time.monotonic() - self._began >= _QUIET_SECONDS:
            self._phases(self._phase, self._done, None, {})


def counted(objective: Objective, phases: Phases | None) -> Objective:
    """Return ``objective`` with every evaluation reported: one is a step of Newton's method."""
    count = Counter(NEWTON, phases)

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        found = objective(theta)
        count()
        return found

    return evaluate
