"""The problem of the samplers with a ladder of levels."""

from __future__ import annotations

from typing import Final, cast

import numpy as np
from scipy.linalg import solve_triangular

from streammc.control_variates.expansion import ControlVariates
from streammc.errors import OutOfMemoryError
from streammc.estimators.target import Base
from streammc.estimators.tempered import split_fingerprint
from streammc.numerics.prior_draws import improper
from streammc.protocols import Dataset, Model, Vector
from streammc.samplers.equi_energy import EquiEnergy
from streammc.samplers.tempered_options import HMC, TemperedOptions
from streammc.sampling.held_rows import memory_limit, response_check
from streammc.sampling.ladder import ended
from streammc.tempering.density import pointers
from streammc.tempering.explorers import EXPLORERS
from streammc.tempering.held import Held, held_bytes, hold
from streammc.tempering.problem import TemperedProblem

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
            f"expected rows that fit into half of the available memory for {sampler.name}, which "
            f"evaluates all of them, found {dataset.n_rows} rows x {dataset.n_features} features, "
            f"{needed / 1e9:.1f} GB; use hmc-ecs, or mint for a posterior with several modes"
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


def tempering(
    dataset: Dataset, model: Model, cv: ControlVariates, sampler: TemperedOptions
) -> TemperedProblem:
    """Return the problem of a sampler with a ladder; see :func:`ground`.

    The ladder has a number of levels: ``ladder.settle`` finds one.
    """
    sampler = ended(model, cv.labels, sampler)
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
        proper=not improper(base.prior).any(),
        log_constant=_log_constant(dataset, model, full),
        memory=memory_limit,
    )


def _log_constant(dataset: Dataset, model: Model, full: Held) -> float | None:
    """Return what the log-likelihood leaves out; ``None`` where it depends on hidden trials."""
    left_out = getattr(model, "log_constant", None)
    if left_out is None:
        return 0.0
    attributes = dataset.attributes
    if split_fingerprint(dataset.fingerprint)[1] != 1.0:
        return None
    if attributes.get("trials") and attributes.get("weight"):
        return None
    return cast(float | None, left_out(full.y, full.weight))
