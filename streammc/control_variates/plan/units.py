"""Choice of the unit: single rows or runs, by whether the store fits in memory.

To read one row of a mapped file, its page is read. If the store does not fit in memory,
these reads take most of the time of an iteration, and a run of contiguous rows needs no
more of them than one row: with more than one unit a block, runs give the same subsample
with fewer reads. If the rows are in memory, runs save nothing.
"""

from __future__ import annotations

from dataclasses import replace

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.plan_request import PlanRequest
from streammc.control_variates.plan.plan_words import ROW_ORDER_WARNING
from streammc.control_variates.plan.subsample_plan import MOST_BLOCKS, Plan, plan
from streammc.protocols import Dataset, Model
from streammc.subsampling.probabilities import UNIFORM

_RUN_BYTES = 16_384
"""Largest size of a run: four pages."""


def plan_units(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    request: PlanRequest,
    *,
    memory: int,
) -> Plan:
    """Return the plan with the unit that needs the fewest reads.

    Parameters
    ----------
    request
        Settings. Without ``unit_rows`` the unit is chosen here. Units drawn by score are single
        rows: few are needed, and a run dilutes the rows with high scores.
    memory
        Bytes of memory that the rows of a store may occupy as cached pages.
    """
    if request.unit_rows is not None or request.probabilities != UNIFORM:
        return plan(cv, dataset, model, request)
    rows = plan(cv, dataset, model, replace(request, unit_rows=1))
    size = dataset.n_rows * dataset.rows().row_bytes
    if dataset.address == "memory" or rows.refused is not None:
        return rows
    if size <= memory:
        fits = f"the store ({_gb(size)}) fits in free memory, where runs of rows save no reading"
        return _because(rows, f"single rows: {fits}")
    larger = f"the store ({_gb(size)}) exceeds free memory ({_gb(memory)})"
    longest = max(_RUN_BYTES // max(dataset.rows().row_bytes, 1), 1)
    b = min(-(-rows.k // (request.n_blocks or MOST_BLOCKS)), longest)
    runs = plan(cv, dataset, model, replace(request, unit_rows=b)) if b > 1 else rows
    if runs.refused is None and runs.k >= rows.k:
        fewest = "no run would read less" if longest > 1 else "a row is a whole read"
        return _because(rows, f"single rows: {larger}, but {fewest}")
    if runs.refused or runs.subsample_size > ROW_ORDER_WARNING * rows.subsample_size:
        return _because(
            rows,
            f"single rows: {larger}, but rows are ordered: runs would take {runs.subsample_size} "
            f"rows instead of {rows.subsample_size}; for runs, ingest with --shuffle",
        )
    return _because(
        runs, f"runs of {b} rows: {larger}, and {runs.k} reads replace {rows.k} of single rows"
    )


def _because(chosen: Plan, reason: str) -> Plan:
    return replace(chosen, reasons=(*chosen.reasons, reason))


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
