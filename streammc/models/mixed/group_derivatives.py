"""Gradient and Hessian of a group's log-likelihood: the identities of Fisher and Louis.

With ``s_q`` the score of the group's rows and effects at node q and ``p_q`` its share,
``grad l = sum_q p_q s_q`` and ``grad^2 l = sum_q p_q (grad^2 at q + s_q s_q') - grad l grad l'``
(Louis 1982). Both are exact for the integral, so that they differ from the derivatives of the
quadrature by its error.
"""

from __future__ import annotations

import math

from numba import types

from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PRODUCTS,
    BY_SQUARES,
    CARRIER,
    CURVES,
    EXPONENTIAL,
    FACTOR,
    FIRST,
    HIGHEST,
    LEAST_SHARE,
    NODE_U1,
    NODE_U2,
    NODE_V1,
    NODE_V2,
    PATH,
    PLACE,
    RESPONSE,
    SHARE,
    SLOPES,
    TOTAL,
    WEIGHT,
    WORK1,
    rows_at,
)
from streammc.models.mixed.group_sums import (
    directions,
    gaussian_moments,
    gaussian_slopes,
    logistic_failures,
)
from streammc.numerics.jit import design_view, f8, i8, jit, matrix, vector


@jit(types.void(i8, vector, matrix, matrix, matrix, vector, matrix, matrix, vector), borrow=True)
def shared_gradient(groups, facts, rows, eta, terms, inner, nodes, turns, out):  # type: ignore[no-untyped-def]
    """Write the slopes of the rows; add the gradient in scalars and group parameters.

    ``out`` (s + groups,), zeros: the inner model's scalars, then the group parameters.
    """
    path, scalars = int(facts[PATH]), eta.shape[0] - 1
    if path == BY_PRODUCTS:
        _by_products(facts, rows, nodes, out)
        return
    rows[SLOPES, :] = 0.0
    mean1 = mean2 = rate = 0.0
    sums = nodes[WORK1]
    for m in range(nodes.shape[1]):
        share = nodes[SHARE, m]
        if not share > LEAST_SHARE:
            continue
        u1, u2 = nodes[NODE_U1, m], nodes[NODE_U2, m]
        pull1 = pull2 = 0.0
        if path == BY_COUNTS:
            relative = math.exp(facts[HIGHEST] + u1)
            rate += share * relative
            pull1 = facts[TOTAL] - math.exp(facts[FIRST + 1] + u1)
        elif path == BY_SQUARES:
            square = gaussian_moments(u1, u2, facts, sums)
            pull1, pull2 = sums[1], sums[2]
            mean1 += share * u1
            mean2 += share * u2
            out[0] += share * (square - facts[FIRST + 1])
        else:
            rows_at(u1, u2, facts, rows, eta, terms, inner, 1)
            for i in range(eta.shape[1]):
                slope = rows[WEIGHT, i] * terms[1, i]
                rows[SLOPES, i] += share * slope
                pull1 += slope
                pull2 += slope * rows[CARRIER, i]
            for k in range(scalars):
                for i in range(eta.shape[1]):
                    out[k] += share * rows[WEIGHT, i] * terms[2 + k, i]
        directions(nodes[NODE_V1, m], nodes[NODE_V2, m], facts, groups, turns)
        for a in range(groups):
            out[scalars + a] += share * (turns[a, 0] * pull1 + turns[a, 1] * pull2)
    if path == BY_COUNTS:
        for i in range(eta.shape[1]):
            expected = rows[EXPONENTIAL, i] * rate
            rows[SLOPES, i] = rows[WEIGHT, i] * (rows[RESPONSE, i] - expected)
    elif path == BY_SQUARES:
        gaussian_slopes(eta[1, 0] if eta.shape[1] else 0.0, mean1, mean2, rows)


@jit(types.void(vector, matrix, matrix, vector), borrow=True)
def _by_products(facts, rows, nodes, out):  # type: ignore[no-untyped-def]
    """Write the slopes of the rows and the derivative in log tau, from factors."""
    slopes, by_node = rows[SLOPES], nodes[WORK1]
    logistic_failures(rows[EXPONENTIAL], nodes[FACTOR], nodes[SHARE], slopes, by_node)
    n = rows.shape[1]
    for i in range(n):
        slopes[i] += rows[RESPONSE, i] - 1.0
    for m in range(nodes.shape[1]):
        if nodes[SHARE, m] > 0.0:
            pull = nodes[SHARE, m] * (facts[TOTAL] - n) + by_node[m]
            out[0] += nodes[NODE_U1, m] * pull


@jit(types.void(design_view, matrix, vector), borrow=True)
def times_design(X, rows, out):  # type: ignore[no-untyped-def]
    """Write ``X' slopes`` into ``out`` (q,)."""
    for j in range(out.shape[0]):
        out[j] = 0.0
    for i in range(rows.shape[1]):
        place, slope = int(rows[PLACE, i]), rows[SLOPES, i]
        for j in range(out.shape[0]):
            out[j] += X[j, place] * slope


