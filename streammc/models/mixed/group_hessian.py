"""Hessian of a group with one effect from factors: logistic and Poisson, see ``group_sums``."""

from __future__ import annotations

import math

from numba import types

from streammc.models.mixed.group_derivatives import add_wide_blocks
from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    CURVES,
    EXPONENTIAL,
    FACTOR,
    FIRST,
    HIGHEST,
    NODE_U1,
    PATH,
    PLACE,
    RESPONSE,
    SHARE,
    TOTAL,
    WEIGHT,
    WORK1,
    WORK2,
)
from streammc.numerics.jit import design_view, jit, matrix, vector


@jit(types.void(design_view, vector, matrix, matrix, matrix, matrix), borrow=True, reassociate=True)
def louis_of_one(X, facts, rows, nodes, scores, hessian):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian into ``hessian`` (d + 2, d), as ``louis``.

    ``scores`` (d + 1, nodes) is scratch memory: the score of every node, and ``d^2 l / d u^2``.
    """
    d, size = hessian.shape[1], nodes.shape[1]
    share, u = nodes[SHARE], nodes[NODE_U1]
    hessian[:, :] = 0.0
    scores[:, :] = 0.0
    if facts[PATH] == BY_COUNTS:
        _counts(X, facts, rows, nodes, scores)
    else:
        _products(X, rows, nodes, scores)
    pull, bend = scores[d - 1], scores[d]
    gradient = hessian[d + 1]
    for m in range(size):
        if share[m] > 0.0:
            hessian[d - 1, d - 1] += share[m] * u[m] * (u[m] * bend[m] + pull[m])
            pull[m] *= u[m]
        else:
            for a in range(d):
                scores[a, m] = 0.0
    for a in range(d):
        total = 0.0
        for m in range(size):
            total += share[m] * scores[a, m]
        gradient[a] = total
    for a in range(d):
        for m in range(size):  # centred: nothing cancels in their covariance
            scores[a, m] -= gradient[a]
    for a in range(d):
        for b in range(a, d):
            total = 0.0
            for m in range(size):
                total += share[m] * scores[a, m] * scores[b, m]
            hessian[a, b] += total
    add_wide_blocks(X, rows, hessian, d - 1)


@jit(types.void(design_view, matrix, matrix, matrix), borrow=True, reassociate=True)
def _products(X, rows, nodes, scores):  # type: ignore[no-untyped-def]
    """Write the curves of logistic rows and the derivatives of each node."""
    d, size = scores.shape[0] - 1, nodes.shape[1]
    share, u, c = nodes[SHARE], nodes[NODE_U1], nodes[FACTOR]
    slopes, curves = nodes[WORK1], nodes[WORK2]
    pull, bend = scores[d - 1], scores[d]
    for m in range(size):
        if not share[m] > 0.0:
            u[m] = 0.0  # of padding: never NaN
    for i in range(rows.shape[1]):
        e, y = rows[EXPONENTIAL, i], rows[RESPONSE, i]
        curve = cross = 0.0
        for m in range(size):
            failure = 1.0 / (1.0 + e * c[m])
            slopes[m] = y - 1.0 + failure
            curves[m] = failure * failure - failure
            pull[m] += slopes[m]
            bend[m] += curves[m]
            curve += share[m] * curves[m]
            cross += share[m] * u[m] * curves[m]
        rows[CURVES, i] = curve
        rows[CURVES + 1, i] = cross
        place = int(rows[PLACE, i])
        for j in range(d - 1):
            x = X[j, place]
            score = scores[j]
            for m in range(size):
                score[m] += x * slopes[m]


@jit(types.void(design_view, vector, matrix, matrix, matrix), borrow=True)
def _counts(X, facts, rows, nodes, scores):  # type: ignore[no-untyped-def]
    """Write the curves of Poisson rows and the derivatives of each node."""
    d, size = scores.shape[0] - 1, nodes.shape[1]
    share, u, c = nodes[SHARE], nodes[NODE_U1], nodes[FACTOR]
    total = cross = 0.0
    for m in range(size):
        if not share[m] > 0.0:
            c[m] = u[m] = 0.0
            continue
        c[m] = math.exp(facts[HIGHEST] + u[m])
        total += share[m] * c[m]
        cross += share[m] * c[m] * u[m]
        rate = math.exp(facts[FIRST + 1] + u[m])
        scores[d - 1, m] = facts[TOTAL] - rate
        scores[d, m] = -rate
    for i in range(rows.shape[1]):
        rate = rows[WEIGHT, i] * rows[EXPONENTIAL, i]
        rows[CURVES, i] = -rate * total
        rows[CURVES + 1, i] = -rate * cross
        place = int(rows[PLACE, i])
        count = rows[WEIGHT, i] * rows[RESPONSE, i]
        for j in range(d - 1):
            scores[j, 0] += X[j, place] * count
            scores[j, 1] += X[j, place] * rate
    for j in range(d - 1):
        counted, expected = scores[j, 0], scores[j, 1]
        for m in range(size):
            scores[j, m] = counted - c[m] * expected
