"""Predicted seconds of a run with ``hmc`` and with ``hmc-ecs``: what ``auto`` chooses by.

Both make about as many effective draws of an iteration where the plan of the subsample holds
(variance of the estimate at most 0.1), so that the costs decide. With n rows, q columns and r
rows of an evaluation of ``hmc-ecs`` (certainty rows and subsample), in seconds:

    iteration of hmc      h0 + n (h1 + h2 q + h3 q where the table exceeds the cache)
    iteration of hmc-ecs  e0 + r e1 q
    plan                  p0 + p1 min(n, 262144) + (p2 + p3 q) min(n, 16384)
    audit                 a0 + 400 n (a1 + a2 q)

``bench/sampler_cost.py`` measures the constants; it found them within 1.8 of the measured seconds
of logistic, Poisson and Student-t regressions of 1e3 to 1e6 rows and 10 or 50 columns (an audit:
4), and every choice within 1.1 of the faster sampler, on one core of an Intel Xeon. No clock is
read: the choice is the same on every machine, and for every number of draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streammc.control_variates.plan.subsample_plan import Plan
from streammc.protocols import Dataset, Model

HMC: Final = (1e-6, 8.2e-9, 6.7e-10, 3.4e-10)
"""h0 to h3."""
HMC_ECS: Final = (2.5e-6, 1.1e-9)
"""e0 and e1."""
PLAN: Final = (0.087, 5.5e-6, 1.4e-5, 5.7e-7)
"""p0 to p3."""
AUDIT: Final = (0.009, 3e-9, 9e-11)
"""a0 to a2."""
CACHE_BYTES: Final = 2**25
"""Tables above this size are read from memory at every evaluation."""

WITHIN: Final = 1.2
"""The exact sampler is chosen up to this ratio."""
LEAST_ROWS: Final = 30
"""Rows of the smallest subsample that a plan chooses."""
ITERATIONS: Final = 8000
"""Iterations of the default run: 4 chains, 1,000 of warm-up and 1,000 draws each."""
EFFECTIVE: Final = 3500
"""Effective draws of that run: an iteration gives about 0.9."""


def fitted() -> dict[str, Sequence[float]]:
    """Return the constants by what they predict."""
    return {"hmc": HMC, "hmc-ecs": HMC_ECS, "plan": PLAN, "audit": AUDIT}


def seconds(name: str, n: int, q: int, rows: float, c: Sequence[float]) -> float:
    """Return the predicted seconds of one thing, a key of :func:`fitted`, with constants ``c``."""
    if name == "hmc":
        return c[0] + n * (c[1] + q * (c[2] + (c[3] if 8 * n * q > CACHE_BYTES else 0.0)))
    if name == "hmc-ecs":
        return c[0] + rows * q * c[1]
    if name == "plan":
        return c[0] + c[1] * min(n, 262_144) + (c[2] + c[3] * q) * min(n, 16_384)
    return c[0] + 400 * n * (c[1] + c[2] * q)


@dataclass(frozen=True)
class RunCost:
    """Predicted processor seconds per 1,000 effective draws of a run of the default length.

    Attributes
    ----------
    hmc
        Of ``hmc``.
    hmc_ecs
        Of ``hmc-ecs``, with its plan and its audit.
    """

    hmc: float
    hmc_ecs: float

    @property
    def all_rows(self) -> bool:
        """Whether ``hmc``, which is exact, is the faster one, or within 20 % of it."""
        return self.hmc <= WITHIN * self.hmc_ecs

    def text(self) -> str:
        """Return both predictions in words."""
        return (
            f"predicted processor time for 1,000 effective draws: hmc {_short(self.hmc)} s, "
            f"hmc-ecs {_short(self.hmc_ecs)} s"
        )


def run_cost(dataset: Dataset, model: Model, plan: Plan | None = None) -> RunCost | None:
    """Return the predicted cost of both samplers, ``None`` for rows in groups.

    Parameters
    ----------
    dataset, model
        Data and model of the run.
    plan
        Plan of the subsample; ``None``: the smallest one, which any other exceeds.
    """
    if dataset.unit_offset is not None:  # the cost of a group is another one than that of its rows
        return None
    n, q = dataset.n_rows, dataset.n_features * max(model.n_linear, 1)
    rows = float(LEAST_ROWS)
    if plan is not None:
        rows = len(plan.certainty_rows) + plan.subsample_size
    return from_sizes(n, q, rows)


def from_sizes(n: int, q: int, rows: float) -> RunCost:
    """Return the predicted cost for n rows, q columns and the rows of a subsample."""
    hmc, ecs = (seconds(name, n, q, rows, fitted()[name]) for name in ("hmc", "hmc-ecs"))
    extra = sum(seconds(name, n, q, rows, fitted()[name]) for name in ("plan", "audit"))
    share = 1000.0 / EFFECTIVE
    return RunCost(share * ITERATIONS * hmc, share * (ITERATIONS * ecs + extra))


def _short(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}" if math.isfinite(value) else "more than 1e9"
