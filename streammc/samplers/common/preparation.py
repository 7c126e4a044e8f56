"""Preparation of a sampler: control variates, plan of the subsample, or all rows in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import expanded
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode.search import Beside
from streammc.control_variates.plan.subsample_plan import Plan, PlanRequest, plan_units
from streammc.errors import IdentityError, OutOfMemoryError
from streammc.likelihood.blocks import memory_limit
from streammc.likelihood.contiguous_rows import Held, held_bytes, hold
from streammc.likelihood.pass_cost import FORECAST
from streammc.likelihood.target import Base
from streammc.models.responses import response_check
from streammc.protocols import Dataset, Model, Vector
from streammc.samplers.common.sampler import RunRequest

_LEAST_ROWS = 30


class SubsampleWish(Protocol):
    """Requested options of a subsample; ``None``: chosen automatically."""

    @property
    def unit_rows(self) -> int | None:
        """Return the rows of a unit, b."""

    @property
    def n_blocks(self) -> int | None:
        """Return the number of blocks, G."""

    @property
    def factor_units(self) -> int:
        """Return the units of a factor of the block-Poisson product; 0 without a product."""

    @property
    def probabilities(self) -> str:
        """Return ``uniform`` or ``scores``."""


def control_variates(
    request: RunRequest, order: Literal[0, 1, 2] | None = None, beside: Beside | None = None
) -> ControlVariates:
    """Return the control variates of the request, or compute them.

    Parameters
    ----------
    order
        Order of the expansion; ``None``: any order if given, 2 if computed.
    beside
        What uses the rows of the pass that certifies them, if they are computed.

    Raises
    ------
    IdentityError
        If the given control variates are of other data, another model or another order.
    """
    given = request.control_variates
    if given is None:
        return expanded(
            Bound(request.dataset, request.model),
            order=2 if order is None else order,
            scheduler=request.scheduler,
            progress=request.blocks_of("pass"),
            phases=request.progress,
            beside=beside,
        )
    given.require_bound(request.dataset, request.model)
    if order is not None and given.order != order:
        raise IdentityError(
            f"expected control variates of order {order}, as the sampler has it, found order "
            f"{given.order}; compute them again or set the order of the sampler"
        )
    return given


def planned(
    request: RunRequest,
    cv: ControlVariates,
    wish: SubsampleWish,
    *,
    subsample_size: int | None,
    certainty: bool,
    perturbed: bool = False,
) -> Plan:
    """Return the plan of a subsample; a refused plan gives the reason in ``refused``."""
    settings = PlanRequest(
        subsample_size=subsample_size,
        unit_rows=wish.unit_rows,
        n_blocks=wish.n_blocks,
        certainty=certainty,
        factor_units=wish.factor_units,
        probabilities=wish.probabilities,
        perturbed=perturbed,
        scheduler=request.scheduler,
        progress=request.blocks_of("pass"),
        phases=request.progress,
    )
    return plan_units(cv, request.dataset, request.model, settings, memory=2 * memory_limit())


def planned_or_few(
    request: RunRequest,
    cv: ControlVariates,
    wish: Any,
    *,
    subsample_size: int | None,
    certainty: bool,
) -> Plan:
    """Return the plan of a sampler that can use a noisy estimate, even if the plan is refused.

    In place of a refused plan, the subsample is 1 % of the rows, at least 30, without certainty
    rows.
    """
    chosen = planned(request, cv, wish, subsample_size=subsample_size, certainty=certainty)
    if chosen.refused is None:
        return chosen
    n_rows, row = request.dataset.n_rows, request.dataset.unit_name
    few = min(max(-(-n_rows // 100), _LEAST_ROWS), n_rows)
    reason = f"{few} {row}s at a time, since {chosen.refused.cause}"
    chosen = planned(request, cv, wish, subsample_size=few, certainty=False)
    return replace(chosen, reasons=(chosen.reasons[0], reason))


class AllRowsOptions(Protocol):
    """Options of a sampler that keeps all rows in memory."""

    name: ClassVar[str]

    @property
    def start(self) -> float | None:
        """Return the value of every coordinate of theta at the first position, or ``None``."""

    def needs_pass(self, model: Model) -> bool:
        """Return whether the shape of the steps comes from passes over all rows."""


def size_text(size: int) -> str:
    """Return a number of bytes as text, in GB or, below 0.1 GB, in MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:.2g} MB"


def require_all_rows(dataset: Dataset, name: str) -> int:
    """Return the bytes of all rows in memory; nothing is allocated.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    needed = held_bytes(dataset.n_rows, dataset.n_features)
    if needed > memory_limit():
        raise OutOfMemoryError(
            f"expected rows that fit into half of the available memory for {name}, which "
            f"evaluates all of them, found {dataset.n_rows} rows x {dataset.n_features} features, "
            f"{size_text(needed)}; use hmc-ecs, or mint for a posterior with several modes"
        )
    return needed


def announce_rows(request: RunRequest, name: str) -> None:
    """Report the bytes of all rows to the progress of a run, before a pass or an allocation.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    needed = require_all_rows(request.dataset, name)
    rows = request.dataset.n_rows
    text = f"{name} keeps all {rows:,} rows in memory: {size_text(needed)}"
    request.notify(FORECAST, 0, None, {"text": text, "rows": rows, "memory_bytes": needed})


def ground(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: AllRowsOptions
) -> tuple[Base, Held, Vector, float]:
    """Return coordinates, all rows, and mean and spread of the whitened first positions.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    require_all_rows(dataset, sampler.name)
    d = cv.dim
    laplace = sampler.needs_pass(model)
    base = Base(
        cv.theta_star,
        0.0,
        np.zeros(d),
        np.zeros((d, d)),
        np.ascontiguousarray(cv.factor if laplace else np.eye(d)),
        model.prior_table(cv.labels),
        model.constants,
        model.n_linear,
        -1,
        1,
        0.0,
        0.0,
    )
    first, spread = np.zeros(d), 1.0 if laplace else 0.1
    if sampler.start is not None:
        first = solve_triangular(base.factor, sampler.start - cv.theta_star, lower=True)
        spread = 0.0
    full = hold(dataset, joint=model.joint is not None)
    if not cv.certificate.passes:  # a pass would have checked the responses
        used = full.weight > 0.0
        response_check(dataset, model)(full.design.T[used], full.y[used], full.weight[used])
    return base, full, first, spread
