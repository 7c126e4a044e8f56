"""Control variates and plan of the subsample for a sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Protocol

from streammc.control_variates.certify import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.plan_request import PlanRequest
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.control_variates.plan.units import plan_units
from streammc.errors import IdentityError
from streammc.likelihood.expanded_rows import memory_limit
from streammc.samplers.common.request import RunRequest

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


def control_variates(request: RunRequest, order: Literal[0, 1, 2] | None = None) -> ControlVariates:
    """Return the control variates of the request, or compute them.

    Parameters
    ----------
    order
        Order of the expansion; ``None``: any order if given, 2 if computed.

    Raises
    ------
    IdentityError
        If the given control variates are of other data, another model or another order.
    """
    given = request.control_variates
    if given is None:
        return compute(
            request.dataset,
            request.model,
            order=2 if order is None else order,
            scheduler=request.scheduler,
            progress=request.blocks_of("pass"),
            phases=request.progress,
        )
    given.require(request.dataset, request.model)
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
    n_rows = request.dataset.n_rows
    few = min(max(-(-n_rows // 100), _LEAST_ROWS), n_rows)
    reason = f"{few} rows at a time, since {chosen.refused.split(';')[0]}"
    chosen = planned(request, cv, wish, subsample_size=few, certainty=False)
    return replace(chosen, reasons=(chosen.reasons[0], reason))
