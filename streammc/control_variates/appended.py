"""Control variates after rows were appended: a pass over the new rows alone, where that is enough.

The log-likelihood of all rows at ``theta_star`` is that of the earlier rows plus that of the new
ones, and so are its derivatives, the scores and their histogram. What changes is the mode: Newton's
decrement at ``theta_star`` says by how much. An estimate from control variates is unbiased for any
``theta_star``; off the mode by s posterior standard deviations, the variance of third-order
remainders grows by about (1 + s^2 / d)^3, under 1.3 up to s = 0.3 sqrt(d). The plan of a run
measures it around the new mode in any case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from streammc.control_variates.bound import PASS_OPTIONS, bind, check_control_variates, check_kinds
from streammc.control_variates.certify import expanded, from_pass
from streammc.control_variates.expansion import Certificate, ControlVariates
from streammc.control_variates.full_pass.block_pass import (
    SUMMARY_COLUMNS,
    BlockSums,
    ExpansionPass,
    raise_fault,
    top,
)
from streammc.control_variates.mode.newton import NotPositiveDefiniteError, Point, posterior_point
from streammc.docstrings import documented
from streammc.errors import IdentityError
from streammc.likelihood.data_views import by_group, tempered
from streammc.likelihood.pass_cost import CANDIDATE_ROWS
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Matrix, Model, Phases, Vector
from streammc.shown import Record

FARTHEST: Final = 0.3
"""Largest decrement at which ``theta_star`` is kept, in posterior sd per root of the dimension."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Update(Record):
    """What became of the control variates of an earlier generation of a store."""

    earlier: str
    """Their digest."""
    earlier_rows: int
    new_rows: int
    """Rows that they were computed from, and rows appended since."""
    kept: bool
    """Whether ``theta_star`` was kept and only the new rows were read."""
    decrement: float | None = None
    limit: float | None = None
    """Distance of the new mode from ``theta_star`` in posterior sd, and up to which it is kept;
    ``None`` if it was not measured, the first alone if there is no mode near."""
    reason: str | None = None
    """Why all rows were read, if not for the decrement."""


@documented(PASS_OPTIONS)
def update(
    control_variates: ControlVariates,
    dataset: Dataset,
    model: Model,
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
    phases: Phases | None = None,
) -> ControlVariates:
    """Return control variates of a store to which rows were appended, from those before.

    Only the new rows are read where ``theta_star`` still is within 0.3 sqrt(d) posterior standard
    deviations of the mode; else, and where warnings or other modes have to be looked at again, the
    control variates are computed from all rows. ``certificate.update`` says which.

    Parameters
    ----------
    control_variates
        Control variates of an earlier generation of the store.
    dataset
        The store as it is, at the temperature of the control variates.
    model
        The model that they were made for; default priors that scale with the data are computed
        again.
    phases : Callable[[str, int, None, dict], None] | None
        As of ``streammc.control_variates``.

    Raises
    ------
    IdentityError
        If they are of another store, temperature or model.
    ModelError
        If a new response is outside the support.
    StoreError
        If a chunk of the store is damaged.
    """
    started = time.perf_counter()
    check_kinds(dataset, model)
    check_control_variates(control_variates)
    earlier = control_variates
    before = generation_of(earlier, dataset)
    if before is None:
        raise IdentityError(
            f"expected control variates of an earlier generation of the store {dataset.address!r}, "
            f"found fingerprint {earlier.fingerprint[:12]}, which it never had: make them again "
            "with `streammc summarize`"
        )
    earlier.require(before, model, "control variates")
    known: dict[str, Any] = {
        "earlier": earlier.digest(),
        "earlier_rows": earlier.n_rows,
        "new_rows": dataset.n_rows - earlier.n_rows,
    }
    reason, bound = _look_again(earlier, model), bind(dataset, model)
    if reason is None:
        now = bound.model
        sums = _new_sums(earlier, dataset, now, scheduler, progress)
        point = _point(earlier, now, sums)
        limit = FARTHEST * math.sqrt(earlier.dim)
        if point is not None and point.decrement <= limit:
            facts = Update(**known, kept=True, decrement=point.decrement, limit=limit)
            return _extended(earlier, dataset, now, sums, point, facts, started)
        away = None if point is None else point.decrement
        facts = Update(**known, kept=False, decrement=away, limit=limit)
    else:
        facts = Update(**known, kept=False, reason=reason)
    again = expanded(
        bound,
        order=earlier.order,
        scheduler=scheduler,
        progress=progress,
        phases=phases,
    )
    certificate = replace(again.certificate, update=facts.to_json())
    return replace(again, certificate=certificate)


def generation_of(cv: ControlVariates, dataset: Dataset) -> Dataset | None:
    """Return the earlier generation of a data set that control variates are of, or ``None``."""
    if dataset.temperature != cv.temperature or dataset.unit_offset is not None:
        return None
    generation = dataset.earlier(cv.fingerprint)
    return None if generation is None else tempered(generation, cv.temperature)


