"""Posterior of the effects of groups at draws of the parameters, as points with weights.

Given theta the nodes ``u_q`` of a group's likelihood and their shares ``p_q`` are a quadrature
rule of the posterior of its effects: ``E[h(u) | theta, y] = sum_q p_q h(u_q)`` (Liu and Pierce
1994).
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streammc.models.mixed.group_constants import EFFECTS, FEATURES, NODES, PANELS, SCALARS
from streammc.models.mixed.group_link import SMALL, group_nodes
from streammc.models.mixed.group_rows import (
    CURVES,
    NODE_U1,
    NODE_U2,
    SHARE,
    VALUE,
    count_used,
)
from streammc.models.mixed.table_link import TABLE, read_group
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
        Of ``table_link.link``.
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
