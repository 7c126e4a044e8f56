"""Predicted cost of the full passes, announced before the first; progress between passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from streammc.control_variates.full_pass.block_pass import takes_codes
from streammc.control_variates.mode.newton import Objective
from streammc.errors import OutOfMemoryError
from streammc.likelihood import pass_cost
from streammc.likelihood.pass_cost import LONG_SECONDS, PassCost
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Dataset, Matrix, Model, Vector

Phases = Callable[[str, int, int | None, Mapping[str, Any]], None]
"""``progress(phase, done, total, facts)``; ``total`` is ``None`` where it is not known."""
FORECAST: Final = "forecast"
NEWTON: Final = "newton"
PLAN: Final = "plan"
_QUIET_SECONDS: Final = 1.0
"""Phases that end sooner report nothing."""


def forecast(
    dataset: Dataset, model: Model, *, passes: int | None = None, scheduler: Any = None
) -> PassCost:
    """Return the predicted cost of control variates, from sizes alone: no row is read.

    ``passes`` is their largest number, ``None``: until certified. ``scheduler`` is that of
    ``Dataset.reduce``; remote workers are counted as the threads of this machine.
    """
    here = scheduler is None or scheduler == "sync" or type(scheduler) is int
    threads = available_threads() if scheduler is None or not here else scheduler
    coded = dataset.attributes.get("codes", ()) if takes_codes(model) else ()
    return pass_cost.pass_cost(
        dataset.n_rows,
        dataset.n_features,
        predictors=(model.n_linear, model.n_scalar),
        threads=1 if threads == "sync" else threads,
        matrices=here,
        n_blocks=-(-dataset.n_rows // dataset.block_rows()),
        passes=passes,
        codes=[each["columns"] for each in coded],
    )


def announce(
    dataset: Dataset,
    model: Model,
    *,
    passes: int | None = None,
    scheduler: Any = None,
    phases: Phases | None = None,
) -> PassCost:
    """Return the cost by :func:`forecast`, and report a long one to ``phases``.

    OutOfMemoryError if the matrices of the pass need more memory than is available.
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
    """Counter of the steps of a phase, which reports them after the first second."""

    def __init__(self, phase: str, phases: Phases | None) -> None:
        self._phase, self._phases = phase, phases
        self._done = 0
        self._began = time.monotonic()

    def __call__(self, steps: int = 1) -> None:
        """Add ``steps`` completed steps."""
        self._done += steps
        if self._phases is not None and time.monotonic() - self._began >= _QUIET_SECONDS:
            self._phases(self._phase, self._done, None, {})


def counted(objective: Objective, phases: Phases | None) -> Objective:
    """Return ``objective`` with every evaluation reported to ``phases`` as a Newton step."""
    count = Counter(NEWTON, phases)

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        sums = objective(theta)
        count()
        return sums

    return evaluate
