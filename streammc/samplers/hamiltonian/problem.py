"""Problems of ``hmc``, ``hmc-ecs`` and ``hmc-ecs-signed``: the target, its rows and its settings.

A run calls ``prepare_full_data`` or ``prepare_subsampled``, at the end of the file, and then
:func:`full_data` or :func:`subsampled`. ``Base`` (``likelihood.target``) has the constants of the
target: Taylor sums, prior and the scale S of ``theta = theta_star + S z``, which is its ``factor``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import expanded, require_rows
from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.effect_coordinates import group_coordinates, level_coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.subsample_plan import (
    GROWTH,
    MOST_BLOCKS,
    Plan,
    PlanRequest,
    plan_units,
)
from streammc.errors import RefusedError
from streammc.likelihood.blocks import (
    Block,
    allocate_rows,
    load_block,
    memory_limit,
    require_memory,
)
from streammc.likelihood.drawn_units import AliasTable, ProductDesign, UnitDesign
from streammc.likelihood.target import Base, whiten_rows
from streammc.models.base import places, wide
from streammc.numerics.prior import (
    COLUMNS,
    FLAT,
    JOINT_NORMAL,
    KIND,
    NORMAL,
    log_prior,
    prior_precision,
)
from streammc.numerics.row_products import aligned
from streammc.numerics.summation import taylor
from streammc.protocols import Dataset, Index, Matrix, Model, Vector
from streammc.samplers.common.chains import DISPERSED, Chains
from streammc.samplers.common.preparation import control_variates, planned
from streammc.samplers.common.sampler import NAMED, PERTURBED, RunRequest, Sampler, Setup
from streammc.samplers.hamiltonian.kernel import Problem

if TYPE_CHECKING:
    from streammc.samplers.hamiltonian.options import (
        Hmc,
        HmcEcs,
        HmcEcsSigned,
        SubsampleOptions,
        TrajectoryOptions,
    )

# Change of a problem to whitened coordinates, where it makes an iteration cheaper.
#
# A row ``x`` becomes ``W'x``, with W the block of S of the q coefficients: see
# :mod:`streammc.likelihood.target`. The density of a position stays the same; only roundings
# differ.


_SLICE: Final = 8192
"""Rows that are whitened at once."""
_ROUNDING: Final = 1e-10
"""Largest entry off the diagonal of a whitened Hessian, relative to the largest on it, that counts
as rounding."""
_PRODUCTS: Final = 5
"""Products of a matrix with a vector that an iteration of one step saves, of S or of the Hessian. A
proposed row costs one, that with W."""


def whitening_pays(base: Base, q: int, rows: int, proposed: int) -> bool:
    """Return whether whitened rows are possible, and cheaper than products with S.

    They are possible for one linear predictor of ``q`` features where theta is linear in z, and
    expansions are in theta. ``rows`` is the size of the subsample, ``proposed`` how many are
    proposed an iteration. Where these are many, whitening them must be small beside the rows of
    one evaluation.
    """
    linear = not len(base.levels) and not len(base.centre) and not len(base.mode)
    if base.n_linear != 1 or not linear or not len(base.factor):
        return False
    return proposed <= _PRODUCTS or proposed * q <= rows // 2


def whitened_base(base: Base, q: int) -> Base:
    """Return ``base`` with Taylor sums and Normal priors as one quadratic in whitened coordinates.

    Other priors stay in ``prior``, in theta.
    """
    d = len(base.theta_star)
    to_theta = np.eye(d)
    to_theta[:q, :q] = base.factor[:q, :q]
    value, slope, precision, prior = _normal_priors(base)
    hessian = base.hessian if len(base.hessian) else np.zeros((d, d))
    hessian = to_theta.T @ (hessian - precision) @ to_theta
    whitening = aligned(q, q)
    whitening[:, :q] = base.factor[:q, :q]
    return base._replace(
        log_lik=base.log_lik + value,
        gradient=to_theta.T @ (base.gradient + slope),
        hessian=np.ascontiguousarray(0.5 * (hessian + hessian.T)),
        prior=prior,
        whitening=whitening,
        diagonal=_diagonal(hessian),
    )


def _normal_priors(base: Base) -> tuple[float, Vector, Matrix, Matrix]:
    """Return value, gradient and precision of the Normal priors at theta_star, and the others."""
    table = base.prior
    normal, flat = np.isin(table[:, KIND], (NORMAL, JOINT_NORMAL)), table[:, KIND] == FLAT
    normals, others = table.copy(), table[:, :COLUMNS].copy()
    normals[~normal] = 0.0  # a row of zeros is FLAT
    others[normal] = 0.0
    slope = np.zeros_like(base.theta_star)
    value = log_prior(base.theta_star, normals, slope)
    precision = prior_precision(base.theta_star, normals)
    return value, slope, precision, others[:0] if np.all(normal | flat) else others


def _diagonal(hessian: Matrix) -> Vector:
    """Return the diagonal of a Hessian whose other entries are rounding; else nothing."""
    diagonal = np.diag(hessian).copy()
    rest = np.abs(hessian - np.diag(diagonal)).max(initial=0.0)
    small = rest <= _ROUNDING * np.abs(diagonal).max(initial=0.0)
    return diagonal if small else np.zeros(0)


def whiten_block(whitening: Matrix, block: Block) -> None:
    """Write the rows of a block in whitened coordinates into its design."""
    q, n = block.design.shape[0], len(block.y)
    rows, buffer = allocate_rows(min(n, _SLICE), q), np.zeros(q)
    for start in range(0, n, _SLICE):
        stop = min(start + _SLICE, n)
        rows.X[: stop - start] = block.design[:, start:stop].T
        whiten_rows(whitening, rows, 0, stop - start, block, start, buffer)


_NOT_EXPANDED: Final = -1
"""Order of an expansion with no terms: the remainder of a row is its log-likelihood."""


def full_data(dataset: Dataset, model: Model, cv: ControlVariates, sampler: Hmc) -> Problem:
    """Return the problem of ``hmc``: no subsample, and every row a certainty row.

    If the likelihood has sufficient statistics, the sums of the pass contain them, and no row
    is kept in memory.
    """
    d = len(cv.theta_star)
    exact = model.exact_sums is not None
    rows = np.arange(0 if exact else dataset.n_rows, dtype=np.int64)
    base = Base(
        theta_star=cv.theta_star,
        log_lik=float(cv.log_lik + cv.log_lik_remainder) if exact else 0.0,
        gradient=cv.gradient if exact else np.zeros(d),
        hessian=np.ascontiguousarray(cv.hessian) if exact else np.zeros((d, d)),
        factor=np.ascontiguousarray(cv.factor),
        prior=model.prior_table(cv.labels),
        constants=model.constants,
        n_linear=model.n_linear,
        order=_NOT_EXPANDED,
        unit_rows=1,
        estimate_factor=0.0,
        variance_factor=0.0,
    )
    base = base._replace(levels=level_coordinates(base.prior, cv))
    base = _with_coordinates(base, cv, dataset, model)
    at = places(model, dataset.n_features)
    return Problem(
        link=model.link,
        sums=model.exact_sums if exact else taylor,
        base=base if at is None else _wide_base(base, model, dataset.n_features, at),
        certain=load_block(dataset, model, rows, cv.theta_star, _NOT_EXPANDED),
        certainty_rows=np.zeros(0, dtype=np.int64),
        design=None,
        source=dataset.rows(),
        constrain=model.constrain if at is None else partial(_constrained, model, at),
        modes=cv.other_modes(),
        spread=sampler.spread or DISPERSED,
        **_trajectories(sampler),
    )


def _trajectories(sampler: TrajectoryOptions) -> dict[str, Any]:
    """Return the settings of the trajectories of a problem."""
    length, jitter = sampler.length_and_jitter
    return {
        "trajectory_length": length,
        "jitter": jitter,
        "target_acceptance": sampler.target_acceptance,
        "step_size": sampler.step_size,
        "nuts": sampler.trajectory == "nuts",
        "leapfrog": sampler.integrator == "leapfrog",
    }


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
    estimator: dict[str, Any]
    if sampler.factor_units:
        size = plan.factor_units
        design = ProductDesign(*shape, size, probabilities=table)
        intensity = k / size  # lambda
        bound, growth = cast("HmcEcsSigned", sampler).soft_bound, 0.0
        if bound is None:
            bound = plan.predicted["remainder"] - intensity  # factors (d_f - a) / lambda near 1
            growth = GROWTH * math.sqrt(plan.predicted["variance"] / intensity)
        estimator = {
            "estimate_factor": design.n_units / size,
            "variance_factor": 0.0,
            "factor_units": size,
            "intensity": intensity,
            "soft_bound": float(bound),
            "bound_growth": growth,
        }
    else:
        design = UnitDesign(*shape, probabilities=table)
        # Dang et al. 2019, eq. 10, or without its bias.
        divisor = k * k if cast("HmcEcs", sampler).variance == "paper" else k * (k - 1)
        estimator = {
            "estimate_factor": design.n_units / k,
            "variance_factor": design.n_units**2 / divisor,
        }
    where = coordinates(model, cv.theta_star, cv.noise)
    gradient, hessian = where.from_theta(cv.gradient, cv.hessian)
    base = Base(
        theta_star=cv.theta_star,
        log_lik=float(cv.log_lik + cv.log_lik_remainder),
        gradient=gradient if cv.order >= 1 else np.zeros_like(gradient),
        hessian=np.ascontiguousarray(hessian if cv.order == 2 else np.zeros_like(hessian)),
        factor=np.ascontiguousarray(cv.factor),
        prior=model.prior_table(cv.labels),
        constants=where.model.constants,
        n_linear=model.n_linear,
        order=cv.order,
        unit_rows=plan.unit_rows,
        **estimator,
    )
    if plan.edge is not None:
        base = base._replace(edge=plan.edge.radius**2, walls=plan.edge.walls)
    base = base._replace(levels=level_coordinates(base.prior, cv))
    base = _with_coordinates(base, cv, dataset, model)
    certain = load_block(dataset, where.model, plan.certainty_rows, where.centre, cv.order)
    q, proposed = dataset.n_features, plan.unit_rows * -(-k // plan.n_blocks)  # rows of a block
    # A link that uses the columns of rows needs those of the table.
    if not model.sees_columns and whitening_pays(base, q, plan.unit_rows * k, proposed):
        base = whitened_base(base, q)
        whiten_block(base.whitening, certain)
    at = places(model, q)
    return Problem(
        link=model.link,
        sums=taylor,
        base=base if at is None else _wide_base(base, model, q, at),
        certain=certain,
        certainty_rows=plan.certainty_rows,
        design=design,
        source=dataset.rows(),
        constrain=model.constrain if at is None else partial(_constrained, model, at),
        spread=sampler.spread or 1.0,
        **_trajectories(sampler),
    )


def _wide_base(base: Base, model: Model, q: int, at: Index) -> Base:
    """Return ``base`` in the layout of ``models.base.wide``, with q columns in each predictor.

    Those that a predictor has not stay at 0: their rows of S are 0, and their priors flat. S is
    still lower triangular, since ``at`` ascends.
    """
    D = model.n_linear * q + model.n_scalar
    hessian, factor = np.zeros((D, D)), np.zeros((D, len(at)))
    hessian[np.ix_(at, at)] = base.hessian
    factor[at] = base.factor
    joint = base.prior.shape[1] > COLUMNS
    prior = np.zeros((D, COLUMNS + joint * D))  # a row of zeros is FLAT
    prior[at, :COLUMNS] = base.prior[:, :COLUMNS]
    if joint:
        prior[np.ix_(at, COLUMNS + at)] = base.prior[:, COLUMNS:]
    return base._replace(
        theta_star=wide(model, base.theta_star, q),
        gradient=wide(model, base.gradient, q),
        hessian=hessian,
        factor=factor,
        prior=prior,
    )


def _constrained(model: Model, at: Index, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the reported parameters of theta (..., D), which has theirs ``at`` these places."""
    return model.constrain(theta[..., at])


