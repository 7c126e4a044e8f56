"""Totals over rows from exact values of a sample and a surrogate of every row.

The difference estimator of Magnusson et al. 2020 (eqs. 7-10): with values ``v_i`` of m of n rows,
drawn without replacement, and surrogates ``a_i`` of all,

    total  = sum_i a_i + (n / m) sum_S (v_i - a_i)
    error^2 = n^2 (1 - m / n) var_S(v - a) / m

``error`` is the standard error from the sampling of rows. ``se``, the standard error of the total
as an estimate for new rows, is ``sqrt(N var(v))`` over the N rows that count, with
``sum v^2`` estimated in the same way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streammc.protocols import Vector


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


def exact_total(values: Vector, used: Vector) -> Estimate:
    """Return the total of the values (n,) of all rows, of which ``used`` (n,) count."""
    kept = values[used > 0.0]
    return Estimate(float(kept.sum()), math.sqrt(len(kept) * float(kept.var())), 0.0)


def difference_total(
    values: Vector, surrogate: Vector, total: float, square: float, n: int, count: float
) -> Estimate:
    """Return the total from values of a sample of rows.

    Parameters
    ----------
    values, surrogate
        (m,) exact values and surrogates of the sample, m > 1.
    total, square
        Sums over all rows of the surrogates and of their squares.
    n
        Number of rows.
    count
        Number of rows that count, N: those of a weight above 0.
    """
    m = len(values)
    away = values - surrogate
    found = total + n * float(away.mean())
    variance = n * n * (1.0 - m / n) * float(away.var(ddof=1)) / m
    squares = square + n * float((values * values - surrogate * surrogate).mean())
    spread = squares - (found * found - variance) / count
    return Estimate(found, math.sqrt(max(spread, 0.0)), math.sqrt(variance))


def paired_total(difference: Vector, total: Estimate, n: int, used: Vector) -> Estimate:
    """Return a difference of two totals with the standard error of its paired terms.

    Parameters
    ----------
    difference
        (m,) differences of the terms of two models in the rows that were evaluated.
    total
        The total of these differences, with its sampling error.
    n
        Number of rows, of which these are a sample.
    used
        (m,) 1 where a row counts, else 0.
    """
    kept = difference[used > 0.0]
    count = n * float(np.mean(used > 0.0))
    return total._replace(se=math.sqrt(count * float(kept.var())))
