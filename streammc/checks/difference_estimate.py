"""Totals over rows from exact values of some rows and a surrogate of every row.

The difference estimator of Magnusson et al. 2020 (eqs. 7-10), with rows C that are always
evaluated: with values ``v_i`` of these and of a sample S of m of the other N rows, drawn without
replacement, and surrogates ``a_i`` of all,

    total   = sum_i a_i + sum_C (v_i - a_i) + (N / m) sum_S (v_i - a_i)
    error^2 = N^2 (1 - m / N) var_S(v - a) / m

``error`` is the standard error from the sampling of rows. ``se``, the standard error of the total
as an estimate for new rows, is ``sqrt(n var(v / c))`` over the n observations, of which row i has
``c_i``: 1 without weights. ``sum v^2 / c`` is estimated in the same way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Index, Vector


class Estimate(NamedTuple):
    """A total over rows."""

    total: float
    se: float
    """Standard error as an estimate for new rows."""
    error: float
    """Standard error from the sampling of rows; 0 where all were evaluated."""

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON."""
        return {"estimate": self.total, "se": self.se, "sampling_se": self.error}


class Sample(NamedTuple):
    """The rows that are evaluated, some always and others as a sample of the rest."""

    rows: Index
    """(m,) sorted numbers of the rows."""
    always: NDArray[np.bool_]
    """(m,) where a row is evaluated always."""
    n: int
    """Number of rows of the table."""

    @property
    def exact(self) -> bool:
        """Whether every row is evaluated."""
        return len(self.rows) == self.n

    def total(self, values: Vector) -> float:
        """Return the estimated sum of some values (m,) over all rows."""
        own, others = values[self.always], values[~self.always]
        rest = self.n - len(own)
        return float(own.sum()) + (rest * float(others.mean()) if len(others) else 0.0)

    def variance(self, values: Vector) -> float:
        """Return the variance of :meth:`total` from the sampling of rows."""
        others = values[~self.always]
        rest, m = self.n - int(self.always.sum()), len(others)
        if m < 2:
            return 0.0
        return rest * (rest - m) * float(others.var(ddof=1)) / m


def exact_total(values: Vector, count: Vector) -> Estimate:
    """Return the total of the values (n,) of all rows, of ``count`` (n,) observations each."""
    used, times = values[count > 0.0], count[count > 0.0]
    total = float(used.sum())
    away = used / times - total / float(times.sum())
    return Estimate(total, math.sqrt(float((times * away * away).sum())), 0.0)


def difference_total(
    values: Vector,
    surrogate: Vector,
    count: Vector,
    sums: tuple[float, float, float],
    sample: Sample,
) -> Estimate:
    """Return the total from exact values (m,) of the rows of the sample, and their surrogates.

    ``count`` (m,) are the observations of these rows, ``sums`` those over all rows of the
    surrogates, of their squares over the observations of the row, and of the observations.
    """
    whole, square, n = sums
    total = whole + sample.total(values - surrogate)
    variance = sample.variance(values - surrogate)
    squares = square + sample.total(
        _per_observation(values * values - surrogate * surrogate, count)
    )
    spread = squares - (total * total - variance) / n
    return Estimate(total, math.sqrt(max(spread, 0.0)), math.sqrt(variance))


def paired_difference(
    values: Vector, surrogate: Vector | None, whole: float, count: Vector, sample: Sample
) -> Estimate:
    """Return the difference of the totals of two models, evaluated in the same rows.

    ``values`` and ``surrogate`` (m,) are differences of theirs, ``None`` where every row is
    evaluated; ``whole`` is the difference of the sums of their surrogates over all rows, ``count``
    (m,) are the observations of each row.
    """
    if surrogate is None:
        return exact_total(values, count)
    total = whole + sample.total(values - surrogate)
    squares = sample.total(_per_observation(values * values, count))
    spread = squares - sample.total(values) ** 2 / sample.total(count)
    error = math.sqrt(sample.variance(values - surrogate))
    return Estimate(total, math.sqrt(max(spread, 0.0)), error)


def _per_observation(squares: Vector, count: Vector) -> Vector:
    """Return ``squares / count`` (m,), 0 for rows without an observation."""
    share: Vector = squares / np.where(count > 0.0, count, 1.0)
    return share
