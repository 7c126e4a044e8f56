"""Problems of ``hmc``, ``hmc-ecs`` and ``hmc-ecs-signed``: Taylor sums, rows and design."""

from __future__ import annotations

import math

import numpy as np

from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.group_coordinates import group_coordinates
from streammc.control_variates.level_coordinates import level_coordinates
from streammc.control_variates.plan.signs import GROWTH
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.likelihood.expanded_rows import load_block
from streammc.likelihood.target import Base
from streammc.numerics.sums import taylor
from streammc.protocols import Dataset, Model
from streammc.samplers.common.chain import DISPERSED
from streammc.samplers.hamiltonian.full_data import Hmc
from streammc.samplers.hamiltonian.kernel import Problem
from streammc.samplers.hamiltonian.options import LEAPFROG, NUTS, SubsampleOptions, trajectory
from streammc.samplers.hamiltonian.signed import HmcEcsSigned
from streammc.samplers.hamiltonian.whitening import whiten_block, whitened_base, whitening_pays
from streammc.subsampling.alias import AliasTable
from streammc.subsampling.units import ProductDesign, UnitDesign

_NOT_EXPANDED = -1


def full_data(dataset: Dataset, model: Model, cv: ControlVariates, sampler: Hmc) -> Problem:
    """Return the problem of ``hmc``: no subsample, and every row a certainty row.

    If the likelihood has sufficient statistics, the sums of the pass contain them, and no row
    is kept in memory.
    """
    d = len(cv.theta_star)
    exact = model.exact_sums is not None
    rows = np.arange(0 if exact else dataset.n_rows, dtype=np.int64)
    base = Base(
        cv.theta_star,
        float(cv.log_lik + cv.log_lik_remainder) if exact else 0.0,
        cv.gradient if exact else np.zeros(d),
        np.ascontiguousarray(cv.hessian) if exact else np.zeros((d, d)),
        np.ascontiguousarray(cv.factor),
        model.prior_table(cv.labels),
        model.constants,
        model.n_linear,
        _NOT_EXPANDED,
        1,
        0.0,
        0.0,
    )
    base = base._replace(levels=level_coordinates(base.prior, cv))
    base = _with_coordinates(base, cv, dataset, model)
    length, jitter = trajectory(sampler.trajectory_length, sampler.jitter)
    return Problem(
        link=model.link,
        sums=model.exact_sums if exact else taylor,
        base=base,
        certain=load_block(dataset, model, rows, cv.theta_star, _NOT_EXPANDED),
        certainty_rows=np.zeros(0, dtype=np.int64),
        design=None,
        source=dataset.rows(),
        trajectory_length=length,
        jitter=jitter,
        target_acceptance=sampler.target_acceptance,
        step_size=sampler.step_size,
        constrain=model.constrain,
        nuts=sampler.trajectory == NUTS,
        leapfrog=sampler.integrator == LEAPFROG,
        spread=DISPERSED,
        modes=cv.other_modes(),
    )


def subsampled(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    plan: Plan,
    sampler: SubsampleOptions,
) -> Problem:
    """Return the problem of ``hmc-ecs`` or ``hmc-ecs-signed``, with certainty rows and units."""
    k = plan.k
    table = AliasTable(plan.relative) if plan.relative is not None else None
    shape = (dataset.n_rows, plan.unit_rows, k, plan.n_blocks)
    design: UnitDesign
    if isinstance(sampler, HmcEcsSigned):
        size = plan.factor_units
        design = ProductDesign(*shape, size, probabilities=table)
        intensity = k / size
        bound, growth = sampler.soft_bound, 0.0
        if bound is None:
            bound = plan.predicted["remainder"] - intensity
            growth = GROWTH * math.sqrt(plan.predicted["variance"] / intensity)
        factors = (design.n_units / size, 0.0, size, intensity, float(bound), growth)
    else:
        design = UnitDesign(*shape, probabilities=table)
        divisor = k * k if sampler.paper_variance else k * (k - 1)
        factors = (design.n_units / k, design.n_units**2 / divisor, 0, 0.0, 0.0, 0.0)
    where = coordinates(model, cv.theta_star, cv.noise)
    gradient, hessian = where.from_theta(cv.gradient, cv.hessian)
    base = Base(
        cv.theta_star,
        float(cv.log_lik + cv.log_lik_remainder),
        gradient if cv.order >= 1 else np.zeros_like(gradient),
        np.ascontiguousarray(hessian if cv.order == 2 else np.zeros_like(hessian)),
        np.ascontiguousarray(cv.factor),
        model.prior_table(cv.labels),
        where.model.constants,
        model.n_linear,
        cv.order,
        plan.unit_rows,
        *factors,
        *((plan.edge.radius**2, plan.edge.walls) if plan.edge is not None else ()),
    )
    base = base._replace(levels=level_coordinates(base.prior, cv))
    base = _with_coordinates(base, cv, dataset, model)
    certain = load_block(dataset, where.model, plan.certainty_rows, where.centre, cv.order)
    q, proposed = dataset.n_features, plan.unit_rows * -(-k // plan.n_blocks)
    # A link that uses the columns of rows needs those of the table; one that says nothing may.
    columns = getattr(model, "sees_columns", True)
    if not columns and whitening_pays(base, q, plan.unit_rows * k, proposed):
        base = whitened_base(base, q)
        whiten_block(base.whitening, certain)
    length, jitter = trajectory(sampler.trajectory_length, sampler.jitter)
    return Problem(
        link=model.link,
        sums=taylor,
        base=base,
        certain=certain,
        certainty_rows=plan.certainty_rows,
        design=design,
        source=dataset.rows(),
        trajectory_length=length,
        jitter=jitter,
        target_acceptance=sampler.target_acceptance,
        step_size=sampler.step_size,
        constrain=model.constrain,
        nuts=sampler.trajectory == NUTS,
        leapfrog=sampler.integrator == LEAPFROG,
    )


def _with_coordinates(base: Base, cv: ControlVariates, dataset: Dataset, model: Model) -> Base:
    """Return ``base`` with the coordinates of its expansions, and with those of its positions.

    Expansions may be in the marginal precision of group effects; positions as in
    ``control_variates.group_coordinates``.
    """
    where = coordinates(model, cv.theta_star, cv.noise)
    noise = where.noise if base.order >= 0 else np.zeros(0)
    own = group_coordinates(dataset, model, cv)
    if len(own.lines) or len(own.spreads):
        star, factor = cv.theta_star.copy(), np.array(cv.factor, order="C")
        for j, (at, scale) in zip(own.lines[:, 0].astype(np.int64), own.around, strict=True):
            star[j] = at
            if at:
                factor[j] *= math.tanh(at)  # of log tau in t
            else:  # the density is even
                factor[j] = factor[:, j] = 0.0
                factor[j, j] = scale
        base = base._replace(
            theta_star=star,
            factor=factor,
            lines=own.lines,
            spreads=own.spreads,
            mode=cv.theta_star,
            mode_factor=np.ascontiguousarray(cv.factor),
        )
    elif not len(noise):
        return base
    centre = where.centre if len(noise) else cv.theta_star
    return base._replace(centre=centre, noise=noise)
