"""Posterior of the effects of groups at draws of theta: nodes, moments and quantiles.

Given theta the nodes ``u_q`` of a group's likelihood and their shares ``p_q`` are a quadrature
rule of the posterior of its effects: ``E[h(u) | theta, y] = sum_q p_q h(u_q)`` (Liu and Pierce
1994).

Over draws of theta the
effects are a mixture, whose moments follow from those of its parts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.models.mixed.group_constants import (
    EFFECTS,
    FEATURES,
    GAUSSIAN,
    KIND,
    NODES,
    PANELS,
    SCALARS,
)
from streammc.models.mixed.group_link import SMALL, TABLE, group_nodes, read_group
from streammc.models.mixed.group_rows import CURVES, NODE_U1, NODE_U2, SHARE, VALUE, count_used
from streammc.numerics.jit import design_view, f8, jit, matrix, vector


@jit(types.void(matrix, design_view, vector, types.Array(f8, 4, "C")))
def table_nodes(thetas, places, constants, out):  # type: ignore[no-untyped-def]
    """Write nodes and shares of the effects of groups of a table at draws of theta.

    Parameters
    ----------
    thetas
        (S, d) draws.
    places
        (2, m) first row and number of rows of each group.
    constants
        Of ``group_link.table_link``.
    out
        (m, S, effects + 1, nodes): each effect at the nodes, then the shares, whose sum is 1.
        NaN where the likelihood is not finite.
    """
    q = int(constants[0])
    own = constants[TABLE:]
    effects, p = int(own[EFFECTS]), 1 + int(own[SCALARS])
    most = 0
    for g in range(places.shape[1]):
        most = max(most, int(places[1, g]))
    buffer = np.empty((q + 2) * most)
    responses = np.empty(most)
    small = np.empty(SMALL)
    for g in range(places.shape[1]):
        n = int(places[1, g])
        X, y = buffer[: (q + 2) * n].reshape((q + 2, n)), responses[:n]
        read_group(int(places[0, g]), constants, X, y)
        used = count_used(X, int(own[FEATURES]) + 1)
        scratch = np.empty((CURVES + p + 1 + p + p * (p + 1) // 2, used))
        rows, predictors = scratch[:CURVES], scratch[CURVES : CURVES + p]
        terms = scratch[CURVES + p :]
        for s in range(thetas.shape[0]):
            nodes = group_nodes(thetas[s], X, y, own, rows, predictors, terms, small)
            if not math.isfinite(small[VALUE]):
                out[g, s] = math.nan
                continue
            # Of the nodes of panels those with the largest shares, where there is no room for all.
            size = min(nodes.shape[1], out.shape[3])
            places_of = np.arange(size)
            if nodes.shape[1] > out.shape[3] and int(own[NODES]) <= PANELS:
                places_of = np.argsort(-nodes[SHARE])[:size]
            out[g, s] = 0.0
            total = 0.0
            for at in places_of:
                total += nodes[SHARE, at]
            for k in range(size):
                out[g, s, 0, k] = nodes[NODE_U1, places_of[k]]
                if effects == 2:
                    out[g, s, 1, k] = nodes[NODE_U2, places_of[k]]
                out[g, s, effects, k] = nodes[SHARE, places_of[k]] / total


@jit(types.void(types.Array(f8, 3, "C"), types.Array(f8, 3, "C"), matrix, types.Array(f8, 3, "C")))
def node_quantiles(values, shares, levels, out):  # type: ignore[no-untyped-def]
    """Write quantiles of distributions with these nodes.

    Half of the share of a node is below it; between nodes the distribution function is straight.

    Parameters
    ----------
    values, shares
        (k, S, Q) nodes and their shares, whose sum is 1; those of share 0 do not count.
    levels
        (S, J) probabilities, rising.
    out
        (k, S, J)
    """
    size = values.shape[2]
    for i in range(values.shape[0]):
        for s in range(values.shape[1]):
            at, share = values[i, s], shares[i, s]
            sorted_already = True
            for q in range(1, size):
                if at[q] < at[q - 1]:
                    sorted_already = False
            order = np.arange(size) if sorted_already else np.argsort(at)
            level = 0
            before, last, below = math.nan, math.nan, 0.0
            for q in order:
                if share[q] == 0.0:
                    continue
                here = below + 0.5 * share[q]
                while level < levels.shape[1] and levels[s, level] <= here:
                    part = 1.0
                    if here > before:
                        part = (levels[s, level] - before) / (here - before)
                    first = math.isnan(before)
                    out[i, s, level] = at[q] if first else last + part * (at[q] - last)
                    level += 1
                before, last = here, at[q]
                below += share[q]
            for rest in range(level, levels.shape[1]):
                out[i, s, rest] = last


@jit(types.void(types.Array(f8, 3, "C"), matrix, vector, vector, matrix))
def normal_densities(eta, sd, y, constants, out):  # type: ignore[no-untyped-def]
    """Write the log densities of responses whose linear predictor has a normal part.

    Parameters
    ----------
    eta
        (1 + c, m, S) predictors of the inner model, the mean of the normal part in the first.
    sd
        (m, S) standard deviation of the normal part.
    y
        (m,) responses.
    constants
        Of the link of a group without features and with an intercept.
    out
        (m, S)
    """
    p = eta.shape[0]
    scratch = np.empty((CURVES + p + 1 + p + p * (p + 1) // 2, 1))
    rows, predictors = scratch[:CURVES], scratch[CURVES : CURVES + p]
    terms = scratch[CURVES + p :]
    small, theta, X = np.empty(SMALL), np.empty(p), np.ones((2, 1))
    for i in range(sd.shape[0]):
        for s in range(sd.shape[1]):
            X[0, 0] = eta[0, i, s]
            for a in range(1, p):
                theta[a - 1] = eta[a, i, s]
            theta[p - 1] = math.log(max(sd[i, s], 1e-300))
            group_nodes(theta, X, y[i : i + 1], constants, rows, predictors, terms, small)
            out[i, s] = small[VALUE]


MEAN: Final = 0
VARIANCE: Final = 1
BETWEEN: Final = 2
"""Part of the variance that is the variance of the means between draws."""
QUANTILES: Final = 3
"""Quantiles are from here on."""
_EVEN: Final = 0.25
"""Largest skewness and excess kurtosis of an intercept whose quantiles follow from four moments."""
_EVEN_OF_TWO: Final = 0.7
"""The same of one of two effects, whose nodes are not close."""


@jit(types.void(matrix, vector), borrow=True)
def mixture(parts, out):  # type: ignore[no-untyped-def]
    """Write the moments (5,) of a mixture of equal shares.

    They are mean, variance, its part between draws, skewness and excess kurtosis. ``parts`` (S, 4):
    mean, variance, third and fourth central moment of each part.
    """
    size = parts.shape[0]
    mean = within = between = third = fourth = 0.0
    for s in range(size):
        mean += parts[s, 0] / size
    for s in range(size):
        away = parts[s, 0] - mean
        square = away * away
        within += parts[s, 1] / size
        between += square / size
        third += (parts[s, 2] + 3.0 * parts[s, 1] * away + square * away) / size
        more = 4.0 * parts[s, 2] * away + 6.0 * parts[s, 1] * square + square * square
        fourth += (parts[s, 3] + more) / size
    variance = within + between
    out[0], out[1], out[2] = mean, variance, between
    out[3] = third / max(variance**1.5, 1e-300)
    out[4] = fourth / max(variance * variance, 1e-300) - 3.0


@jit(types.void(vector, vector, vector, vector))
def _quantiles(values, shares, levels, out):  # type: ignore[no-untyped-def]
    """Write quantiles of values with shares, half of a share below its value."""
    order = np.argsort(values)
    total = shares.sum()
    for k in range(len(levels)):
        below = last = before = 0.0
        first = True
        out[k] = math.nan
        for at in order:
            if shares[at] == 0.0:
                continue
            here = below + 0.5 * shares[at] / total
            if levels[k] <= here:
                part = 1.0 if first else (levels[k] - before) / max(here - before, 1e-300)
                out[k] = values[at] if first else last + part * (values[at] - last)
                break
            below += shares[at] / total
            last, before, first = values[at], here, False
            out[k] = last


@jit(types.void(matrix, design_view, vector, vector, vector, f8, f8, matrix, matrix))
def group_effects(thetas, X, y, constants, dense, shift, scale, levels, out):  # type: ignore[no-untyped-def]
    """Write moments and quantiles of the effects of a group: intercept, then the slope if any.

    Quantiles are those of a normal distribution, corrected for skewness and kurtosis (Cornish and
    Fisher 1938), where both are small. Elsewhere they are those of the nodes, which are then more.

    Parameters
    ----------
    thetas
        (S, d) draws of theta.
    X, y, constants
        Rows of the group and constants of its likelihood, as ``group_link.link`` gets them.
    dense
        Constants with the nodes for quantiles.
    shift, scale
        Of the slope's column x, where the table has ``scale (x + shift)``: the effects there are
        ``u1 - shift u2`` and ``u2 / scale``.
    levels
        (2, P) probabilities, and the quantiles of a standard normal variate there.
    out
        (effects, 3 + P) moments and quantiles; NaN if the likelihood is not finite at a draw.
    """
    q, effects = int(constants[FEATURES]), int(constants[EFFECTS])
    p = 1 + int(constants[SCALARS])
    n = count_used(X, q + 1)
    scratch = np.empty((CURVES + p + 1 + p + p * (p + 1) // 2, n))
    rows, predictors = scratch[:CURVES], scratch[CURVES : CURVES + p]
    terms = scratch[CURVES + p :]
    small = np.empty(SMALL)
    parts = np.empty((effects, thetas.shape[0], 4))
    for s in range(thetas.shape[0]):
        nodes = group_nodes(thetas[s], X, y, constants, rows, predictors, terms, small)
        if not math.isfinite(small[VALUE]):
            out[:, :] = math.nan
            return
        for e in range(effects):
            # Of the effect: its part of u1 and its part of u2.
            first = 1.0 if e == 0 else 0.0
            second = (-shift if e == 0 else 1.0 / scale) if effects == 2 else 0.0
            mean = variance = third = fourth = 0.0
            for m in range(nodes.shape[1]):
                u = first * nodes[NODE_U1, m] + second * nodes[NODE_U2, m]
                mean += nodes[SHARE, m] * u
            for m in range(nodes.shape[1]):
                u = first * nodes[NODE_U1, m] + second * nodes[NODE_U2, m] - mean
                square = nodes[SHARE, m] * u * u
                variance += square
                third += square * u
                fourth += square * u * u
            parts[e, s, 0], parts[e, s, 1] = mean, variance
            parts[e, s, 2], parts[e, s, 3] = third, fourth
    moments = np.empty(5)
    even, most = True, _EVEN if effects == 1 else _EVEN_OF_TWO
    for e in range(effects):
        mixture(parts[e], moments)
        out[e, :QUANTILES] = moments[:QUANTILES]
        skewness, kurtosis = moments[3], moments[4]
        even = even and abs(skewness) <= most and abs(kurtosis) <= most
        for k in range(levels.shape[1]):
            z = levels[1, k]
            moved = z + (z * z - 1.0) * skewness / 6.0 + (z**3 - 3.0 * z) * kurtosis / 24.0
            moved -= (2.0 * z**3 - 5.0 * z) * skewness**2 / 36.0
            out[e, QUANTILES + k] = moments[MEAN] + math.sqrt(moments[VARIANCE]) * moved
    if even or int(constants[KIND]) == GAUSSIAN:
        return
    used, every = 0, np.empty((3, 128 * thetas.shape[0]))
    for s in range(thetas.shape[0]):
        nodes = group_nodes(thetas[s], X, y, dense, rows, predictors, terms, small)
        size = nodes.shape[1]
        if used + size > every.shape[1]:
            longer = np.empty((3, 2 * (used + size)))
            longer[:, :used] = every[:, :used]
            every = longer
        every[0, used : used + size] = nodes[NODE_U1]
        every[1, used : used + size] = nodes[NODE_U2]
        every[2, used : used + size] = nodes[SHARE]
        used += size
    values = np.empty(used)
    for e in range(effects):
        first = 1.0 if e == 0 else 0.0
        second = (-shift if e == 0 else 1.0 / scale) if effects == 2 else 0.0
        for m in range(used):
            values[m] = first * every[0, m] + second * every[1, m]
        _quantiles(values, every[2, :used].copy(), levels[0], out[e, QUANTILES:])


@jit(types.void(matrix, design_view, vector, vector, f8, f8, matrix, types.Array(f8, 3, "C")))
def table_effects(thetas, places, constants, dense, shift, scale, levels, out):  # type: ignore[no-untyped-def]
    """Write moments and quantiles of the effects of groups of a table; see :func:`group_effects`.

    ``places`` (2, m) holds the first row and the number of rows of each group, ``constants`` and
    ``dense`` those of ``group_link.table_link``. ``out`` (m, effects, 3 + P).
    """
    q = int(constants[0])
    own, more = constants[TABLE:], dense[TABLE:]
    most = 0
    for g in range(places.shape[1]):
        most = max(most, int(places[1, g]))
    buffer = np.empty((q + 2) * most)
    responses = np.empty(most)
    for g in range(places.shape[1]):
        n = int(places[1, g])
        rows = buffer[: (q + 2) * n].reshape((q + 2, n))
        read_group(int(places[0, g]), constants, rows, responses[:n])
        group_effects(thetas, rows, responses[:n], own, more, shift, scale, levels, out[g])