def _with_coordinates(base: Base, cv: ControlVariates, dataset: Dataset, model: Model) -> Base:
    """Return ``base`` with the coordinates of its expansions, and with those of its positions.

    Both are as in ``numerics.effect_positions``: expansions may be in the marginal precision of
    group effects, and a chain may move in ``t``, with ``tau = c |sinh t|`` the standard deviation
    of an effect, and in coefficients that are stretched by it (``spreads``).
    """
    where = coordinates(model, cv.theta_star, cv.noise)
    noise = where.noise if base.order >= 0 else np.zeros(0)
    effects = group_coordinates(dataset, model, cv)
    if len(effects.lines) or len(effects.spreads):
        start, factor = cv.theta_star.copy(), np.array(cv.factor, order="C")
        places = effects.lines[:, 0].astype(np.int64)  # of log tau in theta
        for j, (t, scale) in zip(places, effects.around, strict=True):
            start[j] = t
            if t:  # t is at the mode of log tau
                factor[j] *= math.tanh(t)  # dt / d log tau there
            else:  # around tau = 0 the density is even in t: no correlation with other components
                factor[j] = factor[:, j] = 0.0
                factor[j, j] = scale
        base = base._replace(
            theta_star=start,
            factor=factor,
            lines=effects.lines,
            spreads=effects.spreads,
            mode=cv.theta_star,
            mode_factor=np.ascontiguousarray(cv.factor),
        )
    elif not len(noise):
        return base
    centre = where.centre if len(noise) else cv.theta_star
    return base._replace(centre=centre, noise=noise)


