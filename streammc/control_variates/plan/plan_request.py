"""The settings of the plan of a subsample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streammc.control_variates.forecast import Phases
from streammc.subsampling.probabilities import UNIFORM


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Settings of ``subsample_plan.plan``, which checks them against the data.

    Attributes
    ----------
    subsample_size
        m rows as given; ``None``: the fewest that meet the limits of ``subsample_plan``.
    unit_rows
        b; ``None``: 1.
    n_blocks
        G; ``None``: the smaller of 100 and k.
    certainty
        ``False``: no certainty rows.
    factor_units
        Units of a factor of the block-Poisson product; 0 plans the difference estimator.
    probabilities
        Probabilities of units: ``uniform``, or ``scores``, which makes one more full pass.
    variance_target
        Limit of V; ``None``: 0.1, or ``signs.variance_target`` for a product.
    perturbed
        Whether the perturbed density is sampled: it must match the posterior out to its
        tails, with more units if need be, and is cut there.
    memory_limit
        Largest size of the certainty rows in bytes.
    scheduler, progress
        Options of the pass for ``scores``; see ``Dataset.reduce``.
    phases
        Called as the tails are evaluated; see ``certify.compute``.
    """

    subsample_size: int | None = None
    unit_rows: int | None = None
    n_blocks: int | None = None
    certainty: bool = True
    factor_units: int = 0
    probabilities: str = UNIFORM
    variance_target: float | None = None
    perturbed: bool = False
    memory_limit: int = 2**27
    scheduler: Any = None
    progress: Callable[[int, int], None] | None = None
    phases: Phases | None = None
