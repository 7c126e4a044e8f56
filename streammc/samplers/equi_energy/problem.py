"""The problem of ``mintee``: rows in memory, and the point from which energies are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.optimize import minimize

from streammc import rng as streams
from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import require_rows, without_pass
from streammc.control_variates.expansion import ControlVariates
from streammc.errors import ConfigError
from streammc.likelihood.contiguous_rows import Held, log_likelihood, pointers
from streammc.likelihood.target import Base
from streammc.numerics.prior import log_prior
from streammc.protocols import Dataset, Model, Vector
from streammc.samplers.common.preparation import announce_rows, control_variates, ground
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup
from streammc.samplers.equi_energy.kernel import EquiEnergyProblem

if TYPE_CHECKING:
    from streammc.samplers.equi_energy.options import EquiEnergy

PILOT_STEPS: Final = 200
"""Iterations of the search for a minimum of the energy."""


def prepare(sampler: EquiEnergy, request: RunRequest, reason: str) -> Setup:
    """Return control variates for the shape of the steps, or a place to start from."""
    require_rows(request.model)
    announce_rows(request, sampler.name)
    if sampler.needs_pass(request.model):
        cv = control_variates(request)
    else:
        cv = without_pass(Bound(request.dataset, request.model), sampler.start)
    return Setup(sampler, cv, None, reason or NAMED)


def equi_energy(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: EquiEnergy, warmup: int
) -> EquiEnergyProblem:
    """Return the problem of ``mintee``; see ``common.preparation.ground``.

    Raises
    ------
    ConfigError
        If the likelihood is no product over rows and its energy is to be that of drawn rows, or
        if there are fewer rows than the levels ask for.
    """
    sampler = sampler.settled(cv.dim)
    if model.joint is not None and sampler.energy not in ("subset", "full"):
        raise ConfigError(
            f"expected energy='subset' or 'full' for {model.name}, whose likelihood is no product "
            f"over rows, found {sampler.energy!r}, which adds up rows; use one of them"
        )
    sampler.sizes(dataset.n_rows)
    base, full, first, spread = ground(dataset, model, cv, sampler)
    density = _Density(*pointers(model), base, allocate_trial(cv.dim, _predictors(base, full)))
    reference = cv.theta_star
    if not sampler.needs_pass(model):
        reference = _minimum(density, full, cv.theta_star)
    n = len(full.y)
    terms = np.zeros(n)
    if full.joint:
        terms[0] = density(full, n, reference)
    else:
        terms[:] = [density(full, i + 1, reference, i) for i in range(n)]
        if sampler.control_variate != 0:
            terms[:] = terms.mean()
    return EquiEnergyProblem(
        link=density.link,
        joint=density.joint,
        base=base,
        full=full,
        source=dataset.rows(),
        constrain=model.constrain,
        options=sampler,
        first=first,
        spread=spread,
        at_reference=terms,
        reference=reference,
        log_likelihood=density,
        warmup=warmup,
    )


def _predictors(base: Base, full: Held) -> int:
    return base.n_linear + len(base.theta_star) - base.n_linear * len(full.design)


class _Density:
    """The log-likelihood of rows, and its gradient, from Python."""

    def __init__(self, link: Any, joint: Any, base: Base, trial: Any) -> None:
        self.link, self.joint, self.base, self.trial = link, joint, base, trial

    def __call__(self, held: Held, stop: int, theta: Vector, start: int = 0) -> float:
        """Return the log-likelihood of the rows ``start`` to ``stop``."""
        return float(
            log_likelihood(
                self.link, self.joint, self.base, held, start, stop,
                np.ascontiguousarray(theta), 0, self.trial.slope, self.trial.scratch,
            )
        )  # fmt: skip

    def posterior(self, held: Held, theta: Vector) -> tuple[float, Vector]:
        """Return minus the log posterior of all rows and its gradient."""
        slope, prior_slope = self.trial.slope, np.zeros(len(theta))
        value = log_likelihood(
            self.link, self.joint, self.base, held, 0, len(held.y), theta, 1, slope,
            self.trial.scratch,
        )  # fmt: skip
        value += log_prior(theta, self.base.prior, prior_slope)
        return -float(value), -(slope + prior_slope)


def _minimum(density: _Density, full: Held, start: Vector) -> Vector:
    """Return a local minimum near ``start``, beside which a saddle point would be."""
    rng = streams.stream(0, 0, streams.Role.PLAN)
    begun = start + 0.1 * rng.standard_normal(len(start))
    found = minimize(
        lambda theta: density.posterior(full, theta),
        begun, jac=True, method="L-BFGS-B", options={"maxiter": PILOT_STEPS},
    )  # fmt: skip
    low, _ = density.posterior(full, start)
    better = np.isfinite(found.fun) and found.fun <= low
    return np.ascontiguousarray(found.x if better else start, dtype=np.float64)
