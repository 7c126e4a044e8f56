"""Moments of the effects of groups, given the rows of each and draws of the parameters.

Given theta the effects of a group have the nodes of its likelihood and their shares ``p_q`` as a
quadrature rule: ``E[u] = sum_q p_q u_q``, and likewise the variance and the third moment. Over
draws of theta the effects are a mixture, whose moments follow from those of its parts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

from streammc.models.mixed.group_constants import EFFECTS, FEATURES, SCALARS
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

MEAN: Final = 0
VARIANCE: Final = 1
THIRD: Final = 2
"""Third central moment."""
BETWEEN: Final = 3
"""Part of the variance that is the variance of the means between draws."""
MOMENTS: Final = 4


@jit(types.void(matrix, vector), borrow=True)
def mixture(parts, out):  # type: ignore[no-untyped-def]
    """Write the (4,) moments of a mixture of equal shares.

    ``parts`` (S, 3): mean, variance and third central moment of each part.
    """
    size = parts.shape[0]
    mean = within = between = third = 0.0
    for s in range(size):
        mean += parts[s, 0] / size
    for s in range(size):
        away = parts[s, 0] - mean
        within += parts[s, 1] / size
        between += away * away / size
        third += (parts[s, 2] + 3.0 * parts[s, 1] * away + away * away * away) / size
    out[0] = mean
    out[1] = within + between
    out[2] = third
    out[3] = between


@jit(types.void(matrix, design_view, vector, vector, f8, f8, matrix))
def group_effects(thetas, X, y, constants, shift, scale, out):  # type: ignore[no-untyped-def]
    """Write the moments of the effects of one group: intercept, then the slope if there is one.

    Parameters
    ----------
    thetas
        (S, d) draws of theta.
    X, y, constants
        Rows of the group and constants of its likelihood, as ``group_link.link`` gets them.
    shift, scale
        Of the slope's column x, where the table has ``scale (x + shift)``: the effects there are
        ``u1 - shift u2`` and ``u2 / scale``.
    out
        (effects, 4) moments; NaN if the likelihood is not finite at a draw.
    """
    q, effects = int(constants[FEATURES]), int(constants[EFFECTS])
    p = 1 + int(constants[SCALARS])
    n = count_used(X, q + 1)
    scratch = np.empty((CURVES + p + 1 + p + p * (p + 1) // 2, n))
    rows, predictors = scratch[:CURVES], scratch[CURVES : CURVES + p]
    terms = scratch[CURVES + p :]
    small = np.empty(SMALL)
    parts = np.empty((effects, thetas.shape[0], 3))
    for s in range(thetas.shape[0]):
        nodes = group_nodes(thetas[s], X, y, constants, rows, predictors, terms, small)
        if not math.isfinite(small[VALUE]):
            out[:, :] = math.nan
            return
        for e in range(effects):
            # Of the effect: its part of u1 and its part of u2.
            first = 1.0 if e == 0 else 0.0
            second = (-shift if e == 0 else 1.0 / scale) if effects == 2 else 0.0
            mean = variance = third = 0.0
            for m in range(nodes.shape[1]):
                u = first * nodes[NODE_U1, m] + second * nodes[NODE_U2, m]
                mean += nodes[SHARE, m] * u
            for m in range(nodes.shape[1]):
                u = first * nodes[NODE_U1, m] + second * nodes[NODE_U2, m] - mean
                square = nodes[SHARE, m] * u * u
                variance += square
                third += square * u
            parts[e, s, 0] = mean
            parts[e, s, 1] = variance
            parts[e, s, 2] = third
    for e in range(effects):
        mixture(parts[e], out[e])


@jit(types.void(matrix, design_view, vector, f8, f8, types.Array(f8, 3, "C")))
def table_effects(thetas, places, constants, shift, scale, out):  # type: ignore[no-untyped-def]
    """Write the moments of the effects of groups of a table; see :func:`group_effects`.

    ``places`` (2, m) holds the first row and the number of rows of each group, ``constants``
    those of ``table_link.link``. ``out`` (m, effects, 4).
    """
    q = int(constants[0])
    own = constants[TABLE:]
    most = 0
    for g in range(places.shape[1]):
        most = max(most, int(places[1, g]))
    buffer = np.empty((q + 2) * most)
    responses = np.empty(most)
    for g in range(places.shape[1]):
        n = int(places[1, g])
        rows = buffer[: (q + 2) * n].reshape((q + 2, n))
        read_group(int(places[0, g]), constants, rows, responses[:n])
        group_effects(thetas, rows, responses[:n], own, shift, scale, out[g])