def update_text(update: Mapping[str, Any]) -> str:
    """Return one line that says how control variates of an earlier generation were used."""
    rows = f"{update['new_rows']:,} rows appended to {update['earlier_rows']:,}"
    if update.get("reason") is not None:
        return f"{rows}: all rows were read again, because {update['reason']}"
    if update["decrement"] is None:
        return f"{rows}: theta_star is no longer near a mode; all rows were read again"
    far = f"{update['decrement']:.2g} posterior sd from the mode"
    if update["kept"]:
        return f"{rows}: theta_star still holds, {far}; only the new rows were read"
    return f"{rows}: theta_star is {far}, above {update['limit']:.2g}; all rows were read again"


def _look_again(earlier: ControlVariates, model: Any) -> str | None:
    """Return why a pass over new rows alone is not enough, or ``None``."""
    certificate = earlier.certificate
    if not earlier.order_terms.shape[1]:
        return "the control variates before have no sums to add to"
    if certificate.term_bound is not None:
        return "the bound on the terms of an acceptance test is over all rows"
    if model.factors or len(earlier.noise):
        return "the scale of a factor follows from all rows"
    if certificate.warnings or certificate.modes:
        return "the control variates before have warnings or other modes"
    return None if certificate.converged else "the mode before was not certified"


def _new_sums(
    earlier: ControlVariates, dataset: Dataset, model: Model, scheduler: Any, progress: Any
) -> BlockSums:
    """Return the sums of all rows, from a pass over those that the earlier ones do not have."""
    complete = len(earlier.candidates) >= int(earlier.histogram.counts[1:].sum())
    fit = max(CANDIDATE_ROWS, len(earlier.candidates)) if complete else len(earlier.candidates)
    task = ExpansionPass(
        model,
        earlier.theta_star,
        earlier.score_draws,
        earlier.order,
        fit,
        check_response=True,
        trials_of_weight=0.0 if dataset.attributes.get("trials") else earlier.temperature,
    )
    store: Any = dataset.table
    later, _ = by_group(store.rows_after(earlier.n_rows), model)
    later = tempered(later, earlier.temperature)
    new: BlockSums = later.reduce(task, scheduler=scheduler, progress=progress)
    if new.fault is not None:
        raise_fault(new.fault, model, dataset)
    before = earlier.log_lik, earlier.gradient, earlier.hessian
    totals = new.totals
    if new.columns is not None:  # sums by level
        totals = _totals(new.expansion(earlier.dim), new.log_lik_remainder())
    rows, squares = top(
        np.concatenate([earlier.candidates, new.rows]),
        np.concatenate([earlier.scores**2, new.squares]),
        fit,
    )
    return BlockSums(
        n_rows=earlier.n_rows + new.n_rows,
        totals=merge_compensated(_totals(before, earlier.log_lik_remainder), totals),
        histogram=earlier.histogram + new.histogram,
        rows=rows,
        squares=squares,
        terms=earlier.order_terms[:4] + new.terms,
        tiles=int(earlier.order_terms[4, 0]) + new.tiles,
        summaries=np.concatenate(
            [np.stack([earlier.chunk_summaries[c] for c in SUMMARY_COLUMNS], 1), new.summaries]
        ),
        fault=None,
    )


def _totals(expansion: tuple[float, Vector, Matrix], remainder: float) -> Matrix:
    """Return an expansion as compensated totals (2, 1 + d + d^2), those of dense columns."""
    log_lik, gradient, hessian = expansion
    totals = np.zeros((2, 1 + gradient.size + hessian.size))
    totals[0] = np.concatenate([[log_lik], gradient, np.triu(hessian).ravel()])
    totals[1, 0] = remainder
    return totals


def _point(earlier: ControlVariates, model: Model, sums: BlockSums) -> Point | None:
    """Return the expansion of the log posterior; ``None`` if it has no maximum near."""
    table = np.ascontiguousarray(model.prior_table(earlier.labels), dtype=np.float64)
    try:
        with single_threaded():
            return posterior_point(earlier.theta_star, sums.expansion(earlier.dim), table)
    except NotPositiveDefiniteError:
        return None


def _extended(
    earlier: ControlVariates,
    dataset: Dataset,
    model: Model,
    sums: BlockSums,
    point: Point,
    facts: Update,
    started: float,
) -> ControlVariates:
    """Return the earlier control variates with the sums of all rows."""
    seconds = time.perf_counter() - started
    row_bytes = dataset.rows().row_bytes
    certificate = Certificate(
        decrement=point.decrement,
        passes=1,
        rows_read=facts.new_rows,
        bytes_read=facts.new_rows * row_bytes,
        seconds=seconds,
        pass_seconds=seconds,
        pass_gb_per_second=1e-9 * facts.new_rows * row_bytes / seconds,
        converged=True,
        warnings=(),
        logarithms=earlier.certificate.logarithms,
        nodes=earlier.certificate.nodes,
        update=facts.to_json(),
    )
    own = from_pass(dataset, model, sums, point, earlier.row_order_rows)
    return replace(earlier, **own, certificate=certificate)