@jit(
    types.void(design_view, vector, matrix, matrix, matrix, vector, matrix, matrix, matrix),
    borrow=True,
)
def louis(X, facts, rows, eta, terms, inner, nodes, turns, hessian):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian into ``hessian`` (d + 2, d).

    Its last rows become the score of a node and the gradient.
    """
    d = hessian.shape[1]
    scalars, p, n = eta.shape[0] - 1, eta.shape[0], eta.shape[1]
    groups = rows.shape[0] - CURVES - 1 - scalars
    q = d - scalars - groups
    score, gradient = hessian[d], hessian[d + 1]
    hessian[:, :] = 0.0
    rows[CURVES:, :] = 0.0
    for m in range(nodes.shape[1]):
        share = nodes[SHARE, m]
        if not share > LEAST_SHARE:
            continue
        rows_at(nodes[NODE_U1, m], nodes[NODE_U2, m], facts, rows, eta, terms, inner, 2)
        directions(nodes[NODE_V1, m], nodes[NODE_V2, m], facts, groups, turns)
        pull1, pull2 = _add_curves(share, rows, terms, p, groups, turns)
        for i in range(n):
            rows[SLOPES, i] = rows[WEIGHT, i] * terms[1, i]
        times_design(X, rows, score[:q])
        for k in range(scalars):
            score[q + k] = 0.0
            for i in range(n):
                score[q + k] += rows[WEIGHT, i] * terms[2 + k, i]
        for a in range(groups):
            score[q + scalars + a] = turns[a, 0] * pull1 + turns[a, 1] * pull2
        _shared_block(share, q, p, rows, terms, turns, hessian)
        at = 3
        for a in range(3):
            for b in range(a, 3):
                if b < groups:
                    bend = turns[at, 0] * pull1 + turns[at, 1] * pull2
                    hessian[q + scalars + a, q + scalars + b] += share * bend
                at += 1
        for a in range(d):
            gradient[a] += share * score[a]
            for b in range(a, d):
                hessian[a, b] += share * score[a] * score[b]
    for a in range(d):
        for b in range(a, d):
            hessian[a, b] -= gradient[a] * gradient[b]
    add_wide_blocks(X, rows, hessian, q)


@jit(types.UniTuple(f8, 2)(f8, matrix, matrix, i8, i8, matrix), borrow=True)
def _add_curves(share, rows, terms, p, groups, turns):  # type: ignore[no-untyped-def]
    """Add a node to the curves of the rows; return its derivatives in ``u``."""
    pull1 = pull2 = 0.0
    for i in range(rows.shape[1]):
        w, x = rows[WEIGHT, i], rows[CARRIER, i]
        pull1 += w * terms[1, i]
        pull2 += w * terms[1, i] * x
        curve = share * w * terms[1 + p, i]
        rows[CURVES, i] += curve
        for k in range(1, p):
            rows[CURVES + k, i] += share * w * terms[1 + p + k, i]
        for a in range(groups):
            rows[CURVES + p + a, i] += curve * (turns[a, 0] + turns[a, 1] * x)
    return pull1, pull2


@jit(types.void(f8, i8, i8, matrix, matrix, matrix, matrix), borrow=True)
def _shared_block(share, q, p, rows, terms, turns, hessian):  # type: ignore[no-untyped-def]
    """Add a node's second derivatives in scalars and group parameters, linear in ``u``."""
    d, n = hessian.shape[1], rows.shape[1]
    scalars = p - 1
    groups = d - q - scalars
    w11 = w12 = w22 = 0.0
    for i in range(n):
        w, x = rows[WEIGHT, i] * terms[1 + p, i], rows[CARRIER, i]
        w11 += w
        w12 += w * x
        w22 += w * x * x
    for a in range(groups):
        left = turns[a, 0] * w11 + turns[a, 1] * w12
        right = turns[a, 0] * w12 + turns[a, 1] * w22
        for b in range(a, groups):
            add = left * turns[b, 0] + right * turns[b, 1]
            hessian[q + scalars + a, q + scalars + b] += share * add
    at = 1 + 2 * p
    for k in range(scalars):
        k1 = k2 = 0.0
        for i in range(n):
            k1 += rows[WEIGHT, i] * terms[2 + p + k, i]
            k2 += rows[WEIGHT, i] * terms[2 + p + k, i] * rows[CARRIER, i]
        for a in range(groups):
            hessian[q + k, q + scalars + a] += share * (turns[a, 0] * k1 + turns[a, 1] * k2)
        for b in range(k, scalars):
            total = 0.0
            for i in range(n):
                total += rows[WEIGHT, i] * terms[at, i]
            hessian[q + k, q + b] += share * total
            at += 1


@jit(types.void(design_view, matrix, matrix, i8), borrow=True)
def add_wide_blocks(X, rows, hessian, q):  # type: ignore[no-untyped-def]
    """Add the second derivatives in beta and in everything."""
    for i in range(rows.shape[1]):
        place, curve = int(rows[PLACE, i]), rows[CURVES, i]
        for a in range(q):
            x = X[a, place]
            for b in range(a, q):
                hessian[a, b] += curve * x * X[b, place]
            for k in range(1, rows.shape[0] - CURVES):
                hessian[a, q + k - 1] += x * rows[CURVES + k, i]
