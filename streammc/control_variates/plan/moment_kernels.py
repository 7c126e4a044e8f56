"""Sums over the remainders of a pilot, draw by draw; compiled.

NumPy takes ten passes over copies of 2 MB for each of 64 draws: half a second of a plan.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streammc.numerics.jit import i8, index_vector, jit, matrix, vector

_values: Any = types.Array(types.float32, 2, "C")
_flags: Any = types.Array(types.boolean, 1, "C")
_group_sums: Any = types.Array(types.float64, 3, "C")


@jit(types.void(_values, index_vector, _group_sums, matrix), borrow=True)
def add_by_group(values, group, sums, maxima):  # type: ignore[no-untyped-def]
    """Add the columns of ``values`` (S, m) to the sums of their ``group`` (m,).

    ``sums`` (S, G, 3) are those of r, r^2 and r^3, and ``maxima`` (S, G) the largest abs(r).
    """
    for s in range(values.shape[0]):
        for i in range(values.shape[1]):
            g = group[i]
            r = np.float64(values[s, i])
            square = r * r
            sums[s, g, 0] += r
            sums[s, g, 1] += square
            sums[s, g, 2] += square * r
            maxima[s, g] = max(maxima[s, g], abs(r))


@jit(types.void(_values, _flags, i8, vector, vector, vector, matrix), borrow=True)
def unit_moments(values, left_out, unit_rows, shares, weight, totals, moments):  # type: ignore[no-untyped-def]
    """Write the moments (5, S) of the totals of the first units, of ``unit_rows`` values each.

    A total is the sum of the values (S, >= m b) that are not ``left_out`` over its share (m,);
    ``weight`` (m,) has mean 1. The moments are those of ``pilot.UnitMoments``, in its order;
    ``totals`` (m,) is scratch. What is undefined is NaN.
    """
    m = totals.shape[0]
    for s in range(values.shape[0]):
        mean = 0.0
        for j in range(m):
            total = 0.0
            for i in range(j * unit_rows, (j + 1) * unit_rows):
                if not left_out[i]:
                    total += np.float64(values[s, i])
            totals[j] = total / shares[j]
            mean += weight[j] * totals[j]
        mean /= m
        second, third, fourth, largest = 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            away = totals[j] - mean
            square = away * away
            second += weight[j] * square
            third += weight[j] * square * away
            fourth += weight[j] * square * square
            largest = max(largest, abs(away))
        second /= m
        moments[0, s] = second
        moments[1, s] = third / m / second**1.5
        moments[2, s] = fourth / m / second**2
        moments[3, s] = math.nan if math.isnan(second) else largest
        moments[4, s] = mean