# Recalibration: a better theta_star from a short run (Dang et al. 2019, section 6.6).
#
# Control variates around the mode of a subset cost one pass, but are poor if the subset is
# small relative to the table: they need a large subsample. A short run of all chains with these
# control variates, whose draws are not kept, locates the posterior. The mean of the draws is the
# theta_star of a second pass, and the subsample is planned again.


MOST_ROWS: Final = 2**16
"""Largest first subsample: a high variance harms the draws, but hardly their mean."""
_STRETCH: Final = 20
"""Iterations between two reports of progress."""


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
        If ``request.interrupted()`` became true.
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
        first = expanded(Bound(dataset, model), **options)
    settings = PlanRequest(unit_rows=sampler.unit_rows, certainty=sampler.certainty)
    first_plan = plan_units(first, dataset, model, settings, memory=2 * memory_limit())
    plan = _affordable(first_plan)
    own_seed = int(streams.stream(request.stream_seed, 0, streams.Role.RECALIBRATE).integers(2**63))
    team = Chains(
        subsampled(dataset, model, first, plan, sampler.recalibrating_sampler()),
        seed=own_seed,
        chains=request.chains,
        threads=request.threads,
    )
    kept = _Kept()
    try:
        team.initialise()
        for done in range(0, iterations, _STRETCH):
            count = min(_STRETCH, iterations - done)
            team.advance(kept, "warmup", count, request.interrupted)
            request.notify("recalibration", done + count, iterations, {})
    finally:
        team.close()
    theta = model.unconstrain(np.concatenate(kept.theta, axis=1)[:, iterations // 2 :])
    centre = theta.reshape(-1, first.dim).mean(axis=0)
    second = expanded(Bound(dataset, model), theta_star=centre, near=True, **options)
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


def described_recalibration(cv: ControlVariates, plan: Plan | None) -> dict[str, Any] | None:
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


def prepare_full_data(sampler: Sampler, request: RunRequest, reason: str) -> Setup:
    """Return the setup of ``hmc``; all rows must fit in memory unless sums are sufficient."""
    dataset, model = request.dataset, request.model
    require_rows(model)
    if model.exact_sums is None:
        require_memory(dataset, model, dataset.n_rows, _NOT_EXPANDED)  # before the pass
    return Setup(sampler, control_variates(request), None, reason or NAMED)


def prepare_subsampled(sampler: SubsampleOptions, request: RunRequest, reason: str) -> Setup:
    """Return the setup of ``hmc-ecs`` or ``hmc-ecs-signed``: control variates and plan.

    Raises
    ------
    RefusedError
        If the plan refuses the subsample, or it has too few units for a variance.
    """
    require_rows(request.model)
    if sampler.recalibrate is None:
        cv = control_variates(request, sampler.order)
    else:
        first = None
        if request.control_variates is not None:
            first = control_variates(request, sampler.order)
        cv = recalibrate(request, sampler, first)
    perturbed = sampler.target == PERTURBED
    plan = planned(
        request,
        cv,
        sampler,
        subsample_size=sampler.subsample_size,
        certainty=sampler.certainty,
        perturbed=perturbed,
    )
    if plan.refused is not None and not sampler.forced:
        raise RefusedError(plan.refused.cause, advice=plan.refused.advice)
    if plan.k < sampler.fewest_units:
        raise RefusedError(
            f"expected a subsample of at least {sampler.fewest_units} units, found {plan.k} of "
            f"{plan.unit_rows} {request.dataset.unit_name}s in a table of "
            f"{request.dataset.n_rows}: no variance can be estimated from one",
            advice="a smaller --unit-rows, a larger --subsample-size, or hmc",
        )
    return Setup(sampler, cv, plan, "; ".join([reason] * bool(reason) + [*plan.reasons]))
