"""The problem of the samplers with a ladder of levels."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.linalg import solve_triangular

from streammc.control_variates.expansion import ControlVariates
from streammc.errors import ConfigError, OutOfMemoryError
from streammc.estimators.target import Base
from streammc.numerics.prior import FLAT, KIND, LOG_FLAT
from streammc.protocols import Dataset, Model, Vector
from streammc.samplers.equi_energy import EquiEnergy
from streammc.samplers.tempered_options import HMC, TemperedOptions
from streammc.sampling.held_rows import memory_limit, response_check
from streammc.tempering.density import pointers
from streammc.tempering.explorers import EXPLORERS
from streammc.tempering.held import Held, held_bytes, hold
from streammc.tempering.problem import TemperedProblem

IMPROPER: Final = (FLAT, LOG_FLAT)
ACCEPTANCE: Final = {HMC: 0.8}
"""What warm-up aims for; of a random walk 0.44 in one dimension, else 0.234 (Roberts and
Rosenthal 2001)."""


def ground(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: TemperedOptions | EquiEnergy
) -> tuple[Base, Held, Vector, float]:
    """Return coordinates, every row in memory, and mean and spread of the first positions.

    Raises
    ------
    OutOfMemoryError
        If the rows need more than half of the memory that is available.
    """
    needed = held_bytes(dataset.n_rows, dataset.n_features)
    if needed > memory_limit():
        raise OutOfMemoryError(
            f"{dataset.n_rows} rows x {dataset.n_features} features in memory need "
            f"{needed / 1e9:.1f} GB, more than half of what is available, and {sampler.name} "
            "evaluates all of them; use hmc-ecs, or mint for a posterior with several modes"
        )
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
    if not cv.certificate["passes"]:  # a pass has looked
        response_check(dataset, model)(full.y[full.weight > 0.0])
    return base, full, first, spread


def check_prior(dataset: Dataset, model: Model, sampler: TemperedOptions) -> None:
    """Raise ConfigError if the last level is the prior and that is no density."""
    labels = model.labels(dataset.feature_names)
    improper = np.isin(model.prior_table(labels)[:, KIND], IMPROPER)
    if sampler.n_levels > 1 and sampler.beta_min == 0.0 and improper.any():
        raise ConfigError(
            "expected a prior that can be sampled, as beta_min=0 asks for, found a flat one on "
            f"{labels[int(np.argmax(improper))]}; set another prior or a beta_min above 0"
        )


def tempering(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: TemperedOptions
) -> TemperedProblem:
    """Return the problem of a sampler with a ladder; see :func:`ground`."""
    base, full, first, spread = ground(dataset, model, cv, sampler)
    target = sampler.target_acceptance
    if target is None:
        target = ACCEPTANCE.get(sampler.explorer, 0.44 if cv.dim == 1 else 0.234)
    link, joint = pointers(model)
    return TemperedProblem(
        link=link,
        joint=joint,
        explore=EXPLORERS[sampler.explorer],
        base=base,
        full=full,
        source=dataset.rows(),
        constrain=model.constrain,
        options=sampler,
        target_acceptance=float(target),
        first=first,
        spread=spread,
        memory=memory_limit,
    )
