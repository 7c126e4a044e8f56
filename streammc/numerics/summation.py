"""Compensated sums and merged moments: accurate for any number of rows, in a fixed order.

*Compensated sums* keep a total in two parts, ``high`` and ``low``,
where ``low`` collects the rounding errors of ``high`` (two-sum: Knuth 1969, vol. 2,
4.2.2, theorem B; the idea is Neumaier 1974): the error no longer grows with the
number of terms. *Moments* are merged without ever forming ``sum x^2`` (Chan, Golub
and LeVeque 1983), with means kept relative to a pivot row: at mean 1e8 and standard
deviation 1 a float64 mean alone already costs the variance its tenth digit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import f8, inline, jit, matrix, vector
from streammc.protocols import Matrix, Vector

_TILE = 512
_frozen_vector: Any = types.Array(f8, 1, "C", readonly=True)
_frozen: list[Any] = [types.Array(t, 2, "C", readonly=True) for t in (types.float32, f8)]


@inline
def two_sum(a: Any, b: Any) -> Any:
    """Return the rounded sum ``s`` of a and b and its error ``e``: ``a + b = s + e`` exactly."""
    s = a + b
    virtual = s - a
    return s, (a - (s - virtual)) + (b - virtual)


@inline
def add_compensated(high: Any, low: Any, values: Any) -> None:
    """Add ``values`` (k,) to ``high`` (k,), and the rounding errors to ``low`` (k,)."""
    for i in range(values.shape[0]):
        high[i], error = two_sum(high[i], values[i])
        low[i] += error


@jit(f8(_frozen_vector))
def sum_compensated(values: Any) -> Any:
    """Return the compensated sum of ``values`` (n,), added from first to last.

    The error is below ``eps |sum| + n eps^2 sum |values|``. A sum that overflows is not
    finite.
    """
    high = 0.0
    low = 0.0
    for value in values:
        high, error = two_sum(high, value)
        low += error
    return high + low


def merge_compensated(left: Matrix, right: Matrix) -> Matrix:
    """Return the sum of two compensated totals (2, ...), each ``high`` and ``low``.

    The last bits depend on the order of merges: use a fixed tree.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        high = left[0] + right[0]
        virtual = high - left[0]
        error = (left[0] - (high - virtual)) + (right[0] - virtual)
        return np.stack([high, left[1] + right[1] + error])


class Moments(NamedTuple):
    """Number of rows, and means and sums of squared deviations of the columns of a table."""

    n_rows: int
    pivot: Vector
    """(q,) a row of the table, from which means are measured."""
    shift: Vector
    """(q,) mean minus pivot."""
    scatter: Vector
    """(q,) ``sum_i (x_i - mean)^2``."""

    @property
    def mean(self) -> Vector:
        """Return the means (q,)."""
        return self.pivot + self.shift

    @property
    def variance(self) -> Vector:
        """Return the variances (q,), divisor ``n_rows - 1``; NaN for a single row."""
        if self.n_rows < 2:
            return np.full_like(self.scatter, np.nan)
        return self.scatter / (self.n_rows - 1)


@jit(*[types.void(X, vector, vector, vector) for X in _frozen])
def _column_moments(X: Any, pivot: Any, shift: Any, scatter: Any) -> None:
    """Write the moments of ``X`` (m, q), tile by tile, each in two passes."""
    m, q = X.shape
    mean = np.empty(q)
    spread = np.empty(q)
    rest = np.empty(q)
    for j in range(q):
        pivot[j] = X[0, j]
        shift[j] = 0.0
        scatter[j] = 0.0
    for start in range(0, m, _TILE):
        stop = min(start + _TILE, m)
        n = stop - start
        mean[:] = 0.0
        spread[:] = 0.0
        rest[:] = 0.0
        for i in range(start, stop):
            for j in range(q):
                mean[j] += np.float64(X[i, j]) - pivot[j]
        for j in range(q):
            mean[j] /= n
        for i in range(start, stop):
            for j in range(q):
                x = (np.float64(X[i, j]) - pivot[j]) - mean[j]
                rest[j] += x
                spread[j] += x * x
        for j in range(q):
            # ``rest`` corrects the rounding of the mean (Chan et al. 1983, eq. 1.7).
            spread[j] -= rest[j] * (rest[j] / n)
            delta = (mean[j] - shift[j]) + rest[j] / n
            scatter[j] += spread[j] + delta * delta * (start * (n / stop))
            shift[j] += delta * (n / stop)


def column_moments(X: NDArray[Any]) -> Moments:
    """Return the moments of the columns of ``X`` (m, q), float32 or float64, m >= 1."""
    q = X.shape[1]
    moments = Moments(X.shape[0], np.empty(q), np.empty(q), np.empty(q))
    _column_moments(np.ascontiguousarray(X), *moments[1:])
    return moments


def merge_moments(left: Moments, right: Moments) -> Moments:
    """Return the moments of the rows of two tables together (Chan et al. 1983, eq. 2.1)."""
    n_rows = left.n_rows + right.n_rows
    delta = (right.pivot - left.pivot) + (right.shift - left.shift)
    part = right.n_rows / n_rows
    return Moments(
        n_rows,
        left.pivot,
        left.shift + delta * part,
        left.scatter + right.scatter + delta * delta * (left.n_rows * part),
    )


@jit(f8(f8, vector, matrix, vector, vector, vector), reassociate=True, borrow=True)
def taylor(log_lik, gradient, hessian, theta_star, delta, out):  # type: ignore[no-untyped-def]
    """Return ``l + g' delta + delta' H delta / 2``, write ``g + H delta``; an empty H is 0."""
    d = delta.shape[0]
    value = log_lik
    if hessian.shape[0] == 0:
        for i in range(d):
            out[i] = gradient[i]
            value += delta[i] * gradient[i]
        return value
    for i in range(d):
        curve = 0.0
        for j in range(d):
            curve += hessian[i, j] * delta[j]
        out[i] = gradient[i] + curve
        value += delta[i] * (gradient[i] + 0.5 * curve)
    return value
