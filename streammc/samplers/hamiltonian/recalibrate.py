"""Recalibration: a better theta_star from a short run (Dang et al. 2019, section 6.6).

Control variates around the mode of a subset cost one pass, but are poor if the subset is
small relative to the table: they need a large subsample. A short run of all chains with these
control variates, whose draws are not kept, locates the posterior. The mean of the draws is the
theta_star of a second pass, and the subsample is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.certify import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.plan_request import PlanRequest
from streammc.control_variates.plan.subsample_plan import MOST_BLOCKS, Plan
from streammc.control_variates.plan.units import plan_units
from streammc.likelihood.expanded_rows import memory_limit
from streammc.samplers.common.chains import Chains
from streammc.samplers.common.request import RunRequest
from streammc.samplers.hamiltonian.energy_conserving import HmcEcs
from streammc.samplers.hamiltonian.options import SubsampleOptions
from streammc.samplers.hamiltonian.problem import subsampled

MOST_ROWS: Final = 2**16
"""Largest first subsample: a high variance harms the draws, but hardly their mean."""
_STRETCH: Final = 20


class _Kept:
    """Trace of the short run, kept in memory."""

    def __init__(self) -> None:
        self.theta: list[NDArray[np.float64]] = []
        self.evaluations = 0
        self.variance: list[float] = []

    def append(
        self,
        phase: str,
        theta: NDArray[np.float64],
        stats: Mapping[str, NDArray[Any]],
        checkpoint: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]],
    ) -> None:
        """Store an interval; see ``protocols.Trace``."""
        self.theta.append(theta)
        self.evaluations += int(stats["n_rows"].sum())
        self.variance += [float(v) for v in stats["log_lik_variance"].mean(axis=0)]


def recalibrate(
    request: RunRequest, sampler: SubsampleOptions, first: ControlVariates | None
) -> ControlVariates:
    """Return control variates around the mean of a short run.

    The first half of the ``sampler.recalibrate`` iterations is left out of the mean.
    The certificate counts both passes, and describes the first stage and its work under
    ``recalibration``.

    Parameters
    ----------
    first
        Control variates of the first stage; ``None``: computed in one pass around the mode of
        a subset.

    Raises
    ------
    StoppedError
        If ``request.stop()`` became true.
    """
    iterations = sampler.recalibrate
    assert iterations is not None
    dataset, model = request.dataset, request.model
    options: dict[str, Any] = {
        "order": sampler.order,
        "passes": 1,
        "scheduler": request.scheduler,
        "progress": request.blocks_of("pass"),
        "phases": request.progress,
    }
    if first is None:
        first = compute(dataset, model, **options)
    settings = PlanRequest(unit_rows=sampler.unit_rows, certainty=sampler.certainty)
    first_plan = plan_units(first, dataset, model, settings, memory=2 * memory_limit())
    plan = _affordable(first_plan)
    perturbed = sampler if isinstance(sampler, HmcEcs) else HmcEcs(order=sampler.order)
    own_seed = int(streams.stream(request.stream_seed, 0, streams.Role.RECALIBRATE).integers(2**63))
    team = Chains(
        subsampled(dataset, model, first, plan, perturbed),
        seed=own_seed,
        chains=request.chains,
        threads=request.threads,
    )
    kept = _Kept()
    try:
        team.initialise()
        for done in range(0, iterations, _STRETCH):
            count = min(_STRETCH, iterations - done)
            team.advance(kept, "warmup", count, request.stop)
            request.notify("recalibration", done + count, iterations, {})
    finally:
        team.close()
    theta = model.unconstrain(np.concatenate(kept.theta, axis=1)[:, iterations // 2 :])
    centre = theta.reshape(-1, first.dim).mean(axis=0)
    second = compute(dataset, model, theta_star=centre, near=True, **options)
    gathered = sum(kernel.rows_gathered for kernel in team.kernels) + len(plan.certainty_rows)
    recalibration = {
        "iterations": iterations,
        "chains": request.chains,
        "evaluations": kept.evaluations,
        "rows_gathered": gathered,
        "log_lik_variance_mean": float(np.mean(kept.variance)),
        "subsample_used": plan.subsample_size,
        "first": _stage(first, first_plan),
    }
    certificate = second.certificate.plus(**first.certificate.work())
    certificate = certificate.plus(seconds=team.clock["warmup"])
    return replace(second, certificate=replace(certificate, recalibration=recalibration))


def described(cv: ControlVariates, plan: Plan | None) -> dict[str, Any] | None:
    """Return both stages of a recalibration as JSON for the summary, or None."""
    record = cv.certificate.recalibration
    if record is None or plan is None:
        return None
    return {**record, "second": _stage(cv, plan)}


def _stage(cv: ControlVariates, plan: Plan) -> dict[str, Any]:
    return {
        "decrement": cv.certificate.decrement,
        "subsample_size": plan.subsample_size,
        "certainty_rows": len(plan.certainty_rows),
        "predicted_variance": plan.describe()["predicted"]["variance"],
    }


def _affordable(plan: Plan) -> Plan:
    """Return the plan with at most ``MOST_ROWS`` rows sampled."""
    k = min(plan.k, max(MOST_ROWS // plan.unit_rows, 2))
    return replace(plan, k=k, n_blocks=min(MOST_BLOCKS, k)) if k < plan.k else plan
