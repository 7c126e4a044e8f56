"""Setup of ``sgld`` and ``sghmc``: step sizes in closed form, and the problem of the chains."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streammc.control_variates.certify import require_rows
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.gradient_noise import gradient_noise
from streammc.control_variates.plan.subsample_plan import Plan, subsample_text
from streammc.diagnostics.text import percent
from streammc.errors import ConfigError, RefusedError
from streammc.likelihood.blocks import load_block
from streammc.likelihood.drawn_units import AliasTable, UnitDesign
from streammc.likelihood.target import Base
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.summation import taylor
from streammc.protocols import Dataset, Matrix, Model
from streammc.samplers.common.options import DEFAULT_LENGTH, LAPLACE, NONE
from streammc.samplers.common.preparation import control_variates, planned_or_few
from streammc.samplers.common.sampler import RunRequest, Setup
from streammc.samplers.stochastic_gradient.kernel import MOST_STEPS, Schedule, StochasticProblem
from streammc.samplers.stochastic_gradient.loop import Dynamics
from streammc.samplers.stochastic_gradient.stationary import (
    Approximation,
    fewest_steps,
    hamiltonian_covariance,
    langevin_covariance,
    longest_step,
    three_digits,
)

if TYPE_CHECKING:
    from streammc.samplers.stochastic_gradient.options import Sghmc, StochasticGradient


def prepare(sampler: StochasticGradient, request: RunRequest, reason: str) -> Setup:
    """Return the setup: control variates, and a plan that includes the step size."""
    require_rows(request.model)
    cv = control_variates(request, 2)
    plan = planned_or_few(
        request,
        cv,
        sampler,
        subsample_size=sampler.subsample_size,
        certainty=sampler.certainty,
    )
    plan = tune(request.dataset, request.model, cv, plan, sampler)
    return Setup(sampler, cv, plan, "; ".join([reason] * bool(reason) + [*plan.reasons]))


def tune(
    dataset: Dataset, model: Model, cv: ControlVariates, plan: Plan, sampler: StochasticGradient
) -> Plan:
    """Return the plan with step size, number of steps and predicted bias in ``predicted``.

    ``gradient_noise`` is the largest variance of a gradient in any direction of the whitened
    coordinates; ``variance_bias`` the largest relative error of the variance of a linear
    combination of theta, for the first step size, on the Laplace approximation;
    ``variance_ratio`` the variance of each parameter divided by its Laplace variance.

    Raises
    ------
    ConfigError
        If the noise is to be estimated from one unit, or a trajectory has too many steps.
    """
    if plan.k < 2 and sampler.estimates_noise:
        raise ConfigError(
            "expected a subsample of two units or more for noise_estimate=estimated, found one; "
            "give a larger subsample_size"
        )
    order = _order(sampler)
    certain = plan.certainty_rows if order >= 0 else plan.certainty_rows[:0]
    with single_threaded():
        found = gradient_noise(
            cv,
            dataset,
            model,
            order=order,
            certainty_rows=certain,
            unit_rows=plan.unit_rows,
            k=plan.k,
            relative=plan.relative,
        )
        noise = found.covariance
        if not np.isfinite(noise).all():
            raise RefusedError(
                f"expected a finite variance of the gradient for {sampler.name}, found none: the "
                "posterior has no width, as where columns fit the response exactly or the response "
                "is far from the priors; give the scale a tighter prior (--prior), rescale the "
                "response, or use hmc"
            )
        at = _approximation(sampler, cv, noise)
        if sampler.momentum:
            step, n_steps, covariance = _trajectory(cast("Sghmc", sampler), at)
        else:
            longest = 4.0 / float(at.curvature.max())
            step = sampler.step_size or longest_step(
                lambda h: at.bias(langevin_covariance(h, at)), longest
            )
            n_steps, covariance = 1, langevin_covariance(step, at)
        bias, loudest = at.bias(covariance), float(np.linalg.eigvalsh(noise)[-1])
        back = (cv.factor if _whitened(sampler) else np.eye(cv.dim)) @ at.axes
        with np.errstate(invalid="ignore"):
            variance = np.einsum("ij,jk,ik->i", back, covariance, back)
    reasons, seen = plan.reasons, dict(plan.predicted)
    if order != 2:  # the plan describes the estimate with expansions of order 2
        seen["variance"] = float(np.quantile(found.log_lik_variance, 0.9))
        seen["variance_by_draw"] = [float(v) for v in found.log_lik_variance]
        what = "nothing is" if order < 0 else f"expansions of order {order} are"
        reasons = (
            f"{subsample_text(len(certain), plan.k, plan.unit_rows, dataset.unit_name)}, of which "
            f"{what} subtracted; the log-likelihood estimated from it is predicted to have "
            f"variance {seen['variance']:.2g}",
            *reasons[1:],
        )
    predicted = {
        **seen,
        "step_size": step,
        "n_steps": float(n_steps),
        "variance_bias": bias,
        "variance_ratio": [float(v) for v in variance / cv.posterior_sd() ** 2],
        "gradient_noise": loudest,
    }
    size = f"by {percent(bias)}" if math.isfinite(bias) else "without bound"
    reason = (
        f"biased: at step size {step:.3g} the variances are predicted to be off {size}, by step "
        "size and noise, on the Laplace approximation"
    )
    return replace(
        plan,
        certainty_rows=certain,
        n_blocks=1,
        reasons=(*reasons, reason),
        predicted=predicted,
    )


def stochastic(
    dataset: Dataset, model: Model, cv: ControlVariates, plan: Plan, sampler: StochasticGradient
) -> StochasticProblem:
    """Return the problem that all chains of ``sgld`` or ``sghmc`` share."""
    order, k = _order(sampler), plan.k
    table = AliasTable(plan.relative) if plan.relative is not None else None
    design = UnitDesign(dataset.n_rows, plan.unit_rows, k, 1, probabilities=table)
    base = Base(
        cv.theta_star,
        float(cv.log_lik + cv.log_lik_remainder) if order >= 0 else 0.0,
        cv.gradient if order >= 1 else np.zeros_like(cv.gradient),
        np.ascontiguousarray(cv.hessian if order == 2 else np.zeros_like(cv.hessian)),
        np.ascontiguousarray(cv.factor if _whitened(sampler) else np.eye(cv.dim)),
        model.prior_table(cv.labels),
        model.constants,
        model.n_linear,
        order,
        plan.unit_rows,
        design.n_units / k,
        0.0,
    )
    momentum = cast("Sghmc", sampler) if sampler.momentum else None
    factor = design.n_units**2 / (k * (k - 1)) if k > 1 else 0.0
    friction = float(momentum.friction) if momentum else 0.0
    step, n_steps = plan.predicted["step_size"], int(plan.predicted["n_steps"])
    fixed = momentum is None or momentum.n_steps is not None
    return StochasticProblem(
        link=model.link,
        sums=taylor,
        base=base,
        certain=load_block(dataset, model, plan.certainty_rows, cv.theta_star, order),
        certainty_rows=plan.certainty_rows,
        design=design,
        source=dataset.rows(),
        constrain=model.constrain,
        schedule=Schedule(
            step, sampler.decay, sampler.offset, n_steps if fixed else 0, step * n_steps
        ),
        dynamics=Dynamics(
            int(momentum is not None), friction, factor, int(sampler.estimates_noise)
        ),
        spread=None if _whitened(sampler) else np.ascontiguousarray(cv.factor),
    )


def _order(sampler: StochasticGradient) -> int:
    """Return the order of the subtracted expansion, -1 for none."""
    return -1 if sampler.control_variate == NONE else int(sampler.control_variate or 0)


def _whitened(sampler: StochasticGradient) -> bool:
    return sampler.preconditioner == LAPLACE


def _approximation(
    sampler: StochasticGradient, cv: ControlVariates, noise: Matrix
) -> Approximation:
    """Return the Laplace approximation and the noise in the sampler's coordinates."""
    if _whitened(sampler):
        return Approximation(np.ones(cv.dim), np.eye(cv.dim), noise)
    inverse = np.linalg.inv(cv.factor)
    curvature, axes = np.linalg.eigh(inverse.T @ inverse)
    return Approximation(curvature, axes, inverse.T @ noise @ inverse)


def _trajectory(sampler: Sghmc, at: Approximation) -> tuple[float, int, Matrix]:
    """Return step size, number of steps and stationary covariance of ``sghmc``."""
    friction, estimated = float(sampler.friction), sampler.estimates_noise

    def covariance(step: float, n_steps: int) -> Matrix:
        return hamiltonian_covariance(step, n_steps, friction, estimated, at)

    length = sampler.trajectory_length or DEFAULT_LENGTH / math.sqrt(float(at.curvature.min()))

    def step_of(n: int) -> float:
        return length / n if sampler.trajectory_length else three_digits(length / n)

    if sampler.step_size is not None:
        step = sampler.step_size
        n_steps = sampler.n_steps or max(math.ceil(length / step - 1e-9), 1)
    else:
        n_steps = sampler.n_steps or fewest_steps(lambda n: at.bias(covariance(step_of(n), n)))
        step = step_of(n_steps)
    if n_steps > MOST_STEPS:
        raise ConfigError(
            f"expected at most {MOST_STEPS} steps an iteration, found {n_steps} (trajectory_length "
            f"{length:.3g} in steps of {step:.3g}); give n_steps or a larger step_size"
        )
    return step, n_steps, covariance(step, n_steps)
