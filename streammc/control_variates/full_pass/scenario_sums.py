"""Compiled sums over groups of rows in several scenarios: gradients and Hessians of functions.

A scenario replaces some columns of all rows. A tile of rows is transposed once for all scenarios,
and the products are those of :mod:`block_kernel`. A column that is constant in a group, such as the
indicators of a factor by which rows are grouped, is a multiple of a column of ones: sums with it
are multiples of other sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streammc.control_variates.full_pass.block_kernel import PAD, add_gradient, add_hessian
from streammc.numerics.jit import f8, i8, index_vector, inline, jit, matrix, vector

_numbers: Any = [types.Array(f8, n, "C") for n in range(6)]
_designs: Any = [types.Array(t, 2, "C", readonly=True) for t in (types.float32, f8)]


@jit(*[types.void(design, index_vector, matrix) for design in _designs], borrow=True)
def gather(X: Any, rows: Any, out: Any) -> None:
    """Copy ``rows`` (k,) of ``X`` (m, q) into ``out`` (k, q)."""
    for i in range(rows.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = X[rows[i], j]


@jit(*[types.void(design, index_vector, vector, vector, vector) for design in _designs])
def find_levels(X: Any, columns: Any, cuts: Any, levels: Any, out: Any) -> None:
    """Write the level of a factor in each row of ``X`` (m, q) into ``out`` (m,).

    It is that of the first of its indicators, ``columns`` (k,), above its cut. A row without
    one keeps the reference level, which is in ``out`` already.
    """
    for i in range(X.shape[0]):
        for k in range(columns.shape[0]):
            if X[i, columns[k]] > cuts[k]:
                out[i] = levels[k]
                break


@inline
def _find_varying(X: Any, low: int, high: int, place: Any, at: Any, times: Any) -> int:
    """Write column j of rows ``low`` to ``high`` as ``times[j]`` times column ``at[j]`` of a tile.

    Columns of a tile are ones, then those of ``X`` that vary or are in ``place``. Returns their
    number.
    """
    q = X.shape[1]
    at[:] = 0
    times[:] = 1.0
    for k in range(place.shape[0]):
        at[place[k]] = 1
    for j in range(q):
        if at[j] == 0:
            for i in range(low + 1, high):
                if X[i, j] != X[low, j]:
                    at[j] = 1
                    break
    count = 1
    for j in range(q):
        if at[j] == 1:
            at[j] = count
            count += 1
        else:
            times[j] = X[low, j]
    return count


@jit(
    types.void(
        matrix, index_vector, i8, i8, index_vector, index_vector, matrix,
        _numbers[3], _numbers[4], _numbers[5],
    )
)  # fmt: skip
def add_scenarios(
    X: Any, ends: Any, n_linear: int, tile: int, first: Any, place: Any, values: Any,
    derivatives: Any, gradients: Any, hessians: Any,
) -> None:  # fmt: skip
    """Add derivatives in the parameters to the sums of every group and scenario.

    A function of row i has derivatives in p predictors, the first ``n_linear`` of which are
    products of ``x_i`` with coefficients; the others are parameters.

    Parameters
    ----------
    X
        (m, q) rows, group after group.
    ends
        (G,) number of rows up to the end of each group.
    n_linear, tile
        Predictors that are products with rows; rows of a tile.
    first, place, values
        (S + 1,) where the columns that each scenario replaces begin in ``place`` (c,), their
        numbers, and in ``values`` (c, m).
    derivatives
        (S, p + p (p + 1) / 2, m) first derivatives in the predictors a, then second ones in the
        pairs b <= a, by a.
    gradients
        (G, S, p + p (p + 1) / 2, q + 1) sums of first derivatives times ``x`` and, in column q, of
        themselves; the same of second derivatives in pairs with another than linear predictor.
    hessians
        (G, S, n_linear (n_linear + 1) / 2, q, q) upper halves of the sums of second derivatives
        times ``x x'``, of pairs of linear predictors.
    """
    q = X.shape[1]
    scenarios, width = derivatives.shape[:2]
    n_pairs = hessians.shape[2]
    p = 0
    while p + p * (p + 1) // 2 < width:
        p += 1
    q4 = (q + 4) // 4 * 4
    Z, W = np.zeros((q4, tile + PAD)), np.empty((q4, tile + PAD))
    g, G = np.zeros((scenarios, width, q4)), np.zeros((scenarios, n_pairs, q4, q4))
    at, times = np.zeros(q + 1, np.int64), np.ones(q + 1)
    low = 0
    for group in range(ends.shape[0]):
        if ends[group] == low:
            continue
        count = _find_varying(X, low, ends[group], place, at, times)
        used = (count + 3) // 4 * 4
        Z[:] = 0.0
        Z[0, :] = 1.0
        part, V = Z[:used], W[:used]
        g[:] = 0.0
        G[:] = 0.0
        g_used = np.zeros(used)
        G_used = np.zeros((used, used))
        while low < ends[group]:
            m = min(tile, ends[group] - low)
            for i in range(m):
                for j in range(q):
                    if at[j] > 0:
                        Z[at[j], i] = X[low + i, j]
            for s in range(scenarios):
                for k in range(first[s], first[s + 1]):
                    for i in range(m):
                        Z[at[place[k]], i] = values[k, low + i]
                for d in range(width):
                    c = derivatives[s, d][low : low + m]
                    if p <= d < p + n_pairs:
                        G_used[:] = 0.0
                        add_hessian(part, c, m, V, G_used)
                        G[s, d - p, :used, :used] += G_used
                    else:
                        g_used[:] = 0.0
                        add_gradient(part, c, m, g_used)
                        g[s, d, :used] += g_used
                for k in range(first[s], first[s + 1]):
                    for i in range(m):
                        Z[at[place[k]], i] = X[low + i, place[k]]
            low += m
        for s in range(scenarios):
            for d in range(width):
                if p <= d < p + n_pairs:
                    for j in range(q):
                        for k in range(j, q):
                            a, b = min(at[j], at[k]), max(at[j], at[k])
                            hessians[group, s, d - p, j, k] += (
                                times[j] * times[k] * G[s, d - p, a, b]
                            )
                else:
                    for j in range(q + 1):
                        gradients[group, s, d, j] += times[j] * g[s, d, at[j]]
