"""The problem of the samplers with an acceptance test."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.expanded_rows import block_bytes, load_block
from streammc.likelihood.invalid_responses import response_check
from streammc.likelihood.target import Base
from streammc.likelihood.temperature import Schedule
from streammc.numerics.sums import taylor
from streammc.protocols import Dataset, Matrix, Model, Vector
from streammc.samplers.common.chain import DISPERSED
from streammc.samplers.common.option_checks import LAPLACE, NONE, RANDOM_WALK
from streammc.samplers.metropolis.acceptance.interface import Prepared
from streammc.samplers.metropolis.kernel import SCALING, MetropolisProblem
from streammc.samplers.metropolis.options import (
    DIAGONAL,
    FULL,
    LANGEVIN,
    PROPOSALS,
    MetropolisOptions,
)
from streammc.samplers.metropolis.workspace import Moves
from streammc.subsampling.certainty import leave_out
from streammc.trace.finite import finite_or_none

HELD_BYTES: Final = 2**30
"""Rows that every decision looks at are held in memory up to this size."""
DEFAULT_ROWS: Final = 100
ACCEPTANCE: Final = {RANDOM_WALK: (0.234, 0.158), LANGEVIN: (0.574, 0.347)}
"""The best acceptance rates of Metropolis (Roberts and Rosenthal 2001) and of Barker
(Agrawal, Vats, Latuszynski and Roberts 2023) in many dimensions."""
_TRAJECTORY: Final = (0.7, 0.43)


def metropolis(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    plan: Plan | None,
    sampler: MetropolisOptions,
    schedule: Schedule,
) -> MetropolisProblem:
    """Return the problem of a sampler with an acceptance test.

    Temperatures of ``schedule`` are relative to its last one, which ``dataset`` already has.
    """
    order = -1 if sampler.control_variate == NONE else int(sampler.control_variate or 0)
    b = plan.unit_rows if plan is not None else sampler.unit_rows or 1
    certain = plan.certainty_rows if plan is not None and order >= 0 else np.zeros(0, np.int64)
    population = -(-dataset.n_rows // b)
    rows = sampler.rows_of(dataset.n_rows)
    m = rows and max(rows // b, 1)
    if m is None and plan is not None and not sampler.chooses_size:
        m = plan.k
    prepared = sampler.acceptance_test(population, m)
    bound = finite_or_none(cv.certificate.term_bound)
    if sampler.takes_bound and bound is None:
        prepared = prepared._replace(sweeps=True)
    gradient = sampler.gradient_size
    if gradient is None and order < 1:
        gradient = (m or DEFAULT_ROWS) * b
    k = 0 if sampler.proposal == RANDOM_WALK or not gradient else max(gradient // b, 1)
    base = _base(model, cv, sampler, order, b, population / k if k else 0.0)
    target = sampler.target_acceptance
    if target is None:
        target = ACCEPTANCE.get(sampler.proposal, _TRAJECTORY)[int(prepared.barker)]
    first, spread, modes = _starts(sampler, cv, base)
    check = None if cv.certificate.passes else response_check(dataset, model)
    held = _held(dataset, model, cv, prepared, certain, b, order)
    if check is not None:
        used = held.weight > 0.0
        check(held.design[:, : len(used)].T[used], held.y[used], held.weight[used])
    return MetropolisProblem(
        link=model.link,
        sums=taylor,
        decide=sampler.decide,
        prepared=prepared,
        base=base,
        certain=load_block(dataset, model, certain, cv.theta_star, order),
        certainty_rows=certain,
        held=held,
        source=dataset.rows(),
        constrain=model.constrain,
        moves=Moves(
            PROPOSALS.index(sampler.proposal),
            sampler.n_steps,
            float(sampler.friction),
            k,
            min(prepared.first, population) if not prepared.replace else prepared.first,
            population,
            np.inf if bound is None else float(bound),
            int(sampler.covariance in (DIAGONAL, FULL)),
            int(not prepared.replace),
            int(prepared.carries),
            float(4.0 * ndtri(target / 2.0) ** 2),
        ),
        step_size=sampler.step_size,
        target_acceptance=float(target),
        schedule=schedule,
        implied=sampler.implied_temperature(dataset.n_rows),
        shape=sampler.covariance if sampler.covariance in (DIAGONAL, FULL) else None,
        first=first,
        spread=spread,
        modes=modes,
        check=check,
    )


def _base(
    model: Model,
    cv: ControlVariates,
    sampler: MetropolisOptions,
    order: int,
    b: int,
    estimate_factor: float,
) -> Base:
    """Return Taylor sums to ``order``, prior and scale for units of ``b`` rows."""
    return Base(
        cv.theta_star,
        float(cv.log_lik + cv.log_lik_remainder) if order >= 0 else 0.0,
        cv.gradient if order >= 1 else np.zeros_like(cv.gradient),
        np.ascontiguousarray(cv.hessian) if order == 2 else np.zeros((0, 0)),
        np.ascontiguousarray(cv.factor) if _laplace(sampler) else np.zeros((0, 0)),
        model.prior_table(cv.labels),
        model.constants,
        model.n_linear,
        order,
        b,
        estimate_factor,
        0.0,
    )


def _starts(
    sampler: MetropolisOptions, cv: ControlVariates, base: Base
) -> tuple[Vector, float, Matrix | None]:
    """Return mean and standard deviation of the first positions, and other modes to start at."""
    if sampler.start is not None:
        first = sampler.start - cv.theta_star
        if _laplace(sampler):
            first = solve_triangular(base.factor, first, lower=True)
        return first, 0.0, None
    first = np.zeros(cv.dim)
    if not _laplace(sampler):
        c, power = SCALING[PROPOSALS.index(sampler.proposal)]
        return first, float(sampler.step_size or c * cv.dim**-power), None
    if sampler.subsampled:
        return first, 1.0, None
    return first, DISPERSED, cv.other_modes()  # no control variate that has to fit


def _laplace(sampler: MetropolisOptions) -> bool:
    """Whether steps have the shape of the Laplace approximation."""
    return sampler.covariance == LAPLACE or (
        sampler.covariance is None and sampler.control_variate != NONE
    )


def _held(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    prepared: Prepared,
    certain: Any,
    b: int,
    order: int,
) -> Block:
    """Return all rows, padded to whole units, or none."""
    p = model.n_linear + model.n_scalar
    padded = -(-dataset.n_rows // b) * b
    size = block_bytes(padded, dataset.n_features, p, order)
    if not prepared.sweeps or size > HELD_BYTES:
        return allocate_block(0, dataset.n_features, p, order)
    block = load_block(dataset, model, np.arange(padded), cv.theta_star, order)
    weight = block.weight.copy()
    leave_out(np.arange(0, padded, b), b, certain, weight)
    block.expansion[:, weight == 0.0] = 0.0
    block.weight[:] = weight
    return block
