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
            if nodes.shape[1] > out.shape[3] and int(own[NODES]) == PANELS:
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
