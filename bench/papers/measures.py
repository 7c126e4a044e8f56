"""What an independent draw costs: IF, CT and RCT as the paper defines them.

The inefficiency factor is that of CODA's ``effectiveSize``: the spectral density at zero of an
autoregression, whose order up to ``10 log10 n`` AIC chooses, over the variance. Draws of several
chains: the effective sizes add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def effective_size(chain: Array) -> float:
    """Return n var(x) / S(0) of one chain (n,), S(0) by Yule and Walker's equations."""
    x = np.asarray(chain, dtype=np.float64)
    n, x = len(x), x - x.mean()
    variance = float(x @ x) / n
    if n < 4 or variance <= 0.0:
        return 0.0
    most = min(n - 1, int(10 * np.log10(n)))
    covariance = [float(x[: n - lag] @ x[lag:]) / n for lag in range(most + 1)]
    weights, error = np.zeros(0), covariance[0]
    best = (n * np.log(error), 0.0, error, 0)
    for order in range(1, most + 1):  # Levinson and Durbin
        reflection = covariance[order] - weights @ np.array(covariance[order - 1 : 0 : -1])
        reflection /= error
        weights = np.append(weights - reflection * weights[::-1], reflection)
        error *= 1.0 - reflection**2
        if error <= 0.0:
            break
        criterion = n * np.log(error) + 2 * order
        if criterion < best[0]:
            best = (criterion, float(weights.sum()), error, order)
    _, total, error, order = best
    spectrum = error * n / (n - order - 1) / (1.0 - total) ** 2
    return n * (variance * n / (n - 1)) / spectrum


def inefficiency(draws: Array) -> Array:
    """Return IF of every parameter (d,) of draws (chain, draw, d); infinite where none moves."""
    chains, n, d = draws.shape
    sizes = [sum(effective_size(draws[c, :, j]) for c in range(chains)) for j in range(d)]
    with np.errstate(divide="ignore"):
        return chains * n / np.array(sizes)


@dataclass
class Run:
    """Draws of one method, and what they cost."""

    name: str
    draws: Array
    """(chain, draw, d)."""
    rows_per_draw: float
    """Rows at which likelihood or gradient were evaluated, per iteration of one chain."""
    warmup_rows: float = 0.0
    """The same over the warm-up and the earlier stages of one chain."""
    pass_rows: float = 0.0
    """Rows of the full passes, and of what found theta_star."""
    sign: Array | None = None
    """(chain, draw) signs; ``None`` where all are positive by construction."""
    stats: Mapping[str, Array] = field(default_factory=dict)
    """(chain, draw) statistics."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def positive(self) -> float:
        """The share of positive signs, tau."""
        return 1.0 if self.sign is None else float((self.sign > 0).mean())

    def moments(self) -> tuple[Array, Array]:
        """Return means and variances (d,), weighted by the signs where there are any."""
        weight = np.ones(self.draws.shape[:2]) if self.sign is None else self.sign
        weight = weight / weight.sum()
        mean = np.einsum("cn,cnj->j", weight, self.draws)
        return mean, np.einsum("cn,cnj->j", weight, (self.draws - mean) ** 2)


def computational_time(run: Run, *, whole: bool) -> Array:
    """Return CT (d,): IF times evaluations a draw, over ``(2 tau - 1)^2`` (eq. 2 and 18).

    The evaluations that an independent draw costs, so that runs of different lengths compare.
    ``whole`` spreads everything from the first row read over the draws of one chain, else
    what came before the first kept draw is free.
    """
    rows = run.rows_per_draw
    if whole:
        rows += (run.warmup_rows + run.pass_rows) / run.draws.shape[1]
    return inefficiency(run.draws) * rows / (2.0 * run.positive - 1.0) ** 2


def relative(run: Run, base: Run, *, whole: bool, whole_base: bool | None = None) -> Array:
    """Return RCT (d,) of ``run`` against ``base`` (eq. 19): above 1, ``base`` is cheaper."""
    counted = whole if whole_base is None else whole_base
    return computational_time(run, whole=whole) / computational_time(base, whole=counted)


def spread(values: Array) -> tuple[float, float, float]:
    """Return smallest, median and largest."""
    return float(values.min()), float(np.median(values)), float(values.max())
