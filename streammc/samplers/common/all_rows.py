"""Coordinates, rows and first positions of samplers that keep all rows in memory."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.forecast import FORECAST
from streammc.errors import OutOfMemoryError
from streammc.likelihood.contiguous_rows import Held, held_bytes, hold
from streammc.likelihood.expanded_rows import memory_limit
from streammc.likelihood.invalid_responses import response_check
from streammc.likelihood.target import Base
from streammc.protocols import Dataset, Model, Vector
from streammc.samplers.common.request import RunRequest


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
