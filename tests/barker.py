"""Checks of tests with Barker's acceptance function, and populations of terms for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from acceptance_decisions import decisions
from scipy.special import expit
from scipy.stats import t as student
from term_populations import population

SIZE = 20_000
DELTAS = (-4.0, -2.0, -1.0, -0.4, 0.3, 1.0, 2.0, 4.0)
N = 50_000
"""Decisions at each; broken tests are caught by 20,000."""
Z = 4.5


def terms(kind: str, sd: float, batch: int) -> np.ndarray:
    """Return (20000,) terms whose mean of ``batch`` has the standard deviation ``sd``."""
    if kind == "t3":
        x = student.ppf((np.arange(SIZE) + 0.5) / SIZE, 3)
        x = np.random.default_rng(5).permutation(x / x.std())
    else:
        x = population(kind, SIZE)
    return x * sd * np.sqrt(batch)


class Curve(NamedTuple):
    """Decisions along a grid of Delta."""

    deviation: np.ndarray
    """Share accepted, less the probability that Barker's function gives."""
    mcse: np.ndarray
    error: np.ndarray
    """Mean error that the decisions claim, of those that claim one."""
    unknown: np.ndarray
    """Share of those that claim none."""
    used: np.ndarray
    forced: np.ndarray

    @property
    def excess(self) -> float:
        """Largest deviation beyond Monte Carlo noise."""
        return float((np.abs(self.deviation) - Z * self.mcse).max())

    @property
    def claimed(self) -> float:
        """Mean error claimed; NaN where most decisions could not tell."""
        return float(self.error.mean()) if self.unknown.mean() < 0.5 else np.nan


def curve(
    test: Any,
    prepared: Any,
    x: np.ndarray,
    *,
    n: int = N,
    deltas: Any = DELTAS,
    skips: bool = False,
) -> Curve:
    """Return what ``n`` decisions at each Delta come to; ``skips``: forced ones do not count."""
    out = []
    for seed, delta in enumerate(deltas):
        found = decisions(
            test, prepared.settings, x, n=n, seed=seed, delta=delta, replace=True,
            table=prepared.table,
        )  # fmt: skip
        exact = expit(delta)
        kept = 1.0 - found.forced.mean() if skips else 1.0
        known = found.error[~np.isnan(found.error) & ~(found.forced & skips)]
        out.append(
            (
                found.accepted / kept - exact,
                np.sqrt(exact * (1.0 - exact) / (n * kept)),
                known.mean() if known.size else 0.0,
                np.isnan(found.error).mean(),
                found.used.mean(),
                found.forced.mean(),
            )
        )
    return Curve(*np.array(out).T)
